"""What a user asks of a nearest correlation matrix, as checked data.

Groups are those of rows, such as sectors. Bounds by pairs are dicts from pairs of labels, of groups, or of
tuples of labels to numbers. Unknown entries are NaN, read as unknown only if the user says so.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import (
    Array,
    IntArray,
    Mask,
    finite_array,
    is_mapping,
    is_one_of,
    positive_integer,
    rectangular,
    rows_with_data,
    symmetric_matrix,
)
from bregopt.divergences import DIVERGENCES, Divergence
from bregopt.errors import UnsupportedProblemError, did_you_mean
from bregopt.io.matrices import Labels, aligned, is_pandas, labels_of
from bregopt.problems.arguments import (
    LABELS_SHOWN,
    UNBOUNDED,
    BoundedEntries,
    bounded_entries,
    divergence_class,
    fixed_entries,
    fixed_pairs,
    row_and_entry_weights,
)
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.records import cached_property, dataclass
from bregopt.routes.accuracy import Units

_FAR_FROM_ONE = 0.5  # median distance of a diagonal from one, above which a matrix looks like a covariance
_PERCENT, _BEYOND = 100.0, 5.0  # the unit of percent, and a median of entries that no correlations have
_SHOWN = 3  # labels in messages

_NORMS = ("largest_entry", "spectral")  # distances that are no divergences
_CHOICES = ("error", "unknown")  # what NaN means


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the rows ``0 .. n-1``.

    Parameters
    ----------
    names : tuple
        The names of the ``k`` groups, in the order in which they occur.
    at : int array of shape (n,)
        The group of each row.
    """

    names: tuple[Hashable, ...]
    at: IntArray

    @property
    def sizes(self) -> IntArray:
        """The number of rows of each group, shape (k,)."""
        return np.bincount(self.at, minlength=len(self.names))

    def members(self, g: int) -> IntArray:
        """Return the rows of one group."""
        return np.flatnonzero(self.at == g)

    def block_sums(self, M: Array) -> Array:
        """Return the sums of the blocks of a matrix of shape ``(n, n)``, shape ``(k, k)``."""
        order = np.argsort(self.at, kind="stable")
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        rows = np.add.reduceat(M[np.ix_(order, order)], starts, axis=0)
        sums: Array = np.add.reduceat(rows, starts, axis=1)
        return sums


def read_groups(value: Any, labels: Labels, n: int) -> Groups | None:
    """Return the groups of `n` rows.

    Parameters
    ----------
    value : sequence of length n, Series or dict from label to group, or None
        Groups of labels that no row has do not count.
    labels : pandas.Index or None
    n : int

    Raises
    ------
    TypeError, ValueError
        If it is none of these, or a row has no group.
    """
    if value is None:
        return None
    if labels is not None and is_pandas(value, "Series"):
        value = dict(zip(labels_of(value, "groups"), value, strict=True))
    if is_mapping(value):
        rows = list(range(n) if labels is None else labels)
        lacking = [x for x in rows if x not in value]
        if lacking:
            shown = ", ".join(map(repr, lacking[:_SHOWN])) + (" and more" if len(lacking) > _SHOWN else "")
            raise ValueError(f"groups lacks {shown}; expected a group for each label of A")
        spare = [x for x in value if x not in rows] if labels is None else []
        if spare:
            raise ValueError(f"groups has the unknown label {spare[0]!r}; expected numbers from 0 to {n - 1}")
        names = [value[x] for x in rows]
    else:
        if isinstance(value, str) or not hasattr(value, "__len__") or rectangular(value, "groups").ndim != 1:
            raise TypeError(f"groups is {value!r}; expected the name of a group for each of the {n} rows")
        names = aligned(value, labels, "groups")
        names = names.tolist() if hasattr(names, "tolist") else list(names)
    if len(names) != n:
        raise ValueError(f"groups has {len(names)} names; expected one for each of the {n} rows")
    for k, name in enumerate(names):
        if name is None or name != name:  # NaN
            raise ValueError(
                f"groups has no name at {k if labels is None else labels[k]}; expected one, its own for a "
                "row of no group"
            )
    order: dict[Hashable, int] = {}
    at = np.array([order.setdefault(name, len(order)) for name in names], dtype=np.intp)
    return Groups(tuple(order), at)


