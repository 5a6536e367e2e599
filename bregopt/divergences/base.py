"""The interface of a Bregman matrix divergence anchored at ``X0``, with all that solvers need of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array
from bregopt.divergences.rows import Penalty, ProjectionPoint
from bregopt.divergences.spectrum import Spectrum


class Completed(NamedTuple):
    """``mu D(X, X0) + <left, X> + constant``."""

    mu: float
    X0: Array
    left: Array
    constant: float


class Divergence(ABC):
    """A divergence ``D(X, X0)`` from one fixed ``X0`` of order `n`, with its dual.

    A subclass is made with ``X0``, a symmetric array, and its parameters by keyword. It defines `name`,
    `unit`, `value`, `gradient` and `dual_term`, with which an answer is certified. The other attributes and
    methods declare more properties; a property that is not declared is assumed not to hold. A solver's method
    runs where the divergence :meth:`offers` the properties that it needs.
    """

    name: ClassVar[str]
    infinite_outside_cone: ClassVar[bool] = False
    """Whether `value` is infinite at every matrix that is not psd. If false, certificates check the cone."""
    definite_start: ClassVar[bool] = False
    """Whether ``X0`` must be positive definite. If false, it may be any symmetric matrix."""
    keeps_range: ClassVar[bool] = False
    """Whether ``X0`` may be singular, and ``X`` then keeps its range."""
    finite_on_boundary: ClassVar[bool] = True
    """Whether `value` is finite at singular ``X``."""
    essentially_smooth: ClassVar[bool] = False
    """Whether the gradient is infinite on the boundary, so that minimizers are interior to the cone."""
    congruence_invariant: ClassVar[bool] = False
    """Whether ``D(V X V', V X0 V') = D(X, X0)`` for every invertible ``V``, not only orthogonal ones."""
    degree: ClassVar[int | None] = None
    """The ``p`` of ``D(r X, r X0) = r^p D(X, X0)``, None where there is none."""
    barrier: ClassVar[bool] = False
    """Whether it is ``-logdet X`` and a linear function of ``X``: LogDet, with a Newton method of its own."""
    quadratic: ClassVar[bool] = False
    """Whether it is a sum of squares, each of an entry of ``X - X0``."""
    weights: ClassVar[bool] = False
    """Whether these squares have weights."""
    exponential: ClassVar[bool] = False
    """Whether the minimizer of ``<W, X> + D(X, X0)`` is the exponential of ``log X0 - W``: von Neumann."""
    takes_cap: ClassVar[bool] = False
    """Whether `dual_term`, and `spectrum` if defined, also take a `cap`: an upper bound on eigenvalues.

    It is their last argument, None for no bound.
    """
    takes_multiplier: ClassVar[bool] = False
    """Whether `dual_term` also takes a multiplier of ``X psd`` and bounds on the diagonal."""
    resolution: ClassVar[float] = 1e-3
    """The fraction of `unit` below which `value` and `dual_term` are round-off of larger terms.

    Where both are computed without such terms, it is the round-off of a square.
    """
    penalty: ClassVar[Penalty | None] = None
    """The penalty of its soft rows: its scalar case. With None they pay the violation (the hinge)."""
    cvxpy_order: ClassVar[int] = 20
    """The largest order of a matrix at which CVXPY with Clarabel takes about a second."""
    cvxpy_cones: ClassVar[int] = 0
    """The number of cones that CVXPY compiles for each row of ``X``."""

    @classmethod
    def variant(cls, **parameters: Any) -> type[Divergence]:
        """Return the class for the given parameters; its constructor takes ``X0`` and these."""
        return cls

    @classmethod
    def checked(cls, X0: Array, **parameters: Any) -> tuple[Array, Mapping[str, Any]]:
        """Return ``X0`` and the parameters as they are used, after checks.

        Raises
        ------
        TypeError, ValueError
            If the divergence does not accept them.
        """
        make: Any = cls
        make(X0, **parameters)
        return X0, parameters

    @classmethod
    def phrase(cls) -> str:
        """Return the name of the divergence in messages."""
        return f"the {cls.name} divergence"

    @classmethod
    def offers(cls, what: str) -> bool:
        """Whether `what` is its name, an attribute that is true, or an optional method that it defines."""
        own = getattr(cls, what, None)
        return (
            what == cls.name or own is True or (callable(own) and own is not getattr(Divergence, what, own))
        )

    @property
    @abstractmethod
    def unit(self) -> float:
        """The scale of ``D``; gaps are relative to no less than a hundredth of it."""
        ...

    @abstractmethod
    def value(self, X: Array) -> float:
        """Return ``D(X, X0)``; ``inf`` outside its domain."""
        ...

    @abstractmethod
    def gradient(self, X: Array) -> Array:
        """Return the gradient of ``D(., X0)`` at `X`."""
        ...

    @abstractmethod
    def dual_term(self, W: Array, mu: float, X: Array) -> float:
        """Return a lower bound on ``<W, .> + mu D(., X0)`` over psd matrices, ``-inf`` where there is none.

        It is the minimum itself, except where a divergence has no closed form for it. Such a divergence takes
        the multiplier of ``X psd`` from the gradient at `X`.
        """
        ...

    def evaluation_error(self, X: Array) -> float:
        """Return a bound on the round-off of `value` at the psd `X`, and of `dual_term` where `X` minimizes.

        It is of first order where `X` is near the minimizer, and infinite where round-off leaves nothing of
        the value. Certificates add it to their error.
        """
        return 0.0

    def recession(self) -> Array | None:
        """Return ``R`` such that ``D(t X, X0)`` grows like ``t <R, X>``, None for faster than linear growth.

        Where it is None, every ray of a problem is zero in ``X``.
        """
        return None

    def spectrum(self, W: Array, mu: float) -> Spectrum | None:
        """Return the minimizer of ``<W, X> + mu D(X, X0)`` over psd ``X``, None where there is none.

        Newton's method on the dual needs it.
        """
        raise NotImplementedError(f"{self.phrase()} has no spectrum")

    def point(self, mu: float) -> ProjectionPoint:
        """Return the iterate of cyclic projection, which projections onto single rows update."""
        raise NotImplementedError(f"{self.phrase()} has no projection onto a row")

    def restricted(self, V: Array) -> tuple[Array, float]:
        """Return ``M0`` and ``c`` with ``D(V M V', X0) = D(M, M0) + c`` for `V` with orthonormal columns.

        With it, projections move to the face ``X = V M V'`` where rows leave ``X`` no interior.
        """
        raise NotImplementedError(f"{self.phrase()} is not restricted to faces")

    def anchor_derivative(self, S: Array) -> Array:
        """Return minus the derivative of the gradient along a symmetric `S`, as ``X0`` changes.

        It is a self-adjoint linear map of `S`. Derivatives of answers in ``X0`` need it.
        """
        raise NotImplementedError(f"{self.phrase()} has no derivative in X0")

    def cvxpy_expression(self, cp: Any, X: Any) -> Any:
        """Return ``D(X, X0)`` in CVXPY's atoms, for a variable `X` of CVXPY, the module `cp`."""
        raise NotImplementedError(f"{self.phrase()} is not known in CVXPY's atoms")

    @classmethod
    def completed(cls, mu: float, W: Array, factor: float) -> Completed:
        """Return ``mu s(factor X) + <W, X>`` as a divergence plus a linear term and a constant.

        ``s`` is CVXPY's atom for the divergence, ``-logdet`` or ``tr X log X``.
        """
        raise NotImplementedError(f"{cls.phrase()} is of no function that CVXPY has")


# --- Round-off ---------------------------------------------------------------------------------------------
#
# The value of a divergence and its dual term share their round-off. LAPACK's eigendecomposition is exact for
# a matrix that differs from ``X0`` by some units in the last place of ``||X0||``, and Cholesky's
# factorization for one that differs by as many of ``sqrt(x_ii x_jj)`` (Higham 2002, Accuracy and Stability of
# Numerical Algorithms, §10.1). The divergence from that matrix is evaluated, and a logarithm or an inverse of
# an ill-conditioned ``X0`` differs by its condition number times as much. So no distance between value and
# bound shows this error.

# The backward errors of an eigendecomposition, relative to the norm, and of Cholesky's factorization,
# relative to the diagonal. The largest of random matrices are 5 EPS and 0.9 EPS.
UNITS, ROOT_UNITS = 8 * EPS, 4 * EPS
# Minus the logarithm of the least eigenvalue that a matrix of norm one shows in doubles.
LEAST_LOGARITHM = -math.log(EPS)


def error_of_square(X: Array, X0: Array) -> float:
    """Return the largest error of the computed ``||X - X0||_F^2`` for entries with round-off."""
    round_off = EPS * float(np.linalg.norm(X) + np.linalg.norm(X0))
    return round_off * (float(np.linalg.norm(X - X0)) + round_off)


def error_of_slope(x0: Array, Q: Array, slope: Callable[[Array], Array]) -> Array:
    """Return ``M`` with ``|<X, F - phi'(X0)>| <= <X, M>`` for psd ``X`` and the computed ``F = phi'(X0)``.

    The bound holds for operator monotone ``phi'``, as those of the logarithm, minus the inverse, and the
    identity: ``X0 - e I <= Y <= X0 + e I`` implies ``phi'(X0 - e I) <= phi'(Y) <= phi'(X0 + e I)``.

    Parameters
    ----------
    x0 : array of shape (..., n)
        The eigenvalues of ``X0``.
    Q : array of shape (..., n, n)
        Its eigenvectors.
    slope : callable
        ``phi'``, applied to arrays.

    Returns
    -------
    array of shape (..., n, n)
        With entries that are not finite if nothing is known of ``phi'(X0)``.
    """
    reach = UNITS * np.abs(x0).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        own = slope(x0)
        above, below = slope(x0 + reach) - own, own - slope(np.maximum(x0 - reach, np.minimum(x0, 0.0)))
        most = np.maximum(above, below) + UNITS * np.abs(own).max(axis=-1, keepdims=True)
        error: Array = (Q * most[..., None, :]) @ np.swapaxes(Q, -1, -2)
    return error


def error_of_inverse(inverse: Array, diagonal: Array) -> Array:
    """Return ``M`` with ``|<X, Y - inv(X0)>| <= <X, M>`` for psd ``X`` and the computed inverse ``Y``.

    Parameters
    ----------
    inverse : array of shape (..., n, n)
    diagonal : array of shape (..., n)
        That of ``X0``.
    """
    error: Array = ROOT_UNITS * _growth(inverse, diagonal) * ((inverse * diagonal[..., None, :]) @ inverse)
    return error


def error_of_log_det(inverse: Array, diagonal: Array) -> Array:
    """Return the largest error of the computed ``logdet X`` for ``X`` with this inverse and diagonal."""
    trace = np.add.reduce(diagonal * inverse.diagonal(axis1=-2, axis2=-1), axis=-1)
    error: Array = ROOT_UNITS * _growth(inverse, diagonal)[..., 0, 0] * trace
    return error


def _growth(inverse: Array, diagonal: Array) -> Array:
    """Return ``1 / (1 - t)``, which bounds all orders by the first; infinite where nothing is known.

    With ``D^2`` the diagonal, ``t`` is the norm of ``D inv(X) D`` times the backward error relative to ``D``.
    """
    root = np.sqrt(diagonal)
    scaled = inverse * root[..., :, None] * root[..., None, :]
    room = 1 - ROOT_UNITS * np.sqrt(np.add.reduce(scaled * scaled, axis=(-2, -1), keepdims=True))
    growth: Array = np.where(room > 0, 1 / np.maximum(room, TINY), np.inf)
    return growth
