"""The optimum of a program with convex terms, such as entropies, and its derivative.

In the real coordinates of :class:`bregopt.routes.entropy.standard_form.StandardForm` the optimality
conditions of matrices, variables and multipliers ``y`` of the rows that act are

    grad f(x) - N(x)'y = S,    a(x) = target(y),    X S = 0.

A matrix inside its cone has ``S = 0``. Otherwise ``X`` and ``S`` have common eigenvectors, in two groups, and
``x`` moves in the tangent space, where ``dS_ij = -(s_i / x_j) dX_ij`` between the groups. With the second
derivative ``H`` of the Lagrangian, plus that curvature, a change solves

    D w + N v = r,    N'w - H v = q.

The matrix is symmetric, so that gradients of functions of the answer need the same one. Terms may couple all
matrices and variables, which the optimum of :mod:`bregopt.routes.derivatives.optimum` does not allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask, check_memory
from bregopt.program import Penalty, Program
from bregopt.program.convex_functions import Local, hmat, hvec, upper_places
from bregopt.program.convex_terms import tangent_program
from bregopt.program.scale import scale_of
from bregopt.records import cached_property, dataclass, replace
from bregopt.routes.derivatives.optimum import (
    ROUNDS,
    STEPS,
    ActiveRows,
    Differentiability,
    Units,
    active_rows,
    free_variables,
)
from bregopt.routes.derivatives.system import Adjoint, Change, SymmetricSystem
from bregopt.routes.entropy.standard_form import Matrices, StandardForm, locals_at, normals, paid

_LEAST_STEP = 1e-6  # of Newton's method; near the boundary of a domain steps are short
_LEAST_SIZE = 1e-3  # of a slack that may vanish, relative to the multipliers
_ENTRY = 24  # bytes of an entry of the system, with copies


class _Model:
    """A program in real coordinates, with the magnitudes of one of its answers.

    Attributes
    ----------
    R : csr_array of shape (m, width)
        The linear part of the rows.
    c : array of shape (width,)
    terms : list of Term
        Without the penalties of soft rows, which are targets of their activity. Their places are rows of the
        program.
    """

    def __init__(self, program: Program, X: Sequence[Array], u: Array, y: Array) -> None:
        self.program, self.form = program, StandardForm(program)
        if self.form.zeros.size:
            name = program.terms[0].function.name
            raise ValueError(
                f"the answer has no derivative: a row fixes a number at zero, where {name} has no slope; "
                "expected a problem without that number"
            )
        start = self.form.variables.start
        self.variables = slice(start, start + program.k)
        self.width = self.variables.stop
        self.R = self.form.rows(program.A, program.B)
        self.c = self.form.c[: self.width]
        kept = [term for term in self.form.terms if term.soft is None]
        places = [None if t.place is None else self.form.above[t.place] for t in kept]
        pairs = zip(kept, places, strict=True)
        self.terms = [replace(t, L=t.L[:, : self.width], place=place) for t, place in pairs]
        tangent = tangent_program(program, X, u)
        if tangent is None:
            raise ValueError(
                f"the answer has no derivative: an argument of {program.terms[0].function.name} is on the "
                "boundary of its domain; expected one inside, such as rho = V @ M @ V.T with a definite M"
            )
        scale = scale_of(tangent)
        size = max((float(np.linalg.norm(M)) for M in X), default=0.0) or scale.primal
        price = float((np.abs(y) * tangent.row_units).max(initial=0.0))
        self.price = max(price, scale.dual) or scale.objective / scale.primal or 1.0
        self.sizes = [max(float(np.linalg.norm(M)), _LEAST_SIZE * size) for M in X]
        self.units = Units.of(tangent, size, self.price)

    def coordinates(self, X: Sequence[Array | None], u: Array) -> Array:
        """Return slopes along matrices and variables as slopes along the coordinates."""
        total = np.zeros(self.width)
        for own, S in zip(self.form.blocks, X, strict=True):
            if S is not None:
                total[own.place] = own.entries.T @ np.ravel(S)
        total[self.variables] = u
        return total

    def matrices(self, x: Array) -> tuple[Array, ...]:
        """Return the matrices of coordinates."""
        return tuple(own.block(x) for own in self.form.blocks)


class _Point:
    """Rows, gradient and curvature at coordinates `x` and multipliers `y`."""

    def __init__(self, model: _Model, x: Array, y: Array) -> None:
        self.model, self.x, self.y = model, x, y

    @cached_property
    def locals(self) -> list[Local] | None:
        """The terms' functions, None outside a domain."""
        return locals_at(self.model.terms, [term.arguments(self.x) for term in self.model.terms])

    @cached_property
    def _inside(self) -> list[Local]:
        assert self.locals is not None
        return self.locals

    @cached_property
    def activity(self) -> Array:
        """The activity of all rows."""
        return self.model.R @ self.x + paid(self.model.terms, self._inside, len(self.y))

    @cached_property
    def normals(self) -> Any:
        """The derivatives of the rows, shape ``(m, width)``."""
        return normals(self.model.terms, self._inside, self.model.R)

    @cached_property
    def dual(self) -> Array:
        """The gradient of the Lagrangian: slacks of matrices and reduced costs of variables."""
        total: Array = self.model.c - self.normals.T @ self.y
        for term, local in zip(self.model.terms, self._inside, strict=True):
            if term.place is None:
                total = total + term.L.T @ (local.gradient * term.weight[term.function.owner])
        return total

    @cached_property
    def curvature(self) -> Array:
        """The second derivative of the Lagrangian."""
        H = np.zeros((self.model.width,) * 2)
        for term, local in zip(self.model.terms, self._inside, strict=True):
            weight = term.weight if term.place is None else -term.weight * self.y[term.place]
            own = local.curvature(weight, term.L)
            H += own.toarray() if sp.issparse(own) else own
        return H

    def curvatures(self, directions: Any) -> Array:
        """Return the second derivative along each row of a sparse or dense matrix."""
        product = directions @ self.curvature
        found = directions.multiply(product) if sp.issparse(directions) else directions * product
        return np.asarray(found.sum(axis=1)).ravel()

    def steepness(self, own: Matrices) -> tuple[Array, Array, Array]:
        """Return eigenvalues of a matrix, their products with the curvature along them, and the slack."""
        d, V = np.linalg.eigh(own.matrix_of(self.x[own.place]))
        along = np.zeros((own.n, self.model.width))
        along[:, own.place] = hvec(np.einsum("ik,jk->kij", V, V.conj()))
        slack = np.einsum("ik,ij,jk->k", V.conj(), own.matrix_of(self.dual[own.place]), V)
        return d, d * self.curvatures(along), np.real(slack)


