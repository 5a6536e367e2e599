"""The problem as a solver receives it: plain arrays, compiled from the declarations of a user.

    minimize    sum over blocks <C, X> + mu D(X, X0)   +   c'u   +   offset   +   penalties of soft rows
    subject to  lo <= A(X) + B u <= hi,   0 <= X (<= cap I),   u_lo <= u <= u_hi,   u_K in Q

``Q`` is the second-order cone; each group ``K`` of variables that are in one has no box.

A :class:`Program` always minimizes; the modeling layer negates the objective of a maximization. A route
starts from a :class:`Start` and returns an :class:`Answer`: a point, its multipliers, and why it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.divergences import DIVERGENCES, Divergence
from bregopt.linalg import columns_at, dense, lean, rows_at
from bregopt.program.bounds import NO_CONES, Bounds, Face, SecondOrderCones
from bregopt.program.linear_map import LinearMap
from bregopt.program.rows import Rows
from bregopt.program.rows.base import Matrix
from bregopt.records import PickledWithoutCache, Text, cached_property, dataclass, kept, replace

if TYPE_CHECKING:
    from bregopt.program.convex_terms import ConvexTerm, Tangent


@dataclass(frozen=True, eq=False)
class Nearness(PickledWithoutCache):
    """The divergence term ``mu D(X, X0)`` of a block.

    Parameters
    ----------
    divergence : str
        A name in :data:`bregopt.divergences.DIVERGENCES`.
    X0 : array of shape (n, n) or LowRank
        The matrix that ``X`` should be near.
    mu : float, above 0
        Weight of the term.
    parameters : mapping from str
        Of the divergence, such as the elementwise `weights` of the squared Frobenius distance.
    """

    divergence: str
    X0: Matrix
    mu: float = 1.0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> type[Divergence]:
        """The class of the divergence, with all facts that do not depend on ``X0``."""
        named = DIVERGENCES[self.divergence]
        return named.variant(**self.parameters) if self.parameters else named

    def on_face(self, face: Face) -> tuple[Nearness, float]:
        """Return the nearness of ``M`` for ``X = V M V'``, and the constant by which this term is larger."""
        M0, constant = divergence_of(self).restricted(face.basis)
        return replace(self, X0=M0), self.mu * constant


@dataclass(frozen=True, eq=False)
class Block(PickledWithoutCache):
    """One matrix variable.

    Parameters
    ----------
    name : str
    n : int
        Its order.
    cost : Rows, optional
        ``C`` as a family of one row; None means zero.
    nearness : Nearness, optional
        None for a linear objective.
    face : Face, optional
        The face that ``X`` is on, where the rows leave the cone no interior; None for the whole cone.
    cap : float, above 0, optional
        Upper bound on the eigenvalues, ``X <= cap I``; None for no bound.
    """

    name: str
    n: int
    cost: Rows | None = None
    nearness: Nearness | None = None
    face: Face | None = None
    cap: float | None = None

    def cost_value(self, X: Matrix) -> float:
        """Return ``<C, X>``."""
        return 0.0 if self.cost is None else float(self.cost.apply(X)[0])

    @cached_property
    def C(self) -> Array:
        """The cost matrix, shape ``(n, n)``."""
        return np.zeros((self.n, self.n)) if self.cost is None else self.cost.adjoint(np.ones(1))

    @cached_property
    def cost_norm(self) -> float:
        """The norm of the cost matrix."""
        return 0.0 if self.cost is None else float(self.cost.norms()[0])


@dataclass(frozen=True, eq=False)
class ParameterSlope:
    """The part of the rows' bounds that depends on a parameter: ``lower @ value`` and ``upper @ value``.

    Parameters
    ----------
    name : str
    value : array of shape (p,)
    lower, upper : csr_array of shape (m, p)
    """

    name: str
    value: Array
    lower: Any
    upper: Any


# A variable dominates a row if it changes it this much more, relative to the matrices, than another row.
# Coefficients are round-off below the second number, relative to their row.
_FAR_MORE, _NOISE = 1e3, 1e-14


# Properties of a program that depend on the coefficients of its rows, and on which variables are in cones.
_OF_COEFFICIENTS = (
    *("alone", "in_cones", "row_sizes", "row_units", "column_sizes"),
    *("Bt", "absolute_B", "_lean_B", "_row_of_coefficient", "by_columns"),
)