def by_pairs(value: Any) -> bool:
    """Whether bounds are given by pairs: a dict all of whose keys are tuples of two."""
    return (
        is_mapping(value)
        and len(value) > 0
        and all(isinstance(key, tuple) and len(key) == 2 for key in value)
    )


def of_present(value: Mapping[Any, Any], places: Mapping[Hashable, Hashable | None]) -> dict[Any, Any]:
    """Return the bounds by pairs whose labels are all there, by the labels' own `places`.

    Parameters
    ----------
    value : mapping
    places : mapping
        The new label of each label of the stack, None where it is missing; other names stay.
    """

    def moved(part: Any) -> Any:
        if isinstance(part, Hashable) and part in places:
            return places[part]
        if isinstance(part, tuple | frozenset):
            own = tuple(new for new in map(moved, part) if new is not None)
            return own or None
        return part

    pairs = {tuple(map(moved, key)): bound for key, bound in value.items()}
    return {key: bound for key, bound in pairs.items() if None not in key}


def of_pairs(
    value: Any, name: str, labels: Labels, groups: Groups | None, n: int, widest: Array | float
) -> Any:
    """Return bounds by pairs as an array of shape ``(n, n)``; other bounds unchanged.

    Where several keys meet an entry, the tightest bound counts; where none does, it is `widest` away from 0.

    Raises
    ------
    TypeError, ValueError
        If a key is no pair, or names nothing; if a pair has no entry off the diagonal; if a bound is no
        finite number.
    """
    if value is None or not is_mapping(value):
        return value
    if not by_pairs(value):
        raise TypeError(
            f"{name} is a dict with other keys than pairs; expected pairs of labels, such as "
            f"{{('equities', 'credit'): 0.2}}"
        )
    sign, tighter = (-1.0, np.maximum) if name == "lower" else (1.0, np.minimum)
    bounds = np.full((n, n), sign * widest)
    places = _places(labels, groups, n)
    for key, number in value.items():
        first, second = (_members(part, key, places, name) for part in key)
        bound = float(finite_array(number, f"{name}[{key!r}]", ndim=0))
        for at in (np.ix_(first, second), np.ix_(second, first)):
            bounds[at] = tighter(bounds[at], bound)
        if len(first) == len(second) == 1 and first[0] == second[0]:
            raise ValueError(f"{name} has the pair {key!r}, which is on the diagonal; expected two labels")
    return bounds


def _places(labels: Labels, groups: Groups | None, n: int) -> dict[Hashable, IntArray]:
    """Return the indices of each label and of each group."""
    names = range(n) if labels is None else labels
    places = {name: np.array([k]) for k, name in enumerate(names)}
    if groups is None:
        return places
    for g, name in enumerate(groups.names):
        own = groups.members(g)
        if name in places and not np.array_equal(places[name], own):
            raise ValueError(f"{name!r} is a label of A and a group of groups; expected distinct names")
        places[name] = own
    return places


