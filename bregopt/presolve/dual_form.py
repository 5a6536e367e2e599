"""The dual form: linear matrix inequalities are replaced by their dual, in which each variable is a row.

Rows that define entries of matrices are substituted first. An entry is *defined* by a hard equality of its
own, the pivot row, in which no other defined entry occurs. With ``v`` the ordinary variables and the other
entries, on and above the diagonals, the program is

    minimize    c'v + offset + penalties of soft rows
    subject to  F_0 + F v psd in every block,   lo <= K v <= hi,   u_lo <= u <= u_hi.

The dual of its linear form is (Vandenberghe, Boyd 1996, Semidefinite Programming, section 3)

    minimize    <F_0, Z> - lo'y_+ - hi'y_- - offset
    subject to  -F*(Z) - K'(y_+ + y_-) - s = -c,   Z psd,   0 <= y_+ <= gamma,   -gamma <= y_- <= 0,

with an infinite ``gamma`` for a hard row. The bounds of single variables are rows of ``K`` too, and ``s``
is zero but for variables in second-order cones, whose ``s`` are in the same cones. The multiplier of a row
with a squared penalty of weight ``gamma`` has no bounds, and costs ``y^2 / (4 gamma)``. The multipliers of
the equalities are ``v``, and the slack of ``Z`` is ``F_0 + F v``. A Farkas vector of the dual is a ray of the
program, and a ray of the dual is a Farkas vector of the program.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.divergences import psd_part
from bregopt.linalg import columns_at, csr_of, root_of, rows_at
from bregopt.presolve import Reduced, Tolerances
from bregopt.presolve.exposures import exposures_of
from bregopt.presolve.svec import ENTRY_NOISE, Svec, sparse_svec, svec_map, without_round_off
from bregopt.presolve.variables import Substituted, defined_variables
from bregopt.program import (
    Answer,
    Block,
    Bounds,
    Penalty,
    Program,
    SecondOrderCones,
    Start,
    StopReason,
    pays,
)
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import cached_property, dataclass, replace

# Number of entries and of terms of all rows above which the search for matrices that rows define is left
# out: it takes seconds.
_LARGEST_LISTED = 10_000_000
# Operations of Newton's step in the dual, relative to those in the program, up to which the dual is solved.
_DUAL_PAYS = 0.5
# The same where rows leave X no interior: the program has an optimum on their face, the dual attains none.
_DUAL_PAYS_ON_FACES = 0.05
# Operations of a step from which a matrix is defined in part. For smaller ones, such as a Schur complement of
# order 8, the calls that form the dual take longer than its steps save.
_SPLITTING_PAYS = 1e5
_PENALTIES = {Penalty.HARD, Penalty.HINGE, Penalty.SQUARE}


@dataclass(frozen=True, eq=False)
class Dualized(Reduced):
    """The dual of a program with linear matrix inequalities.

    Parameters
    ----------
    form : MatrixInequalities
    used : int array
        The elements of ``v`` that have a row.
    multiplied : int array
        For each variable of the dual, the row of ``K`` that it multiplies; after those rows come the boxes
        and cones of the variables `held`.
    held : int array
        The variables in a box, then those in second-order cones.
    defined : Substituted, optional
        The multipliers of the rows that define variables of cones, given by those of the cones.
    """

    form: MatrixInequalities
    used: IntArray
    multiplied: IntArray
    held: IntArray
    defined: Substituted | None = None
    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        count = len(self.whole.blocks)
        inequalities = f"{count} matrix inequalit{'ies' if count > 1 else 'y'}"
        return f"dual of {inequalities}, with {self.program.m} rows instead of {self.whole.m}"

    def shrink(self, start: Start) -> Start:
        whole, form = self.whole, self.form
        reduced = (whole.c - whole.Bt @ start.y)[self.held]
        own = np.concatenate([start.y[form.kept], reduced])[self.multiplied]
        Z = form.matrices(form.prices - form.rows.T @ start.y)
        X = form.entries(start.X) if start.X else form.F_0
        v = np.concatenate([start.u, X[form.others]])
        dual = self.program if self.defined is None else self.defined.whole
        own = dual.cones.clipped(np.clip(own, dual.u_lo, dual.u_hi))
        y = dual.bounds.response(dual.B @ own)  # of the squares, after the equalities
        y[: len(self.used)] = v[self.used]
        found = Start(Z if start.X else (), own, y)
        return found if self.defined is None else self.defined.shrink(found)

    def restore(self, answer: Answer) -> Answer:
        form, whole = self.form, self.whole
        if self.defined is not None:
            answer = self.defined.restore(answer)
        if answer.stop is StopReason.UNBOUNDED:
            y = form.multipliers(form.entries(answer.X), self._multipliers(answer.u), 0 * form.prices)
            return Answer.without_point(whole, y, StopReason.INFEASIBLE, answer.iterations)
        v = np.zeros(form.F.shape[1])
        v[self.used] = answer.y[: len(self.used)]
        if answer.stop is StopReason.INFEASIBLE:
            X, u, y = form.F @ v, v[: whole.k], np.zeros(whole.m)
            return replace(answer, X=form.matrices(X), u=u, y=y, stop=StopReason.UNBOUNDED, y_on_faces=None)
        v[: whole.k] = u = whole.cones.clipped(np.clip(v[: whole.k], whole.u_lo, whole.u_hi))
        X = tuple(_psd(S) for S in form.matrices(form.F_0 + form.F @ v))
        y = form.multipliers(form.entries(answer.X), self._multipliers(answer.u), form.prices)
        y = y if pays(whole) else 0 * y
        return replace(answer, X=X, u=u, y=y, y_on_faces=None)

    def _multipliers(self, own: Array) -> Array:
        """Return the multipliers of the rows of ``K`` from the variables of the dual."""
        count = len(self.form.kept)
        return np.bincount(self.multiplied, own, count + len(self.held))[:count].astype(float)


# Pays on: matrix inequality of order 30 in 20 variables.
def dual_form(program: Program, tolerances: Tolerances) -> Dualized | None:
    """Replace linear matrix inequalities by their dual where Newton's method takes fewer operations on it."""
    work = newton_work(program)
    most = _DUAL_PAYS * work
    entire = work < _SPLITTING_PAYS
    largest = math.cbrt(3 * most) + _in_rows_of_their_own(program)
    form = matrix_inequalities(_with_objective(program), largest, entire=entire)
    found = None if form is None else _without_defined(_dual(program, form), tolerances)
    if found is None or newton_work(found.program) >= most:
        return None
    much = newton_work(found.program) < _DUAL_PAYS_ON_FACES * work
    return found if much or not exposures_of(program) else None


