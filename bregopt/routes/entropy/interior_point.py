"""A primal-dual interior-point method for convex terms, such as entropies, of affine arguments.

    minimize    c'x + sum_t w_t f_t(y_t)    subject to   E x = e,   G x + sum_t f_t(y_t) + s = h,   s >= 0,
                X_b(x) psd,   y_t = L_t x + b_t

The arguments ``y_t`` are points of their own, inside the domains from the start. Newton's method brings them
to ``L_t x + b_t`` as it brings ``x`` to the equalities, and they stay there once a step is whole. With the
scaling ``V`` of Nesterov and Todd (1997), ``V X V = S``, the steps solve

    (sum_t L_t' H_t L_t + V (x) V + G' (lam / s) G) dx - E' dy = r,     E dx = e - E x,

with the second derivatives ``H_t``, in a predictor and a corrector step (Mehrotra 1992). ``H_t`` is a matrix in
all coordinates, so the equations are in ``x``: one Cholesky factorization, then one for the rows.

**The dual slack.** A step of Newton's method meets the dual equation of the linearized gradient. The
curvature of logarithms near the boundary leaves a residual that does not fall. So before each step ``S``
is set to the gradient's own ``grad f(x) - E'y + G'lam``, or moved towards it as far as it stays definite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, qr

from bregopt.arrays import EPS, Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.program import Program
from bregopt.program.convex_functions import ConvexFunction, Local, hvec
from bregopt.program.convex_terms import ConvexTerm, tangent_program
from bregopt.program.scale import scale_of
from bregopt.records import cached_property, dataclass
from bregopt.routes.entropy.coordinates import Coordinates
from bregopt.routes.monitor import Method

__all__ = ["EntropyPath", "State"]

# Fraction of the way to the boundary of a cone or domain that a step takes at most.
_LONGEST = 0.98
# Fraction of the way towards the gradient's own slack, where that is not definite.
_TOWARDS = 0.9
# Relative size of the equations' residual up to which a point is compared by its certificate.
_NEAR = 1e-3
# Rank of equalities: relative size of a dependent one.
_DEPENDENT = 1e-11
_UNPROVEN = Certificate(np.nan, -np.inf, np.inf, np.inf, np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class State:
    """A point of the method.

    Parameters
    ----------
    x : array
        Coordinates of matrices and variables.
    points : tuple of arrays
        The arguments of each term.
    locals : tuple of Local
        The terms' functions there.
    S : tuple of arrays
        Dual slacks of the matrices.
    s, lam : array
        Slacks and multipliers of the inequalities.
    nu : array
        Multipliers of the equalities.
    y : array
        Multipliers of the rows, in the program's sign.
    """

    x: Array
    points: tuple[Array, ...]
    locals: tuple[Local, ...]
    S: tuple[Any, ...]
    s: Array
    lam: Array
    nu: Array
    y: Array


class EntropyPath(Method):
    """The method for one program, a step at a time."""

    tests_multipliers = False
    patience = 12

    def __init__(self, program: Program, share: float = 0.5) -> None:
        self.program = program
        self.coordinates = Coordinates(program)
        self._c = self.coordinates.cost(program)
        self._terms = [_Term(self.coordinates, term) for term in program.terms]
        self._read_rows()
        scale = scale_of(program)
        self._size = scale.primal

    def _read_rows(self) -> None:
        """Split the rows into independent equalities and one-sided inequalities, boxes among these."""
        program, bounds, width = self.program, self.program.bounds, self.coordinates.width
        R = self.coordinates.rows(program.A, program.B)
        equal = np.flatnonzero(bounds.equal)
        above = np.flatnonzero(np.isfinite(bounds.hi) & ~bounds.equal)
        below = np.flatnonzero(np.isfinite(bounds.lo) & ~bounds.equal)
        u = self.coordinates.variables
        high, low = np.flatnonzero(np.isfinite(program.u_hi)), np.flatnonzero(np.isfinite(program.u_lo))
        I = sp.eye_array(width, format="csr")[u]
        self._above, self._below = above, below
        G = sp.vstack([R[above], -R[below], I[high], -I[low]], format="csr")
        self._h = np.concatenate([bounds.hi[above], -bounds.lo[below], program.u_hi[high], -program.u_lo[low]])
        dense = width <= 4 * R.shape[0] or self.coordinates.blocks
        self._G = G
        E = R[equal].toarray()
        norms = np.linalg.norm(E, axis=1)
        self._norms = np.where(norms > 0, norms, 1.0)
        E, e = E / self._norms[:, None], bounds.lo[equal] / self._norms
        kept = _independent(E)
        self._equal, self._norms = equal[kept], self._norms[kept]
        self._E, self._e = E[kept], e[kept]
        number = np.full(program.m, -1)
        number[above] = np.arange(len(above))
        for term in self._terms:
            term.place = None if term.rows is None else number[term.rows]

    # --- points

    def first(self) -> State:
        """Return the first point: multiples of the identity, and arguments inside the domains."""
        x = np.zeros(self.coordinates.width)
        lo, hi = self.program.u_lo, self.program.u_hi
        size = self._size
        for own in self.coordinates.blocks:
            x[own.place] = hvec(size * np.eye(own.n, dtype=complex if own.hermitian else float))
        u = np.clip(np.zeros(self.program.k), lo, hi)
        open_ = np.where(np.isfinite(lo) & np.isfinite(hi), (lo + hi) / 2, np.where(np.isfinite(lo), lo + size, hi - size))
        u = np.where(np.isfinite(lo) | np.isfinite(hi), open_, u)
        x[self.coordinates.variables] = u
        points = tuple(t.function.interior(t.L @ x + t.b) for t in self._terms)
        found = tuple(t.function.at(y) for t, y in zip(self._terms, points, strict=True))
        assert all(local is not None for local in found)
        locals_: Any = found
        s = self._h - self._G @ x - self._paid(locals_)
        scale = float(np.abs(s).max(initial=0.0)) or 1.0
        s = np.maximum(s, 0.1 * scale)
        unit = np.zeros(len(s))
        gradient = self._gradient(locals_, unit)
        own = [float(np.abs(local.gradient).max() * t.weight.max()) for t, local in zip(self._terms, locals_, strict=True)]
        price = max(float(np.abs(gradient).max(initial=0.0)), *own)
        S = tuple(price * np.eye(own.n) for own in self.coordinates.blocks)
        lam = np.full(len(s), price * size / scale)
        nu = np.zeros(len(self._e))
        return self._reset(State(x, points, locals_, S, s, lam, nu, self._multipliers(nu, lam)))

    def _paid(self, locals_: Sequence[Local]) -> Array:
        """Return the terms' part of the inequalities."""
        total = np.zeros(len(self._h))
        for term, local in zip(self._terms, locals_, strict=True):
            if term.place is not None:
                np.add.at(total, term.place, term.weight * local.value)
        return total

    def _weights(self, lam: Array) -> list[Array]:
        """Return the weight of each component in the Lagrangian."""
        return [t.weight if t.place is None else t.weight * lam[t.place] for t in self._terms]

    def _gradient(self, locals_: Sequence[Local], lam: Array) -> Array:
        """Return the gradient of the Lagrangian's terms, the equalities' apart."""
        total = self._c + self._G.T @ lam
        for term, local, w in zip(self._terms, locals_, self._weights(lam), strict=True):
            total = total + term.Lt @ (local.gradient * w[term.function.owner])
        return total

    def _normals(self, locals_: Sequence[Local]) -> Any:
        """Return the derivatives of the inequalities, shape ``(count, width)``."""
        G = self._G
        for term, local in zip(self._terms, locals_, strict=True):
            if term.place is None:
                continue
            size, owner = term.function.size, term.function.owner
            slope = sp.csr_array(
                (local.gradient * term.weight[owner], (term.place[owner], np.arange(size))), (G.shape[0], size)
            )
            G = G + slope @ sp.csr_array(term.L)
        return sp.csr_array(G)

    def _multipliers(self, nu: Array, lam: Array) -> Array:
        """Return the multipliers of the program's rows."""
        y = np.zeros(self.program.m)
        y[self._equal] = nu / self._norms
        a, b = len(self._above), len(self._below)
        y[self._above] -= lam[:a]
        y[self._below] += lam[a : a + b]
        return y

    def _reset(self, at: State) -> State:
        """Return the point with the dual slacks of its own gradient, or nearer to them."""
        dual = self._gradient(at.locals, at.lam) - self._E.T @ at.nu
        slacks = []
        for own, S in zip(self.coordinates.blocks, at.S, strict=True):
            wanted = own.matrix(dual)
            step = min(1.0, _TOWARDS * _length(S, wanted - S))
            slacks.append(S + step * (wanted - S))
        return State(at.x, at.points, at.locals, tuple(slacks), at.s, at.lam, at.nu, at.y)

    # --- the interface of the monitor

    def point(self, at: State) -> tuple[list[Array], Array]:
        """Return the matrices and variables of a point."""
        return self.coordinates.point(at.x)

    def certificate(self, at: State) -> Certificate:
        """Return the certificate of a point: that of the tangent program."""
        X, u = self.point(at)
        tangent = tangent_program(self.program, X, u)
        if tangent is None:
            return _UNPROVEN
        return certify(PrimalDualPoint(tangent, X, u, at.y))

    def advance(self, at: State) -> State | None:
        """Return the next point, None where the equations have no solution in floating point."""
        try:
            return self._step(at)
        except np.linalg.LinAlgError:
            return None

    # --- a step

    def _step(self, at: State) -> State | None:
        checkpoint()
        system = _System(self, at)
        if system.mu <= 0:
            return None
        affine = system.direction(0.0, None)
        a, b = self._lengths(at, affine, 1.0)
        mu = system.mu_after(affine, min(1.0, a), min(1.0, b))
        short = min(1.0, a, b)
        sigma = min(1.0, max((mu / system.mu) ** max(1.0, 3 * short**2), 1e-6))
        step = system.direction(sigma, affine)
        fraction = max(0.9, min(_LONGEST, 0.9 + 0.09 * short))
        a, b = self._lengths(at, step, fraction)
        return self._moved(at, step, min(1.0, a), min(1.0, b))

    def _lengths(self, at: State, step: _Step, fraction: float) -> tuple[float, float]:
        """Return a primal and a dual length to a fraction of the way to the boundary."""
        a = b = np.inf
        for own, S, dS in zip(self.coordinates.blocks, at.S, step.dS, strict=True):
            a = min(a, _length(own.matrix(at.x), own.matrix(step.dx)))
            b = min(b, _length(S, dS))
        for term, y, dy in zip(self._terms, at.points, step.points, strict=True):
            a = min(a, term.function.reach(y, dy))
        a, b = min(a, _reach(at.s, step.ds)), min(b, _reach(at.lam, step.dlam))
        # With curvature in the terms, one length for both keeps the dual equation that a step solves.
        both = fraction * min(a, b) if step.curved else None
        return (fraction * a, fraction * b) if both is None else (both, both)

    def _moved(self, at: State, step: _Step, a: float, b: float) -> State | None:
        for _ in range(30):
            x = at.x + a * step.dx
            points = tuple(y + a * dy for y, dy in zip(at.points, step.points, strict=True))
            found = [t.function.at(y) for t, y in zip(self._terms, points, strict=True)]
            if all(local is not None for local in found):
                break
            a, b = a / 2, b / 2
        else:
            return None
        locals_: Any = tuple(found)
        nu, lam = at.nu + b * step.dnu, at.lam + b * step.dlam
        s = at.s + a * step.ds
        # Slacks follow their functions where these are inside.
        own = self._h - self._G @ x - self._paid(locals_)
        s = np.where(own > 0.5 * s, own, s)
        S = tuple(S_b + b * dS for S_b, dS in zip(at.S, step.dS, strict=True))
        return self._reset(State(x, points, locals_, S, s, lam, nu, self._multipliers(nu, lam)))


