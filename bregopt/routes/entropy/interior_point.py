"""A primal-dual interior-point method for convex terms, such as entropies, of affine arguments.

    minimize    c'x + sum_t w_t f_t(y_t)
    subject to  E x = e,   G x + (terms of rows) + s = h,   s >= 0,   x in cones,   y_t = L_t x + b_t

The arguments ``y_t`` are points of their own, inside the domains from the start. Newton's method brings them
to ``L_t x + b_t`` as it brings ``x`` to the equalities. They stay there once a step is whole. A step solves

    (sum_t L_t' H_t L_t + V (x) V + G' (lam / s) G) dx - E' dnu = r,     E dx = e - E x,

with the second derivatives ``H_t``, for a predictor and a corrector (Mehrotra 1992). ``H_t`` couples all
coordinates, so the equations are in ``x``: one Cholesky factorization of the matrix, then one for the rows.

**The dual slack.** A step meets the dual equation of the linearized gradient. The curvature of logarithms
near the boundary leaves a residual that does not fall. So before each step the slack ``S`` is set to what the
gradient itself leaves, ``grad f - E'nu + G'lam``, or moved towards it as far as it stays in its cone. Where
that is a small part of the way, the slack has lost the central path: it becomes ``mu X^-1``, with a ``mu`` as
large as the gradient in the norm of ``X``. Newton's method with such slacks is that of the barrier alone.
Multipliers of bounds of numbers in relative entropies are slacks, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.program import Program
from bregopt.program.convex_functions import Local, NumbersRelativeEntropy
from bregopt.program.convex_terms import tangent_inside, tangent_program
from bregopt.program.scale import scale_of
from bregopt.records import cached_property, dataclass, replace
from bregopt.routes.entropy.equations import (
    DenseSystem,
    DiagonalSystem,
    MatrixCone,
    ReducedSystem,
    VectorCone,
    own_columns,
)
from bregopt.routes.entropy.standard_form import StandardForm, Term, locals_at, normals, paid
from bregopt.routes.progress import Method

# Fraction of the way to the boundary of a cone or domain that a step takes: the least, and the largest.
_SHARES = 0.9, 0.98
# Fraction of the way towards the gradient's own slack, where that is outside the cone.
_TOWARDS = 0.9
# Where that fraction is smaller, the slack returns to the central path.
# Pays on: a key rate beside a cost, order 4.
_FAR = 0.1
# Part of its slack, or of that on the central path, that a row may lose by its curvature, the factor of a
# step that takes more, the least part of the mean product of slack and multiplier that it keeps, the part of
# a step after which the next one centers, and the largest slack on the central path, relative to its own.
_CURVED, _SHORTER, _CENTRAL, _CENTERING, _FARTHER = 0.5, 0.6, 0.1, 0.5, 10.0
# Factors of `mu` that a step of the barrier method tries, and the part of the way to the boundary that a full
# step may take.
_TARGETS, _WITHIN = (0.05, 0.2, 0.5, 1.0), 0.7
# Of a step where nothing but domains bounds it: the shortest, and the part of the decrease that is asked for.
_SHORTEST, _DECREASE = 1e-10, 0.01
# Part of a step of the interior-point method below which a decrease of the residual is not waited for: the
# second order of the corrector may raise it.
_LEAST_SHARE = 0.1
_SETTLED = 1e-13  # distance of arguments from their affine forms, relative to the largest, that is round-off
_UNPROVEN = Certificate(np.nan, -np.inf, np.inf, np.inf, np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class State:
    """A point of the method.

    Parameters
    ----------
    x : array
    points : list of arrays
        The arguments of each term.
    locals : list of Local
        The terms' functions there.
    S : list of arrays
        Coordinates of the dual slacks of the matrices, then of the vectors in second-order cones.
    s, lam : array
        Slacks and multipliers of the inequalities.
    nu : array
        Multipliers of the equalities.
    y : array
        Multipliers of the program's rows.
    shortened : bool
        Whether the curvature of rows cut the step here short.
    """

    x: Array
    points: list[Array]
    locals: list[Local]
    S: list[Array]
    s: Array
    lam: Array
    nu: Array
    y: Array
    shortened: bool = False


class EntropyPath(Method):
    """The method for one program, a step at a time.

    Parameters
    ----------
    program : Program
    form : StandardForm
        Its form, possibly on the faces that its rows hold the matrices on.
    nearest : float
        The gap, relative to the objective, below which the method does not go: it stays on the central path.
    """

    tests_multipliers = False
    patience = 20

    def __init__(self, program: Program, form: StandardForm, nearest: float = 0.0):
        self.program, self.form, self._nearest, self._size = program, form, nearest, 0.0
        self._mean = 0.0
        self.reduced = form.faces is not None or form.zeros.size > 0
        self._transposed = [sp.csr_array(t.L.T) if sp.issparse(t.L) else t.L.T for t in form.terms]
        self._curved = np.zeros(len(form.h))  # 1 for inequalities with convex terms
        for term in form.terms:
            if term.place is not None:
                self._curved[term.place] = 1.0
        self._bounded = _bounds_of_ratios(form, self._curved)
        self.own_columns = own_columns(form.E)
        self.cones: list[Any] = [MatrixCone(own) for own in form.blocks]
        self.cones += [VectorCone(own) for own in form.cones]

    # --- points

    def first(self) -> State:
        """Return the first point: multiples of the identity, and arguments inside the domains."""
        form, size = self.form, scale_of(self.program).primal
        x = np.zeros(form.width)
        for cone in self.cones:
            x[cone.place] = size * cone.identity
        lo, hi = self._box()
        below, above = np.isfinite(lo), np.isfinite(hi)
        x = np.where(below & ~above, lo + size, np.where(above & ~below, hi - size, x))
        both = below & above
        x[both] = (lo[both] + hi[both]) / 2
        points = [t.function.interior(t.arguments(x)) for t in form.terms]
        locals_ = locals_at(self.form.terms, points)
        assert locals_ is not None
        s = self._slack_left(x, locals_)
        scale = float(np.abs(s).max(initial=0.0)) or size
        s = np.maximum(s, 0.1 * scale)
        price = float(np.abs(form.c).max(initial=0.0))
        for term, local in zip(form.terms, locals_, strict=True):
            price = max(price, float(np.abs(local.gradient).max() * term.weight.max()))
        price = price or 1.0
        nu, lam = np.zeros(len(form.e)), np.full(len(s), price * size / scale)
        S = [price * cone.identity for cone in self.cones]
        return self._with_slacks(x, points, locals_, S, s, lam, nu)

    def _box(self) -> tuple[Array, Array]:
        """Return the bounds of single coordinates, those of variables."""
        form, program = self.form, self.program
        lo, hi = np.full(form.width, -np.inf), np.full(form.width, np.inf)
        start = form.variables.start
        lo[start : start + program.k], hi[start : start + program.k] = program.u_lo, program.u_hi
        lo[start + program.k :] = 0.0  # what rows with a hinge lack
        return lo, hi

    def _with_slacks(
        self,
        x: Array,
        points: list[Array],
        locals_: list[Local],
        S: list[Array],
        s: Array,
        lam: Array,
        nu: Array,
        shortened: bool = False,
    ) -> State:
        """Return a point with the dual slacks of its own gradient, or nearer to them."""
        dual = self.gradient(locals_, lam) - self.form.E.T @ nu
        slacks = []
        for cone, own in zip(self.cones, S, strict=True):
            change = dual[cone.place] - own
            length = cone.length(own, change)
            near = own + min(1.0, _TOWARDS * length) * change
            slacks.append(near if length > _FAR else cone.central(x[cone.place], dual[cone.place], near))
        row, column, coefficient = self._bounded
        if len(row):
            lam, own = lam.copy(), lam[row]
            lam[row] = np.maximum(own - dual[column] / coefficient, (1 - _TOWARDS) * own)
        y = self.form.multipliers(nu, lam, locals_)
        return State(x, points, locals_, slacks, s, lam, nu, y, shortened)

    def paid(self, locals_: Sequence[Local]) -> Array:
        """Return the terms' part of the inequalities."""
        return paid(self.form.terms, locals_, len(self.form.h))

    def weights(self, lam: Array) -> list[Array]:
        """Return the weight of each component of each term in the Lagrangian."""
        return [t.weight if t.place is None else t.weight * lam[t.place] for t in self.form.terms]

    def gradient(self, locals_: Sequence[Local], lam: Array) -> Array:
        """Return the gradient of the Lagrangian's terms, the equalities' apart."""
        total = self.form.c + self.form.G.T @ lam
        weights = self.weights(lam)
        for term, Lt, local, w in zip(self.form.terms, self._transposed, locals_, weights, strict=True):
            total = total + Lt @ (local.gradient * w[term.function.owner])
        return total

    def normals(self, locals_: Sequence[Local]) -> Any:
        """Return the derivatives of the inequalities, shape ``(count, width)``."""
        G = self.form.G
        return normals(self.form.terms, locals_, G) if self._curved.any() else G

    # --- the interface of the monitor

    def certificate(self, at: State) -> Certificate:
        """Return the certificate of a point, which is that of the tangent program there."""
        form = self.form
        X, u = form.point(at.x)
        tangent = (tangent_inside if self.reduced else tangent_program)(self.program, X, u)
        if tangent is None:
            return _UNPROVEN
        y = form.priced(at.y, tangent)
        found = certify(PrimalDualPoint(tangent, X, u, y, faces=form.faces))
        far = 1 <= found.gap < np.inf  # a first bound may be -1e60
        self._size = abs(found.primal) if far else found.size
        return found

    def diverges(self, at: State) -> bool:
        """Return True: near the boundary a bound may be 1,000 times worse after a step, and recovers."""
        return True

    def advance(self, at: State) -> State | None:
        """Return the next point, None where the equations have no solution in floating point."""
        checkpoint()
        try:
            system = _System(self, at)
            self._mean = system.mu
            if not system.count:  # nothing but the terms' domains bounds a step
                step = system.direction(0.0, None)
                length = min(1.0, _SHARES[1] * self._length(at, step))
                return self._decreasing(at, step, length, 0.0)
            return self._step(at, system) if system.mu > 0 else None
        except np.linalg.LinAlgError:
            return None

    def _step(self, at: State, system: _System) -> State | None:
        affine = system.direction(0.0, None)
        short = min(1.0, self._length(at, affine))
        mu = system.mu_after(affine, short)
        sigma = min(1.0, max((mu / system.mu) ** max(1.0, 3 * short**2), 1e-6))
        sigma = 1.0 if at.shortened else sigma
        sigma = max(sigma, self._nearest * self._size / (system.count * system.mu))
        if at.shortened:
            step = system.direction(sigma, None)
        else:
            step = system.direction(sigma, affine, self._second_order(at, affine, short))
        least, largest = _SHARES
        length = min(1.0, min(largest, least + 0.09 * short) * self._length(at, step))
        if self.cones or len(self._bounded[0]):  # their slacks are set to the gradient's own after each step
            return self._moved(at, step, length)
        shortest = _LEAST_SHARE * length
        damped = self._decreasing(at, step, length, sigma * system.mu, shortest)
        return damped or self._moved(at, step, length)

    def _second_order(self, at: State, step: _Step, length: float) -> Array:
        """Return the second order of the terms of rows along a whole step, from values within a length."""
        if not self._curved.any():
            return 0 * at.s
        length *= _SHARES[0]
        points = [y + length * dy for y, dy in zip(at.points, step.points, strict=True)]
        locals_ = locals_at(self.form.terms, points)
        if locals_ is None:
            return 0 * at.s
        along = self.paid(locals_) - self.paid(at.locals)
        for term, local, dy in zip(self.form.terms, at.locals, step.points, strict=True):
            if term.place is not None:
                owner = term.function.owner
                first = np.bincount(owner, local.gradient * dy, term.function.count)
                np.subtract.at(along, term.place, length * term.weight * first)
        return np.clip(along / length**2, 0.0, at.s)

    def _decreasing(
        self, at: State, step: _Step, length: float, target: float, shortest: float = _SHORTEST
    ) -> State | None:
        """Return a point of smaller residual of all equations, None where no length leads to one.

        Functions of numbers, such as ``exp``, may be far from their quadratic models (Boyd and Vandenberghe
        2004, §11.7).
        """
        before = self._residual(at, target)
        while length > shortest:
            new = self._moved(at, step, length)
            if new is not None and self._residual(new, target) <= (1 - _DECREASE * length) * before:
                return new
            length /= 2
        return None

    def _residual(self, at: State, target: float) -> float:
        """Return the norm of the residual of all equations, with products of slacks and multipliers."""
        dual = self.gradient(at.locals, at.lam) - self.form.E.T @ at.nu
        missed = [t.arguments(at.x) - y for t, y in zip(self.form.terms, at.points, strict=True)]
        rows = self._slack_left(at.x, at.locals) - at.s
        products = at.s * at.lam - target
        own = [dual, self.form.e - self.form.E @ at.x, rows, products, *missed]
        return float(np.linalg.norm(np.concatenate(own)))

    def _length(self, at: State, step: _Step) -> float:
        """Return the length of a step to the boundary; the curvature couples primal and dual lengths."""
        lengths = [_reach(at.s, step.ds), _reach(at.lam, step.dlam)]
        for cone, S, dS in zip(self.cones, at.S, step.dS, strict=True):
            lengths += [cone.length(at.x[cone.place], step.dx[cone.place]), cone.length(S, dS)]
        for term, y, dy in zip(self.form.terms, at.points, step.points, strict=True):
            lengths.append(term.function.reach(y, dy))
        return min(lengths)

    def _moved(self, at: State, step: _Step, length: float) -> State | None:
        """Return the point after a step, shortened until it is in all domains and no row loses its slack.

        The functions of a row curve away from their tangents, so that its slack is less than the step says.
        """
        former = self._slack_left(at.x, at.locals) - at.s
        products = at.s * at.lam
        mean = float(products.mean()) if len(products) else 1.0
        least = _CENTRAL * np.minimum(products, mean)
        asked = length
        while length > _SHORTEST:
            x, s = at.x + length * step.dx, at.s + length * step.ds
            points = [y + length * dy for y, dy in zip(at.points, step.points, strict=True)]
            points = [_settled(y, t.arguments(x)) for y, t in zip(points, self.form.terms, strict=True)]
            locals_ = locals_at(self.form.terms, points)
            if locals_ is not None:
                own, lam = self._slack_left(x, locals_), at.lam + length * step.dlam
                lost, central = s - own - np.abs(former), np.clip(self._mean, s * lam, _FARTHER * s * lam)
                kept = lost * lam <= _CURVED * central
                s = np.where(own > (1 - _CURVED) / 2 * s, own, s)
                new = s * lam
                # Slacks of cones leave no dual residual, so that products may fall faster than residuals.
                floor = least * (float(new.sum()) / len(new) / mean if self.cones and len(new) else 1.0)
                if kept.all() and (self._curved * new >= self._curved * floor).all():
                    break
            length *= _SHORTER
        else:
            return None
        S = [S_b + length * dS for S_b, dS in zip(at.S, step.dS, strict=True)]
        nu = at.nu + length * step.dnu
        return self._with_slacks(x, points, locals_, S, s, lam, nu, length < _CENTERING * asked)

    def _slack_left(self, x: Array, locals_: Sequence[Local]) -> Array:
        """Return what the inequalities leave."""
        return self.form.h - self.form.G @ x - self.paid(locals_)


