"""The plan of a program: what the method knows of its structure, computed once for all steps.

All matrices are one flat vector. Its parts are the groups: a block, few small blocks as one block-diagonal
matrix, or a stack of small blocks of equal order and weight. The rows are one matrix on that vector where
their entries are few enough to be listed, so that ``A`` and ``A*`` are one product each for all blocks. Rows
of fewer numbers than entries, such as ``z z'``, keep their own formulas. The Schur matrix is a sum
over the groups, by the cheapest formula for each (:mod:`bregopt.routes.ipm.block_rows`,
:mod:`bregopt.routes.ipm.many_blocks`).

Newton's system at a point of the method is stated here, too; :mod:`bregopt.routes.ipm.row_system` solves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.linalg import dense, symmetrize
from bregopt.program import NO_CONES, Face, LinearMap, SecondOrderCones, Term
from bregopt.program.rows import DenseRows, placed_coordinates
from bregopt.records import cached_property
from bregopt.routes.ipm.block_rows import SPARSE_ORDER, RowAction
from bregopt.routes.ipm.bound_state import FiniteBounds
from bregopt.routes.ipm.cones import Cone, FaceCone, StackCone
from bregopt.routes.ipm.schur import DenseSchur

if TYPE_CHECKING:
    from bregopt.routes.ipm.many_blocks import StackRows

# Largest order of small blocks as one matrix, and its entries times the square of the number of rows. Up to
# there the calls for more groups take longer than the arithmetic with zeros.
_JOINT_ORDER, _JOINT_WORK = 20, 1e5
# Largest order of the blocks of a stack, and the most operations for the Schur matrix of one, a pair of terms
# being several. Calls for larger blocks cost less than arithmetic, for which one alone has better formulas.
_STACK_ORDER, _STACK_WORK, _PAIR_OPERATIONS = 40, 1e6, 10
# Largest number of terms of all rows in a stack.
_STACK_TERMS = 5_000_000

# Fraction of nonzeros from which the rows on the flat vector are a dense matrix.
_DENSE_FRACTION = 0.1

_SMALL_MAP = 50_000  # entries of a matrix of rows whose dense products take less time than sparse ones' calls
_LISTED = 2_000_000  # entries of the rows in a block up to which they are listed


class Group:
    """The blocks of a program that are one array in the method.

    Parameters
    ----------
    A : LinearMap
    blocks : tuple of int
    cone : Cone
    stack : StackRows or None
        The rows of a stack.
    part : slice
        Its part of the flat vector.
    shape : tuple of int
        ``(n, n)`` of one matrix, ``(B, n, n)`` of a stack.
    weight : float
        Of the ``-logdet X`` of each block.

    Attributes
    ----------
    corners : list of slice
        The places of several blocks on the diagonal of one matrix; empty for others.
    """

    def __init__(
        self,
        A: LinearMap,
        blocks: tuple[int, ...],
        cone: Cone,
        stack: StackRows | None,
        part: slice,
        shape: tuple[int, ...],
        weight: float,
    ) -> None:
        self._A, self.blocks, self.cone, self.part = A, blocks, cone, part
        self.stack, self.shape, self.weight = stack, shape, weight
        self.corners: list[slice] = []
        if len(shape) == 2 and len(blocks) > 1:
            ends = list(accumulate(A.orders[b] for b in blocks))
            self.corners = list(map(slice, [0, *ends], ends))

    def take_rows(self, rows: Array) -> None:
        """Take the rows of several blocks as those of one, from their columns in a matrix of the rows."""
        m, n = len(rows), self.shape[0]
        self._A = LinearMap(m, (n,), (Term(0, np.arange(m), DenseRows(rows.reshape(m, n, n))),))

    @cached_property
    def rows(self) -> RowAction | StackRows:
        """Their part of the Schur matrix; systems in scaled coordinates do without it."""
        block = 0 if self.corners else self.blocks[0]
        return RowAction(self._A, block) if self.stack is None else self.stack

    @property
    def by_entry(self) -> bool:
        """Whether products are not formed for the rows, as they have few entries."""
        return isinstance(self.rows, RowAction) and self.rows.by_entry

    def of(self, v: Array) -> Array:
        """Return the matrices of the group in a flat vector, as a view."""
        return v[self.part].reshape(self.shape)

    def first_entry(self, k: int) -> int:
        """Return the place of the first entry of a block in the part of the group."""
        n = self.shape[-1]
        return self.corners[k].start * (n + 1) if self.corners else k * n**2

    def each(self, numbers: Any) -> Any:
        """Return a number for each matrix in a shape that multiplies the array of the group."""
        if self.corners and numbers.size == len(self.corners):
            return np.repeat(numbers, [own.stop - own.start for own in self.corners])[:, None]
        return numbers.reshape(*self.shape[:-2], 1, 1)

    def joined(self, matrices: Sequence[Any]) -> Array:
        """Return the part of the group in a flat vector, from the matrices of all blocks."""
        own = [np.asarray(matrices[b]) for b in self.blocks]
        if not self.corners:
            return np.concatenate([M.ravel() for M in own])
        array = np.zeros(self.shape)
        for corner, M in zip(self.corners, own, strict=True):
            array[corner, corner] = M
        return array.ravel()

    def product(self, S: Array, X: Array) -> Array:
        """Return ``S X`` for ``S = A*(y)``, by the entries that the rows have if these are few."""
        if self.shape[-1] >= SPARSE_ORDER and isinstance(self.rows, RowAction) and self.rows.sparse:
            return np.asarray(self.rows.in_pattern(S) @ X)
        product: Array = S @ X
        return product


# Pays on: 100 random rows, n = 80.
class Plan:
    """The groups of a program, and its rows on their flat vector.

    Parameters
    ----------
    A : LinearMap
    faces : sequence of Face
    weights : sequence of float
        Of the ``-logdet X`` of each block.
    stacked : bool
        Whether there are stacks; otherwise each block is a group.

    Attributes
    ----------
    groups : tuple of Group
    weights : tuple of float
        Of each group.
    size, order : int
        The length of the flat vector, and the sum of the orders of all matrices on their faces.
    faces : list of Group
        The blocks on proper faces.
    listed : array, sparse array or None
        The matrix of the rows on the flat vector; None where some are not listed.
    grams : dict
        Of the start: the solver for the Gram matrix of some equalities, and multipliers of the identity.
    finite : FiniteBounds or None
        The bounds of the last program.
    scaled : tuple or None
        Variables' columns and the kind of the last program, and its rows for scaled coordinates.
    """

    def __init__(
        self, A: LinearMap, faces: Sequence[Face], weights: tuple[float, ...], stacked: bool
    ) -> None:
        self.A, self.m = A, A.m
        self._given = weights, stacked
        self.grams: dict[bytes, tuple[Callable[[Array], Array], Array | None]] = {}
        self.finite: FiniteBounds | None = None
        self.scaled: tuple[Any, bytes, Any] | None = None
        several = stacked and len(faces) > 1
        joint = _joint(A, faces, weights) if several else ()
        stacks = list(_stacks(A, faces, weights)) if several and not joint else []
        inside = {*joint, *(b for blocks, _ in stacks for b in blocks)}
        groups, start = [], 0

        def add(
            blocks: tuple[int, ...], cone: Cone, shape: tuple[int, ...], stack: StackRows | None = None
        ) -> None:
            nonlocal start
            end = start + math.prod(shape)
            groups.append(Group(A, blocks, cone, stack, slice(start, end), shape, weights[blocks[0]]))
            start = end

        for b, face in enumerate(faces):
            if b not in inside:
                add((b,), FaceCone(face), (face.n, face.n))
        if joint:
            n = sum([A.orders[b] for b in joint])
            add(joint, FaceCone(Face.whole(n)), (n, n))
        for blocks, rows in stacks:
            n = faces[blocks[0]].n
            add(blocks, StackCone(len(blocks), n), (len(blocks), n, n), rows)
        self.groups, self.size = tuple(groups), start
        self.weights = tuple([group.weight for group in groups])
        self.order = sum([group.cone.order for group in groups])
        self.faces = [group for group in groups if group.cone.is_face]
        self._shapes = [(group.part, group.shape) for group in groups]
        self._map, self._adjoint, self._by_formula = self._listed_rows()
        self.listed = None if self._by_formula else self._map
        if joint:
            table = np.zeros((self.m, self.size)) if self._map is None else self._map
            groups[-1].take_rows(dense(table[:, groups[-1].part]))

    @classmethod
    def of(
        cls,
        A: LinearMap,
        faces: Sequence[Face] | None = None,
        weights: Sequence[float] | None = None,
        stacked: bool = True,
    ) -> Plan:
        """Return the plan of some rows, by default on whole cones and without log-determinants.

        That of few small rows on whole cones is kept with them. A parameter in bounds or costs leaves it as
        it is, and making it would take a tenth of the time of such a solve.
        """
        weights = (0.0,) * len(A.orders) if weights is None else tuple(weights)
        if faces is not None and any(face.codimension for face in faces):
            return cls(A, faces, weights, stacked)
        known: Plan | None = A.plans.get(cls)
        if known is None or known._given != (weights, stacked):
            known = cls(A, [Face.whole(n) for n in A.orders], weights, stacked)
            if A.m * known.size <= _SMALL_MAP:
                A.plans[cls] = known
        return known

    def views(self, v: Array) -> list[Array]:
        """Return the arrays of the groups in a flat vector, as views."""
        if len(self._shapes) == 1:
            return [v.reshape(self._shapes[0][1])]
        return [v[part].reshape(shape) for part, shape in self._shapes]

    def joined(self, matrices: Sequence[Any]) -> Array:
        """Return the flat vector of the matrices of all blocks."""
        if len(matrices) == 1:
            return np.asarray(matrices[0]).ravel()
        return np.concatenate([np.zeros(0), *(group.joined(matrices) for group in self.groups)])

    def matrices(self, v: Array) -> tuple[Array, ...]:
        """Return the matrices of all blocks, in their order, from a flat vector."""
        found: dict[int, Array] = {}
        for group in self.groups:
            own = group.of(v)
            matrices = own if own.ndim == 3 else [own[c, c].copy() for c in group.corners] or [own]
            found.update(zip(group.blocks, matrices, strict=True))
        return tuple(map(found.__getitem__, range(len(found))))

    @cached_property
    def whole_identity(self) -> Array:
        """The identity of each block, flat."""
        identity = np.zeros(self.size)
        identity[self._diagonals[0]] = 1.0
        return identity

    @cached_property
    def identity(self) -> Array:
        """The identity of each block on its face, flat."""
        return self.projected(self.whole_identity.copy()) if self.faces else self.whole_identity

    def projected(self, v: Array) -> Array:
        """Return a flat vector, overwritten by its projection on the faces."""
        for group in self.faces:
            group.of(v)[...] = group.cone.project(group.of(v))
        return v

    def spread(self, numbers: Sequence[float]) -> float | Array:
        """Return a number for each group, as one for each entry of the flat vector if they differ."""
        if all(number == numbers[0] for number in numbers):
            return numbers[0]
        return np.repeat(numbers, [group.part.stop - group.part.start for group in self.groups])

    def apply(self, S: Array) -> Array:
        """Return ``A(S)`` for symmetric matrices; of others in listed groups, for their symmetric parts."""
        activity: Array = np.zeros(self.m) if self._map is None else self._map @ S
        for group in self._by_formula:
            activity += group.rows.apply(group.of(S))  # type: ignore[union-attr]
        return activity

    def adjoint(self, y: Array) -> Array:
        """Return ``A*(y)``."""
        S: Array = np.zeros(self.size) if self._adjoint is None else self._adjoint @ y
        for group in self._by_formula:
            group.of(S)[...] = dense(group.rows.adjoint(y))  # type: ignore[union-attr]
        return S

    def apply_sum(self, weight: float | Array, X: Array, K: Array, R: Sequence[Array | None] | None) -> Array:
        """Return ``A(weight K - X + sym(K R))``; None stands for zero."""
        total = -X if isinstance(weight, float) and not weight else weight * K - X
        by_entry: list[tuple[Any, Array, Array]] = []
        if R is not None:
            parts = zip(self.groups, R, self.views(K), self.views(total), strict=True)
            for group, R_g, K_g, own in parts:
                if R_g is None:
                    continue
                if group.by_entry:
                    by_entry.append((group.rows, K_g, R_g))
                    continue
                product = K_g @ R_g
                own += symmetrize(product) if group in self._by_formula else product
        activity = self.apply(total)
        for rows, K_g, R_g in by_entry:
            activity += rows.apply_product(K_g, R_g.T)  # K is its own transpose
        return activity

    def gram(self, P: Array, rows: IntArray) -> Array:
        """Return the Schur matrix ``<A_k, P A_l P>`` of some rows, in ascending order."""
        parts = self.views(P)
        return self.schur(parts, parts, rows, [None] * len(parts))

    def schur(
        self,
        X: Sequence[Array],
        K: Sequence[Array],
        rows: IntArray,
        roots: Sequence[Any],
        Z_roots: Sequence[Array] = (),
    ) -> Array:
        """Return the Schur matrix ``<A_k, sym(X A_l K)>`` of some rows, given roots of ``X``, ``inv(K)``."""
        H: Array | None = None
        for g, own in enumerate(self._dense):
            if own is None:
                part = self.groups[g].rows.schur(X[g], K[g], rows, roots[g])
            else:
                part = own.gram(roots[g], Z_roots[g], rows) if Z_roots else own(X[g], K[g], rows)
            H = part if H is None else np.add(H, part, out=H)
        assert H is not None
        return H

    @cached_property
    def _dense(self) -> list[DenseSchur | None]:
        """The rows of the groups whose Schur matrix costs least from dense matrices."""
        found: list[DenseSchur | None] = []
        for group in self.groups:
            # Dependent rows of a LogDet term, and those of a face, keep more digits by their own formulas.
            whole = group.stack is None and not (group.cone.is_face or group.weight)
            dense = isinstance(self._map, np.ndarray) and whole
            own = DenseSchur.of(self._map[:, group.part], group.shape[-1]) if dense else None
            hadamard = own is not None and isinstance(group.rows, RowAction) and group.rows.hadamard
            found.append(None if hadamard else own)
        return found

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        if not self._small:
            largest = [group.rows.magnitudes(group.of(X)) for group in self.groups]
            return largest[0] if len(largest) == 1 else np.maximum.reduce(largest)
        products = []
        for own in self.views(X):
            scale = np.sqrt(np.maximum(own.diagonal(axis1=-2, axis2=-1), 0.0))
            products.append((scale[..., None] * scale[..., None, :]).ravel())
        if len(self.A.orders) == 1:
            return np.asarray(self._absolute @ products[0])
        places, starts, _ = self._diagonals  # before a diagonal entry of a block its row has zeros
        sums = np.add.reduceat(self._absolute * np.concatenate(products), places[starts], axis=1)
        return np.maximum.reduce(sums, axis=1, initial=0.0)

    @cached_property
    def _absolute(self) -> Array:
        """The absolute values of few rows."""
        return np.zeros((self.m, self.size)) if self._map is None else np.abs(self._map)

    def traces(self, X: Array) -> Array:
        """Return the trace of each block."""
        places, starts, blocks = self._diagonals
        traces = np.zeros(len(self.A.orders))
        traces[blocks] = np.add.reduceat(X.take(places), starts)
        return traces

    def diagonals(self, X: Array) -> Array:
        """Return the diagonals of all blocks, as one vector."""
        return X.take(self._diagonals[0])

    @cached_property
    def _diagonals(self) -> tuple[IntArray, IntArray, IntArray]:
        """The places of the diagonals in the flat vector, one block after the other, and their starts."""
        places, blocks = [np.zeros(0, dtype=np.intp)], []
        for group in self.groups:
            n = group.shape[-1]
            each = group.part.start + np.arange(n) * (n + 1)
            for k, b in enumerate(group.blocks if n else ()):
                places.append(each[group.corners[k]] if group.corners else each + k * n**2)
                blocks.append(b)
        starts = [0, *accumulate([len(own) for own in places[1:]])][:-1]
        return np.concatenate(places), np.array(starts, dtype=np.intp), np.array(blocks, dtype=np.intp)

    def inverses(self, roots: Sequence[Array]) -> Array:
        """Return the inverses of matrices from their roots."""
        if len(self.groups) == 1:
            return self.groups[0].cone.inverse(roots[0]).ravel()
        parts = zip(self.groups, roots, strict=True)
        return np.concatenate([group.cone.inverse(root).ravel() for group, root in parts])

    def roots(self, parts: Sequence[Array]) -> list[Array] | None:
        """Return the roots of the groups' arrays, None if a matrix is not positive definite on its face."""
        roots = []
        for group, own in zip(self.groups, parts, strict=True):
            root = group.cone.root(own)
            if root is None:
                return None
            roots.append(root)
        return roots

    def _listed_rows(self) -> tuple[Any, Any, tuple[Group, ...]]:
        """Return the matrix of the rows that are listed, its transpose, and the groups whose rows are not."""
        m, size = self.m, self.size
        small = self._small = m * size <= _SMALL_MAP
        by_formula = () if small else tuple(group for group in self.groups if not self._is_listed(group))
        listed = [
            (group.part.start + group.first_entry(k), group.shape[-1], term)
            for group in self.groups
            if group not in by_formula
            for k, b in enumerate(group.blocks)
            for term in self.A.terms_of(b)
        ]
        if not listed:
            return None, None, by_formula
        if small or sum(term.count for *_, term in listed) > _DENSE_FRACTION * m * size:
            rows: Any = np.zeros((m, size))
            others = []
            for own in listed:
                first, n, term = own
                if isinstance(term.rows, DenseRows) and n == term.rows.n:
                    rows[term.place, first : first + n**2] = term.rows.stack.reshape(term.rows.m, -1)
                else:
                    others.append(own)
            if others:
                np.add.at(rows, *_entries(m, others))
        else:
            at, value = _entries(m, listed)
            rows = sp.csr_array((value, at), (m, size))
        return rows, rows.T, by_formula

    def _is_listed(self, group: Group) -> bool:
        """Whether the entries of the rows in a group are few, and none of its families has fewer numbers."""
        rows = [term.rows for b in group.blocks for term in self.A.terms_of(b)]
        short = any(own.rank is not None and own.count() > 2 * own.m * own.n for own in rows)
        return len(group.blocks) > 1 or not (short or sum(own.count() for own in rows) > _LISTED)