class _Space:
    """The tangent space of one matrix, and the curvature of the cone there.

    Parameters
    ----------
    own : Matrices
    X : array
        Inside its cone if `S` is None.
    S : array, or None
        The slack.
    size, price : float
        Magnitudes that make both comparable.
    """

    def __init__(self, own: Matrices, X: Any, S: Any, size: float, price: float) -> None:
        length, self.margin = own.place.stop - own.place.start, np.inf
        self.basis: Any = sp.eye_array(length, format="csr")
        self.x, self.bends = hvec(X), np.zeros(length)
        if S is None:
            return
        price = max(float(np.linalg.norm(S)), _LEAST_SIZE * price)
        theta, V = np.linalg.eigh(X / size - S / price)
        k = int(np.searchsorted(theta, 0.0, side="right"))
        x, z = size * theta[k:], -price * theta[:k]
        ends = [float(part.min() / max(part.max(), TINY)) for part in (x, z) if len(part)]
        self.margin = min(ends, default=np.inf)
        self.x = hvec((V[:, k:] * x) @ V[:, k:].conj().T)
        i, j, _, strict = upper_places(own.n)
        if own.hermitian:
            i, j = np.concatenate([i, i[strict]]), np.concatenate([j, j[strict]])
        kept = np.flatnonzero(j >= k)
        i, j = i[kept], j[kept]
        units = hmat(np.eye(length)[kept], own.n, own.hermitian)
        self.basis = hvec(V @ units @ V.conj().T).T
        self.bends = np.array([z[a] / x[b - k] if a < k else 0.0 for a, b in zip(i, j, strict=True)])


@dataclass(frozen=True, eq=False)
class _States:
    """Which rows and variables act, and which matrices are inside their cones."""

    active: ActiveRows
    variables: IntArray
    inside: tuple[bool, ...]

    def same_as(self, other: _States) -> bool:
        """Whether all states are the same."""
        own = np.array_equal(self.variables, other.variables) and self.inside == other.inside
        return own and self.active.same_as(other.active)


