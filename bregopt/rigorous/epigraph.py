"""The epigraph of convex terms, so that a certificate has both bounds.

A certificate has a linear problem. Tangents of the terms prove the lower bound, but a point on them need not
be feasible, and its value is no upper bound. With the epigraph both sides are those of one problem,

    minimize t  subject to  t >= c'x + sum_k f_k(y_k),  t >= tangent(x),
                            h_i >= a_i'x + sum_k g_ik(y_k),  h_i >= tangent_i(x),  and the other rows,

of which tangents follow from terms, and the lower bound needs only the tangents. The last rows of the data
have no ends: ``t - c'x`` and the arguments of its terms, then ``h_i - a_i'x`` and those of its terms, for
each ``i``. A variable that is 1 has their constants.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.program import Penalty, Program
from bregopt.program.convex_functions import (
    Exponential,
    Logistic,
    LogSumExp,
    NegativeEntropy,
    NumbersRelativeEntropy,
)
from bregopt.program.convex_terms import row_vectors
from bregopt.program.matrix_entropies import EntropySum, RelativeEntropy, TraceLog
from bregopt.records import replace
from bregopt.rigorous.ball import UNIT, Ball, inflated, up
from bregopt.rigorous.data import Data, MatrixData
from bregopt.rigorous.reduction import implied_bounds
from bregopt.rigorous.schema import Fields
from bregopt.rigorous.tangents import Image, components, value_of
from bregopt.rigorous.upper import Point, activities

__all__ = ["StatedTerm", "in_epigraph", "packed_terms", "read_terms", "with_epigraph"]

KINDS: dict[str, type] = {
    "entropy": EntropySum,
    "relative entropy": RelativeEntropy,
    "entropy of numbers": NegativeEntropy,
    "relative entropy of numbers": NumbersRelativeEntropy,
    "exponential": Exponential,
    "logistic": Logistic,
    "logarithm of a sum": LogSumExp,
    "trace of a logarithm": TraceLog,
}  # of functions that files state

_SIGNED = ("entropy", "trace of a logarithm")  # whose weights may be negative
_SUM = "sum"  # of the terms that follow, which is no more than its row

_LARGEST = 2_000_000  # coefficients, dense, of the data with arguments
_WIDER = 1e-3  # of the ends of a box, by which it grows
_MATRICES = ("entropy", "relative entropy", "trace of a logarithm")


class StatedTerm(NamedTuple):
    """A term, whose arguments are rows, or the row that bounds the sum of those that follow.

    Parameters
    ----------
    kind : str
        One of `KINDS`, or a sum.
    weights : array
        Of each matrix for entropies, of one function for relative ones, else of each number or group. For
        ``-tr R R' log Y`` the entries of ``R`` come next. A sum has none.
    orders : tuple of int
        Of the matrices, all of whose entries are arguments; for logarithms of sums the size of a group.
    """

    kind: str
    weights: Array
    orders: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of arguments."""
        if self.kind == _SUM:
            return 1
        if self.kind in _MATRICES:
            return sum(n * n for n in self.orders)
        factor = 2 if self.kind == "relative entropy of numbers" else sum(self.orders) or 1
        return factor * len(self.weights)

    def value(self, y: Ball) -> float:
        """Return an upper bound at all arguments in intervals, infinite where they may leave the domain."""
        weight, count = np.ones(1), len(self.weights)
        if self.kind == "entropy":
            function: Any = KINDS[self.kind](self.orders, tuple(self.weights.tolist()), False)
        elif self.kind == "relative entropy":
            function, weight = KINDS[self.kind](self.orders, False), self.weights
        elif self.kind == "trace of a logarithm":
            function, weight = TraceLog(np.eye(self.orders[0]), False), self.weights[:1]
            vars(function)["factor"] = self.weights[1:].reshape(self.orders[0], -1)
        else:
            function, weight = KINDS[self.kind](count, *self.orders), self.weights
        return value_of(function, y, weight)


class _Group(NamedTuple):
    """A linear function whose negative bounds terms: matrices, coefficients of variables and a constant."""

    matrices: list[Array]
    c: Array
    constant: float
    images: list[Image]


