"""Newton's linear system in the fewer unknowns: the multipliers of the rows or the entries of ``X``.

With ``T(S) = sym(X S K)`` in every block, for the primal-dual step ``K = inv(Z)``, the step solves

    dX = G + T(A*(dy)),     G = w K - X + sym(K R),
    A(dX) + B du + D dy = r,
    du + D_u dz = r_u,      B'dy + dz = q;

where ``dz`` is zero for a free variable, and ``D_u`` is diagonal but for second-order cones. In the rows the
system is ``(A T A* + D + B D_u B') dy = ...``, bordered by the columns of free variables, and sparse if each
of many blocks meets few rows (:mod:`bregopt.routes.ipm.sparse_row_system`). In the entries of one block, if
no ``D`` is zero, it is ``inv(T) dX + A*(inv(D) A(dX)) = ...``, in coordinates in which ``X`` is the identity
and ``K`` diagonal, so that ``T`` is an entrywise product.
"""

from __future__ import annotations

from typing import Any

from bregopt.arrays import Mask
from bregopt.routes.ipm.plan import Plan, System
from bregopt.routes.ipm.row_system import RowSystem
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["system_for"]

# The same if rows have ``D = 0``, which require a formed system.
_LARGEST_BORDERED = 6_000
# Products with all rows that conjugate gradients take, to compare their cost with a factorization's.
_ITERATED_PRODUCTS = 100


# Pays on: 300 triplets.
# Pays on: 100 matrices in a chain.
def system_for(
    plan: Plan,
    B: Any,
    exact: Mask,
    tuning: InteriorPointTuning,
    in_rows: bool = False,
    direct: bool = False,
) -> System:
    """Return the system with fewer unknowns.

    Parameters
    ----------
    plan : Plan
    B : csr_array of shape (m, k)
    exact : boolean array of shape (m,)
        Marks the rows with ``D = 0``, the hard equalities.
    tuning : InteriorPointTuning
    in_rows : bool
        Whether the unknowns have to be the multipliers, as with fixed variables, second-order cones or faces.
    direct : bool
        Whether the system is always factorized; otherwise very many rows are left to conjugate gradients.
    """
    A = plan.A
    several = len(A.orders) > 1
    if several and direct and not in_rows:
        from bregopt.routes.ipm.sparse_row_system import SparseRowSystem  # only several matrices wait

        sparse = SparseRowSystem.of(plan, B, tuning)
        if sparse is not None:
            return sparse
    if in_rows or several:
        return RowSystem(plan, B, tuning, direct)
    (n,), k, m = A.orders, B.shape[1], A.m
    equalities = int(exact.sum())
    # Operations a row: the products of conjugate gradients on the left, a factorization on the right.
    iterated = not direct and k == equalities == 0 and 2 * _ITERATED_PRODUCTS * n**2 < m**2 / 3
    entries = n * (n + 1) // 2
    fewer = entries + k + equalities < m and (equalities == 0 or entries <= _LARGEST_BORDERED)
    if fewer or iterated:
        from bregopt.routes.ipm.entry_system import EntrySystem  # only many rows wait

        return EntrySystem(A, B, exact, tuning)
    return RowSystem(plan, B, tuning, direct)