def _in_rows_of_their_own(program: Program) -> int:
    """Return the number of variables in second-order cones that an equality, and no other row, may define."""
    cones = program.cones
    if not cones.count:
        return 0
    once = np.bincount(program.B.indices, minlength=program.k)[cones.index] == 1
    return min(int(np.count_nonzero(once)), int(np.count_nonzero(program.bounds.equal)))


def _without_defined(dual: Dualized | None, tolerances: Tolerances) -> Dualized | None:
    """Return the dual without the multipliers of rows that define variables of cones: ``y = c - s``."""
    if dual is None or not dual.whole.cones.count:
        return dual
    defined = defined_variables(dual.program, tolerances)
    if defined is None or defined.contradiction() is not None:
        return dual
    return replace(dual, program=defined.program, defined=defined)


def dual_of(program: Program) -> Dualized | None:
    """Return the dual of a program, in which entries that no row defines have rows; None if it has none."""
    form = matrix_inequalities(_with_objective(program), defined=False)
    return None if form is None else _dual(program, form)


def _with_objective(program: Program) -> Program:
    return program if pays(program) else _of_least_traces(program)


def _of_least_traces(program: Program) -> Program:
    """Return a program whose objective is constant with the sum of the traces as objective.

    With a constant objective the dual has no interior where the program has one. Every feasible point is
    optimal there, so that another objective may take its place.
    """
    blocks = []
    for block in program.blocks:
        own = np.arange(block.n)
        trace = SparseRows(1, block.n, Coordinates(0 * own, own, own, np.ones(block.n)))
        blocks.append(replace(block, cost=trace))
    return replace(program, blocks=tuple(blocks))


