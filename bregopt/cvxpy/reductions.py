"""What goes before a conic program is read: repeated rows, implied matrices, better cones, Hermitian copies.

With a matrix that another one implies the solution set has no interior. Elements of second-order cones that
are equal up to sign are no contradiction to that, but each costs a row.

CVXPY states Hermitian matrices as real ones of twice the order. The Hermitian matrix ``Y + i Z`` is psd if
the real one ``[[Y, -Z], [Z, Y]]`` is. The real matrices of this form are those with ``J S J' = S``, for
``J = [[0, -I], [I, 0]]``. Read directly, such a matrix has a row for each pair of entries that are equal, or
equal up to sign: 3,600 at order 60, beside 240 of phase retrieval.

No such row is needed. Let each variable of such matrices have two copies, one in the first entry of each
pair and one in the second, and let their mean replace it elsewhere. Then ``S`` may be any psd matrix. Its
mean with ``J S J'`` is psd, too, and is the matrix of the means of copies. Multipliers ``z`` of the program
with copies meet the equations of both copies, so they meet their sum, which is that of the variable.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cvxpy.conic_program import Conic, triangle
from bregopt.linalg import csr_of, rows_at
from bregopt.presolve.svec import alike, orientation
from bregopt.program.bounds import boost_factor
from bregopt.records import kept, replace

_PSD_TOL = 1e-14  # relative to a matrix's norm: how far below zero an eigenvalue of a psd matrix may be
_SAME = 1e-13  # relative to the largest number: numbers that differ by less are equal up to round-off


class Parallel(NamedTuple):
    """The linear rows that are multiples of another one, apart from their right-hand sides.

    Parameters
    ----------
    rows : int array
    group : int array
        A number for each, the same for parallel rows.
    size : array
        Their first entries.
    """

    rows: IntArray
    group: IntArray
    size: Array


@kept  # with the rows of a problem that is solved again
def parallel_rows(conic: Conic) -> Parallel:
    """Return the linear rows that are multiples of another one."""
    start = conic.A.indptr[: conic.linear + 1]
    column, entry = conic.A.indices[: start[-1]], conic.A.data[: start[-1]]
    used = np.flatnonzero(np.diff(start))
    size = entry[start[used]]
    place = np.repeat(np.arange(len(used)), np.diff(start)[used])
    scaled = entry / size[place]
    # Parallel rows have the same sum with random weights, others almost surely not.
    weights = np.random.default_rng(0).uniform(1.0, 2.0, conic.A.shape[1])
    key = np.bincount(place, scaled * weights[column], len(used))
    order = np.argsort(key, kind="stable")
    round_off = _SAME * np.bincount(place, np.abs(scaled), len(used))
    apart = np.diff(key[order], prepend=-np.inf) > round_off[order]
    group = np.empty(len(used), dtype=np.intp)
    group[order] = np.cumsum(apart) - 1
    several = np.flatnonzero(np.bincount(group)[group] > 1)
    if not len(several):
        return Parallel(several, several, np.zeros(0))
    first = order[np.flatnonzero(apart)]
    rows = sp.csr_array((scaled, column, start), (conic.linear, conic.A.shape[1]))[used]
    own, group = rows[several], group[several]
    left, most = (abs(part).max(axis=1).todense() for part in (own - rows[first[group]], own))
    same = np.ravel(left <= _SAME * most)
    return Parallel(used[several[same]], group[same], size[several[same]])


def _leaders(conic: Conic, parallel: Parallel) -> IntArray:
    """Return, for each parallel row, the place of the first one that says the same."""
    rows, group, size = parallel
    kind = np.where(rows < conic.zero, 0.0, np.sign(size))
    said = np.array([group, kind, conic.b[rows] / size])
    _, first, of = np.unique(said, axis=1, return_index=True, return_inverse=True)
    return first[np.ravel(of)]


class NeededRows(NamedTuple):
    """A program without repeated rows and implied matrices, in better coordinates of its cones.

    CVXPY bounds both of two mirrored entries, which are equal. Presolve finds the tightest of several bounds.

    Parameters
    ----------
    given, conic : Conic
        The whole program, and this one.
    kept : boolean array
        Marks the needed rows of `given`.
    leaders : int array
        For each of its parallel rows, the place of the first one that says the same.
    back : csr_array, optional
        It maps the right-hand sides of the needed rows to those of `conic`; None for the identity.
    distribution : csr_array, optional
        It maps the multipliers of `conic` to those of `given`; None for the identity.
    """

    given: Conic
    conic: Conic
    kept: Mask
    leaders: IntArray
    back: Any
    distribution: Any

    def with_numbers_of(self, given: Conic) -> NeededRows:
        """Return the same rows and coordinates of a program that differs in its numbers ``b`` and ``c``."""
        b = given.b[self.kept]
        conic = self.conic.with_numbers(b if self.back is None else self.back @ b, given.c)
        return self._replace(given=given, conic=conic)


def needed_rows(conic: Conic, known: NeededRows | None = None) -> NeededRows:
    """Return the program of the needed rows; a `known` one of the same ``A`` leaves what does not change."""
    parallel, kept, leaders = parallel_rows(conic), _needed_matrices(conic), np.zeros(0, dtype=np.intp)
    if len(parallel.rows):
        leaders = _leaders(conic, parallel)
        kept[parallel.rows[leaders != np.arange(len(leaders))]] = False
    if not conic.soc and kept.all():
        return NeededRows(conic, conic, kept, leaders, None, None)
    if known is not None and known.given.A is conic.A:
        of_cones = slice(conic.linear, conic.first_psd)
        before, now = (known.kept, known.leaders, known.given.b[of_cones]), (kept, leaders, conic.b[of_cones])
        if all(map(np.array_equal, before, now)):
            return known.with_numbers_of(conic)
    smaller, turned, back = _in_other_coordinates(_with_rows(conic, kept))
    shared = None if kept.all() else _distribution(parallel, leaders, kept)
    if turned is not None:
        shared = turned if shared is None else sp.csr_array(shared @ turned)
    return NeededRows(conic, smaller, kept, leaders, back, shared)


def _distribution(parallel: Parallel, leaders: IntArray, kept: Mask) -> Any:
    """Return the matrix that maps multipliers of the kept rows to multipliers of all rows.

    Rows that say the same, such as those of two mirrored entries, get equal parts.

    Returns
    -------
    csr_array of shape (m, rows kept)
    """
    rows, _, size = parallel
    source, share = np.arange(len(kept)), np.ones(len(kept))
    source[rows] = rows[leaders]
    share[rows] = size[leaders] / (size * np.bincount(leaders, minlength=len(rows))[leaders])
    own = np.flatnonzero(kept[source])
    place = np.cumsum(kept) - 1
    return sp.csr_array((share[own], (own, place[source[own]])), (len(kept), int(kept.sum())))


def _with_rows(conic: Conic, kept: Mask) -> Conic:
    """Return the program of the kept rows; of each matrix all rows or none are kept."""
    if kept.all():
        return conic
    return Conic(
        A=conic.A[np.flatnonzero(kept)],
        b=conic.b[kept],
        c=conic.c,
        zero=int(kept[: conic.zero].sum()),
        nonneg=int(kept[conic.zero : conic.linear].sum()),
        soc=conic.soc,
        orders=tuple(n for n, span in zip(conic.orders, conic.spans, strict=True) if kept[span.start]),
        log_dets=tuple(w for w, span in zip(conic.log_dets, conic.spans, strict=False) if kept[span.start]),
    )


def _needed_matrices(conic: Conic) -> Mask:
    """Return the mask of the rows without matrices ``B - A(x)`` that are another one plus a psd matrix.

    This happens when a psd variable is required to be psd again, or to exceed a multiple of the identity. A
    matrix with a log-determinant stays.
    """
    kept, A = np.ones(len(conic.b), dtype=bool), conic.A
    if len(conic.orders) == 1:
        return kept
    alike: dict[tuple[Any, ...], list[int]] = {}
    S = conic.matrices(conic.b[conic.first_psd :])
    for b, span in enumerate(conic.spans):
        ends = A.indptr[span.start : span.stop + 1]
        own = slice(ends[0], ends[-1])
        others = alike.setdefault(
            (A.data[own].tobytes(), A.indices[own].tobytes(), np.diff(ends).tobytes()), []
        )
        stays = any(conic.log_dets[b : b + 1])
        if not stays and any(_psd(S[b] - S[other]) for other in others):
            kept[span] = False
            continue
        implied = [k for k in others if not any(conic.log_dets[k : k + 1]) and _psd(S[k] - S[b])]
        for other in implied:
            kept[conic.spans[other]] = False
            others.remove(other)
        others.append(b)
    return kept


def _psd(S: Array) -> bool:
    return bool(np.linalg.eigvalsh(S)[0] >= -_PSD_TOL * np.linalg.norm(S))


# --- Coordinates of second-order cones ----------------------------------------------------------------------


class Coordinates(NamedTuple):
    """Vectors ``s`` of second-order cones by ``w = S's``, also in such cones; the dual of ``s`` is ``S z``.

    Parameters
    ----------
    S : csr_array
        The dual of ``w`` is ``z``.
    dimensions : int array
        Of the ``w``.
    """

    S: Any
    dimensions: IntArray

    @property
    def back(self) -> Any:
        """``S'``: the ``w`` of vectors, and the rows of the ``w``."""
        return self.S.T.tocsr()