# Pays on: a key rate of an image beside a cost, order 8.
class Barrier(EntropyPath):
    """The method with ``mu X^-1`` for the slacks of cones: Newton's method for a logarithmic barrier.

    It takes more steps. Near singular matrices a slack of its own may leave the central path for good, and
    this one cannot. A step goes to the least ``mu`` whose full step stays inside all domains.
    """

    _target: float | None = None

    def _step(self, at: State, system: _System) -> State | None:
        for sigma in _TARGETS:
            step = system.direction(sigma, None)
            length = _WITHIN * self._length(at, step)
            if length >= 1:
                break
        self._target = sigma * system.mu
        return self._moved(at, step, min(1.0, length))

    def _length(self, at: State, step: _Step) -> float:
        return super()._length(at, replace(step, dS=[0 * dS for dS in step.dS]))

    def _with_slacks(
        self,
        x: Array,
        points: list[Array],
        locals_: list[Local],
        S: list[Array],
        s: Array,
        lam: Array,
        nu: Array,
        shortened: bool = False,
    ) -> State:
        mu = self._target
        if mu is None:
            products = [
                float(x[cone.place] @ own) / cone.degree for cone, own in zip(self.cones, S, strict=True)
            ]
            mu = max([*products, *(s * lam)], default=1.0)
        S = [cone.inverse(x[cone.place], mu) for cone in self.cones]
        return State(x, points, locals_, S, s, lam, nu, self.form.multipliers(nu, lam, locals_))