class _Term:
    """A convex term in coordinates."""

    def __init__(self, coordinates: Coordinates, term: ConvexTerm) -> None:
        self.function: ConvexFunction = term.function
        L = coordinates.rows(term.A, term.B)
        dense = L.nnz > 0.1 * L.shape[0] * L.shape[1]
        self.L: Any = L.toarray() if dense else L
        self.Lt: Any = self.L.T if dense else sp.csr_array(L.T)
        self.b, self.weight, self.rows = term.b, term.weight, term.rows
        self.place: Any = None


@dataclass(frozen=True, eq=False)
class _Step:
    dx: Array
    points: list[Array]
    dS: list[Any]
    ds: Array
    dlam: Array
    dnu: Array
    curved: bool


class _System:
    """Newton's equations at one point."""

    def __init__(self, method: EntropyPath, at: State) -> None:
        self._method, self._at = method, at
        coordinates = method.coordinates
        self._X = [own.matrix(at.x) for own in coordinates.blocks]
        self._scalings = [_Scaling(X, S) for X, S in zip(self._X, at.S, strict=True)]
        self._normal = method._normals(at.locals)
        self._residuals = [t.L @ at.x + t.b - y for t, y in zip(method._terms, at.points, strict=True)]
        self._equations()

    @cached_property
    def mu(self) -> float:
        """The mean of the products of slacks and multipliers."""
        total = float(self._at.s @ self._at.lam)
        total += sum(float(np.vdot(X, S).real) for X, S in zip(self._X, self._at.S, strict=True))
        return total / max(1, self._count)

    @property
    def _count(self) -> int:
        return len(self._at.s) + sum(own.n for own in self._method.coordinates.blocks)

    def mu_after(self, step: _Step, a: float, b: float) -> float:
        """Return the mean product after a step."""
        at, blocks = self._at, self._method.coordinates.blocks
        total = float((at.s + a * step.ds) @ (at.lam + b * step.dlam))
        for own, X, S, dS in zip(blocks, self._X, at.S, step.dS, strict=True):
            total += float(np.vdot(X + a * own.matrix(step.dx), S + b * dS).real)
        return max(total, 0.0) / max(1, self._count)

    def _equations(self) -> None:
        method, at = self._method, self._at
        weights = method._weights(at.lam)
        width = method.coordinates.width
        H: Any = 0.0
        self._shift = np.zeros(width)  # L' H r of the arguments' residuals
        self.curved = False
        for term, local, w, r in zip(method._terms, at.locals, weights, self._residuals, strict=True):
            self.curved = True
            if r.any():
                column = r[:, None]
                L = sp.hstack([term.L, sp.csr_array(column)], format="csr") if sp.issparse(term.L) else np.hstack([term.L, column])
                own = local.curvature(w, L)
                own = own.tocsr() if sp.issparse(own) else own
                self._shift += np.ravel(own[:-1, -1:].toarray() if sp.issparse(own) else own[:-1, -1])
                own = own[:-1, :-1]
            else:
                own = local.curvature(w, term.L)
            H = H + own
        ratio = at.lam / at.s
        curved = self._normal.T @ sp.diags_array(ratio) @ self._normal
        H = H + curved
        if sp.issparse(H) and not method.coordinates.blocks:
            diagonal = _diagonal_of(H)
            if diagonal is not None:
                self._solver: Any = _Diagonal(diagonal, method._E)
                return
        K = H.toarray() if sp.issparse(H) else np.asarray(H)
        for own, scaling in zip(method.coordinates.blocks, self._scalings, strict=True):
            K[own.place, own.place] += scaling.operator()
        self._solver = _Dense(K, method._E)

    def direction(self, sigma: float, affine: _Step | None) -> _Step:
        """Return the step to ``sigma mu``, corrected by the second order of an affine step."""
        method, at = self._method, self._at
        target = sigma * self.mu
        inside = method._h - method._G @ at.x - method._paid(at.locals) - at.s
        # Of the rows' functions at the arguments' residuals.
        for term, local, r in zip(method._terms, at.locals, self._residuals, strict=True):
            if term.place is not None and r.any():
                moved = np.bincount(term.function.owner, local.gradient * r, term.function.count)
                np.subtract.at(inside, term.place, term.weight * moved)
        product = target - at.s * at.lam
        if affine is not None:
            product = product - affine.ds * affine.dlam
        ratio = at.lam / at.s
        ahead = (product + at.s * at.lam) / at.s  # lam + dlam, at ds = 0
        gradient = method._gradient(at.locals, np.zeros(len(at.lam))) + self._shift
        gradient = gradient + method._G.T @ np.zeros(len(at.lam))
        for term, local, w in zip(method._terms, at.locals, method._weights(at.lam), strict=True):
            pass
        b1 = -(gradient - method._E.T @ at.nu)
        b1 -= self._normal.T @ (ahead - ratio * inside)
        hats = []
        for k, (own, scaling) in enumerate(zip(method.coordinates.blocks, self._scalings, strict=True)):
            pair = None if affine is None else (own.matrix(affine.dx), affine.dS[k])
            hat = scaling.centered(target, pair)
            hats.append(hat)
            b1[own.place] += hvec(at.S[k] + hat)
        rp = method._e - method._E @ at.x
        dx, dnu = self._solver.solve(b1, rp)
        ds = inside - self._normal @ dx
        dlam = (product - at.lam * ds) / at.s
        points = [t.L @ dx + r for t, r in zip(method._terms, self._residuals, strict=True)]
        dS = [
            hat - scaling.applied(own.matrix(dx))
            for own, scaling, hat in zip(method.coordinates.blocks, self._scalings, hats, strict=True)
        ]
        return _Step(dx, points, dS, ds, dlam, dnu, self.curved)