def _members(part: Any, key: Any, places: Mapping[Hashable, IntArray], name: str) -> IntArray:
    """Return the indices of a label, a group, or a tuple of these."""
    if isinstance(part, Hashable) and part in places:
        return places[part]
    if isinstance(part, tuple | frozenset) and part:
        return np.unique(np.concatenate([_members(one, key, places, name) for one in part]))
    known = [str(one) for one in places]
    raise ValueError(
        f"{name} has the pair {key!r}, and {part!r} is no label of A and no group"
        f"{did_you_mean(str(part), known, LABELS_SHOWN)}"
    )


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of a nearest correlation matrix ``X``, or of a covariance ``D X D``.

    Parameters
    ----------
    A : array of shape (n, n), or LowRank
        Zero at unknown entries.
    labels : pandas.Index or None
    divergence : str
    kind : type of Divergence, or None for a norm
    floor : float
        Lower bound on the eigenvalues of ``X``, or of ``D X D``.
    s : array of shape (n,)
        Roots of the weights of rows, times ``D``.
    H : array of shape (n, n), or None
        Weights of entries.
    fixed, bounded : BoundedEntries
    unknown : boolean array of shape (n, n), or None
    condition : float or None
        Upper bound on the condition number.
    groups : Groups or None
        Groups of equal correlations.
    scale : array of shape (n,), or None
        The diagonal of ``D``, standard deviations; None for a correlation matrix.
    rank : int or None
        Upper bound on the rank; None if each matrix meets it.
    """

    A: Matrix
    labels: Labels
    divergence: str
    kind: type[Divergence] | None
    floor: float
    s: Array
    H: Array | None
    fixed: BoundedEntries
    bounded: BoundedEntries
    unknown: Mask | None
    condition: float | None
    groups: Groups | None
    scale: Array | None = None
    rank: int | None = None

    @property
    def n(self) -> int:
        """The order."""
        return self.A.shape[0]

    @property
    def unit(self) -> Array:
        """The units of the user, in those of ``X``, shape ``(n, n)``."""
        return np.ones((self.n, self.n)) if self.scale is None else np.outer(self.scale, self.scale)

    @property
    def diagonal(self) -> Array:
        """The diagonal that the answer is to have, shape ``(n,)``."""
        return np.ones(self.n) if self.scale is None else self.scale**2

    @property
    def given(self) -> Array:
        """The matrix of the user, NaN where it is unknown."""
        A = np.asarray(self.A) * self.unit
        return A if self.unknown is None else np.where(self.unknown, np.nan, A)

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing but the matrix and a divergence is given."""
        parts = (self.H, self.unknown, self.condition, self.groups, self.rank, self.scale)
        if any(part is not None for part in parts) or len(self.fixed.i) or len(self.bounded.i) or self.floor:
            return False
        return self.kind is not None and not isinstance(self.A, LowRank) and bool((self.s == 1).all())

    @property
    def t(self) -> Any:
        """The numbers ``t`` such that ``X - Diag(t)`` is positive semidefinite."""
        return self.floor if self.scale is None else self.floor / self.scale**2

    @property
    def of_eigenvalues(self) -> dict[str, float]:
        """Parameters of a divergence with bounds on the eigenvalues; none where a shift by `t` is enough."""
        if self.kind is None:  # the condition of a norm has rows of its own
            return {}
        if self.condition is not None:
            return {"condition": self.condition, "floor": self.floor}
        return {} if self.kind.quadratic or self.floor == 0 else {"floor": self.floor}

    @property
    def shift(self) -> Any:
        """The ``t`` by which the variable is shifted; with a bound on the condition it is not."""
        return 0.0 if self.of_eigenvalues else self.t

    @property
    def units(self) -> Units | None:
        """The units of ``X``; None where it is the variable ``Y`` itself."""
        if self.is_plain:
            return None
        s, t = self.s, np.broadcast_to(self.shift, self.n)
        return None if not t.any() and (s == 1).all() else Units(s, t)


def read_request(A: Any, divergence: str, given: Mapping[str, Any]) -> Request:
    """Return the checked arguments of :func:`bregopt.nearest_correlation`.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank
    divergence : str
    given : mapping
        The other arguments by name.

    Raises
    ------
    TypeError, ValueError
        If one is bad, or two do not go together; the message names them.
    """
    suggest = given["suggest"]
    if not isinstance(suggest, bool | np.bool_):
        raise TypeError(f"suggest is {suggest!r}; expected True or False")
    labels = labels_of(A, "A", "bo.pairwise_correlation(A).A, or A.corr()")
    target = given_matrix(A, given["missing"])
    n = target.A.shape[0]
    kind = divergence_or_norm(divergence)
    t, weighted = least_eigenvalue(given["min_eigenvalue"]), given["weights"] is not None
    s, H = np.ones(n), None
    if weighted:
        s, H = row_and_entry_weights(aligned(given["weights"], labels, "weights"), n, kind)
    s, H = weights_of_known(s, H, target, kind)
    groups = read_groups(given["groups"], labels, n)
    rank = None if given["max_rank"] is None else positive_integer(given["max_rank"], "max_rank")
    fixed = bounded = UNBOUNDED
    if any(given[name] is not None for name in ("fixed", "lower", "upper")):
        pairs = fixed_pairs(aligned(given["fixed"], labels, "fixed"), n, labels)
        target.check_known(*pairs, "fixed")
        ends = {name: aligned(given[name], labels, name) for name in ("lower", "upper")}
        lower, upper = (of_pairs(end, name, labels, groups, n, 1.0) for name, end in ends.items())
        fixed = fixed_entries(pairs, target.A, 1 - t, labels)
        bounded = bounded_entries(lower, upper, pairs, n, 1 - t, labels)
    request = Request(
        A=target.A,
        labels=labels,
        divergence=divergence,
        kind=kind,
        floor=t,
        s=s,
        H=H,
        fixed=fixed,
        bounded=bounded,
        unknown=target.unknown,
        condition=condition_bound(given["max_condition"]),
        groups=groups,
        rank=None if rank is None or rank >= n else rank,
    )
    check_together(request, weighted)
    return request


