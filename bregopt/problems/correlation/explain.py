"""Reasons why no correlation matrix meets a request: a fixed block, or three entries.

A block is a set of indices whose entries are all given, found in the pattern of given entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.problems.correlation.request import Request
from bregopt.records import dataclass, replace
from bregopt.routes.solution import Solution

__all__ = ["cliques", "explained", "impossible_triple", "least_block"]

_ROUND_OFF = 1e-10  # absolute round-off of the eigenvalues of blocks with unit diagonal
_LARGEST_BLOCKS = 5_000  # number of indices with fixed entries among which a block is searched for
_LARGEST_TRIPLES = 500  # the same for three entries, whose number is its cube
_WITHOUT_ANSWER = ("infeasible", "infeasible_inaccurate", "inaccurate", "user_limit")
_SHOWN = 6  # number of indices of a block in messages


def explained(solution: Solution, request: Request) -> Solution:
    """Return an answer; its reason names a fixed block or three entries that prove that no X exists.

    They are looked for where the problem is infeasible, or where a solver ends without finding out.
    """
    if solution.status not in _WITHOUT_ANSWER:
        return solution
    reason = _block_reason(request) or _triple_reason(request)
    if reason is None:
        return solution
    return replace(solution, stop_reason=reason)


def _block_reason(request: Request) -> str | None:
    """Return the reason that a block of fixed entries has an eigenvalue below the floor."""
    kept, labels, t = request.fixed, request.labels, request.floor
    touched, at = np.unique(np.concatenate([kept.i, kept.j]), return_inverse=True)
    if not 0 < len(touched) <= _LARGEST_BLOCKS:
        return None
    i, j = at.reshape(2, -1)
    unit = np.ones(len(touched)) if request.scale is None else request.scale[touched]
    C, mask = np.diag(unit**2), np.zeros((len(touched),) * 2, dtype=bool)
    C[i, j] = C[j, i] = kept.lo * unit[i] * unit[j]
    mask[i, j] = mask[j, i] = True
    block, least = least_block(mask, C)
    if least > t - _ROUND_OFF * float(unit.max() ** 2):
        return None
    block = touched[block]
    names = [_name(labels, k) for k in block[:_SHOWN]]
    diagonal = "a unit diagonal" if request.scale is None else "the variances"
    more = f" and {len(block) - _SHOWN} more" if len(block) > _SHOWN else ""
    return (
        f"No X meets the hard rows: fixed keeps all entries of {', '.join(names)}{more}, and with {diagonal} "
        f"this block has the eigenvalue {least:.3g}, below {t:g}. Fix fewer of its entries."
    )


@dataclass(frozen=True)
class Triple:
    """Two entries that force a third one beyond its upper bound.

    Parameters
    ----------
    i, j, k : int
        The entries are ``(i, k)``, ``(k, j)`` and, the third one, ``(i, j)``.
    least : float
        The value that entry ``(i, j)`` has at least.
    from_below : bool
        Whether the two entries force it by their lower bounds; otherwise by their upper ones.
    """

    i: int
    j: int
    k: int
    least: float
    from_below: bool


def impossible_triple(lower: Array, upper: Array) -> Triple | None:
    """Return the three entries of a correlation matrix that are furthest from possible; None without any.

    Entries are cosines of angles, and the angles of three vectors meet the inequalities of triangles and add
    up to at most ``2 pi``. For three entries no other condition is needed.

    Parameters
    ----------
    lower, upper : array of shape (n, n), symmetric, from -1 to 1
    """
    least, largest = np.arccos(np.clip(upper, -1, 1)), np.arccos(np.clip(lower, -1, 1))
    np.fill_diagonal(least, 0.0)
    np.fill_diagonal(largest, np.inf)
    found, excess = None, np.sqrt(_ROUND_OFF)
    for k in range(len(lower)):
        below = least - (largest[:, [k]] + largest[[k], :])
        around = least + (least[:, [k]] + least[[k], :]) - 2 * np.pi
        around[k] = around[:, k] = -np.inf
        np.fill_diagonal(around, -np.inf)
        for from_below, own in ((True, below), (False, around)):
            if own.max() > excess:
                i, j = (int(a) for a in np.unravel_index(int(own.argmax()), own.shape))
                ends = largest if from_below else least
                found = Triple(i, j, k, float(np.cos(ends[i, k] + ends[k, j])), from_below)
                excess = float(own.max())
    return found


def _triple_reason(request: Request) -> str | None:
    """Return the reason that three entries contradict each other."""
    rows = (request.fixed, request.bounded)
    touched = np.unique(np.concatenate([part for own in rows for part in (own.i, own.j)]))
    if not 3 <= len(touched) <= _LARGEST_TRIPLES:
        return None
    # (X - Diag(t)) / (1 - t) is a correlation matrix, too.
    root = np.sqrt(np.broadcast_to(1 - request.t, request.n))[touched]
    size = np.outer(root, root)
    lower, upper = -size, size.copy()
    for own in rows:
        i, j = np.searchsorted(touched, own.i), np.searchsorted(touched, own.j)
        lower[i, j] = lower[j, i] = np.maximum(own.lo, lower[i, j])
        upper[i, j] = upper[j, i] = np.minimum(own.hi, upper[i, j])
    triple = impossible_triple(lower / size, upper / size)
    if triple is None:
        return None
    unit = 1.0 if request.scale is None else np.outer(request.scale, request.scale)[np.ix_(touched, touched)]
    return _text(triple, touched, lower * unit, upper * unit, size * unit, request)


def _text(
    triple: Triple, touched: IntArray, lower: Array, upper: Array, size: Array, request: Request
) -> str:
    i, j, k = triple.i, triple.j, triple.k
    word, ends = ("at least", lower) if triple.from_below else ("at most", upper)

    def pair(a: int, b: int) -> str:
        first, second = sorted((int(touched[a]), int(touched[b])))
        return f"({_name(request.labels, first)}, {_name(request.labels, second)})"

    def entry(a: int, b: int) -> str:
        fixed = lower[a, b] == upper[a, b]
        return f"{pair(a, b)} {'fixed at' if fixed else word} {ends[a, b]:.4g}"

    floor = f" with min_eigenvalue {request.floor:g}" if request.floor else ""
    side = "it is fixed at" if lower[i, j] == upper[i, j] else "its upper bound is"
    return (
        f"No X meets the hard rows: entries {entry(i, k)} and {entry(k, j)} force entry {pair(i, j)} to be "
        f"at least {size[i, j] * triple.least:.4g}{floor}, but {side} {upper[i, j]:.4g}. Loosen one of "
        "these."
    )


def _name(labels: Any, k: int) -> str:
    return str(k if labels is None else labels[k])


def least_block(pattern: Mask, values: Array) -> tuple[IntArray, float]:
    """Return the given block with the least smallest eigenvalue, and this eigenvalue; infinity without any.

    Parameters
    ----------
    pattern : boolean array of shape (n, n), symmetric
        Mask of the given entries off the diagonal.
    values : array of shape (n, n), symmetric
        Valid on the diagonal and at the given entries.
    """
    blocks = list(cliques(pattern))
    least = [float(np.linalg.eigvalsh(values[np.ix_(block, block)])[0]) for block in blocks]
    return min(zip(blocks, least, strict=True), key=lambda pair: pair[1], default=(np.arange(0), np.inf))


def cliques(pattern: Mask) -> Iterator[IntArray]:
    """Yield sets of indices whose entries are all given.

    Vertices whose neighbors are all adjacent to each other are removed one by one (Fulkerson and Gross 1965,
    Incidence matrices and interval graphs). This finds every maximal block of a chordal pattern, such as
    diagonal blocks and bands. In other patterns it stops at the first cycles without chord.
    """
    near = pattern | np.eye(len(pattern), dtype=bool)
    left = np.ones(len(pattern), dtype=bool)
    found = True
    while found:
        found = False
        for i in np.flatnonzero(left):
            clique = np.flatnonzero(near[i] & left)
            if left[i] and near[np.ix_(clique, clique)].all():
                found = True
                yield clique
                left[clique] = near[np.ix_(clique, left)].sum(axis=1) > len(clique)