class ConvexOptimum:
    """A point with the rows and variables that act.

    Parameters
    ----------
    model : _Model
    x, y : array
        Coordinates and multipliers. Matrices on the boundary move to the nearest complementary pair.
    states : _States
    """

    def __init__(self, model: _Model, x: Array, y: Array, states: _States) -> None:
        self.program, self.active, self.rows = model.program, states.active, states.active.free
        self.y, self._model, self._states = y, model, states
        point = _Point(model, x, y)
        self.is_inside = point.locals is not None
        self._spaces: list[_Space] = []
        if not self.is_inside:
            return
        moved = x.copy()
        for own, size, inside in zip(model.form.blocks, model.sizes, states.inside, strict=True):
            X, S = own.matrix_of(x[own.place]), own.matrix_of(point.dual[own.place])
            self._spaces.append(_Space(own, X, None if inside else S, size, model.price))
            moved[own.place] = self._spaces[-1].x
            self.is_inside &= not inside or bool(np.linalg.eigvalsh(X)[0] > 0)
        self.point = point if all(states.inside) else _Point(model, moved, y)
        self.is_inside &= self.point.locals is not None

    @property
    def X(self) -> tuple[Array, ...]:
        """The matrices."""
        return self._model.matrices(self.point.x)

    @property
    def u(self) -> Array:
        """The variables."""
        return self.point.x[self._model.variables]

    @property
    def slacks(self) -> list[Array | None]:
        """The multipliers of ``X psd``."""
        blocks = self._model.form.blocks
        return [own.block(self.point.dual) / own.copies for own in blocks]

    @cached_property
    def _basis(self) -> Any:
        """The coordinates of a change: tangent spaces of matrices, and variables inside their boxes."""
        units = sp.eye_array(self.program.k, format="csc")[:, self._states.variables]
        return sp.csr_array(sp.block_diag([*(space.basis for space in self._spaces), units]))

    @cached_property
    def _system(self) -> SymmetricSystem:
        """The linearized optimality conditions."""
        T, m = self._basis, len(self.rows)
        size = m + T.shape[1]
        check_memory(_ENTRY * size**2, f"the system of the derivative, of order {size},")
        bends = np.concatenate([*(s.bends for s in self._spaces), np.zeros(len(self._states.variables))])
        H = T.T @ (T.T @ self.point.curvature).T
        M = np.zeros((size, size))
        M[:m, :m] = np.diag(self.active.target(self.y)[1][self.rows])
        M[:m, m:] = (self.point.normals[self.rows] @ T).toarray()
        M[m:, :m] = M[:m, m:].T
        M[m:, m:] = -(H + H.T) / 2 - np.diag(bends)
        return SymmetricSystem(M, m)

    @cached_property
    def _missed(self) -> Array:
        """The distance of each row with an unknown multiplier from where it must be."""
        target, _ = self.active.target(self.y)
        return (target - self.point.activity)[self.rows]

    @cached_property
    def residual(self) -> float:
        """The largest relative violation of the optimality conditions."""
        model, dual, variables = self._model, self.point.dual, self._states.variables
        rows = np.abs(self._missed) / model.units.activity[self.rows]
        costs = np.abs(dual[model.variables] / model.units.cost)[variables]
        blocks = zip(model.form.blocks, self._spaces, strict=True)
        slopes = [float(np.linalg.norm(s.basis.T @ dual[own.place])) / model.price for own, s in blocks]
        return float(np.concatenate([rows, costs, slopes]).max(initial=0.0))

    def differentiability(self) -> Differentiability:
        """Return the distances from points without a derivative."""
        model, eigenvalue = self._model, np.inf
        for own, size, space, inside in zip(
            model.form.blocks, model.sizes, self._spaces, self._states.inside, strict=True
        ):
            margin = space.margin
            if inside:  # an eigenvalue is as far from zero as its curvature keeps it
                d, steep, _ = self.point.steepness(own)
                margin = float(np.maximum(d / size, steep / model.price).min(initial=np.inf))
            eigenvalue = min(eigenvalue, margin)
        multiplier, slack = self.active.margins(self.point.activity, self.y, model.units)
        reduced = self.point.dual[model.variables]
        _, box = free_variables(self.program, self.u, reduced, model.units)
        return Differentiability(eigenvalue, multiplier, min(slack, box), self.residual)

    def tangent(self, change: Change) -> Change:
        """Return the change of the answer."""
        model, m = self._model, len(self.rows)
        q = model.coordinates(change.X, change.u) - self.point.normals.T @ change.paid
        right = np.concatenate([change.rows[self.rows], self._basis.T @ q])
        found = self._system.solve(right, checked=bool(change.rows.any()))
        y, v = change.paid.copy(), self._basis @ found[m:]
        y[self.rows] = found[:m]
        return Change(model.matrices(v), y, v[model.variables], np.zeros(len(y)))

    def adjoint(self, X: Sequence[Array | None], u: Array) -> Adjoint:
        """Return the gradient of ``sum <G_b, X_b> + g'u``, with ``G`` and ``g`` as `X` and `u`."""
        model, m = self._model, len(self.rows)
        right = np.concatenate([np.zeros(m), self._basis.T @ model.coordinates(X, u)])
        found = self._system.solve(right)
        w, v = np.zeros(len(self.y)), self._basis @ found[m:]
        w[self.rows] = found[:m]
        paid = np.where(self.active.paid, -(self.point.normals @ v), 0.0)
        return Adjoint(tuple(-M for M in model.matrices(v)), w, v[model.variables], paid)

    def refined(self, enough: float) -> ConvexOptimum:
        """Return the point of Newton's method with the same states."""
        at = self
        for _ in range(STEPS):
            if at.residual <= enough:
                break
            right = np.concatenate([at._missed, at._basis.T @ at.point.dual])
            new = at._next(at._system.solve(right, unique=False))
            if new is None:
                break
            at = new
        return at

    def _next(self, found: Array) -> ConvexOptimum | None:
        """Return the point after a step that lowers the residual, None where none does."""
        m, length = len(self.rows), 1.0
        while length > _LEAST_STEP:
            y, x = self.y.copy(), self.point.x + length * (self._basis @ found[m:])
            y[self.rows] += length * found[:m]
            new = ConvexOptimum(self._model, x, y, self._states)
            if new.is_inside and new.residual < self.residual:
                return new
            length /= 2
        return None