def coordinates_of(rows: Any, dimensions: IntArray) -> Coordinates | None:
    """Return better coordinates of vectors in second-order cones.

    Elements that are equal up to sign, such as mirrored ones, become one, times the root of their number,
    which leaves the norm: that of a symmetric matrix has each element off its diagonal twice. The cone of
    ``||x||^2 <= t``, which CVXPY writes as ``(1 + t, 1 - t, 2 x)``, becomes ``(r + t / r, r - t / r, 2 x)``.

    Parameters
    ----------
    rows : csr_array of shape (sum(dimensions), width)
        The coefficients and the constant of each element, the axis of a vector first.
    dimensions : int array
        Of the vectors.

    Returns
    -------
    Coordinates or None
        None if those that are given are as good.
    """
    if not len(dimensions):
        return None
    rows = sp.csr_array(rows, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    shorter = _without_copies(rows, dimensions)
    if shorter is None:
        boost = _boost(rows, dimensions)
        return None if boost is None else Coordinates(boost, dimensions)
    boost = _boost(shorter.back @ rows, shorter.dimensions)
    return shorter if boost is None else shorter._replace(S=sp.csr_array(shorter.S @ boost))


def _without_copies(rows: Any, dimensions: IntArray) -> Coordinates | None:
    """Return vectors by each of their elements once, None if no elements are equal up to sign."""
    owner, axis = np.repeat(np.arange(len(dimensions)), dimensions), np.zeros(rows.shape[0])
    axis[np.cumsum(dimensions) - dimensions] = 1.0
    sign = orientation(rows)
    group = alike(rows, sign, axis, owner)
    if group is None:
        return None
    _, leader, of = np.unique(group, return_index=True, return_inverse=True)
    kept = np.sort(leader)
    place = np.searchsorted(kept, leader)[np.ravel(of)]
    value = sign * sign[kept][place] / np.sqrt(np.bincount(place))[place]
    S = sp.csr_array((value, place, np.arange(len(value) + 1)), (len(value), len(kept)))
    return Coordinates(S, np.bincount(owner[kept], minlength=len(dimensions)))


# Pays on: squares of a matrix below a variable, n = 60.
def _boost(rows: Any, dimensions: IntArray) -> Any:
    """Return the Lorentz boosts that make both factors of rotated cones equally large, None for none.

    In a rotated cone the axis plus or minus another element is a constant ``q > 0``. Their difference
    times their sum is at least the square of the norm of the others. A boost makes ``f q`` of one and
    divides the other by ``f``.
    """
    start, owner = np.cumsum(dimensions) - dimensions, np.repeat(np.arange(len(dimensions)), dimensions)
    of_row, weights = np.arange(len(owner)).repeat(np.diff(rows.indptr)), np.zeros(rows.shape[1])
    last = rows.indices == len(weights) - 1
    constant = np.bincount(of_row[last], rows.data[last], len(owner)).astype(float)
    weights[:-1] = np.random.default_rng(0).uniform(1.0, 2.0, len(weights) - 1)
    label = rows @ weights
    same = np.isclose(np.abs(label), np.abs(label[start])[owner]) & (label != 0)
    same[start] = False
    if not same.any():
        return None
    at = np.flatnonzero(same)
    cone, first = np.unique(owner[at], return_index=True)
    axis, at = start[cone], at[first]
    sign = np.sign(label[axis] * label[at])
    apart = abs(rows_at(rows, axis) - rows_at(rows, at, sign))[:, :-1].sum(axis=1)
    q, square = constant[axis] - sign * constant[at], constant**2
    square[axis] = square[at] = 0.0
    size = np.sqrt(np.bincount(owner, square, len(dimensions)))[cone]
    chosen = np.flatnonzero((apart == 0) & (q > 0) & (size > 0))
    axis, at, sign = axis[chosen], at[chosen], sign[chosen]
    f = boost_factor(q[chosen], size[chosen], dimensions[owner[axis]] - 2)
    if (f == 1).all():
        return None
    own, mixed, m = (1 / f + f) / 2 - 1, sign * (1 / f - f) / 2, len(owner)
    places = np.concatenate([axis, at, axis, at]), np.concatenate([axis, at, at, axis])
    change = sp.csr_array((np.concatenate([own, own, mixed, mixed]), places), (m, m))
    return sp.csr_array(sp.eye_array(m) + change)


def _in_other_coordinates(conic: Conic) -> tuple[Conic, Any, Any]:
    """Return the program with better coordinates of its cones, the map ``S`` to the old ``z``, and ``S'``.

    CVXPY's norm of a symmetric matrix of order 40 is a cone of 1,601 elements, of which 821 differ. The map
    and ``S'`` are CSR matrices; None for the identity.
    """
    if not conic.soc:
        return conic, None, None
    m, k, given = len(conic.b), len(conic.c), sum(conic.soc)
    slopes, constant = rows_at(conic.A, conic.linear + np.arange(given)), conic.b[conic.linear :][:given]
    row, place = np.arange(given).repeat(np.diff(slopes.indptr)), np.arange(given)
    values, columns = np.append(slopes.data, constant), np.append(slopes.indices, k + 0 * place)
    own = csr_of(values, np.append(row, place), columns, (given, k + 1))
    found = coordinates_of(own, np.array(conic.soc, dtype=np.intp))
    if found is None:
        return conic, None, None
    width = found.S.shape[1]
    before, after = np.arange(conic.linear), np.arange(conic.first_psd, m)
    row = np.arange(given).repeat(np.diff(found.S.indptr))
    value = np.concatenate([np.ones(len(before)), found.S.data, np.ones(len(after))])
    row = np.concatenate([before, conic.linear + row, after])
    column = np.concatenate([before, conic.linear + found.S.indices, after - given + width])
    S = csr_of(value, row, column, (m, m - given + width))
    back, soc = S.T.tocsr(), tuple(found.dimensions.tolist())
    A = back @ conic.A
    A.sort_indices()
    return replace(conic, A=A, b=back @ conic.b, soc=soc), S, back


# --- Hermitian matrices -------------------------------------------------------------------------------------


class Copies(NamedTuple):
    """A program with two copies of the variables of Hermitian matrices.

    Parameters
    ----------
    conic : Conic
    mean : csr_array
        It maps the ``x`` of this program to that of the given one.
    paired : csr_array
        It maps ``z`` to one with matrices of the form.
    """

    conic: Conic
    mean: Any
    paired: Any


class _Pairs(NamedTuple):
    """The rows of a real matrix of order ``2 n``: pairs of entries, and entries that are zero.

    Parameters
    ----------
    first, second : int array
    zero : int array
    sign : array
        The second entry of a pair is the first one times the sign.
    """

    first: IntArray
    second: IntArray
    zero: IntArray
    sign: Array


# Pays on: phase retrieval of complex signals, n = 36.
def with_copies(conic: Conic) -> Copies | None:
    """Return the program with copies of the variables of Hermitian matrices, None where there are none."""
    found = [
        _Pairs(span.start + own.first, span.start + own.second, span.start + own.zero, own.sign)
        for order, span in zip(conic.orders, conic.spans, strict=True)
        if order % 2 == 0 and _has_form(conic, span, own := _pairs(order))
    ]
    if not found:
        return None
    first, second, zero, sign = (np.concatenate(part) for part in zip(*found, strict=True))
    A, (m, k) = sp.coo_array(conic.A), conic.A.shape
    in_first, in_second, copied = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool), np.zeros(k, dtype=bool)
    in_first[first] = in_second[second] = True
    copied[A.col[in_first[A.row]]] = True
    if not copied.any():
        return None
    twice = np.flatnonzero(copied)
    place = np.arange(k)
    place[twice] = k + np.arange(len(twice))  # of the second copies
    shared = copied[A.col] & ~in_first[A.row] & ~in_second[A.row]
    # Entries that are zero in the mean are variables of their own.
    count = k + len(twice) + len(zero)
    entries = np.concatenate([np.where(shared, A.data / 2, A.data), A.data[shared] / 2, np.ones(len(zero))])
    rows = np.concatenate([A.row, A.row[shared], zero])
    columns = np.concatenate(
        [
            np.where(in_second[A.row], place[A.col], A.col),
            place[A.col[shared]],
            np.arange(count - len(zero), count),
        ]
    )
    share = np.where(copied, 0.5, 1.0)
    of = np.append(np.arange(k), twice)
    mean = sp.csr_array((share[of], (of, np.arange(len(of)))), (k, count))
    own = sp.csr_array((entries, (rows, columns)), (m, count))
    return Copies(replace(conic, A=own, c=mean.T @ conic.c), mean, _paired(m, first, second, zero, sign))