@dataclass(frozen=True, eq=False)
class _Step:
    dx: Array
    points: list[Array]
    dS: list[Array]
    ds: Array
    dlam: Array
    dnu: Array


class _System:
    """Newton's equations at one point."""

    def __init__(self, method: EntropyPath, at: State) -> None:
        self._method, self._at = method, at
        form = method.form
        pairs = zip(method.cones, at.S, strict=True)
        self._scalings = [cone.scaling(at.x[cone.place], S) for cone, S in pairs]
        self._normal = method.normals(at.locals)
        self._residuals = [t.arguments(at.x) - y for t, y in zip(form.terms, at.points, strict=True)]
        self.count = len(at.s) + sum(cone.degree for cone in method.cones)
        self._factorize()

    @cached_property
    def mu(self) -> float:
        """The mean of the products of slacks and multipliers."""
        return self._mean(0.0, None)

    def mu_after(self, step: _Step, length: float) -> float:
        """Return the mean product after a step."""
        return max(self._mean(length, step), 0.0)

    def _mean(self, length: float, step: _Step | None) -> float:
        at, places = self._at, [cone.place for cone in self._method.cones]
        x, s, lam, S = at.x, at.s, at.lam, at.S
        if step is not None:
            x, s, lam = x + length * step.dx, s + length * step.ds, lam + length * step.dlam
            S = [own + length * dS for own, dS in zip(S, step.dS, strict=True)]
        total = float(s @ lam) + sum(float(x[place] @ own) for place, own in zip(places, S, strict=True))
        return total / max(1, self.count)

    def _factorize(self) -> None:
        """Form the matrix and factorize it; keep the terms' part ``L' H r`` of their arguments' residuals."""
        method, at = self._method, self._at
        form = method.form
        H: Any = sp.csr_array((form.width, form.width))
        self._shift = np.zeros(form.width)
        weights = method.weights(at.lam)
        for term, local, w, r in zip(form.terms, at.locals, weights, self._residuals, strict=True):
            own, along = _curvature(term, local, w, r)
            H, self._shift = H + own, self._shift + along
        if len(at.s):
            with np.errstate(over="ignore"):  # where no point meets a row, its multiplier grows without end
                ratios = at.lam / at.s
            if not np.isfinite(ratios).all():
                raise np.linalg.LinAlgError("a multiplier has no finite ratio to its slack")
            H = H + self._normal.T @ sp.diags_array(ratios) @ self._normal
        diagonal = _diagonal_of(H) if sp.issparse(H) and not method.cones else None
        if diagonal is not None:
            self._solver: Any = DiagonalSystem(diagonal, form.E)
            return
        K: Array = H.toarray() if sp.issparse(H) else np.asarray(H)
        for cone, scaling in zip(method.cones, self._scalings, strict=True):
            at_cone: Any = cone.place if isinstance(cone.place, slice) else np.ix_(cone.place, cone.place)
            K[(at_cone, at_cone) if isinstance(at_cone, slice) else at_cone] += scaling.operator()
        own = method.own_columns
        self._solver = DenseSystem(K, form.E) if own is None else ReducedSystem(K, form.E, own)

    def direction(self, sigma: float, affine: _Step | None, second: Array | float = 0.0) -> _Step:
        """Return the step to ``sigma mu``, corrected by the second order of an affine step.

        `second` is that of the terms of rows.
        """
        method, at = self._method, self._at
        form, target = method.form, sigma * self.mu
        inside = method._slack_left(at.x, at.locals) - at.s - second
        for term, local, r in zip(form.terms, at.locals, self._residuals, strict=True):
            if term.place is not None and r.any():
                moved = np.bincount(term.function.owner, local.gradient * r, term.function.count)
                np.subtract.at(inside, term.place, term.weight * moved)
        product = target - (0.0 if affine is None else affine.ds * affine.dlam)
        ahead = product / at.s - at.lam / at.s * inside  # lam + dlam at dx = 0
        right = form.E.T @ at.nu - method.gradient(at.locals, 0 * at.lam) - self._shift
        right = right - self._normal.T @ ahead
        hats = []
        for k, (cone, scaling) in enumerate(zip(method.cones, self._scalings, strict=True)):
            pair = None if affine is None else (affine.dx[cone.place], affine.dS[k])
            hats.append(scaling.centered(target, pair))
            right[cone.place] += at.S[k] + hats[k]
        dx, dnu = self._solver.solve(right, form.e - form.E @ at.x)
        ds = inside - self._normal @ dx
        dlam = (product - at.s * at.lam - at.lam * ds) / at.s
        points = [t.L @ dx + r for t, r in zip(form.terms, self._residuals, strict=True)]
        dS = [
            hat - scaling.applied(dx[cone.place])
            for cone, scaling, hat in zip(method.cones, self._scalings, hats, strict=True)
        ]
        return _Step(dx, points, dS, ds, dlam, dnu)