def refined_terms(program: Program, X: Sequence[Array], u: Array, y: Array, enough: float) -> ConvexOptimum:
    """Return an answer to a program with convex terms after Newton's method.

    Parameters
    ----------
    program : Program
    X, u, y
        The answer: matrices, variables, multipliers of rows.
    enough : float
        The residual at which Newton's method ends.

    Raises
    ------
    ValueError
        If the answer is on the boundary of a domain, or its optimality conditions have no unique
        linearization.
    """
    model = _Model(program, X, u, y)
    blocks = zip(model.form.blocks, X, strict=True)
    x = np.concatenate([*(own.entries.T @ np.ravel(M) / own.copies for own, M in blocks), u])
    point = _Point(model, x, y)
    model.program = _without_open(program, point)
    at: ConvexOptimum | None = None
    for _ in range(ROUNDS):
        states = _states_at(point)
        if at is not None and states.same_as(at._states):
            break
        y = states.active.fixed_multipliers
        y[states.active.free] = point.y[states.active.free]
        x, own = point.x.copy(), point.x[model.variables]
        ends = np.where(own - program.u_lo < program.u_hi - own, program.u_lo, program.u_hi)
        ends[states.variables] = own[states.variables]
        x[model.variables] = ends
        start = ConvexOptimum(model, x, y, states)
        if not start.is_inside:
            raise ValueError(
                "the answer has no derivative: the rows that act hold it on the boundary of a domain"
            )
        at = start.refined(enough)
        point = at.point
        if at.differentiability().margin > 0:
            break
    assert at is not None
    return at


def _states_at(point: _Point) -> _States:
    """Return the states of rows, variables and matrices at a point."""
    model = point.model
    active = active_rows(model.program.bounds, point.activity, point.y, model.units)
    own = model.variables
    variables, _ = free_variables(model.program, point.x[own], point.dual[own], model.units)
    inside = []
    for block, size in zip(model.form.blocks, model.sizes, strict=True):
        d, steep, slack = point.steepness(block)
        inside.append(bool((d > 0).all() and (slack < np.maximum(model.price * d / size, steep)).all()))
    return _States(active, variables, tuple(inside))


def _without_open(program: Program, point: _Point) -> Program:
    """Return the program without the inequalities that curvature alone keeps from acting.

    Without such a row a step of Newton's method moves by its multiplier over the curvature along it, less
    than its slack. An entropy keeps its numbers above zero so, however small they are.
    """
    bounds, y, own = program.bounds, point.y, point.model.variables
    rows = np.flatnonzero(~bounds.equal & (bounds.kind == int(Penalty.HARD)))
    N = point.normals[rows]
    square = np.asarray(N.power(2).sum(axis=1)).ravel()
    left = np.minimum(point.activity - bounds.lo, bounds.hi - point.activity)[rows]
    open_rows = np.zeros(program.m, dtype=bool)
    open_rows[rows] = np.abs(y[rows]) * square**2 < point.curvatures(N) * left
    u, reduced, steep = point.x[own], point.dual[own], point.curvature.diagonal()[own]
    room = np.minimum(u - program.u_lo, program.u_hi - u)
    open_ = np.abs(reduced) < steep * np.where(np.isfinite(room), room, 0.0)
    return replace(
        program,
        bounds=replace(
            bounds, lo=_freed(bounds.lo, open_rows, -np.inf), hi=_freed(bounds.hi, open_rows, np.inf)
        ),
        u_lo=_freed(program.u_lo, open_, -np.inf),
        u_hi=_freed(program.u_hi, open_, np.inf),
    )


def _freed(ends: Array, open_: Mask, free: float) -> Array:
    return np.where(open_, free, ends)