def _dual(whole: Program, form: MatrixInequalities) -> Dualized | None:
    """Return the dual of matrix inequalities, None if it has no rows or an unused variable has a cost."""
    boxed = np.isfinite(whole.u_lo) | np.isfinite(whole.u_hi)
    held = np.concatenate([np.flatnonzero(boxed), whole.cones.index])
    occurs = np.bincount(form.F.indices, minlength=len(form.c)) > 0
    occurs |= np.bincount(form.K.indices, minlength=len(form.c)) > 0
    occurs[held] = True
    if not occurs.any() or form.c[~occurs].any():
        return None
    used = np.flatnonzero(occurs)
    K = _with_variables(form.K, held)
    cones, boxed = whole.cones, held[: len(held) - whole.cones.size]
    lo = np.concatenate([form.bounds.lo, whole.u_lo[boxed]])
    hi = np.concatenate([form.bounds.hi, whole.u_hi[boxed]])
    square = np.flatnonzero(form.bounds.kind == int(Penalty.SQUARE))
    weight = 0.25 / form.bounds.gamma[square]
    gamma = np.concatenate([form.bounds.gamma, np.full(len(boxed), np.inf)])
    gamma[square] = np.inf
    in_cones, free = np.arange(len(lo), K.shape[0]), np.full(cones.size, np.inf)
    equal = lo == hi
    below, above = np.flatnonzero(np.isfinite(lo)), np.flatnonzero(np.isfinite(hi) & ~equal)
    multiplied = np.concatenate([below, above, in_cones])
    F, B = (_columns(part, used).T.tocsr() for part in (form.F, rows_at(K, multiplied)))
    F.data, B.data = -F.data, -B.data
    F.sort_indices()
    bounds = Bounds.of_hard_rows(-form.c[used], -form.c[used])
    if len(square):
        zero, kind = np.zeros(len(square)), np.full(len(square), int(Penalty.SQUARE))
        bounds = bounds.followed_by(Bounds(zero, zero, kind, weight))
        place = np.full(K.shape[0], -1)
        place[square] = np.arange(len(square))
        own = np.flatnonzero(place[multiplied] >= 0)
        sums = csr_of(np.ones(len(own)), place[multiplied[own]], own, (len(square), len(multiplied)))
        B = sp.csr_array(sp.vstack([B, sums], format="csr"))
    program = Program(
        blocks=_blocks(form),
        A=replace(svec_map(whole.A.orders, F), m=bounds.m),
        B=B,
        bounds=bounds,
        c=-np.concatenate([lo[below], hi[above], 0 * cones.identity]),
        u_lo=np.concatenate([np.where(equal, -gamma, 0.0)[below], -gamma[above], -free]),
        u_hi=np.concatenate([gamma[below], np.zeros(len(above)), free]),
        offset=-form.offset,
        constant=-whole.stated_constant,
        maximize=not whole.maximize,
        cones=SecondOrderCones(len(below) + len(above) + np.arange(cones.size), cones.dimensions),
    )
    return Dualized(whole, program, form, used, multiplied, held)


def _row_of(A: Any) -> IntArray:
    """Return the row of each entry of a CSR matrix."""
    return np.arange(A.shape[0]).repeat(np.diff(A.indptr))


def _with_variables(K: Any, held: IntArray) -> Any:
    """Return rows with a row for each of some variables after them."""
    if not len(held):
        return K
    ends = K.indptr[-1] + np.arange(1, len(held) + 1)
    data, columns = np.concatenate([K.data, np.ones(len(held))]), np.concatenate([K.indices, held])
    return sp.csr_array(
        (data, columns, np.concatenate([K.indptr, ends])), (K.shape[0] + len(held), K.shape[1])
    )