# Pays on: relative entropies of ten numbers beside costs.
def _bounds_of_ratios(form: StandardForm, curved: Array) -> tuple[IntArray, IntArray, Array]:
    """Return a bound of each number of a relative entropy: its inequality, coordinate and coefficient."""
    own = sp.csr_array(form.G)
    own.eliminate_zeros()
    rows = np.flatnonzero((np.diff(own.indptr) == 1) & (curved == 0))
    first = own.indptr[rows]
    inside = np.zeros(form.width, dtype=bool)
    for term in form.terms:
        if isinstance(term.function, NumbersRelativeEntropy):
            inside |= np.asarray(abs(term.L).sum(axis=0)).ravel() > 0
    kept = inside[own.indices[first]]
    columns, at = np.unique(own.indices[first][kept], return_index=True)
    return rows[kept][at], columns, own.data[first][kept][at]


def _settled(y: Array, own: Array) -> Array:
    """Return the affine arguments themselves, once a point differs from them by round-off."""
    near = np.abs(y - own).max(initial=0.0) <= _SETTLED * np.abs(own).max(initial=0.0)
    return own if near else y


def _curvature(term: Term, local: Local, weight: Array, r: Array) -> tuple[Any, Array]:
    """Return ``L' H L`` and ``L' H r``."""
    if not r.any():
        return local.curvature(weight, term.L), np.zeros(term.L.shape[1])
    column = r[:, None]
    sparse = sp.issparse(term.L)
    both = sp.csr_array(sp.hstack([term.L, sp.csr_array(column)])) if sparse else np.hstack([term.L, column])
    own = local.curvature(weight, both)
    own = sp.csr_array(own) if sp.issparse(own) else own
    last = own[:-1, [-1]]
    return own[:-1, :-1], np.ravel(last.toarray() if sp.issparse(last) else last)


def _diagonal_of(H: Any) -> Array | None:
    """Return the diagonal of a sparse matrix that has nothing else and is positive, None for others."""
    own = sp.csr_array(H)
    diagonal: Array = own.diagonal()
    if own.nnz > len(diagonal) and (own - sp.diags_array(diagonal)).count_nonzero():
        return None
    return diagonal if (diagonal > 0).all() else None


def _reach(s: Array, ds: Array) -> float:
    """Return the length of the step at which a positive number is zero."""
    falls = ds < -TINY * s
    return float((s[falls] / -ds[falls]).min(initial=np.inf))