def least_eigenvalue(value: Any, name: str = "min_eigenvalue") -> float:
    """Return the lower bound on the eigenvalues."""
    t = float(finite_array(value, name, ndim=0))
    if not 0 <= t < 1:
        raise ValueError(f"{name} is {t:g}; expected a number from 0 and below 1, the mean eigenvalue")
    return t


def divergence_or_norm(divergence: Any) -> type[Divergence] | None:
    """Return the class of a divergence by its name, None for a norm."""
    if is_one_of(divergence, DIVERGENCES):
        return DIVERGENCES[divergence]
    return None if is_one_of(divergence, _NORMS) else divergence_class(divergence, _NORMS)


def check_together(request: Request, weighted: bool) -> None:
    """Refuse arguments that do not go together."""
    squares = request.kind is not None and request.kind.quadratic
    if request.condition is not None and squares and (weighted or request.unknown is not None):
        found = "weights" if weighted else "unknown entries"
        raise UnsupportedProblemError(
            f"max_condition does not go with {found}: the nearest matrix of bounded condition has no closed "
            "form in a weighted distance. Use min_eigenvalue, or divergence='largest_entry'"
        )
    if isinstance(request.A, LowRank) and (request.condition is not None or request.floor > 0):
        name = "min_eigenvalue" if request.condition is None else "max_condition"
        raise ValueError(f"A is LowRank, and X keeps its range; expected no {name}")


def weights_of_known(
    s: Array, H: Array | None, target: Given, kind: type[Divergence] | None
) -> tuple[Array, Array | None]:
    """Return the weights of rows and of entries, with weight zero for unknown entries."""
    if target.unknown is None or not (kind is None or kind.quadratic):
        return s, H
    return np.ones(len(s)), np.where(target.unknown, 0.0, np.outer(s, s) if H is None else H)


def condition_bound(value: Any) -> float | None:
    """Return the upper bound on the condition number."""
    if value is None:
        return None
    condition = float(finite_array(value, "max_condition", ndim=0))
    if condition < 1:
        raise ValueError(f"max_condition is {condition:g}; expected a number from 1")
    return condition


def diagonal_message(A: Array, labels: Any, name: str = "A") -> str | None:
    """Return a message if a matrix looks like a covariance, or like correlations in percent.

    Parameters
    ----------
    A : array of shape (n, n), or its diagonal, shape (n,)
    labels : pandas.Index or None
    name : str

    Returns
    -------
    str or None
        None if the matrix looks like correlations.
    """
    diagonal = A.diagonal() if A.ndim == 2 else A
    distance = np.abs(diagonal - 1)
    if distance.max() <= _FAR_FROM_ONE or np.median(distance) <= _FAR_FROM_ONE:
        if A.ndim == 1 or np.abs(A).max() <= _BEYOND:
            return None
        off = np.abs(A[np.triu_indices(len(A), 1)])
        largest = float(off.max())
        if np.median(off) > _BEYOND and largest <= _PERCENT:
            return (
                f"{name} has entries up to {largest:.3g} off the diagonal, where correlations are at most 1. "
                f"Of correlations in percent pass {name} / 100, with ones on the diagonal"
            )
        return None
    if np.abs(diagonal - _PERCENT).max() <= _FAR_FROM_ONE:
        return f"{name} has 100 on the diagonal, where correlations have 1. Of percent pass {name} / 100"
    k = int(np.argmax(distance))
    return (
        f"{name} has {diagonal[k]:.3g} on the diagonal, at {k if labels is None else labels[k]}, where "
        f"correlations have 1. Of a covariance pass {name} / np.outer(s, s) with "
        f"s = np.sqrt(np.diag({name})), or bo.nearest_covariance({name})"
    )