@dataclass(frozen=True, eq=False)
class Program(PickledWithoutCache):
    """The problem as a solver receives it; see the docstring of the module.

    Parameters
    ----------
    blocks : tuple of Block
    A : LinearMap
    B : csr_array of shape (m, k)
    bounds : Bounds
        Of the `m` rows.
    c, u_lo, u_hi : array of shape (k,)
    offset : float
        A constant of the objective.
    labels : tuple of (str or Text, int)
        Name and number of rows of each declared constraint, in row order; for messages.
    columns : tuple of (str, int)
        Name and number of elements of each declared ordinary variable, in order, where known.
    parameter_slopes : tuple of ParameterSlope
        The parts of the bounds that depend on parameters; for translation.
    maximize : bool
        Whether the user maximizes the negative of this objective; reports then use the user's sign.
    cones : SecondOrderCones
        Of ordinary variables; none by default.
    constant : float, optional
        The part of `offset` that the user stated as a constant, which gaps leave out; by default all of it.
        ``-log det X`` is a divergence and a constant that is none of the user's.
    terms : tuple of ConvexTerm
        Convex terms of the objective and of rows (:mod:`bregopt.program.convex_terms`).
    tangent : Tangent, optional
        Where the program comes from, if it has tangents in place of convex terms.
    reductions : dict
        Cached results of reductions of this program, by name and options (:mod:`bregopt.presolve`).
    """

    blocks: tuple[Block, ...]
    A: LinearMap
    B: Any
    bounds: Bounds
    c: Array
    u_lo: Array
    u_hi: Array
    offset: float = 0.0
    labels: tuple[tuple[str | Text, int], ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    parameter_slopes: tuple[ParameterSlope, ...] = ()
    maximize: bool = False
    cones: SecondOrderCones = NO_CONES
    constant: float | None = None
    terms: tuple[ConvexTerm, ...] = ()
    tangent: Tangent | None = None
    reductions: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "reductions": {}}

    @property
    def stated_constant(self) -> float:
        """The constant that gaps leave out."""
        return self.offset if self.constant is None else self.constant

    @cached_property
    def m(self) -> int:
        """The number of rows."""
        return self.A.m

    @cached_property
    def k(self) -> int:
        """The number of ordinary variables."""
        return len(self.c)

    @property
    def capped(self) -> bool:
        """Whether a block has an upper bound on its eigenvalues."""
        return any(block.cap is not None for block in self.blocks)

    @property
    def divergences(self) -> tuple[str | None, ...]:
        """The divergence of each block, None where the objective is linear in it."""
        return tuple(None if b.nearness is None else b.nearness.divergence for b in self.blocks)

    @cached_property
    def curved(self) -> tuple[int, ...]:
        """The blocks with a divergence or an upper bound on their eigenvalues."""
        blocks = enumerate(self.blocks)
        return tuple([b for b, block in blocks if block.nearness is not None or block.cap is not None])

    @property
    def has_squares_beside_others(self) -> bool:
        """Whether all divergences are squared distances, beside matrices without one or variables."""
        near = [block.nearness for block in self.blocks if block.nearness is not None]
        plain = all(own.divergence == "frobenius" and not own.parameters for own in near)
        return len(near) > 0 and plain and (len(near) < len(self.blocks) or self.k > 0)

    @cached_property
    def faces(self) -> tuple[Face, ...]:
        """The face that each matrix is on; the whole cone where the rows leave it an interior."""
        return tuple(Face.whole(b.n) if b.face is None else b.face for b in self.blocks)

    @cached_property
    def free(self) -> Mask:
        """Mask of the ordinary variables that neither a box nor a cone bounds, shape ``(k,)``."""
        mask: Mask = np.isinf(self.u_lo) & np.isinf(self.u_hi)
        mask[self.cones.index] = False
        return mask

    @cached_property
    def in_cones(self) -> Mask:
        """Mask of the ordinary variables in second-order cones, shape ``(k,)``."""
        mask = np.zeros(self.k, dtype=bool)
        mask[self.cones.index] = True
        return mask

    @cached_property
    def alone(self) -> Mask:
        """Mask of the rows without ordinary variables."""
        mask: Mask = np.diff(self.B.indptr) == 0 if self.k else np.ones(self.m, dtype=bool)
        return mask

    @cached_property
    def in_one_matrix(self) -> Mask:
        """Mask of the hard rows that depend on exactly one matrix, and on no ordinary variable."""
        mask: Mask = self.bounds.hard & self.alone & self.A.in_one_block
        return mask

    @cached_property
    def row_sizes(self) -> Array:
        """The norm of each row over all matrices and variables, shape ``(m,)``."""
        norms = self.A.norms()
        if not self.k:
            return norms
        if isinstance(self._lean_B, np.ndarray):
            return np.sqrt(norms**2 + np.einsum("kj,kj->k", self._lean_B, self._lean_B))
        return np.sqrt(norms**2 + np.bincount(self._row_of_coefficient, self.B.data**2, self.m))

    @cached_property
    def row_units(self) -> Array:
        """The change of each row by ``X`` of norm one, or by as much of its variables, shape ``(m,)``.

        Rows of matrices change by ``||A_k||``, whatever the units of their variables, others by the largest
        ``|B_kj|`` relative to the size of the column.
        """
        if self.k == 0:
            return self.A.norms()
        norms, columns = self._matrix_norms, self.column_sizes
        per_size = np.divide(1.0, columns, out=np.zeros(self.k), where=columns > 0)
        return np.where(norms > 0, norms, self._largest_in_rows(per_size))

    @cached_property
    def bound_scale(self) -> float:
        """The largest bound of a row relative to its unit; one where all bounds are zero."""
        ends, size = self.bounds.sizes, self.row_units
        largest = float((ends[size > 0] / size[size > 0]).max(initial=0.0))
        return largest if largest > 0 else 1.0

    @cached_property
    def Bt(self) -> Any:
        """The transpose of ``B``, for products; dense where variables are few."""
        return sp.csr_array(self._lean_B.T) if sp.issparse(self._lean_B) else self._lean_B.T.copy()

    @cached_property
    def absolute_B(self) -> Any:
        """``|B|``, entry by entry, for products."""
        return abs(self._lean_B)

    @cached_property
    def _lean_B(self) -> Any:
        return lean(self.B)

    @cached_property
    def column_sizes(self) -> Array:
        """The size of ``X`` that changes a row as much as one unit of a variable, shape ``(k,)``.

        The largest ``|B_kj| / ||A_k||`` over the rows of matrices. For variables in no such row it follows
        from those of the variables that they share rows or a cone with; where none of these has one, it is
        the largest ``|B_kj| / ||B_k||``.
        """
        if self.m == 0 or self.k == 0:
            return np.zeros(self.k)
        norms = self._matrix_norms
        sizes = np.zeros(self.k)
        if norms.any():
            sizes = self._within_cones(self._largest_share(np.where(norms > 0, norms, np.inf)))
        while (known := sizes > 0).any() and not known.all():
            per_size = np.divide(1.0, sizes, out=np.zeros(self.k), where=known)
            rows = self._largest_in_rows(per_size)
            shared = self._largest_share(np.where((norms == 0) & (rows > 0), rows, np.inf))
            if not shared[~known].any():
                break
            sizes = self._within_cones(np.where(known, sizes, shared))
        alone = self._largest_share(np.where(self.row_sizes > 0, self.row_sizes, np.inf))
        return self._within_cones(np.where(sizes > 0, sizes, alone))

    @cached_property
    def _matrix_norms(self) -> Array:
        """``||A_k||``, zero where a variable dominates the row, as the rows without such variables show.

        A nearly vanishing coefficient of ``X`` does not measure the variables beside it, nor does one of a
        variable that is round-off in its row.
        """
        row, column, data = self._row_of_coefficient, self.B.indices, np.abs(self.B.data)
        clear, measured = data > _NOISE * self.row_sizes[row], np.zeros(self.k, bool)
        measured[column[clear]] = True
        at = (clear | ~measured[column] & (data > 0)).nonzero()[0]
        norms, row, column, dominated = self.A.norms(), row[at], column[at], np.zeros(self.m, bool)
        share = np.divide(data[at], norms[row], np.full(len(at), np.inf), where=norms[row] > 0)
        for _ in range(2):  # at first in all rows
            least = np.full(self.k, np.inf)
            np.minimum.at(least, column, np.where(dominated[row], np.inf, share))
            far = np.isfinite(share) & (share > _FAR_MORE * least[column])
            if not far.any():
                return norms
            dominated[row[far]] = True
        return np.where(np.isin(np.arange(self.m), row[far]), 0.0, norms)

    def _within_cones(self, sizes: Array) -> Array:
        """Return the sizes of columns, unknown ones in a second-order cone from the others there."""
        cones = self.cones
        if not cones.count:
            return sizes
        own, within = sizes[cones.index], sizes.copy()
        largest = np.maximum.reduceat(own, cones.starts)[cones.owner]
        within[cones.index] = np.where(own > 0, own, largest)
        return within

    def _largest_in_rows(self, sizes: Array) -> Array:
        """Return the largest ``|B_kj| sizes_j`` of each row."""
        if isinstance(self.absolute_B, np.ndarray):
            return (self.absolute_B * sizes).max(axis=1, initial=0.0)
        largest = np.zeros(self.m)
        np.maximum.at(largest, self._row_of_coefficient, np.abs(self.B.data) * sizes[self.B.indices])
        return largest

    def _largest_share(self, sizes: Array) -> Array:
        """Return the largest ``|B_kj| / sizes_k`` of each column."""
        if isinstance(self.absolute_B, np.ndarray):
            return (self.absolute_B / sizes[:, None]).max(axis=0, initial=0.0)
        share = np.zeros(self.k)
        np.maximum.at(share, self.B.indices, np.abs(self.B.data) / sizes[self._row_of_coefficient])
        return share

    @cached_property
    def by_columns(self) -> tuple[IntArray, IntArray, Array]:
        """The nonzero coefficients of variables, one after the other: where each begins, rows and values."""
        at = self.B.data.nonzero()[0]
        order = at[self.B.indices[at].argsort(kind="stable")]
        starts = self.B.indices[order].searchsorted(np.arange(self.k + 1))
        return starts, self._row_of_coefficient[order], self.B.data[order]

    def columns_of(self, variables: IntArray) -> Array:
        """Return the coefficients of some variables, a dense array of shape ``(m, len(variables))``."""
        lean_B = self._lean_B
        return dense(columns_at(self.B, variables)) if sp.issparse(lean_B) else lean_B[:, variables]

    @cached_property
    def _row_of_coefficient(self) -> IntArray:
        """The row of each stored coefficient in ``B``."""
        return np.repeat(np.arange(self.m), np.diff(self.B.indptr))

    def activity(self, X: Sequence[Matrix], u: Array) -> Array:
        """Return ``A(X) + B u``, shape ``(m,)``."""
        activity = self.A.apply(X)
        return activity + u @ self.Bt if self.k else activity

    def restated(self, **changes: Any) -> Program:
        """Return the program with other bounds or costs, and with what its coefficients have determined."""
        other = replace(self, **changes)
        if other.A is self.A and other.B is self.B:
            vars(other).update({name: own for name, own in vars(self).items() if name in _OF_COEFFICIENTS})
        return other

    def of_rows(self, kept: IntArray) -> Program:
        """Return the program of some rows, in ascending order."""
        return replace(
            self,
            A=self.A.slice(kept),
            B=rows_at(self.B, kept),
            bounds=self.bounds.slice(kept),
            labels=self.labels_of(kept),
        )

    def of_variables(self, kept: IntArray) -> Program:
        """Return the program without the other ordinary variables, which are zero."""
        return replace(
            self,
            B=columns_at(self.B, kept),
            c=self.c[kept],
            u_lo=self.u_lo[kept],
            u_hi=self.u_hi[kept],
            cones=self.cones.renumbered(np.searchsorted(kept, np.arange(self.k))),
        )

    def restrict(self, block: int, V: Array, X0: Array | None = None) -> Program:
        """Return the program in ``M`` for ``X_block = V M V'``.

        The new ``X0`` is in these coordinates; without a divergence there is none. Where the block has a cap,
        the columns of `V` must be orthonormal: then ``M`` has the same cap.
        """
        old = self.blocks[block]
        assert old.cap is None or np.allclose(V.T @ V, np.eye(V.shape[1]))
        cost = None if old.cost is None else old.cost.restrict(V)
        nearness = old.nearness if old.nearness is None or X0 is None else replace(old.nearness, X0=X0)
        new = replace(old, n=V.shape[1], cost=cost, nearness=nearness, face=None)
        blocks = tuple(new if b == block else other for b, other in enumerate(self.blocks))
        return replace(self, blocks=blocks, A=self.A.restrict(block, V))

    def labels_of(self, kept: IntArray) -> tuple[tuple[str | Text, int], ...]:
        """Return the labels of the constraints with the numbers of their rows among some rows, ascending."""
        ends = np.cumsum([0, *(size for _, size in self.labels)])
        left = np.diff(np.searchsorted(kept, ends))
        return tuple((label, int(size)) for (label, _), size in zip(self.labels, left, strict=True))

    def row_name(self, k: int) -> str:
        """Return the declared name of row `k`: its constraint and its index there."""
        start = 0
        for number, (label, size) in enumerate(self.labels):
            if k < start + size:
                return f"constraint {number} ({label})" + (f", row {k - start}" if size > 1 else "")
            start += size
        return f"row {k}"