def _blocks(form: MatrixInequalities) -> tuple[Block, ...]:
    """Return the blocks of ``Z``, with the costs ``F_0``."""
    costs = {}
    if form.F_0.any():
        at = form.F_0.nonzero()[0]
        cost = csr_of(form.F_0[at], 0 * at, at, (1, len(form.F_0)))
        costs = {t.block: t.rows for t in svec_map(form.whole.A.orders, cost).terms}
    return tuple(Block(block.name, block.n, costs.get(b)) for b, block in enumerate(form.whole.blocks))


def _psd(S: Array) -> Array:
    """Return the nearest psd matrix: the answer of a route is in the cone and violates rows instead."""
    return S if root_of(S) is not None else psd_part(S)


def newton_unknowns(program: Program) -> int:
    """Return the unknowns of a step of Newton's method.

    They are the rows and the free variables, or the entries of one matrix, the variables and the equalities.
    """
    unknowns = program.m + int(np.count_nonzero(program.free))
    if len(program.blocks) == 1 and not program.cones.count:
        n = program.blocks[0].n
        return min(unknowns, n * (n + 1) // 2 + program.k + int(np.count_nonzero(program.bounds.equal)))
    return unknowns


def newton_work(program: Program) -> float:
    """Return the approximate operations of a step of Newton's method: to form and to solve its system.

    For `r` rows with `t` terms, a block of order `n` takes ``t^2`` operations, or two products and an inner
    product for each row, ``2 r n^3 + r t``.
    """
    work = float(newton_unknowns(program)) ** 3 / 3
    rows, terms = np.zeros((2, len(program.blocks)))
    for term in program.A.terms:
        rows[term.block] += term.rows.m
        terms[term.block] += term.count
    order = np.array(program.A.orders, dtype=float)
    return work + float(np.minimum(terms**2, 2 * rows * order**3 + rows * terms).sum())


@dataclass(frozen=True, eq=False)
class MatrixInequalities:
    """A program as linear matrix inequalities in ``v``, of length `p`.

    Parameters
    ----------
    whole : Program
    rows : csr_array of shape (m, q)
        The rows of `whole` in the `q` entries of all blocks, as vectors.
    pivot : int array of shape (q,)
        The pivot row of each defined entry; -1 for the other entries.
    F_0 : array of shape (q,)
    F : csr_array of shape (q, p)
    kept : int array
        The rows of `whole` that are left.
    K : csr_array of shape (len(kept), p)
    bounds : Bounds
        Of the rows that are left.
    c : array of shape (p,)
    offset : float
    """

    whole: Program
    rows: Any
    pivot: IntArray
    F_0: Array
    F: Any
    kept: IntArray
    K: Any
    bounds: Bounds
    c: Array
    offset: float

    @cached_property
    def prices(self) -> Array:
        """The costs of the entries in `whole`, shape ``(q,)``."""
        return entry_prices(self.whole)

    @property
    def others(self) -> IntArray:
        """The entries that are not defined, which are the last elements of ``v``."""
        return np.flatnonzero(self.pivot < 0)

    def matrices(self, x: Array) -> tuple[Array, ...]:
        """Return the matrices with the given entries, shape ``(q,)``."""
        stacks, _ = Svec(self.whole.A.orders, 0).points(x[None])
        return tuple(S[0] for S in stacks)

    def entries(self, matrices: Any) -> Array:
        """Return the entries of the matrices, shape ``(q,)``."""
        stacks = [np.asarray(S)[None] for S in matrices]
        return Svec(self.whole.A.orders, 0).vectors(stacks, np.zeros((1, 0)))[0]

    def multipliers(self, Z: Array, y: Array, prices: Array) -> Array:
        """Return multipliers of all rows with the slack ``prices - A*(y) = Z`` on the defined entries.

        Parameters
        ----------
        Z : array of shape (q,)
        y : array of shape (len(kept),)
            Of the rows that are left.
        prices : array of shape (q,)
        """
        all_rows, defined = np.zeros(self.whole.m), np.flatnonzero(self.pivot >= 0)
        all_rows[self.kept] = y
        at = self.pivot[defined]
        left = (prices - Z - self.rows.T @ all_rows)[defined]
        all_rows[at] = left / _values(self.rows, at, defined)
        return all_rows


def entry_prices(program: Program) -> Array:
    """Return the costs of the entries of all blocks as vectors."""
    q = Svec(program.A.orders, 0)
    return q.vectors([block.C[None] for block in program.blocks], np.zeros((1, 0)))[0]


def matrix_inequalities(
    program: Program, largest: float = np.inf, defined: bool = True, entire: bool = False
) -> MatrixInequalities | None:
    """Return a program as linear matrix inequalities in at most `largest` elements of ``v``.

    None if it has a divergence, if there are more elements, if `defined` and no entry is defined by rows, or
    if `entire` and a matrix is defined in part.
    """
    widths = np.array(program.A.orders) * (np.array(program.A.orders) + 1) // 2
    if not _may_have_defined_entries(program, widths, largest, defined, entire):
        return None
    rows = sparse_svec(program.A)
    pivot = _pivots(program, rows)
    if entire and _defines_in_part(pivot, widths):
        return None
    own, others = np.flatnonzero(pivot >= 0), np.flatnonzero(pivot < 0)
    if (defined and len(own) == 0) or program.k + len(others) > largest:
        return None
    at = pivot[own]
    inverse = 1 / _values(rows, at, own)
    v = program.B
    if len(others):
        v = sp.csr_array(sp.hstack([v, columns_at(rows, others)], format="csr"))
    F_D, F_0 = rows_at(v, at, -inverse), np.zeros(len(pivot))
    F_0[own] = inverse * program.bounds.lo[at]
    left = np.ones(program.m, dtype=bool)
    left[at] = False
    kept = np.flatnonzero(left)
    K, moved, noise = _substituted(rows_at(v, kept), _columns(rows_at(rows, kept), own), F_D, F_0[own])
    bounds = program.bounds.slice(kept)
    bounds = replace(bounds, lo=bounds.lo - moved, hi=bounds.hi - moved)
    used = np.diff(K.indptr) > 0
    if not _met_by_zero(bounds.slice(np.flatnonzero(~used)), noise[~used]):
        return None
    prices = entry_prices(program)
    return MatrixInequalities(
        program,
        rows,
        pivot,
        F_0,
        _stacked(F_D, own, others, program.k),
        kept[used],
        rows_at(K, np.flatnonzero(used)),
        bounds.slice(np.flatnonzero(used)),
        without_round_off(np.concatenate([program.c, prices[others]]), F_D, prices[own]),
        program.offset + float(prices[own] @ F_0[own]),
    )


def _may_have_defined_entries(
    program: Program, widths: IntArray, largest: float, defined: bool, entire: bool
) -> bool:
    """Whether the objective is linear and equalities may define all but the `largest` number of entries.

    They need not define any unless `defined`. If `entire`, a matrix counts where all of it may be defined.
    """
    on_faces = any(face.codimension for face in program.faces)
    if on_faces or any(b.nearness is not None or b.cap is not None for b in program.blocks):
        return False
    left = program.k + int(widths.sum()) - largest
    if left > int(program.bounds.equal.sum()) or not program.bounds.kinds <= _PENALTIES:
        return False
    if sum(term.count for term in program.A.terms) + int(widths.sum()) > _LARGEST_LISTED:
        return False
    single = np.minimum(_single_entries(program), widths)
    if entire:
        single[single < widths] = 0
    return (bool(single.any()) or not defined) and left <= int(single.sum())


def _defines_in_part(pivot: IntArray, widths: IntArray) -> bool:
    """Whether some entries of a matrix are defined, and others are not."""
    defined = np.split(pivot >= 0, np.cumsum(widths)[:-1])
    return any(0 < np.count_nonzero(own) < len(own) for own in defined)


def _single_entries(program: Program) -> IntArray:
    """Return the number of hard equalities that hold one entry of each block."""
    count = np.zeros(len(program.blocks), dtype=np.intp)
    for term in program.A.terms:
        equal = program.bounds.equal[term.at]
        if equal.any():
            terms = np.bincount(term.rows.coordinates().row, minlength=term.rows.m)
            count[term.block] += np.count_nonzero((terms == 1) & equal)
    return count


def _pivots(program: Program, rows: Any) -> IntArray:
    """Return the pivot row of each defined entry, -1 for other entries.

    Blocks that occur in few rows come first, such as matrices that only name an affine expression.
    """
    widths = [n * (n + 1) // 2 for n in program.A.orders]
    starts = np.concatenate([[0], np.cumsum(widths)])
    first = _first_single_rows(rows, np.repeat(np.arange(len(widths)), widths), program.bounds.equal)
    columns, pivot = sp.csc_array(rows), np.full(rows.shape[1], -1)
    is_pivot, touched = np.zeros((2, program.m), dtype=bool)
    occurrences = np.diff(columns.indptr[starts]) / widths
    for b in np.argsort(occurrences, kind="stable"):
        ends = columns.indptr[starts[b] : starts[b + 1] + 1]
        read, of_entry = columns.indices[ends[0] : ends[-1]], np.repeat(np.arange(widths[b]), np.diff(ends))
        own = first[starts[b] : starts[b + 1]]
        chosen = (own >= 0) & ~(np.bincount(of_entry, is_pivot[read], widths[b]) > 0)
        chosen[chosen] = ~touched[own[chosen]]
        pivot[starts[b] : starts[b + 1]][chosen] = own[chosen]
        is_pivot[own[chosen]], touched[read[chosen[of_entry]]] = True, True
    return pivot


def _first_single_rows(rows: Any, block: IntArray, equal: Mask) -> IntArray:
    """Return for each entry a hard equality without other entries of its block, -1 where there is none.

    Of several, it is the one with the fewest entries.
    """
    row = _row_of(rows)
    _, pair, count = np.unique(
        row * (block.max() + 1) + block[rows.indices], return_inverse=True, return_counts=True
    )
    single = np.flatnonzero((count[np.ravel(pair)] == 1) & equal[row])
    order = single[np.argsort(np.diff(rows.indptr)[row[single]], kind="stable")[::-1]]
    first = np.full(rows.shape[1], -1)
    first[rows.indices[order]] = row[order]
    return first


def _values(rows: Any, row: IntArray, entry: IntArray) -> Array:
    """Return the given elements of a sparse matrix, which are stored, row by row in ascending order."""
    width = rows.shape[1]
    key = _row_of(rows) * width + rows.indices
    return rows.data[np.searchsorted(key, row * width + entry)]


def _columns(A: Any, kept: IntArray) -> Any:
    """Return some columns, in ascending order, of a CSR matrix, the matrix itself for all of them."""
    return A if len(kept) == A.shape[1] else columns_at(A, kept)


def _substituted(v: Any, D: Any, F_D: Any, F_0: Array) -> tuple[Any, Array, Array]:
    """Return rows with the defined entries substituted, the constants that result, and their round-off.

    Elements that cancel up to round-off become zero.
    """
    if D.nnz == 0:
        return v, np.zeros(v.shape[0]), np.zeros(v.shape[0])
    K, size = sp.csr_array(v + D @ F_D), sp.csr_array(abs(v) + abs(D) @ abs(F_D))
    K = sp.csr_array(K.multiply(abs(K) > ENTRY_NOISE * size))
    K.eliminate_zeros()
    return K, D @ F_0, ENTRY_NOISE * (abs(D) @ np.abs(F_0))


def _met_by_zero(bounds: Bounds, noise: Array) -> bool:
    """Whether rows without variables hold, up to round-off, at no penalty."""
    return bool((bounds.violation(np.zeros(bounds.m)) <= noise + ENTRY_NOISE * bounds.sizes).all())


def _stacked(F_D: Any, defined: IntArray, others: IntArray, k: int) -> Any:
    """Return ``F``: the rows `F_D` of defined entries, and the other entries as elements of ``v``."""
    if not len(others):
        return F_D
    row = np.concatenate([defined[_row_of(F_D)], others])
    column = np.concatenate([F_D.indices, k + np.arange(len(others))])
    value = np.concatenate([F_D.data, np.ones(len(others))])
    return csr_of(value, row, column, (len(defined) + len(others), k + len(others)))