def _paired(m: int, first: IntArray, second: IntArray, zero: IntArray, sign: Array) -> Any:
    """Return the map of ``z`` to its mean over the pairs."""
    alone = np.ones(m)
    alone[first] = alone[second] = 0.5
    alone[zero] = 0.0
    across = sp.csr_array((sign / 2, (first, second)), (m, m))
    return sp.csr_array(sp.diags_array(alone) + across + across.T)


@cache
def _pairs(order: int) -> _Pairs:
    """Return the pairs of entries of a matrix, by their numbers in its triangle."""
    n, (i, j, _) = order // 2, triangle(order)
    number = np.empty((order, order), dtype=np.intp)
    number[i, j] = np.arange(len(i))
    Y, Z = np.flatnonzero(j < n), np.flatnonzero((i < j - n) & (i < n))
    second = np.concatenate([number[i[Y] + n, j[Y] + n], number[j[Z] - n, i[Z] + n]])
    sign = np.concatenate([np.ones(len(Y)), -np.ones(len(Z))])
    return _Pairs(np.concatenate([Y, Z]), second, number[np.arange(n), np.arange(n, order)], sign)


def _has_form(conic: Conic, span: slice, pairs: _Pairs) -> bool:
    """Whether a matrix is ``[[Y, -Z], [Z, Y]]`` for all values of the variables."""
    first, second, zero, sign = pairs
    count, b = np.diff(conic.A.indptr[span.start : span.stop + 1]), conic.b[span]
    if count[zero].any() or b[zero].any() or (count[first] != count[second]).any():
        return False
    if (b[second] != sign * b[first]).any():
        return False
    A = conic.A[span]
    return not (sp.diags_array(sign) @ A[first] - A[second]).count_nonzero()
