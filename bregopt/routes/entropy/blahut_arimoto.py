"""Entropies of ``X`` itself by Bregman projections: the Blahut-Arimoto algorithm, and maximum entropy.

    minimize  <C, X> + tr X log X - sum_j w_j tr (L_j X) log (L_j X)
    subject to  E x = e,   G x <= h,   X psd

has a concave part. With its tangent at ``X_k`` in its place, of slope ``-W``, the problem is a projection in
the von Neumann divergence. The next matrix is

    X = exp(W - C - I + E*(y) - G*(lam)),   lam >= 0,

and Newton's method finds the few multipliers at which it meets the rows. A step costs some
eigendecompositions of ``X``, where the interior-point method solves equations in all its entries. Anderson
mixing of the ``W`` keeps the number of steps small (Walker and Ni 2011); projections are of any ``W``. Where
a mixed one is farther from its own ``W`` than the last, the step is one without mixing, which never raises
the objective.

Entropies of numbers, ``c'x + sum_j w_j x_j log x_j``, have no concave part: one projection is the answer.

He, Saunderson, Fawzi (2024), A Bregman proximal perspective on classical and quantum Blahut-Arimoto
algorithms, IEEE Transactions on Information Theory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from bregopt.arrays import EPS, Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.program import Program
from bregopt.program.convex_functions import Local, NegativeEntropy, hmat, hvec
from bregopt.program.convex_terms import INWARD, tangent_inside
from bregopt.program.matrix_entropies import EntropySum
from bregopt.records import dataclass
from bregopt.routes.entropy.standard_form import StandardForm
from bregopt.routes.progress import Method

_UNPROVEN = Certificate(np.nan, -np.inf, np.inf, np.inf, np.inf, np.inf)
_LARGEST_STACK = 10_000_000  # entries of the rows' matrices
_MEMORY = 6  # differences that Anderson mixing combines
_PATIENCE = 30  # steps without progress of the certificate: far from the optimum its bound says little
_STRETCH = 2.0  # factor of a longer step, and of the next one
_NEWTON_STEPS, _DECREASE = 50, 1e-4
# Residual of the rows, relative to them, at which Newton's method ends, and below which it may stall.
_RESIDUAL, _NEAR = 1e-14, 1e-9


@dataclass(frozen=True, eq=False)
class Projected:
    """A point of the method.

    Parameters
    ----------
    x : array
        The vector of ``X``.
    W : array
        The vector of the ``W`` that it is the projection of.
    own : array
        The vector of its own ``W``.
    z : array
        The multipliers of equalities, then those of inequalities, in the standard form, for weight one.
    y : array
        The multipliers of the program's rows.
    value : float
        The objective, constants apart.
    """

    x: Array
    W: Array
    own: Array
    z: Array
    y: Array
    value: float

    @property
    def distance(self) -> float:
        """The distance of ``W`` from its own, zero at an optimum."""
        return float(np.linalg.norm(self.own - self.W))


class BlahutArimoto(Method):
    """The method for a program that :meth:`takes` it."""

    tests_multipliers = False
    patience = _PATIENCE

    def __init__(self, program: Program, form: StandardForm) -> None:
        self.program, self.form = program, form
        (self._block,), (self._term,) = form.blocks, form.terms
        self._weight = float(self._term.weight[0])
        self._cost = form.c / self._weight + self._block.identity
        G = form.G.toarray() if sp.issparse(form.G) else form.G
        self._table, self._bounds = np.vstack([form.E, -G]), np.concatenate([form.e, -form.h])
        self._rows = hmat(self._table, self._block.n, self._block.hermitian)
        self._mixing, self._stretch = _Mixing(), _STRETCH

    @staticmethod
    def takes(form: StandardForm) -> bool:
        """Whether a program is of the form above: one matrix, its entropy less others, and linear rows."""
        if len(form.blocks) != 1 or len(form.terms) != 1 or not len(form.e):
            return False
        (block,), (term,) = form.blocks, form.terms
        f, width = term.function, form.width
        if width != block.place.stop or term.place is not None or not isinstance(f, EntropySum):
            return False
        own = f.orders[0] == block.n and f.weights[0] == 1 and max(f.weights[1:], default=-1.0) < 0
        if not own or term.b.any() or (len(form.e) + len(form.h)) * block.n**2 > _LARGEST_STACK:
            return False
        return bool(abs(term.L[:width] - sp.eye_array(width)).max() <= 4 * EPS)

    def first(self) -> Projected | None:
        """Return the projection of the uniform matrix."""
        identity = self._block.identity
        W = self._slope(self._local(identity / self._block.n))
        return self._projection(W, self._of_trace(W, identity))

    def certificate(self, at: Projected) -> Certificate:
        """Return the certificate of a point, which is that of the tangent program there."""
        X, u = self.form.point(at.x)
        tangent = tangent_inside(self.program, X, u)  # exponentials have eigenvalues below round-off
        return _UNPROVEN if tangent is None else certify(PrimalDualPoint(tangent, X, u, at.y))

    # Pays on: the rate of a source of order 6.
    def advance(self, at: Projected) -> Projected | None:
        """Return the projection of the next ``W``, None where Newton's method finds none.

        Where matrices ``L_j X`` are singular at the optimum, each step lowers an eigenvalue by about the same
        factor, so that steps are longer as long as the objective falls.
        """
        new = self._projection(self._mixing.next(at.W, at.own), at.z)
        if new is not None and new.distance <= at.distance:
            return new
        self._mixing = _Mixing()
        new = self._projection(at.W + self._stretch * (at.own - at.W), at.z)
        if new is not None and new.value < at.value:
            self._stretch *= 2
            return new
        self._stretch = _STRETCH
        return self._projection(at.own, at.z)

    # Pays on: maximum entropy of 5,000 numbers.
    def _of_trace(self, W: Array, identity: Array) -> Array:
        """Return the multipliers of the right trace, zero where the equalities fix none.

        From zero, Newton's method takes a step for each factor ``e`` of the trace.
        """
        E, e = self.form.E, self.form.e
        weights = np.linalg.solve(E @ E.T, E @ identity)
        trace, z = float(weights @ e), np.zeros(len(self._bounds))
        if np.abs(E.T @ weights - identity).max() <= _NEAR and trace > 0:
            z[: len(e)] = weights * (np.log(trace) - self._exponential(W, z).log_trace)
        return z

    def _slope(self, local: Local | None) -> Array:
        """Return minus the slope of the concave part, nan where it has none."""
        width = self.form.width
        if local is None:
            return np.full(width, np.nan)
        return -(self._term.L[width:].T @ local.gradient[width:])

    def _local(self, x: Array) -> Local | None:
        f, y = self._term.function, self._term.arguments(x)
        return f.at(y) or f.at(f.moved_inside(y, INWARD[0]))

    def _projection(self, W: Array, z: Array) -> Projected | None:
        """Return the projection of ``W``, by Newton's method with the multipliers `z` first.

        It minimizes ``tr exp(W - C - I + A*(z)) - a'z`` over ``z`` with bounds for inequalities ``A x >= a``.
        Those that are zero and would fall are held there (Bertsekas 1982).
        """
        A, a, best = self._table, self._bounds, np.inf
        if not np.isfinite(W).all():
            return None
        at, least = self._exponential(W, z), np.full(len(a), -np.inf)
        least[len(self.form.e) :] = 0.0
        if not np.isfinite(at.trace):
            return None
        for _ in range(_NEWTON_STEPS):
            checkpoint()
            missed = a - A @ at.x
            free = (z > least) | (missed > 0)
            size = float(np.abs(missed[free]).max(initial=0.0) / np.abs(a).max())
            if size <= _RESIDUAL or (size <= _NEAR and size >= 0.5 * best):
                return self._point(W, z, at.x)
            best = min(best, size)
            H = self._curvature(at)[np.ix_(free, free)]
            if not np.isfinite(H).all():
                return None
            step = np.zeros(len(a))
            try:
                step[free] = cho_solve(cho_factor(H), missed[free])
            except np.linalg.LinAlgError:
                return None
            length = 1.0
            while True:
                moved = np.maximum(z + length * step, least)
                new = self._exponential(W, moved)
                slope, fall = float(missed @ (moved - z)), float(a @ (moved - z))
                change = new.trace - at.trace - fall
                error = 4 * EPS * (at.trace * (1 + at.size) + float(np.abs(a) @ np.abs(z)))
                if change <= error - _DECREASE * slope:
                    break
                length /= 2
                if length < EPS:
                    return None
            z, at = moved, new
        return None

    def _point(self, W: Array, z: Array, x: Array) -> Projected:
        nu, lam = np.split(self._weight * z, [len(self.form.e)])
        local = self._local(x)
        y = self.form.multipliers(nu, lam, [local])
        value = np.inf if local is None else float(self.form.c @ x + self._weight * local.value[0])
        return Projected(x, W, self._slope(local), z, y, value)

    def _exponential(self, W: Array, z: Array) -> Any:
        return _Exponential(self._block.matrix_of(W - self._cost + self._table.T @ z))

    def _curvature(self, at: Any) -> Array:
        """Return the second derivative in the multipliers, ``<A_k, Dexp(A_l)>``."""
        U = at.U
        T = hvec(U.conj().T @ self._rows @ U * np.sqrt(at.differences))
        H: Array = T @ T.T
        H[np.diag_indices(len(H))] *= 1 + 4 * EPS
        return H


# Pays on: maximum entropy of 5,000 numbers.
class MaximumEntropy(BlahutArimoto):
    """The projection for entropies of numbers."""

    def __init__(self, program: Program, form: StandardForm) -> None:
        self.program, self.form, self._weight = program, form, 1.0
        (self._term,) = form.terms
        self._weights = self._term.L.T @ self._term.weight
        self._table, self._bounds = form.E, form.e

    @staticmethod
    def takes(form: StandardForm) -> bool:
        """Whether a program has entropies of all its numbers, equalities, and no inequalities but signs."""
        if form.blocks or form.cones or len(form.terms) != 1 or not len(form.e):
            return False
        (term,) = form.terms
        if term.place is not None or not isinstance(term.function, NegativeEntropy) or term.b.any():
            return False
        L, G = sp.csr_array(term.L), sp.csr_array(form.G)
        permutes = L.shape[0] == L.shape[1] == L.nnz and bool((L.data == 1).all())
        signs = not form.h.any() and bool((G.data < 0).all() and (np.diff(G.indptr) == 1).all())
        return permutes and signs and bool((np.bincount(L.indices, minlength=L.shape[1]) == 1).all())

    def first(self) -> Projected | None:
        """Return the answer."""
        W = np.zeros(self.form.width)
        return self._projection(W, self._of_trace(W, self._weights))

    def advance(self, at: Projected) -> Projected | None:
        """Return None: no point follows the answer."""
        return None

    def _point(self, W: Array, z: Array, x: Array) -> Projected:
        signs = np.zeros(len(self.form.h))
        return Projected(x, W, W, z, self.form.multipliers(z, signs, [self._local(x)]), np.nan)

    def _exponential(self, W: Array, z: Array) -> Any:
        return _Exponentials((self.form.E.T @ z - self.form.c) / self._weights - 1, self._weights)

    def _curvature(self, at: Any) -> Array:
        root = self.form.E * np.sqrt(at.x / self._weights)
        H: Array = root @ root.T
        H[np.diag_indices(len(H))] *= 1 + 4 * EPS
        return H


class _Exponentials:
    """Exponentials of numbers, and the sum of their products with weights."""

    def __init__(self, y: Array, weights: Array) -> None:
        with np.errstate(over="ignore"):
            values = np.exp(y)
            self.trace = float(weights @ values)
        self.x = np.minimum(values, 1e300)
        self._y, self._weights = y, weights

    @property
    def size(self) -> float:
        """The largest magnitude of an exponent."""
        return float(np.abs(self._y).max())

    @property
    def log_trace(self) -> float:
        """The logarithm of the sum, without overflow."""
        return float(logsumexp(self._y, b=self._weights))


class _Exponential:
    """The exponential of a matrix, its vector and its trace."""

    def __init__(self, M: Any) -> None:
        self.d, self.U = np.linalg.eigh(M)
        with np.errstate(over="ignore"):
            values = np.exp(self.d)
        self.trace = float(values.sum())
        self.x = hvec((self.U * np.minimum(values, 1e300)) @ self.U.conj().T)

    @property
    def size(self) -> float:
        """The largest magnitude of an eigenvalue of the exponent."""
        return float(np.abs(self.d[[0, -1]]).max())

    @property
    def log_trace(self) -> float:
        """The logarithm of the trace, without overflow."""
        return float(logsumexp(self.d))

    @property
    def differences(self) -> Array:
        """The divided differences of the exponential, of ``h = (a - b) / 2`` times a mean."""
        a, b = self.d[:, None], self.d[None]
        h = np.abs(a - b) / 2
        ratio = np.divide(-np.expm1(-2 * h), 2 * h, out=np.ones_like(h), where=h > 0)  # sinh(h) exp(-h) / h
        with np.errstate(over="ignore"):
            return np.exp((a + b) / 2 + h) * ratio


class _Mixing:
    """Anderson mixing of fixed-point steps ``W -> own``."""

    def __init__(self) -> None:
        self._last: tuple[Array, Array] | None = None
        self._changes: list[tuple[Array, Array]] = []  # of the residual and of the image

    def next(self, W: Array, own: Array) -> Array:
        """Return the combination of the last images whose residual is the least."""
        rest = own - W
        if self._last is not None:
            self._changes.append((rest - self._last[0], own - self._last[1]))
            del self._changes[:-_MEMORY]
        self._last = rest, own
        if not self._changes:
            return own
        R, G = (np.array(part).T for part in zip(*self._changes, strict=True))
        weights = np.linalg.lstsq(R, rest, rcond=1e-10)[0]
        return own - G @ weights
