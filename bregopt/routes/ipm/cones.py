"""The cones of the method's matrices: psd matrices on a face, or a stack of psd matrices of equal order.

An element of a cone is one array. For a stack its shape is ``(B, n, n)``, so that a thousand small matrices
cost as many Python calls as one. The step length at which a matrix leaves the cone is found by the cheapest
method at its order.

Ordinary variables ``x`` of a second-order cone and their multipliers ``z`` are on the central path where
``x o z = nu e``, with the Jordan product ``x o z = (x'z, x_0 z_1 + z_0 x_1)`` and its identity
``e = (1, 0)``. There is a symmetric ``W``, a multiple of an automorphism of the cone, with
``W z = inv(W) x = l``. In the scaled variables the condition is linearized to

    l o (inv(W) dx + W dz) = nu e - l o l - second-order terms,   so   dx + W^2 dz = r,

and ``W^2 = eta^2 (2 w w' - J)`` is a diagonal matrix plus one of rank one (Nesterov, Todd 1997, Self-scaled
barriers and interior-point methods for convex programming; Alizadeh, Goldfarb 2003, §7). All second-order
cones are in one array (:mod:`bregopt.program.bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, root_of
from bregopt.program import Face, SecondOrderCones
from bregopt.records import cached_property, dataclass

LEAST_STEP = 1e-7  # length at which the method stalls, and up to which a step length counts as zero

# Order from which a step length comes from trial Cholesky factorizations; below, from an eigenvalue, whose
# cost is mostly overhead at small orders.
_TRIAL_ORDER = 40
# Order from which a step length comes from an eigenvalue estimate of Lanczos, whose steps cost ``n^2``
# operations; trial factorizations cost ``n^3``.
_LANCZOS_ORDER = 130
# Limit on the steps of that estimate.
_LANCZOS_STEPS = 40
# Relative residual at which that estimate ends. The residual shortens the step; a smaller one takes more
# steps of Lanczos.
_LANCZOS_TOL = 0.01
# Fraction of the step to the boundary that is taken after a short predictor step, so step lengths of at
# least its inverse allow the full step. A larger one leaves the next iterate close to the boundary, where
# steps are short; a smaller one takes more steps.
LEAST_STEP_FRACTION = 0.9


class FaceCone:
    """The psd matrices on a face.

    A root is computed once for each ``X``: the lower Cholesky factor in the coordinates of the face.

    Parameters
    ----------
    face : Face

    Attributes
    ----------
    order : int
        The order of the matrices on the face; of a stack the sum of its orders.
    is_face : bool
        Whether it is a proper face.
    root : callable
        Returns the root of ``X``, None outside the interior of the cone.
    """

    def __init__(self, face: Face) -> None:
        self._face = face
        self.order, self.is_face = face.order, face.codimension > 0
        self.root: Callable[[Array], Array | None] = self._root_on_face if self.is_face else root_of

    def _root_on_face(self, X: Array) -> Array | None:
        return root_of(self._face.compress(X))

    def project(self, X: Array) -> Array:
        """Return the projection on the subspace that the cone spans."""
        return self._face.lift(self._face.compress(X)) if self._face.codimension else X

    def inverse(self, root: Array) -> Array:
        """Return the inverse on that subspace, from a root."""
        if self.order == 0:
            return np.zeros((self._face.n,) * 2)
        inverse = inverse_of(root)
        return self._face.lift(inverse) if self.is_face else inverse

    def compressed(self, S: Array) -> Array:
        """Return matrices in the coordinates of the cone, as a stack."""
        return self._face.compress(S)[None]

    def restricted(self, S: Array) -> Array:
        """Return ``V'S V`` of any matrices, shape ``(..., n, n)``, with a basis ``V`` of the subspace."""
        if not self.is_face:
            return S
        project = self._face.project
        if S.ndim == 2:
            return project(project(S).T).T
        return np.array([project(project(own).T).T for own in S])

    def extended(self, M: Array) -> Array:
        """Return ``V M V'`` of one array of the cone."""
        return self._face.lift(M)

    def factors(self, roots: Sequence[Array]) -> list[tuple[Array, Array]]:
        """Return the Cholesky factors in the coordinates of the cone, and their inverses, for some roots."""
        found = []
        for root in roots:  # LAPACK prints an error for the order zero
            inverse: Array = lapack.dtrtri(root, lower=1)[0] if self.order else root
            found.append((root, inverse))
        return found

    def lengths(
        self, points: Sequence[Array], roots: Sequence[Array], steps: Sequence[Array], tol: float
    ) -> list[float]:
        """Return about the largest ``alpha`` with ``X + alpha step`` in it, for points ``X``.

        Parameters
        ----------
        points, roots, steps : sequences of arrays
        tol : float
            Relative error of a length.
        """
        found = []
        for X, root, step in zip(points, roots, steps, strict=True):
            whole = not self.is_face or len(root) >= _LANCZOS_ORDER
            own = step if whole else self._face.compress(step)
            if len(root) == 0:
                length = math.inf
            elif len(root) >= _LANCZOS_ORDER:
                # Pays on: max-cut of 3,200 edges, n = 800.
                length = _length_to_boundary(self._least_scaled(root, step))
            elif len(root) >= _TRIAL_ORDER:
                # Pays on: max-cut of 400 edges, n = 100.
                length = _step_length_by_trials(self._face.compress(X), own, tol)
            else:
                half, _ = lapack.dtrtrs(root, own, lower=1)
                scaled, _ = lapack.dtrtrs(root, half.T, lower=1)
                least = float(lapack.dsyevr(scaled, compute_v=0, range="I", il=1, iu=1)[0][0])
                length = math.inf if least >= 0 else -1 / least
            found.append(length)
        return found

    def _least_scaled(self, root: Array, step: Array) -> float:
        """Return a lower estimate of the least eigenvalue of ``inv(L) V' step V inv(L)'``."""
        L, face = np.asfortranarray(root), self._face

        def operator(v: Array) -> Array:
            inner, _ = lapack.dtrtrs(L, v, lower=1, trans=1)
            image: Array = lapack.dtrtrs(L, face.project(step @ face.embed(inner)), lower=1)[0]
            return image

        # It leans to the directions in which the matrix is small, which limit the step.
        start, _ = lapack.dtrtrs(L, np.random.default_rng(0).normal(size=len(L)), lower=1)
        return _least_eigenvalue(operator, start)


