"""A conic program with exponential cones, as rows with relative entropies.

An element ``(s_0, s_1, s_2)`` of the exponential cone, ``s_1 exp(s_0 / s_1) <= s_2``, is the convex row

    s_0 + s_1 log(s_1 / s_2) <= 0.

Its multiplier times the derivatives of that row is an element of the dual cone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array
from bregopt.cvxpy.conic.form import Conic
from bregopt.cvxpy.conic.readings import blocks_of, map_of
from bregopt.program import Block, Bounds, LinearMap, Program
from bregopt.program.convex_functions import NumbersRelativeEntropy
from bregopt.program.convex_terms import ConvexTerm

__all__ = ["Exponential", "too_large"]

# Exponential cones, and variables beside them, up to which a route takes them: its equations are dense.
_MOST_EXPONENTIALS, _MOST_VARIABLES = 300, 1_000


def too_large(conic: Conic) -> str | None:
    """Return why no route takes a program with exponential cones, None if one does."""
    count, variables = conic.exponential, len(conic.c)
    many = count > _MOST_EXPONENTIALS or (count and variables > _MOST_VARIABLES)
    return f"it has {count} exponential cones and {variables} variables" if many else None


class Exponential:
    """(P) with a free variable for each ``x``, and ``s`` in second-order cones and matrices.

    Parameters
    ----------
    conic : Conic
        With exponential cones.
    """

    dual: ClassVar[bool] = False

    def __init__(self, conic: Conic) -> None:
        self._conic = conic
        A, b, count, k = conic.A, conic.b, conic.exponential, conic.A.shape[1]
        self._first = first = len(b) - 3 * count
        cones, psd = np.arange(conic.linear, conic.first_psd), np.arange(conic.first_psd, first)
        in_s = sp.csr_array((np.ones(len(cones)), (cones, np.arange(len(cones)))), (first, len(cones)))
        none = sp.csr_array((count, len(cones)))
        B = sp.hstack([sp.vstack([A[:first], -A[first::3]]), sp.vstack([in_s, none])], format="csr")
        hi = np.concatenate([b[:first], -b[first::3]])
        lo = hi.copy()
        lo[conic.zero : conic.linear] = lo[first:] = -np.inf
        m = first + count
        blocks: tuple[Block, ...] = ()
        A_map = LinearMap(m, (), ())
        if conic.orders:
            blocks = blocks_of(conic, np.zeros(len(psd)))
            A_map = map_of(conic, m, psd, np.arange(len(psd)), conic.places.weight)
        self.program = Program(
            blocks=blocks,
            A=A_map,
            B=sp.csr_array(B),
            bounds=Bounds.of_hard_rows(lo, hi),
            c=np.concatenate([conic.c, np.zeros(len(cones))]),
            u_lo=np.full(k + len(cones), -np.inf),
            u_hi=np.full(k + len(cones), np.inf),
            offset=conic.stated_constant,
            cones=conic.cones(k),
            terms=(_term(conic, first, len(cones)),),
        )

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        return u[: len(self._conic.c)]

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, or of a Farkas vector of tangents at `u`."""
        A, b, first = self._conic.A, self._conic.b, self._first
        z = np.zeros(len(b))
        z[:first] = -y[:first]
        _, s, t = (b - A @ self.x(S, u, y))[first:].reshape(-1, 3).T
        ratio = np.maximum(s, TINY) / np.maximum(t, TINY)
        z[first:] = (y[first:] * np.array([np.ones_like(ratio), np.log(ratio) + 1, -ratio])).T.ravel()
        return z


def _term(conic: Conic, first: int, others: int) -> ConvexTerm:
    """Return the relative entropies of the rows."""
    own = np.arange(first, len(conic.b)).reshape(-1, 3)
    pairs = np.concatenate([own[:, 1], own[:, 2]])
    B = sp.hstack([-conic.A[pairs], sp.csr_array((len(pairs), others))], format="csr")
    return ConvexTerm(
        NumbersRelativeEntropy(len(own)),
        LinearMap(len(pairs), conic.orders, ()),
        sp.csr_array(B),
        conic.b[pairs],
        np.ones(len(own)),
        np.arange(first, first + len(own)),
    )