@kept
def divergence_of(nearness: Nearness) -> Divergence:
    """Return the divergence anchored at a block's dense ``X0``; computed once for each nearness term."""
    make: Any = nearness.kind
    found: Divergence = make(np.asarray(nearness.X0), **nearness.parameters)
    return found


@dataclass(frozen=True, eq=False)
class Declaration:
    """A declared constraint and its part of a program.

    Parameters
    ----------
    number : int
        Its place among the constraints of the problem.
    label : str
        The constraint as text.
    name : str or None
        The name that the user gave it.
    shape : tuple of int or None
        The shape of its rows, in C order; None for a constraint that holds or fails as a whole.
    rows : int array
        Its rows in the program.
    cones : int array
        Its second-order cones in the program.
    block : int or None
        The matrix whose eigenvalues it bounds.
    axes : tuple of pandas.Index or None
        The labels of its rows, one index for each axis.
    """

    number: int
    label: str
    name: str | None
    shape: tuple[int, ...] | None
    rows: IntArray
    cones: IntArray
    block: int | None = None
    axes: tuple[Any, ...] | None = None

    @property
    def title(self) -> str:
        """The name, or the number where it has none."""
        return f"constraint {self.number}" if self.name is None else self.name

    def index(self, k: int) -> tuple[Any, ...] | None:
        """Return the index or the labels of its `k`-th row; None if it is one row, or a whole."""
        if not self.shape:
            return None
        place = tuple(map(int, np.unravel_index(k, self.shape)))
        if self.axes is None:
            return place
        return tuple(axis[i] for axis, i in zip(self.axes, place, strict=True))