class StackCone:
    """Psd matrices of equal order, each on the whole cone, with the attributes and methods of a face.

    A root consists of inverse Cholesky factors.

    Parameters
    ----------
    count, n : int
        Number of matrices and their order.
    """

    def __init__(self, count: int, n: int) -> None:
        self._count, self._n = count, n
        self.order, self.is_face = count * n, False

    def root(self, X: Array) -> Array | None:
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(X))
        except np.linalg.LinAlgError:
            return None
        return inverse if math.isfinite(np.add.reduce(inverse, axis=None)) else None

    def project(self, X: Array) -> Array:
        return X

    def inverse(self, root: Array) -> Array:
        return root.swapaxes(1, 2) @ root

    def compressed(self, S: Array) -> Array:
        return S

    def restricted(self, S: Array) -> Array:
        return S

    def extended(self, M: Array) -> Array:
        return M

    def factors(self, roots: Sequence[Array]) -> list[tuple[Array, Array]]:
        # Not the factors that were inverted, with which hinf7 takes 21 steps instead of 19.
        factors: Any = np.linalg.inv(np.array(roots))
        return list(zip(factors, roots, strict=True))

    def lengths(
        self, points: Sequence[Array], roots: Sequence[Array], steps: Sequence[Array], tol: float
    ) -> list[float]:
        pairs = zip(roots, steps, strict=True)
        scaled = np.concatenate([root @ step @ root.swapaxes(1, 2) for root, step in pairs])
        least = np.linalg.eigvalsh(scaled)[:, 0].reshape(len(steps), -1)
        return list(map(_length_to_boundary, np.minimum.reduce(least, axis=1).tolist()))


Cone = FaceCone | StackCone


def _length_to_boundary(least: float) -> float:
    """Return the largest ``alpha`` with ``1 + alpha least >= 0``."""
    return math.inf if least >= 0 else -1 / least