def _entries(m: int, listed: Sequence[tuple[int, int, Term]]) -> tuple[tuple[IntArray, IntArray], Array]:
    """Return rows, places in the flat vector, and values of families.

    Each comes with the place of its first entry, and the order of the matrix around it.
    """
    t = placed_coordinates((k * m + term.at, term.rows) for k, (*_, term) in enumerate(listed))
    family, row = np.divmod(t.row, m)
    first, n = np.array([own[:2] for own in listed]).T[:, family]
    place = np.concatenate([first + t.i * n + t.j, first + t.j * n + t.i])
    half = t.value / 2
    return (np.concatenate([row, row]), place), np.concatenate([half, half])


# Pays on: hinf4.
def _joint(A: LinearMap, faces: Sequence[Face], weights: Sequence[float]) -> tuple[int, ...]:
    """Return the blocks that are one block-diagonal matrix, none where they are not few and small."""
    own = [b for b, face in enumerate(faces) if face.n and not face.codimension and not weights[b]]
    n = sum([A.orders[b] for b in own])
    few = len(own) > 1 and n <= _JOINT_ORDER and float(n * A.m) ** 2 <= _JOINT_WORK
    return tuple(own) if few else ()


# Pays on: 100 matrices of order 5.
def _stacks(
    A: LinearMap, faces: Sequence[Face], weights: Sequence[float]
) -> Iterator[tuple[tuple[int, ...], StackRows]]:
    """Yield the blocks of each stack, of equal order and weight, and their rows."""

    def kind(b: int) -> tuple[int, float]:
        return faces[b].n, weights[b]

    def is_light(b: int) -> bool:
        own, n = A.terms_of(b), A.orders[b]
        rows, terms = sum(len(t.at) for t in own), sum(t.count for t in own)
        return min(2 * rows * n**3 + (rows * n) ** 2, _PAIR_OPERATIONS * terms**2) <= _STACK_WORK

    small = [b for b, face in enumerate(faces) if not face.codimension and 0 < face.n <= _STACK_ORDER]
    for _, blocks in groupby(sorted(filter(is_light, small), key=kind), key=kind):
        own = tuple(blocks)
        if len(own) > 1 and sum(t.count for b in own for t in A.terms_of(b)) <= _STACK_TERMS:
            from bregopt.routes.ipm.many_blocks import StackRows, StackTerms  # only equal orders wait

            terms = StackTerms.of(A, own)
            if StackRows.fits(terms):
                yield own, StackRows(terms)