def _groups(program: Program) -> tuple[list[_Group], tuple[StatedTerm, ...]]:
    """Return the sums of the objective and of each row with terms, and how a file states these."""
    names = {function: kind for kind, function in KINDS.items()}
    own: dict[int | None, list[Any]] = {None: []}
    for term, row in components(program):
        own.setdefault(row, []).append(term)
    groups, stated = [], []
    for row, terms in own.items():
        images = [Image(term) for term in terms]
        if row is None:
            costs = [np.ravel(block.C) for block in program.blocks]
            groups.append(_Group(costs, program.c, program.offset, images))
        else:
            A = [row_vectors(program.A, b)[[row]].toarray()[0] for b in range(len(program.blocks))]
            B, end = program.B[[row]].toarray()[0], float(program.bounds.hi[row])
            groups.append(_Group(A, B, -end, images))
        stated.append(StatedTerm(_SUM, np.zeros(0), ()))
        stated += [
            StatedTerm(names[type(term.function)], *image.stated(term.weight))
            for term, image in zip(terms, images, strict=True)
        ]
    return groups, tuple(stated)


def with_epigraph(program: Program, data: Data) -> tuple[Data, tuple[StatedTerm, ...]] | None:
    """Return the epigraph of convex terms with their tangents, None where a certificate has no form for it.

    Parameters
    ----------
    program : Program
        With convex terms.
    data : Data
        Of its tangent program; the rows are the same.
    """
    if any(block.anchor is not None for block in data.matrices) or (data.kind != int(Penalty.HARD)).any():
        return None
    groups, terms = _groups(program)
    count = 1 + sum(term.size for term in terms)
    columns = sum(block.n * (block.n + 1) // 2 for block in data.matrices) + data.k + 2
    if (data.m + count) * columns > _LARGEST:
        return None
    costs = [block.C for block in data.matrices]
    blocks = [_block(block, groups, b) for b, block in enumerate(data.matrices)]
    end = Ball.exact(np.zeros((count, 2)))
    end.mid[:2, 1] = 1.0
    mids, rads, place = [-data.c.mid[None]], [data.c.rad[None]], 1
    for group in groups:
        mids.append(-group.c[None])
        rads.append(np.zeros_like(group.c)[None])
        end.mid[place, 0] = -group.constant
        place += 1
        for image in group.images:
            own = slice(place, place + len(image.constant.mid))
            end.mid[own, 0], end.rad[own, 0] = image.constant.mid, image.constant.rad
            mids.append(image.of_variables[0].toarray())
            rads.append(image.of_variables[1].toarray())
            place = own.stop
    own_rows = Ball(np.hstack([np.vstack(mids), end.mid]), np.hstack([np.vstack(rads), end.rad]))
    ones = sp.csr_array((np.ones(data.k), (np.arange(data.k), np.arange(data.k))), (data.k, data.k + 2))
    B, B_rad = _followed(data.B, data.B_rad, ones, own_rows)
    # Rows with radii imply no boxes; these are implied by rows without, and have room for points inside.
    implied = implied_bounds(data)
    wider = np.where(data.in_cone, np.inf, _WIDER * (np.abs(implied.u_lo) + np.abs(implied.u_hi)))
    least = UNIT**3 * max(float(np.abs(part.mid).max(initial=0.0)) for part in (data.c, *costs))
    low = -least if 0 < abs(data.offset) < least else data.offset  # lower, of fewer digits
    free, zero = np.full(count, np.inf), np.zeros(count)
    found = replace(
        data,
        matrices=tuple(blocks),
        B=B,
        B_rad=B_rad,
        c=Ball.exact(np.append(np.zeros(data.k + 1), 1.0)),
        u_lo=np.append(np.maximum(data.u_lo, implied.u_lo - wider), [1.0, -np.inf]),
        u_hi=np.append(np.minimum(data.u_hi, implied.u_hi + wider), [1.0, np.inf]),
        lo=np.concatenate([data.lo, [low], -free[1:]]),
        hi=np.append(data.hi, free),
        lo_rad=np.append(data.lo_rad, zero),
        hi_rad=np.append(data.hi_rad, zero),
        kind=np.append(data.kind, np.full(count, int(Penalty.HARD))),
        weight=np.append(data.weight, free),
        offset=0.0,
    )
    return found, terms


def _block(block: MatrixData, groups: list[_Group], b: int) -> MatrixData:
    """Return a matrix with the rows of the tangent, and those of sums and of arguments."""
    n, p = block.n, block.n * (block.n + 1) // 2
    i, j = np.triu_indices(n)
    place = block.i * n - block.i * (block.i - 1) // 2 + block.j - block.i
    moved = sp.csr_array((np.ones(len(place)), (np.arange(len(place)), place)), (len(place), p))
    whole = []
    for group in groups:
        whole.append((-group.matrices[b][None], np.zeros((1, n * n))))
        whole += [tuple(part.toarray() for part in image.maps[b]) for image in group.images]
    M, rad = (np.vstack(part) for part in zip(*whole, strict=True))
    off = i != j
    first, second = M[:, i * n + j], M[:, j * n + i] * off
    mid = first + second  # exact for two equal ones
    radius = rad[:, i * n + j] + rad[:, j * n + i] * off + 2 * UNIT * np.abs(mid) * (off & (first != second))
    tangent = [(part @ moved)[None] for part in (-block.C.mid, block.C.rad)]
    own = Ball(np.vstack([tangent[0], mid]), np.vstack([tangent[1], inflated(radius)]))
    A, A_rad = _followed(block.A, block.A_rad, moved, own)
    return replace(block, i=i, j=j, A=A, A_rad=A_rad, C=Ball.exact(np.zeros(p)))


def _followed(A: Any, rad: Any, moved: Any, own: Ball) -> tuple[Any, Any]:
    """Return rows with moved columns, followed by others, and radii at the same places."""
    mid = np.vstack([(A @ moved).toarray(), own.mid])
    radius = np.vstack([np.zeros(A.shape) @ moved if rad is None else (rad @ moved).toarray(), own.rad])
    # Radii of the least double would need a thousand digits in a file.
    least = UNIT**3 * np.abs(mid).max(axis=1, initial=0.0, keepdims=True)
    radius = np.where(radius > 0, np.maximum(radius, least), 0.0)
    row, column = np.nonzero((mid != 0) | (radius != 0))
    ends = np.searchsorted(row, np.arange(len(mid) + 1))
    values = (part[row, column] for part in (mid, radius))
    found = [sp.csr_array((value, column, ends), mid.shape) for value in values]
    return found[0], found[1] if radius.any() else None


def in_epigraph(data: Data, terms: tuple[StatedTerm, ...], point: Point) -> bool:
    """Whether all points near a point, that solve its equations, are proven in the epigraph."""
    start = data.m - sum(term.size for term in terms)
    y, ends, totals = activities(data, point), [], []
    for term in terms:
        own = y[start : start + term.size]
        if term.kind == _SUM:
            ends.append(float(own.lo[0]))
            totals.append(0.0)
        else:
            totals[-1] = up(totals[-1] + term.value(own))
        start += term.size
    return all(total <= end for total, end in zip(totals, ends, strict=True))


# --- Files


def packed_terms(terms: tuple[StatedTerm, ...]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return terms as named arrays, and a list of facts."""
    arrays: dict[str, Any] = {f"term_weights{k}": term.weights for k, term in enumerate(terms)}
    arrays |= {f"term_orders{k}": np.array(term.orders, dtype=int) for k, term in enumerate(terms)}
    return arrays, [{"kind": term.kind} for term in terms]


def read_terms(fields: Fields, data: Data) -> tuple[StatedTerm, ...]:
    """Return the terms of a file, none where it has none."""
    found: list[StatedTerm] = []
    kinds = (_SUM, *KINDS)
    for k, own in enumerate(fields.parts("terms") if "terms" in fields else ()):
        kind = own.fact("kind", lambda kind: isinstance(kind, str) and kind in kinds, " or ".join(kinds))
        own.finish_facts()
        weights = fields.floats(f"term_weights{k}", (None,), least=-math.inf if kind in _SIGNED else 0.0)
        orders = tuple(fields.integers(f"term_orders{k}", (None,), 1, max(data.m, 1)).tolist())
        counts = {"entropy": len(weights), "relative entropy": 2}
        counts |= dict.fromkeys(("logarithm of a sum", "trace of a logarithm"), 1)
        right = len(orders) == counts.get(kind, 0) and (kind == "entropy" or len(set(orders)) <= 1)
        right &= kind != "relative entropy" or len(weights) == 1
        right &= kind != "trace of a logarithm" or (len(weights) > 1 and (len(weights) - 1) % orders[0] == 0)
        if not right or (kind == _SUM) != (not len(weights)) or (kind != _SUM and not found):
            raise fields.error(f"term_orders{k}", orders, f"the orders of the arguments of its {kind}")
        found.append(StatedTerm(kind, weights, orders))
    if found and sum(term.size for term in found) >= data.m:
        raise fields.error("terms", len(found), "terms whose arguments are rows, after that of the objective")
    return tuple(found)