class StopReason(StrEnum):
    """Why a route stopped, with advice."""

    CONVERGED = "The certificate meets the tolerance."
    MAX_ITER = "max_iter was reached; raise it, loosen tol, or try another solver or method."
    TIME_LIMIT = "time_limit was reached; raise it, loosen tol, or try another solver or method."
    INTERRUPTED = "Interrupted from the keyboard; the best iterate is returned."
    CALLBACK = "The callback ended the solve; the best iterate is returned."
    STALLED = "No further progress in floating point; loosen tol or rescale the problem."
    INFEASIBLE = "No X meets the hard rows: a combination of them contradicts X psd. Make some soft."
    UNBOUNDED = "The objective falls without end along a ray; add a bound or a trace constraint."
    LOCAL_OPTIMUM = "A local optimum: no small change of the answer improves it."
    INACCURATE = "The solver stopped, but the certificate of its answer does not meet tol."


ENDED = frozenset({StopReason.TIME_LIMIT, StopReason.INTERRUPTED, StopReason.CALLBACK})
"""The reasons that come from outside a route."""

LIMITS = ENDED | {StopReason.MAX_ITER}
"""The reasons that are limits of the user, or the documented default of the iterations."""


@dataclass(frozen=True, eq=False)
class Start:
    """The start: an earlier answer to a program with the same rows; `S` as in :class:`Answer`."""

    X: tuple[Matrix, ...]
    u: Array
    y: Array
    S: Sequence[Array | None] | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a route; the driver certifies it.

    Parameters
    ----------
    X : sequence of arrays of shape (n_b, n_b) or LowRank
        Positive semidefinite. For an unbounded problem, the ray, dense.
    u : array of shape (k,)
    y : array of shape (m,)
        Multipliers, positive at lower bounds. For an infeasible problem, the Farkas vector.
    stop : StopReason
    iterations : int
    detail : str
        More on why it stopped, such as an external solver's status.
    citation : str
        The citation of the method that ran, where it is not the route's own.
    y_on_faces : array of shape (m,), optional
        Multipliers that are valid only on the faces to which the rows restrict ``X``, should `y` prove less.
    iteration_bound : float, optional
        Upper bound on the iterations that the route needs for the tolerance, where its theory has one.
    S : sequence of arrays of shape (n_b, n_b) or None, optional
        Multipliers of ``X psd``, of blocks with elementwise weights.
    inner : Answer, optional
        An earlier, less accurate iterate farther inside the cones, which proofs mix with the answer.
    """

    X: Sequence[Any]
    u: Array
    y: Array
    stop: StopReason
    iterations: int
    detail: str = ""
    citation: str = ""
    y_on_faces: Array | None = None
    iteration_bound: float | None = None
    S: Sequence[Array | None] | None = None
    inner: Answer | None = None

    @classmethod
    def without_point(cls, program: Program, y: Array, stop: StopReason, iterations: int = 0) -> Answer:
        """Return an answer of multipliers alone, such as a Farkas vector; matrices and variables are zero."""
        X = tuple(np.zeros((block.n, block.n)) for block in program.blocks)
        return cls(X, np.zeros(program.k), y, stop, iterations)