class _Scaling:
    """The scaling of Nesterov and Todd: ``V X V = S``, and ``P X P' = P'^-1 S P^-1 = diag(d)``."""

    def __init__(self, X: Any, S: Any) -> None:
        Lx, Ls = np.linalg.cholesky(X), np.linalg.cholesky(S)
        U, d, _ = np.linalg.svd(Ls.conj().T @ Lx)
        self.d = d
        self.P = (U / np.sqrt(d)).conj().T @ Ls.conj().T
        self.V = self.P.conj().T @ self.P

    def operator(self) -> Array:
        """Return ``M -> V M V`` on vectors."""
        n, V = len(self.V), self.V
        hermitian = np.iscomplexobj(V)
        basis = _basis(n, hermitian)
        return hvec(V @ basis @ V)

    def applied(self, M: Any) -> Any:
        """Return ``V M V``."""
        return self.V @ M @ self.V

    def centered(self, target: float, affine: tuple[Any, Any] | None) -> Any:
        """Return the part of ``dS`` that no ``dX`` changes."""
        R = np.diag(target - self.d**2).astype(self.P.dtype)
        if affine is not None:
            dX, dS = affine
            inverse = np.linalg.inv(self.P)
            product = (self.P @ dX @ self.P.conj().T) @ (inverse.conj().T @ dS @ inverse)
            R = R - (product + product.conj().T) / 2
        hat = 2 * R / (self.d[:, None] + self.d)
        whole = self.P.conj().T @ hat @ self.P
        return (whole + whole.conj().T) / 2


