"""Second-order cones in Newton's method: the variables in them, their multipliers, and their terms.

The variables ``x`` of a cone and their multipliers ``z`` are on the central path where ``x o z = nu e``, with
the Jordan product ``x o z = (x'z, x_0 z_1 + z_0 x_1)`` and its identity ``e = (1, 0)``. There is a symmetric
``W``, a multiple of an automorphism of the cone, with ``W z = inv(W) x = l``. In the scaled variables the
condition is linearized to

    l o (inv(W) dx + W dz) = nu e - l o l - second-order terms,   so   dx + W^2 dz = r,

and ``W^2 = eta^2 (2 w w' - J)`` is a diagonal matrix plus one of rank one (Nesterov, Todd 1997, Self-scaled
barriers and interior-point methods for convex programming; Alizadeh, Goldfarb 2003, §7). All cones are in
one array (:mod:`bregopt.program.bounds`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.program import SecondOrderCones
from bregopt.records import cached_property, dataclass

__all__ = ["NO_STEP", "SecondOrderState", "SecondOrderStep"]


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
        return float(self.x @ self.z) if self.cones.count else 0.0

    def complementarity_after(self, step: SecondOrderStep, primal: float, dual: float) -> float:
        """Return the complementarity after a step of these lengths."""
        return float((self.x + primal * step.x) @ (self.z + dual * step.z)) if self.cones.count else 0.0

    def metric(self) -> tuple[Array, Array | None]:
        """Return ``d`` and ``p`` of ``W^2 = diag(d) + p p'``, for all cones; ``p`` is None without cones."""
        if not self.cones.count:
            return self.x, None
        eta, w, _ = self._scaling
        return -(eta**2) * self.cones.J, np.sqrt(2.0) * eta * w

    def right_hand_side(self, nu: float, predictor: SecondOrderStep | None = None) -> Array:
        """Return ``r`` in ``dx + W^2 dz = r``, with the second-order terms of a predictor."""
        if not self.cones.count:
            return self.x
        target = nu * self.cones.identity
        if predictor is not None:
            target = target - self._product(self._unscaled(predictor.x), self._scaled(predictor.z))
        return self._scaled(self._quotient(target)) - self.x

    def step_lengths(self, step: SecondOrderStep) -> tuple[float, float]:
        """Return the largest primal and dual step lengths that stay in the cones."""
        if not self.cones.count:
            return np.inf, np.inf
        det_x, det_z = self._determinants
        primal = _step_length(self.cones, self.x, det_x, step.x)
        return primal, _step_length(self.cones, self.z, det_z, step.z)

    def after_step(self, step: SecondOrderStep, primal: float, dual: float) -> SecondOrderState | None:
        """Return the state after a step of these lengths; None outside the interior of the cones."""
        if not self.cones.count:
            return self
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