@dataclass(frozen=True, eq=False)
class Given:
    """A symmetric matrix and the mask of its unknown entries off the diagonal, None if all are known.

    Unknown entries are 0, and unknown diagonal entries 1. The first of those is at `no_variance`.
    """

    A: Matrix
    unknown: Mask | None
    no_variance: int | None = None

    def check_known(self, i: IntArray, j: IntArray, name: str) -> None:
        """Refuse an argument that keeps an unknown entry."""
        if self.unknown is not None and self.unknown[i, j].any():
            k = int(np.flatnonzero(self.unknown[i, j])[0])
            raise ValueError(
                f"{name} keeps entry {int(i[k]), int(j[k])}, which is NaN; expected a number there"
            )


def given_matrix(A: Any, missing: str, name: str = "A") -> Given:
    """Return the matrix of a user.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n), or LowRank
    missing : {"error", "unknown"}
        What NaN means.
    name : str
        Its name in messages.

    Raises
    ------
    TypeError, ValueError
        As :func:`bregopt.arrays.symmetric_matrix`; also if one of a pair of entries is NaN alone, or
        `missing` is neither.
    """
    check_missing(missing)
    if isinstance(A, LowRank):
        return Given(A, None)
    nan = _nan(A, name) if missing == "unknown" else None
    if nan is None:
        try:
            return Given(symmetric_matrix(A, name), None)
        except ValueError as error:
            if _nan(A, name) is None:
                raise
            raise ValueError(f"{error}, or pass missing='unknown'") from None
    _check_pairs(nan, name)
    filled = np.where(
        nan, np.eye(len(nan)), np.where(nan, 0.0, np.asarray(rectangular(A, name), dtype=float))
    )
    if is_pandas(A, "DataFrame"):  # for the labels in messages
        filled = type(A)(filled, index=A.index, columns=A.columns)
    lost = np.flatnonzero(nan.diagonal())
    np.fill_diagonal(nan, False)
    no_variance = int(lost[0]) if len(lost) else None
    return Given(symmetric_matrix(filled, name), nan if nan.any() else None, no_variance)


def rows_left(A: Any, missing: str, name: str = "A") -> Mask | None:
    """Return the rows of a matrix that hold data, None if all do or another NaN is an error anyway.

    Raises
    ------
    ValueError
        If no row holds data, or one of a pair of entries is NaN alone.
    """
    nan = None if isinstance(A, LowRank) else _nan(A, name)
    if nan is None:
        return None
    (rows,) = rows_with_data(np.where(nan, np.nan, 0.0)[None])
    if rows.all() or (missing == "error" and nan[np.ix_(rows, rows)].any()):
        return None
    if not rows.any():
        raise ValueError(f"{name} has no number off the diagonal; expected the entries of two rows at least")
    _check_pairs(nan, name)
    return rows


def left_out_message(names: Sequence[Any], name: str = "A") -> str:
    """Return the warning that rows without data are left out."""
    shown = ", ".join(map(repr, names[:LABELS_SHOWN]))
    more = f" and {len(names) - LABELS_SHOWN} more" if len(names) > LABELS_SHOWN else ""
    rows = f"row {shown} of {name} has" if len(names) == 1 else f"rows {shown}{more} of {name} have"
    return f"{rows} no number off the diagonal; left out, and NaN in X"


def _check_pairs(nan: Mask, name: str) -> None:
    """Refuse a NaN whose entry on the other side of the diagonal is a number."""
    alone = np.argwhere(nan != nan.T)
    if len(alone):
        a, b = (int(k) for k in alone[0])
        raise ValueError(f"{name} is NaN at one of the entries {a, b} and {b, a} only; expected both or none")


def check_missing(missing: Any) -> None:
    """Refuse a meaning of NaN that is neither "error" nor "unknown"."""
    if not is_one_of(missing, _CHOICES):
        raise ValueError(f"missing is {missing!r}{did_you_mean(str(missing), _CHOICES)}")


def _nan(A: Any, name: str) -> Mask | None:
    """Return the mask of NaN of a square matrix, None where there is none."""
    raw = rectangular(A, name)
    if raw.dtype.kind != "f" or raw.ndim != 2 or raw.shape[0] != raw.shape[1]:
        return None
    nan: Mask = np.isnan(raw)
    return nan if nan.any() else None
