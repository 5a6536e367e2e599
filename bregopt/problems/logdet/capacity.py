"""The capacity of Gaussian channels: water filling (Shannon 1949; Telatar 1999)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import (
    SMALLEST,
    TINY,
    Array,
    ArrayOrSeries,
    ComplexArray,
    check_magnitude,
    complex_array,
    finite_array,
    positive_number,
)
from bregopt.clock import threads_for
from bregopt.errors import ConvergenceWarning, SolverError
from bregopt.io.matrices import framed, is_pandas
from bregopt.modeling.atoms import diag, inner, trace
from bregopt.modeling.convex.eigenvalues import log_det
from bregopt.modeling.convex.expression import Maximize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.logdet.answer import ProvenAnswer, verdict
from bregopt.records import dataclass
from bregopt.routes.base import Settings

_FINER = 0.1  # tolerance of a solve, relative
_LINEAR = 3e-4  # largest gain up to which the capacity counts as linear: the error is its square
_LEAST_PRICE = 1e-12  # of the power of an antenna, relative to the largest one


@dataclass(frozen=True, eq=False, repr=False)
class ChannelCapacity(ProvenAnswer):
    """The best use of power, and a proof.

    Attributes
    ----------
    capacity, bound : float
        In bits for each use of complex channels: ``log2 det(I + H Q H')``, and the proven bound on it. Real
        channels have half of it.
    gap : float
        ``bound - capacity``, relative to the bound.
    power : array or Series of shape (k,)
        Of each channel; of a channel matrix that of each singular vector, the strongest first, or of each
        antenna if their powers are bounded.
    covariance : array of shape (n, n) or None
        ``Q``, of the signals that a channel matrix transmits.
    level : float
        The water level: channels get ``max(level - 1 / gain, 0)``. NaN where powers of antennas are bounded.
    """

    title: ClassVar[str] = "channel capacity"

    capacity: float
    bound: float
    power: ArrayOrSeries
    covariance: Array | ComplexArray | None = None
    level: float = np.nan

    def _facts(self) -> dict[str, str]:
        used = int(np.sum(np.asarray(self.power) > 0))
        return {
            "capacity": f"{self.capacity:.8g} bits   bound {self.bound:.8g}   gap {self.gap:.1e}",
            "power": f"{float(np.sum(self.power)):.6g} on {used} of {len(self.power)}",
        }


def water_filling(gains: ArrayLike, power: float) -> ChannelCapacity:
    """Return the powers of parallel Gaussian channels with the largest ``sum(log2(1 + gains * powers))``.

    Parameters
    ----------
    gains : array_like or Series of shape (k,)
        Squared gain over noise power of each channel, none below 0.
    power : float
        The sum of all powers, above 0.

    Returns
    -------
    ChannelCapacity
        Exact: `power` is ``max(level - 1 / gains, 0)``.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, or no gain is above 0.

    References
    ----------
    Cover, Thomas (2006), Elements of Information Theory, section 9.4.

    Examples
    --------
    >>> import bregopt as bo
    >>> bo.water_filling([1.0, 0.5, 0.1], 4.0).power.tolist()
    [2.5, 1.5, 0.0]
    """
    g = finite_array(gains, "gains", ndim=1)
    total = positive_number(power, "power")
    if len(g) == 0 or g.min() < 0 or not g.any():
        raise ValueError(
            "gains has no value above 0, or one below 0; expected gains of at least 0, not all 0"
        )
    check_magnitude(g, "gains", SMALLEST)
    p, level = _filled(g, total)
    capacity, bound = _values(g, p, total)
    return ChannelCapacity(
        **_fields(capacity, bound, Settings.tol, "water_filling"),
        power=framed(p, gains.index if is_pandas(gains, "Series") else None),  # type: ignore[union-attr]
        level=level,
    )


def mimo_capacity(
    H: ArrayLike,
    power: float,
    antenna_power: ArrayLike | None = None,
    *,
    tol: float = Settings.tol,
    time_limit: float | None = None,
) -> ChannelCapacity:
    """Return the covariance of signals with the largest ``log2 det(I + H Q H')`` and ``tr(Q) <= power``.

    Parameters
    ----------
    H : array_like of shape (r, n)
        Gains from `n` antennas to `r` receivers over the root of the noise power, real or complex.
    power : float
        Above 0.
    antenna_power : float or array_like of shape (n,), optional
        Bounds on the power of each antenna, ``Q_ii``; above 0.
    tol : float
        Largest `gap` of an "optimal" answer.
    time_limit : float, optional
        In seconds, where the powers of antennas are bounded.

    Returns
    -------
    ChannelCapacity
        Without `antenna_power` exact, by water filling on the squared singular values.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, or `H` is zero.

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`.

    References
    ----------
    Telatar (1999), Capacity of multi-antenna Gaussian channels, European Trans. Telecommunications 10.
    """
    settings = Settings(tol=tol, time_limit=time_limit)
    channel: Any = complex_array(H, "H", ndim=2)
    total = positive_number(power, "power")
    if not channel.any():
        raise ValueError("H is zero; expected a channel with a gain")
    check_magnitude(np.abs(channel), "H", SMALLEST)
    if np.asarray(H).dtype.kind != "c":
        channel = channel.real
    if antenna_power is not None:
        bounds = finite_array(antenna_power, "antenna_power", ndim=(0, 1))
        n = channel.shape[1]
        if bounds.ndim == 1 and bounds.shape != (n,):
            raise ValueError(f"antenna_power has shape {bounds.shape}; expected a number or {(n,)}")
        if bounds.min() <= 0:
            raise ValueError(f"antenna_power has the value {bounds.min():g}; expected numbers above 0")
        with clock.limited(settings.time_limit), threads_for(n):
            return _bounded(channel, total, np.broadcast_to(bounds, (n,)), settings.tol)
    _, singular, V = np.linalg.svd(channel, full_matrices=False)
    g = singular**2
    p, level = _filled(g, total)
    capacity, bound = _values(g, p, total)
    Q = (V.conj().T * p) @ V
    return ChannelCapacity(
        **_fields(capacity, bound, Settings.tol, "water_filling"),
        power=p,
        covariance=(Q + Q.conj().T) / 2,
        level=level,
    )


def _filled(g: Array, total: float) -> tuple[Array, float]:
    """Return the powers and the water level."""
    best = float(g.max())
    with np.errstate(divide="ignore", over="ignore"):
        above = (best - g) / best / g / total  # how far ``1 / g`` is above the least one, in units of `total`
    steps = np.sort(above[above < 1])  # others get no power
    levels = (1 + np.cumsum(steps)) / np.arange(1, len(steps) + 1)
    level = float(levels[np.flatnonzero(levels > steps)[-1]])
    p = np.maximum(level - above, 0.0)
    return p * (total / p.sum()), 1 / best + level * total


def _values(g: Array, p: Array, total: float) -> tuple[float, float]:
    """Return the capacity in bits, and the bound that its gradient at `p` proves, as it is concave."""
    capacity, gradient = float(np.log1p(g * p).sum()), g / (1 + g * p)
    bound = capacity + max(float(gradient.max()) * total - float(gradient @ p), 0.0)
    return capacity / np.log(2), bound / np.log(2)


def _fields(capacity: float, bound: float, tol: float, name: str, iterations: int = 0) -> dict[str, Any]:
    found = verdict((bound - capacity) / bound, tol, name)
    return found | {"capacity": capacity, "bound": bound, "iterations": iterations}


def _bounded(H: Any, total: float, bounds: Array, tol: float) -> ChannelCapacity:
    """Return the capacity when the power of each antenna is bounded.

    With ``H = U S V'`` it is ``log det(I + S V'Q V S)``. A row of ``S`` above one is divided by it, which
    leaves a matrix with entries of one size at any gain. At a gain near zero the capacity is linear in ``Q``.
    """
    _, singular, V = np.linalg.svd(H, full_matrices=False)
    singular, V = singular[singular > 0], V[singular > 0]
    n, hermitian = V.shape[1], V.dtype.kind == "c"
    unit = min(total, float(bounds.sum()))
    gain = singular * np.sqrt(unit)
    X: Any = PSD(n, hermitian=hermitian, name="X")
    large, weight = np.maximum(gain, 1.0), min(float(gain[0]) ** 2, 1.0)
    F = (gain / large)[:, None] * V
    if weight < _LINEAR:
        F = (gain / gain[0])[:, None] * V
        objective = inner(F.conj().T @ F, X)
    else:
        objective = log_det(np.diag(large**-2) + F @ X @ F.conj().T) / weight
    powers = diag(X.real) if hermitian else diag(X)
    rows = [trace(X) <= total / unit, powers <= bounds / unit]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the certificate below says it
        sol = Problem(Maximize(objective), rows).solve(tol=_FINER * tol)
    if sol.X is None:
        raise SolverError(f"mimo_capacity: {sol.status}. {sol.stop_reason}")
    w, U = np.linalg.eigh(np.asarray(sol.X))
    Q = (U * (unit * np.maximum(w, 0.0))) @ U.conj().T
    own = Q.diagonal().real
    # More power never lowers the capacity.
    Q = Q * min(total / own.sum(), float((bounds / np.maximum(own, TINY)).min()))
    price, prices = (np.maximum(dual, 0.0) * (weight / unit) for dual in sol.duals)
    capacity, bound = _proven(singular[:, None] * V, Q, total, bounds, float(price), prices)
    return ChannelCapacity(
        **_fields(capacity, bound, tol, "mimo_capacity", sol.iterations),
        power=Q.diagonal().real.copy(),
        covariance=Q,
    )


def _proven(H: Any, Q: Any, total: float, bounds: Array, price: float, prices: Array) -> tuple[float, float]:
    """Return the capacity of a covariance, and the bound by weak duality with prices of powers, in bits."""
    w, V = np.linalg.eigh(Q)
    half = H @ (V * np.sqrt(np.maximum(w, 0.0)))
    capacity = float(np.log1p(np.linalg.svd(half, compute_uv=False) ** 2).sum())
    prices = np.maximum(prices, _LEAST_PRICE * (price + prices.max()) - price)  # an antenna may have no gain
    gains = np.linalg.svd(H / np.sqrt(price + prices), compute_uv=False) ** 2
    # Of all multiples of the prices, water filling has the best: all power together costs `paid`.
    paid = price * total + float(prices @ bounds)
    _, bound = _values(gains, _filled(gains, paid)[0], paid)
    return capacity / np.log(2), max(bound, capacity / np.log(2))