_BASES: dict[tuple[int, bool], Any] = {}


def _basis(n: int, hermitian: bool) -> Any:
    """Return the matrices of the unit vectors."""
    from bregopt.program.convex_functions import hmat, hvec_length

    key = n, hermitian
    if key not in _BASES:
        if len(_BASES) > 8:
            _BASES.clear()
        _BASES[key] = hmat(np.eye(hvec_length(n, hermitian)), n, hermitian)
    return _BASES[key]


class _Dense:
    """Newton's equations with a dense matrix, by Cholesky factorizations of it and of the rows."""

    def __init__(self, K: Array, E: Array) -> None:
        self._K, self._E = K, E
        size = float(np.abs(K.diagonal()).max(initial=0.0))
        self._weight = 0.0
        unit = np.sqrt(np.maximum(K.diagonal(), EPS * size))
        self._unit = 1 / unit
        scaled = K * self._unit * self._unit[:, None]
        if len(E):
            rows = E * self._unit
            scaled = scaled + rows.T @ rows
            self._weight = 1.0
        scaled[np.diag_indices(len(K))] += 4 * EPS
        self._root = cho_factor(scaled, lower=True, check_finite=False)
        if len(E):
            self._half = cho_solve(self._root, rows.T, check_finite=False)
            M = rows @ self._half
            M[np.diag_indices(len(M))] *= 1 + 4 * EPS
            self._schur = cho_factor(M, lower=True, check_finite=False)
            self._rows = rows

    def solve(self, b: Array, r: Array) -> tuple[Array, Array]:
        """Return ``dx`` and ``dnu`` with ``K dx - E' dnu = b`` and ``E dx = r``, refined."""
        dx, dnu = np.zeros(len(b)), np.zeros(len(r))
        for _ in range(3):
            rest = b - self._K @ dx + self._E.T @ dnu
            missed = r - self._E @ dx
            x, nu = self._once(rest * self._unit, missed)
            dx, dnu = dx + x * self._unit, dnu + nu
        return dx, dnu

    def _once(self, b: Array, r: Array) -> tuple[Array, Array]:
        if not len(r):
            return cho_solve(self._root, b, check_finite=False), r
        b = b + self._rows.T @ r
        y = cho_solve(self._root, b, check_finite=False)
        nu = cho_solve(self._schur, r - self._rows @ y, check_finite=False)
        return y + self._half @ nu, nu