def _step_length_by_trials(S: Array, step: Array, tol: float) -> float:
    """Return a step length at which the Cholesky factorization succeeds, the longest up to a relative `tol`.

    A failed trial gives a ``v`` with ``v'(S + alpha step)v < 0``, which bounds all step lengths by
    ``-v'Sv / v'step v``. The next trial is just below this bound.
    """
    trial = np.empty_like(S)
    alpha = full = 1 / LEAST_STEP_FRACTION
    while alpha > LEAST_STEP:
        np.multiply(step, alpha, out=trial)
        np.add(trial, S, out=trial)
        L, failed = lapack.dpotrf(trial.T, lower=1, clean=0, overwrite_a=1)
        if failed == 0:
            return math.inf if alpha == full else alpha
        v = np.ones(failed)  # in the coordinates of the leading minor that is not positive
        if failed > 1:
            v[:-1] = -lapack.dtrtrs(
                L[: failed - 1, : failed - 1], L[failed - 1, : failed - 1], lower=1, trans=1
            )[0]
        decrease = -float(v @ (step[:failed, :failed] @ v))
        bound = float(v @ (S[:failed, :failed] @ v)) / decrease if decrease > 0 else math.inf
        alpha = (1 - tol) * min(alpha, bound)
    return 0.0


def _least_eigenvalue(operator: Callable[[Array], Array], w: Array) -> float:
    """Return a lower estimate of the smallest eigenvalue of a symmetric operator by Lanczos's method.

    The estimate is the Ritz value less its residual, as soon as that is a fraction of it (Toh 2002).

    Parameters
    ----------
    operator : callable
    w : array of shape (n,)
        The starting vector.
    """
    steps, tol = _LANCZOS_STEPS, _LANCZOS_TOL
    basis = np.zeros((steps + 1, len(w)))
    alpha, beta = np.zeros(steps), np.zeros(steps)
    estimate = 0.0
    for k in range(steps):
        checkpoint()
        size = math.sqrt(w @ w)
        if k > 0:
            beta[k - 1] = size
        if k > 0 and (k % 2 == 0 or size == 0):  # Ritz values cost as much as a step
            ritz, vectors, _ = lapack.dstev(alpha[:k], beta[: max(k - 1, 1)])  # it takes no empty array
            residual = size * abs(float(vectors[-1, 0]))
            estimate = float(ritz[0]) - residual
            if residual <= tol * max(abs(float(ritz[0])), tol) or size == 0:
                break
        basis[k] = w / size
        w = operator(basis[k])
        alpha[k] = float(w @ basis[k])
        for _ in range(2):
            w = w - (basis[: k + 1] @ w) @ basis[: k + 1]
    return estimate


class SecondOrderStep(NamedTuple):
    """A Newton step in the variables in cones and in their multipliers."""

    x: Array
    z: Array