class ScalingPoint:
    """The point at which Newton's system is formed.

    Parameters
    ----------
    plan : Plan
    X : array of shape (size,)
        The flat vector of positive definite matrices, possibly on a face.
    roots, Z_roots : sequence of arrays
        Roots of ``X`` and ``inv(K)`` for each group (:class:`~bregopt.routes.ipm.cones.Cone`): the lower
        Cholesky factor of a block on its face, the inverse factors of a stack.
    D : array of shape (m,)
        Infinite for a row without finite bounds.
    D_u : array of shape (k,)
        Infinite for a free variable.
    cones : SecondOrderCones
        Of the variables.
    p_u : array of shape (cones.size,) or None
        ``D_u`` of the system is ``diag(D_u)`` plus ``p p'`` for the part ``p`` of each cone; None without
        cones.
    K : array of shape (size,), optional
        The inverse by the roots by default.
    """

    def __init__(
        self,
        plan: Plan,
        X: Array,
        roots: Sequence[Array],
        Z_roots: Sequence[Array],
        D: Array,
        D_u: Array,
        cones: SecondOrderCones = NO_CONES,
        p_u: Array | None = None,
        K: Array | None = None,
    ) -> None:
        self._plan, self.X, self.roots, self.Z_roots = plan, X, roots, Z_roots
        self.D, self.D_u, self.cones, self.p_u, self._K = D, D_u, cones, p_u, K

    @cached_property
    def K(self) -> Array:
        """The flat vector of ``K``, for which scaled coordinates have no use."""
        return self._plan.inverses(self.Z_roots) if self._K is None else self._K

    @cached_property
    def X_parts(self) -> list[Array]:
        """The views of ``X`` for each group."""
        return self._plan.views(self.X)

    @cached_property
    def K_parts(self) -> list[Array]:
        """The views of ``K`` for each group."""
        return self._plan.views(self.K)


class RightHandSide(NamedTuple):
    """Right-hand sides: of ``dX = w K - X + sym(K (A*(dy) X + R))`` and of the rows and variables.

    The weight is a number, or one for each entry of the flat vector. `R` has one element for each group; None
    stands for zero.
    """

    weight: float | Array
    R: Sequence[Array | None] | None
    r: Array
    r_u: Array
    q: Array


class Step(NamedTuple):
    """The solution of the system: symmetric ``dX``, ``du``, ``dy``, and ``A*(dy)`` (`adjoint`), flat."""

    X: Array
    u: Array
    y: Array
    adjoint: Array


Solve = Callable[[RightHandSide], Step]


class System(Protocol):
    """Newton's system for one problem.

    Attributes
    ----------
    direct : bool
        Whether the system is factorized; otherwise conjugate gradients solve it.
    lost_digits : bool
        Whether a step has shown that the system loses digits which another keeps.
    """

    @property
    def direct(self) -> bool: ...

    @property
    def lost_digits(self) -> bool: ...

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        """Return the solver of the system for any right-hand side."""
        ...