class _Diagonal:
    """Newton's equations with a diagonal matrix."""

    def __init__(self, diagonal: Array, E: Array) -> None:
        self._K, self._E = diagonal, E
        self._half = E / diagonal
        M = self._half @ E.T
        M[np.diag_indices(len(M))] *= 1 + 4 * EPS
        self._schur = cho_factor(M, lower=True, check_finite=False) if len(E) else None

    def solve(self, b: Array, r: Array) -> tuple[Array, Array]:
        """Return ``dx`` and ``dnu``, refined once."""
        dx, dnu = np.zeros(len(b)), np.zeros(len(r))
        for _ in range(2):
            rest = b - self._K * dx + self._E.T @ dnu
            missed = r - self._E @ dx
            if self._schur is None:
                return rest / self._K, dnu
            nu = cho_solve(self._schur, missed - self._half @ rest, check_finite=False)
            dx, dnu = dx + (rest + self._E.T @ nu) / self._K, dnu + nu
        return dx, dnu


def _diagonal_of(H: Any) -> Array | None:
    """Return the diagonal of a sparse matrix that has nothing else and is positive, None for others."""
    diagonal: Array = H.diagonal()
    own = sp.csr_array(H)
    off = own.nnz - np.count_nonzero(diagonal)
    if off and (own - sp.diags_array(diagonal)).count_nonzero():
        return None
    return diagonal if (diagonal > 0).all() else None


def _independent(E: Array) -> IntArray:
    """Return the numbers of independent rows, by a pivoted QR factorization."""
    if not len(E):
        return np.zeros(0, dtype=np.intp)
    R, pivots = qr(E.T, mode="r", pivoting=True, check_finite=False)
    d = np.abs(np.diagonal(R))
    rank = int((d > _DEPENDENT * d[0]).sum()) if len(d) and d[0] > 0 else 0
    return np.sort(pivots[:rank])


def _length(X: Any, D: Any) -> float:
    """Return the length of the step `D` at which the definite `X` becomes singular."""
    R = np.linalg.inv(np.linalg.cholesky(X))
    least = float(np.linalg.eigvalsh(R @ D @ R.conj().T)[0])
    return -1 / least if least < 0 else np.inf


def _reach(s: Array, ds: Array) -> float:
    """Return the length of the step at which a positive number is zero."""
    falls = ds < 0
    return float((s[falls] / -ds[falls]).min(initial=np.inf))
