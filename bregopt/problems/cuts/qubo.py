"""Quadratic unconstrained binary optimization as a largest cut.

Let ``x_i`` be 1 where vertex ``i`` is on another side than one more vertex, ``0``, and let ``q_ij`` be the
sum of ``Q_ij`` and ``Q_ji``. Then ``x_i = c_0i`` and ``x_i x_j = (c_0i + c_0j - c_ij) / 2`` for the cut
variables ``c``. So ``x'Qx`` is minus the cut of the graph with the weights ``q_ij / 2`` and
``-Q_ii - sum_j q_ij / 2`` (Hammer 1965; De Simone 1990).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Executor
from fractions import Fraction
from typing import Any, Literal, Unpack

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, MatrixLike, finite_array
from bregopt.io.pandas_labels import labels_of
from bregopt.problems.cuts.cut import Cut, max_cut
from bregopt.problems.cuts.proof import Lattice
from bregopt.records import dataclass
from bregopt.rigorous.ball import UNIT, down
from bregopt.routes.base import Seed
from bregopt.routes.options import CutOptions
from bregopt.tables import html_table

__all__ = ["BinaryMinimum", "qubo"]


@dataclass(frozen=True, eq=False, repr=False)
class BinaryMinimum:
    """Binary numbers with a small ``x'Qx``, and a lower bound on all.

    Attributes
    ----------
    x : int array of shape (n,)
        Zeros and ones, in the order of `Q`; for a dict in the order of `sample`.
    sample : dict
        The number of each variable by its name.
    value : float
        ``x'Qx``.
    bound : float
        Proven: no binary numbers have a smaller value. All rounding errors are counted.
    optimal : bool
        Whether it is proven that no binary numbers have a smaller value.
    cut : Cut
        The cut that the numbers were found as; its largest weight is minus the smallest value, up to the
        rounding of weights.
    """

    x: IntArray
    sample: dict[Hashable, int]
    value: float
    bound: float
    optimal: bool
    cut: Cut

    @property
    def _facts(self) -> dict[str, str]:
        verdict = f"proven at least {self.bound:.8g}{', so optimal' if self.optimal else ''}"
        ones = f"{int(self.x.sum())} of {len(self.x)} variables are 1"
        return {"minimum": f"{self.value:.8g}, {verdict}", "x": ones}

    def __repr__(self) -> str:
        return "\n".join(f"{name:<9} {fact}" for name, fact in self._facts.items())

    def _repr_html_(self) -> str:
        return html_table((), list(self._facts.items()), left=2)


def qubo(
    Q: MatrixLike | Mapping[tuple[Hashable, Hashable], float],
    *,
    bound: Literal["auto", "sdp", "triangles", False] = "auto",
    exact: bool = False,
    executor: Executor | None = None,
    seed: Seed | None = 0,
    **options: Unpack[CutOptions],
) -> BinaryMinimum:
    """Return zeros and ones with a small ``x'Qx``, and a lower bound on all of them.

    Parameters
    ----------
    Q : array, sparse matrix or DataFrame of shape (n, n), or dict from pair of names to number
        Any square matrix, such as an upper triangular one. A dict has the linear terms at pairs of a name
        with itself, as in D-Wave's tools; entries ``(a, b)`` and ``(b, a)`` add up.
    bound, exact, executor, seed, **options
        As for :func:`max_cut`; with ``exact=True`` the numbers are proven to be best.

    Returns
    -------
    BinaryMinimum

    Raises
    ------
    TypeError, ValueError
        If `Q` is not square or not finite, a key is no pair, or an option is unknown.

    References
    ----------
    De Simone (1990), The cut polytope and the boolean quadric polytope, Discrete Math. 79.
    """
    i, j, values, names = _terms(Q)
    n = len(names)
    if n < 1:
        raise ValueError("Q has no variables; expected at least one")
    half = [Fraction(v) / 2 for v in values.tolist()]
    linear = [Fraction(0)] * n
    pairs: dict[tuple[int, int], Fraction] = {}
    for a, b, h in zip(i.tolist(), j.tolist(), half, strict=True):
        linear[a] += h
        linear[b] += h
        if a != b:
            pair = (min(a, b), max(a, b))
            pairs[pair] = pairs.get(pair, Fraction(0)) + h
    exact_weights = [-w for w in linear] + list(pairs.values())
    weights = np.array([float(w) for w in exact_weights])
    ends = [(0, v + 1) for v in range(n)] + [(a + 1, b + 1) for a, b in pairs]
    off = sum(
        (abs(w - Fraction(f)) for w, f in zip(exact_weights, weights.tolist(), strict=True)), Fraction(0)
    )
    tail, head = np.array(ends).T
    whole = sp.csr_array((weights, (tail, head)), (n + 1, n + 1))
    cut = max_cut(
        sp.csr_array(whole + whole.T), bound=bound, exact=exact, executor=executor, seed=seed, **options
    )
    x = (cut.partition[1:] != cut.partition[0]).astype(np.intp)
    value = sum(
        (Fraction(v) for v, a, b in zip(values.tolist(), i, j, strict=True) if x[a] and x[b]), Fraction(0)
    )
    least = min(-cut.bound - float(off) * (1 + 4 * UNIT), float(value))
    least = down(least) if off or Fraction(least) > value else least
    optimal = cut.optimal if not off else Lattice.of(values).proves(least, float(value), largest=False)
    return BinaryMinimum(x, dict(zip(names, x.tolist(), strict=True)), float(value), least, optimal, cut)


def _terms(Q: Any) -> tuple[IntArray, IntArray, Array, list[Hashable]]:
    """Return rows, columns and values of all terms, and the names of the variables."""
    if isinstance(Q, Mapping):
        names: dict[Hashable, int] = {}
        for key in Q:
            if not isinstance(key, tuple) or len(key) != 2:
                raise TypeError(f"Q has the key {key!r}; expected pairs of names, (a, a) for a linear term")
            for name in key:
                names.setdefault(name, len(names))
        values = finite_array(list(Q.values()), "Q") if Q else np.zeros(0)
        ends = np.array([(names[a], names[b]) for a, b in Q], dtype=np.intp).reshape(-1, 2)
        return ends[:, 0], ends[:, 1], values, list(names)
    labels = labels_of(Q, "Q")
    if sp.issparse(Q):
        terms = Q.tocoo()
        shape, i, j, values = terms.shape, terms.row, terms.col, finite_array(terms.data, "Q")
    else:
        array = finite_array(Q, "Q", ndim=2)
        i, j = np.nonzero(array)
        shape, values = array.shape, array[i, j]
    if shape[0] != shape[1]:
        raise ValueError(f"Q has shape {shape}; expected a square matrix")
    found = range(shape[0]) if labels is None else labels
    return i.astype(np.intp), j.astype(np.intp), values, list(found)