NO_STEP = SecondOrderStep(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class SecondOrderState:
    """The variables in second-order cones and their multipliers.

    Parameters
    ----------
    cones : SecondOrderCones
    x, z : array of shape (size,)
        In the interior of the cones.
    """

    cones: SecondOrderCones
    x: Array
    z: Array

    @classmethod
    def centered(
        cls, cones: SecondOrderCones, x: Array, nu: float, near: Array | None
    ) -> SecondOrderState | None:
        """Return the state at `x`, on the central path at `nu` or with multipliers close to `near`.

        None if `x` is not in the interior of the cones.
        """
        if not cones.count:
            return cls(cones, x, x)
        if not _inside(cones, x):
            return None
        z = nu * cones.inverse(x)
        if near is not None:
            z = z + cones.raised(near, cones.outside(near))
        return cls(cones, x, z)

    def complementarity(self) -> float:
        """Return ``x'z``, the contribution of the cones to the duality gap."""
        return float(self.x @ self.z)

    def complementarity_after(self, step: SecondOrderStep, primal: float, dual: float) -> float:
        """Return the complementarity after a step of these lengths."""
        return float((self.x + primal * step.x) @ (self.z + dual * step.z))

    def metric(self) -> tuple[Array, Array]:
        """Return ``d`` and ``p`` of ``W^2 = diag(d) + p p'``, for all cones."""
        eta, w, _ = self._scaling
        return -(eta**2) * self.cones.J, np.sqrt(2.0) * eta * w

    def right_hand_side(self, nu: float, predictor: SecondOrderStep | None = None) -> Array:
        """Return ``r`` in ``dx + W^2 dz = r``, with the second-order terms of a predictor."""
        target = nu * self.cones.identity
        if predictor is not None:
            target = target - self._product(self._unscaled(predictor.x), self._scaled(predictor.z))
        return self._scaled(self._quotient(target)) - self.x

    def step_lengths(self, step: SecondOrderStep) -> tuple[float, float]:
        """Return the largest primal and dual step lengths that stay in the cones."""
        det_x, det_z = self._determinants
        primal = _step_length(self.cones, self.x, det_x, step.x)
        return primal, _step_length(self.cones, self.z, det_z, step.z)

    def after_step(self, step: SecondOrderStep, primal: float, dual: float) -> SecondOrderState | None:
        """Return the state after a step of these lengths; None outside the interior of the cones."""
        x, z = self.x + primal * step.x, self.z + dual * step.z
        inside = _inside(self.cones, x) and _inside(self.cones, z)
        return SecondOrderState(self.cones, x, z) if inside else None

    @cached_property
    def _determinants(self) -> tuple[Array, Array]:
        """``det(x)`` and ``det(z)`` of each cone; that of ``l`` is their geometric mean."""
        return self.cones.determinants(self.x), self.cones.determinants(self.z)

    @cached_property
    def _scaling(self) -> tuple[Array, Array, Array]:
        """``eta`` of each variable's cone, the scaling point ``w`` with ``w'J w = 1``, and ``l = W z``."""
        cones, owner = self.cones, self.cones.owner
        size_x, size_z = map(np.sqrt, self._determinants)
        x, z = self.x / size_x[owner], self.z / size_z[owner]
        half = np.sqrt((1 + cones.inner(x, z)) / 2)
        w = (x + cones.J * z) / (2 * half)[owner]
        eta = np.sqrt(size_x / size_z)[owner]
        return eta, w, eta * _automorphism(cones, w, self.z)

    def _scaled(self, v: Array) -> Array:
        """Return ``W v``."""
        eta, w, _ = self._scaling
        return eta * _automorphism(self.cones, w, v)

    def _unscaled(self, v: Array) -> Array:
        """Return ``inv(W) v``."""
        eta, w, _ = self._scaling
        return _automorphism(self.cones, self.cones.J * w, v) / eta

    def _product(self, x: Array, y: Array) -> Array:
        """Return ``x o y``."""
        cones, owner = self.cones, self.cones.owner
        product = x[cones.starts][owner] * y + y[cones.starts][owner] * x
        product[cones.starts] = cones.inner(x, y)
        return product

    def _quotient(self, v: Array) -> Array:
        """Return the ``x`` with ``l o x = v``."""
        cones, owner, (_, _, point) = self.cones, self.cones.owner, self._scaling
        det_x, det_z = self._determinants
        axis = cones.inner(cones.J * point, v) / np.sqrt(det_x * det_z)
        quotient = (v - axis[owner] * point) / point[cones.starts][owner]
        quotient[cones.starts] = axis
        return quotient


def _inside(cones: SecondOrderCones, x: Array) -> bool:
    """Whether the vectors are in the interior of their cones."""
    return bool((cones.least_eigenvalues(x) > 0).all())


def _automorphism(cones: SecondOrderCones, w: Array, v: Array) -> Array:
    """Return ``V v`` for the symmetric ``V`` with ``V^2 = 2 w w' - J``, which maps each cone to itself.

    ``V (v_0, v_1) = (w'v, v_1 + (v_0 + w_1'v_1 / (1 + w_0)) w_1)``.
    """
    inner, axis_v, axis_w = cones.inner(w, v), v[cones.starts], w[cones.starts]
    tails = inner - axis_w * axis_v
    image: Array = v + (axis_v + tails / (1 + axis_w))[cones.owner] * w
    image[cones.starts] = inner
    return image


def automorphism(cones: SecondOrderCones, w: Array) -> Array:
    """Return the matrix of :func:`_automorphism`, shape ``(size, size)``."""
    starts, owner = cones.starts, cones.owner
    V = np.where(owner[:, None] == owner, np.outer(w, w / (1 + w[starts][owner])), 0.0)
    V.flat[:: len(V) + 1] += 1.0
    V[starts] = np.where(np.arange(cones.count)[:, None] == owner, w, 0.0)
    V[:, starts] = V[starts].T
    return V


def _step_length(cones: SecondOrderCones, x: Array, c: Array, step: Array) -> float:
    """Return the largest ``alpha`` with ``x + alpha step`` in all cones, for ``c = det(x) > 0``.

    It is the smallest positive root of ``det(x + alpha step) = a alpha^2 + 2 b alpha + c``.
    """
    mirrored = cones.J * step
    a, b = cones.inner(mirrored, step), cones.inner(mirrored, x)
    discriminant = b**2 - a * c
    divisor = np.sqrt(np.maximum(discriminant, 0.0)) - b
    meets = (discriminant >= 0) & (divisor > 0)
    return float((c[meets] / divisor[meets]).min(initial=np.inf))
