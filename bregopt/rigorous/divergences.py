"""Proven values of the terms of both bounds: divergences and their duals, penalties, and convex functions.

Divergences are for every matrix within a radius. In all formulas ``Y`` is the inverse of the computed
Cholesky factor of ``X0``, a float matrix whose determinant is the product of its diagonal, and
``F = Y X0 Y' - I`` is enclosed. docs/trust/rounding.md derives each inequality. A feasible matrix near one
of doubles has an image near that one's, whose eigenvalues have enclosures: sums of ``d log d`` need no
condition number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.program import Penalty
from bregopt.program.convex_functions import (
    Exponential,
    Logistic,
    LogSumExp,
    NegativeEntropy,
    NumbersRelativeEntropy,
)
from bregopt.program.matrix_entropies import EntropySum, RelativeEntropy, TraceLog
from bregopt.records import kept
from bregopt.rigorous.ball import UNIT, Ball, exp, inflated, log, up
from bregopt.rigorous.data import Anchor, Data, MatrixData
from bregopt.rigorous.linear_algebra import (
    decomposition,
    eigenvalues,
    log_det,
    near_identity,
    orthogonality,
    triangular_inverse,
    whitened,
)

_SERIES = 0.05  # of the relative difference of two numbers: below it a series has their divided difference


def dual_term(block: MatrixData, W: Ball, trace: float, X: Array | None) -> tuple[float, str]:
    """Return a lower bound on ``<W, .> + mu D(., X0)`` over psd matrices (under the cap), or a reason.

    Parameters
    ----------
    block : MatrixData
        With an anchor.
    W : Ball of shape (n, n)
    trace : float
        An upper bound on the trace, which entries without weight need; infinite without one.
    X : array of shape (n, n) or None
        An approximate minimizer, for elementwise weights.
    """
    anchor = block.anchor
    assert anchor is not None
    if anchor.divergence not in _DUALS:
        return -math.inf, f"no proof is known for {anchor.divergence}"
    constant = 0.0
    if block.cap is not None:
        F = _capping(anchor, W.mid, block.cap)
        if F is None:
            return -math.inf, f"X0 of {block.name} is not proven positive definite"
        W = W + Ball.exact(F) @ F.T
        constant = -float(((Ball.exact(F) * F).sum() * block.cap).hi)
    W = (W + W.T) * 0.5
    found = _DUALS[anchor.divergence](anchor, W, trace, X)
    value = float((found + constant).lo)
    if math.isfinite(value):
        return value, ""
    return -math.inf, (
        f"the multipliers are not proven inside the domain of the dual of {block.name}'s divergence: solve "
        "to a smaller tol, or take a better conditioned X0"
    )


def value_term(block: MatrixData, X: Array, radius: float) -> tuple[float, str]:
    """Return an upper bound on ``mu D(., X0)`` over symmetric matrices within `radius` of `X`, or a reason.

    All of them must be positive definite, for the divergences that are finite there only.
    """
    anchor = block.anchor
    assert anchor is not None
    if anchor.divergence not in _VALUES:
        return math.inf, f"no proof is known for {anchor.divergence}"
    value = float((_VALUES[anchor.divergence](anchor, X, radius) * anchor.mu).hi)
    if math.isfinite(value):
        return value, ""
    return (
        math.inf,
        f"X0 or the answer of {block.name} is not proven positive definite: its condition is too large",
    )


# --- Spectra ----------------------------------------------------------------------------------------


class Spectrum:
    """``H (D - e) H' <= Y <= H (D + e) H'`` for a matrix with radii."""

    def __init__(self, Y: Ball) -> None:
        rad = np.maximum(Y.rad, Y.rad.T) + np.abs(Y.mid - Y.mid.T)
        self.Q, self.d, distance = decomposition(Ball((Y.mid + Y.mid.T) / 2, inflated(rad)))
        self.distance = inflated(distance + TINY)
        self.definite = bool(math.isfinite(self.distance) and self.d[0] > 2 * self.distance)
        delta = orthogonality(self.Q)
        self.turn = inflated(delta * (2 + delta))

    def logarithm(self, below: bool) -> Ball:
        """Return a matrix below the logarithm, or above it."""
        moved = Ball.exact(self.d if below else np.maximum(self.d, 0.0))
        moved = moved + (-self.distance if below else self.distance)
        ends = log(moved).lo if below else log(moved).hi
        size = self.turn * float(np.abs(ends).max(initial=0.0))
        K = (Ball.exact(self.Q) * ends) @ self.Q.T
        return K + (-size if below else size) * np.eye(len(self.d))

    def itself(self) -> Spectrum | None:
        """Return the spectrum of ``H D H'`` itself, None where that is not definite."""
        own = copy(self)
        own.distance = 0.0
        return own if self.d[0] > 0 else None

    def derivative(self, T: Ball) -> Ball:
        """Return a matrix above the derivative of the logarithm at ``H D H'`` along ``H T H'``.

        Radii count on the diagonal, where ``D`` is small: they would spread over all entries.
        """
        N = _differences(self.d) * T
        mid = (N.mid + N.mid.T) / 2
        radii = Ball.exact(np.maximum(N.rad, N.rad.T) + np.abs(N.mid - mid)).sum(1).hi
        return self.congruent(Ball.exact(mid) + np.diag(inflated(radii)))

    def congruent(self, N: Ball) -> Ball:
        """Return ``H N H'``."""
        Q = Ball.exact(self.Q)
        M = Q @ N @ Q.T
        return Ball(M.mid, inflated(M.rad + self.turn * N.frobenius()))

    def turned(self, C: Ball) -> Ball:
        """Return ``H'C H``."""
        Q = Ball.exact(self.Q)
        T = Q.T @ C @ Q
        return Ball(T.mid, inflated(T.rad + self.turn * C.frobenius()))


def _differences(d: Array) -> Ball:
    """Return the divided differences of the logarithm of positive doubles."""
    a, b = Ball.exact(d[:, None] + 0 * d), Ball.exact(d + 0 * d[:, None])
    total = a + b
    m = (a - b) / total
    near = np.abs(m.mid) <= _SERIES
    square, term, series = m * m, Ball.exact(np.ones_like(m.mid)), Ball.exact(np.ones_like(m.mid))
    for k in range(1, 7):
        term = term * square
        rounded = Ball(np.zeros_like(m.mid), UNIT * term.magnitude)  # of 1 / (2 k + 1)
        series = series + term * (1.0 / (2 * k + 1)) + rounded
    rest = _SERIES**14  # of the terms that are left out, below a geometric series
    close = Ball(series.mid, series.rad + rest) * 2.0 / total
    apart = np.where(near, 2.0 * d[:, None], d[:, None] + 0 * d)
    logs = log(Ball.exact(apart)) - log(b)
    far = logs / (Ball.exact(apart) - b)
    return Ball(np.where(near, close.mid, far.mid), np.where(near, close.rad, far.rad))


# --- LogDet -----------------------------------------------------------------------------------------


def _logdet_dual(anchor: Anchor, W: Ball, trace: float, X: Array | None) -> Ball:
    """Return ``mu (logdet(inv(X0) + W / mu) + logdet X0)``, as ``inv(X0) >= Y'Y / (1 + ||F||)``."""
    found = _root_of_anchor(anchor)
    if found is None:
        return _unknown()
    Y, f, log_det_X0 = found
    G = (Ball.exact(Y.T) @ Y) * (Ball.exact(1.0) - f) + W / anchor.mu
    return (log_det((G + G.T) * 0.5) + log_det_X0) * anchor.mu


def _logdet_value(anchor: Anchor, X: Array, radius: float) -> Ball:
    """Return ``tr(inv(X0) X) - logdet X + logdet X0 - n``, as ``inv(X0) <= Y'Y / (1 - ||F||)``."""
    found = _root_of_anchor(anchor)
    if found is None:
        return _unknown()
    Y, f, log_det_X0 = found
    half = Ball.exact(Y) @ X
    spread = Ball.exact(Y).frobenius() ** 2 * radius * 1.001  # ||Y'Y|| <= ||Y||^2 in Frobenius' norm
    trace = (half * Y).sum() + Ball(np.asarray(0.0), np.asarray(spread))
    lowered = Ball.exact(X) - Ball.exact(radius) * np.eye(len(X))
    return trace / (Ball.exact(1.0) - f) - log_det(lowered) + log_det_X0 - float(len(X))


@kept  # every trial of a proof needs it
def _root_of_anchor(anchor: Anchor) -> tuple[Array, float, Ball] | None:
    """Return ``Y``, a bound on ``||F||`` and ``logdet X0``, None where ``X0`` is not proven definite."""
    Y = triangular_inverse(anchor.X0.mid)
    if Y is None:
        return None
    F = whitened(Y, anchor.X0)
    f = F.frobenius()
    return (Y, f, near_identity(F) - 2 * log(Ball.exact(Y.diagonal())).sum()) if f < 0.5 else None


# --- von Neumann ------------------------------------------------------------------------------------


def _von_neumann_dual(anchor: Anchor, W: Ball, trace: float, X: Array | None) -> Ball:
    """Return ``mu (tr X0 - tr exp(log X0 - W / mu))``: log and the trace of exp are monotone."""
    start = _spectrum_of_anchor(anchor)
    if not math.isfinite(start.distance):
        return _unknown()
    K = start.logarithm(below=False) - W / anchor.mu
    total = exp(Ball.exact(eigenvalues((K + K.T) * 0.5).hi)).sum()
    return (anchor.X0[np.diag_indices(len(K.mid))].sum() - total) * anchor.mu


def _von_neumann_value(anchor: Anchor, X: Array, radius: float) -> Ball:
    """Return an upper bound on ``tr(X log X - X) - <X, log X0> + tr X0``.

    The first term is convex: ``f(X) <= f(Z) + <log X, X - Z>``; the logarithm is monotone.
    """
    start, own = _spectrum_of_anchor(anchor), Spectrum(Ball.exact(X))
    d, distance = own.d, inflated(own.distance + radius)
    if not (start.definite and d.min() > 2 * distance):
        return _unknown()
    log_d, K = log(Ball.exact(d)), start.logarithm(below=True)
    entropy = (Ball.exact(d) * log_d - d).sum()
    widest = np.maximum(log(Ball.exact(d) - distance).magnitude, log(Ball.exact(d) + distance).magnitude)
    error = inflated(Ball.exact(widest).frobenius() * distance + K.frobenius() * radius)
    total = entropy - K.dot(X) + anchor.X0[np.diag_indices(len(d))].sum()
    return Ball(total.mid, np.asarray(inflated(total.rad + error)))


@kept  # every trial of a proof needs it
def _spectrum_of_anchor(anchor: Anchor) -> Spectrum:
    """Return the spectrum of ``X0``."""
    return Spectrum(anchor.X0)


# --- Frobenius --------------------------------------------------------------------------------------


def _frobenius_dual(anchor: Anchor, W: Ball, trace: float, X: Array | None) -> Ball:
    """Return the minimum over symmetric matrices of the terms less ``<S, X>``, for a psd ``S = F F'``.

    An entry with the weight ``h`` adds ``V x0 - V^2 / (4 mu h^2)``, ``V = W - S``. Those without a weight
    are a matrix ``E`` with ``<E, X> >= -||E|| tr X``.
    """
    X0, mu = anchor.X0, anchor.mu
    H = np.ones_like(X0.mid) if anchor.weights is None else anchor.weights
    at = 2 * mu * H**2 * ((X0.mid if X is None else X) - X0.mid) + W.mid
    F = _psd_factor(at if anchor.weights is not None and X is not None else W.mid - 2 * mu * X0.mid)
    V = W - Ball.exact(F) @ F.T
    known = H > 0
    curvature = (Ball.exact(np.where(known, H, 1.0)) * np.where(known, H, 1.0)) * mu
    terms = V * (X0 - V / (curvature * 4.0))
    total = Ball(np.where(known, terms.mid, 0.0), np.where(known, terms.rad, 0.0)).sum()
    if known.all():
        return total
    E = Ball(np.where(known, 0.0, V.mid), np.where(known, 0.0, V.rad))
    return total - inflated(E.symmetric_norm() * trace)


def _frobenius_value(anchor: Anchor, X: Array, radius: float) -> Ball:
    """Return ``||H o (X - X0)||^2``, its root raised by the largest weight times the radius."""
    D = Ball.exact(X) - anchor.X0
    H = anchor.weights
    if H is None:
        square, largest = (D * D).sum(), 1.0
    else:
        square, largest = (D * H * (D * H)).sum(), float(H.max(initial=0.0))
    root = math.sqrt(max(float(square.hi), 0.0)) * (1 + 1e-15) if radius else 0.0
    error = (2 * root + largest * radius) * largest * radius * (1 + 1e-12)
    return Ball(square.mid, np.asarray(inflated(square.rad + error)))


def _psd_factor(M: Array) -> Array:
    """Return ``F`` with ``F F'`` the psd part of a symmetric matrix, up to round-off."""
    d, Q = np.linalg.eigh(M)
    factor: Array = Q * np.sqrt(np.maximum(d, 0.0))
    return factor


# --- caps -------------------------------------------------------------------------------------------


def _capping(anchor: Anchor, W: Array, cap: float) -> Array | None:
    """Return ``F`` for the multiplier ``F F'`` of ``X <= cap I``: the slope of the dual beyond the cap."""
    mu, X0 = anchor.mu, anchor.X0.mid
    if anchor.divergence == "frobenius":
        return _psd_factor(2 * mu * (X0 - cap * np.eye(len(X0))) - W)
    if np.linalg.eigvalsh(X0)[0] <= 0:
        return None
    if anchor.divergence == "logdet":
        return _psd_factor(mu * (np.eye(len(X0)) / cap - np.linalg.inv(X0)) - W)
    d, Q = np.linalg.eigh(X0)
    return _psd_factor(mu * ((Q * np.log(d)) @ Q.T - math.log(cap) * np.eye(len(X0))) - W)


def _unknown() -> Ball:
    return Ball(np.asarray(0.0), np.asarray(math.inf))


_DUALS: dict[str, Any] = {
    "logdet": _logdet_dual,
    "von_neumann": _von_neumann_dual,
    "frobenius": _frobenius_dual,
}


_VALUES: dict[str, Any] = {
    "logdet": _logdet_value,
    "von_neumann": _von_neumann_value,
    "frobenius": _frobenius_value,
}


# --- penalties --------------------------------------------------------------------------------------


def conjugate(data: Data, y: Ball) -> Array:
    """Return lower bounds on each row's ``min over a of penalty(a) + y a``, for `y` inside its range.

    It is concave in ``y``, so that its least value is at an end of the enclosure.
    """
    if not y.rad.any():
        return _conjugate_at(data, y.mid).lo
    ends = (np.where(y.rad > 0, end, y.mid) for end in (y.lo, y.hi))
    low, high = (_conjugate_at(data, end).lo for end in ends)
    return np.minimum(low, high)


def _conjugate_at(data: Data, multipliers: Array) -> Ball:
    """Return enclosures of each row's term of the dual function.

    A hard row or a hinge has ``y b`` with the bound ``b`` on the side of the sign of ``y``. A logarithmic row
    has ``y b + w (1 + log(y / w))``, an unknown number where `y` may be zero.
    """
    y = Ball.exact(multipliers)
    side = np.where(y.mid > 0, data.lo, data.hi)
    rad = np.where(y.mid > 0, data.lo_rad, data.hi_rad)
    zero = y.mid == 0
    b = Ball(np.where(zero, 0.0, side), np.where(zero, 0.0, rad))
    term = y * b
    for kind in data.kinds & {Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE}:
        k = np.flatnonzero((data.kind == int(kind)) & ~zero)
        if not len(k):
            continue
        weight, t = data.weight[k], y[k] / data.weight[k]
        if kind is Penalty.LOGDET:
            found = log(t * b[k] + 1.0) * weight
        elif kind is Penalty.VON_NEUMANN:
            found = (1.0 - exp(-t)) * b[k] * weight
        else:
            found = y[k] * (b[k] - t / 4.0)
        term.mid[k], term.rad[k] = found.mid, found.rad
    k = np.flatnonzero((data.kind == int(Penalty.LOG)) & (data.weight > 0))
    if len(k):
        found = term[k] + (log(y[k] / data.weight[k]) + 1.0) * data.weight[k]
        term.mid[k], term.rad[k] = found.mid, found.rad
    return term


def penalty(data: Data, a: Ball) -> Array:
    """Return upper bounds on the penalties of the rows; zero for hard rows.

    A penalty is convex in the activity, so that the largest is at an end of the enclosure: at the lower end
    beyond the lower bound, or at the upper end beyond the upper one. That of a logarithmic row falls with the
    activity; it is infinite where the activity may not be above the bound.
    """
    paid = np.zeros(data.m)
    if data.kinds <= {Penalty.HARD}:
        return paid
    soft = np.flatnonzero(~data.required)
    for end, bound, rad, sign in ((a.lo, data.lo, data.lo_rad, -1.0), (a.hi, data.hi, data.hi_rad, 1.0)):
        k = soft[np.isfinite(bound[soft])]
        b, at = Ball(bound[k], rad[k]), Ball.exact(end[k])
        beyond = (at - b) * sign
        outside = beyond.hi > 0
        found = _paid(data, k[outside], at[outside], b[outside])
        paid[k[outside]] = np.maximum(paid[k[outside]], found)
    k = np.flatnonzero(data.kind == int(Penalty.LOG))
    if len(k):
        gain = log(Ball.exact(a.lo[k]) - Ball(data.lo[k], data.lo_rad[k])) * data.weight[k]
        paid[k] = -gain.lo
    return paid


def _paid(data: Data, rows: IntArray, at: Ball, b: Ball) -> Array:
    """Return upper bounds on the penalties of rows at activities beyond the bounds `b`."""
    paid = np.zeros(len(rows))
    for kind in (Penalty.HINGE, Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE):
        k = np.flatnonzero(data.kind[rows] == int(kind))
        if not len(k):
            continue
        beyond = at[k] - b[k]
        if kind is Penalty.HINGE:
            size = Ball(np.abs(beyond.mid), beyond.rad)
        elif kind is Penalty.SQUARE:
            size = beyond * beyond
        elif kind is Penalty.LOGDET:
            ratio = at[k] / b[k]
            size = ratio - log(ratio) - 1.0
        else:
            size = at[k] * log(at[k] / b[k]) - beyond
        found = (size * data.weight[rows[k]]).magnitude
        paid[k] = np.where(np.isnan(found), math.inf, found)
    return paid


# --- Convex functions ---------------------------------------------------------------------------------


class Arguments:
    """The form of the arguments of a function: entries of matrices, or numbers.

    Parameters
    ----------
    function : ConvexFunction
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.of_matrices = hasattr(function, "orders")
        self.copies = 2 if self.of_matrices and function.hermitian else 1
        self.orders = [self.copies * n for n in function.orders] if self.of_matrices else []

    def matrices(self, y: Ball) -> list[Ball]:
        """Return the matrices of arguments, in real form."""
        found, start = [], 0
        for n in self.orders:
            found.append(y[start : start + n * n].reshape(n, n))
            start += n * n
        return found


def value_of(function: Any, y: Ball, weight: Array) -> float:
    """Return an upper bound on a function at all arguments in intervals; matrices are proven definite."""
    own = Arguments(function)
    if not all(Spectrum(Y).definite for Y in own.matrices(y)):
        return math.inf
    return function_value(own, y, weight)


def function_value(arguments: Arguments, y: Ball, weight: Array) -> float:
    """Return an upper bound on a function at arguments in intervals, infinite outside of its domain."""
    return _FUNCTIONS[type(arguments.function)](arguments, y, weight)


def _value_of_entropies(image: Arguments, y: Ball, weight: Array) -> float:
    total = 0.0
    for w, Y in zip(image.function.weights, image.matrices(y), strict=True):
        spectrum = Spectrum(Y)
        if not math.isfinite(spectrum.distance):
            return math.inf
        w = w * float(weight[0]) / image.copies
        total = up(total + float((_entropy(spectrum, largest=w > 0) * w).hi))
    return total


def _entropy(spectrum: Spectrum, largest: bool) -> Ball:
    """Return the largest or the least ``sum d log d`` of nonnegative numbers in enclosures."""
    lo = np.maximum(np.nextafter(spectrum.d - spectrum.distance, -np.inf), 0.0)
    hi = np.maximum(np.nextafter(spectrum.d + spectrum.distance, np.inf), TINY)
    ends = [_product_with_log(end) for end in (np.maximum(lo, TINY), hi)]
    if largest:
        values = np.maximum(ends[0].hi, ends[1].hi)
        values = np.where(lo == 0, np.maximum(values, 0.0), values)
    else:
        values = np.minimum(ends[0].lo, ends[1].lo)
        inside = (lo <= 0.3678794411714424) & (hi >= 0.3678794411714423)
        values = np.where(inside, -0.3678794411714424, values)
    return Ball.exact(values).sum()


def _product_with_log(d: Array) -> Ball:
    return log(Ball.exact(d)) * d


def _value_of_relative_entropy(image: Arguments, y: Ball, weight: Array) -> float:
    A, B = image.matrices(y)
    a, b, w = Spectrum(A), Spectrum(B), float(weight[0]) / image.copies
    if not (b.definite and math.isfinite(a.distance)):
        return math.inf
    return up(float((_entropy(a, largest=True) * w).hi) + float((b.logarithm(below=True).dot(A) * -w).hi))


def _value_of_trace_log(image: Arguments, y: Ball, weight: Array) -> float:
    (Y,) = image.matrices(y)
    spectrum, w = Spectrum(Y), float(weight[0]) / image.copies
    if not spectrum.definite:
        return math.inf
    R = real_form(image.function.factor)
    return float((spectrum.logarithm(below=True).dot(Ball.exact(R) @ R.T) * -w).hi)


def _value_of_numbers(image: Arguments, y: Ball, weight: Array) -> float:
    """Return the value of functions of one number that are convex, from the ends of its interval."""
    f = image.function
    ends = [_NUMBERS[type(f)](Ball.exact(end)).hi for end in (y.lo, y.hi)]
    return up(float((Ball.exact(np.maximum(*ends)) * weight).sum().hi))


def _value_of_ratios(image: Arguments, y: Ball, weight: Array) -> float:
    lo, hi = np.split(y.lo, 2), np.split(y.hi, 2)
    if not (lo[0] > 0).all() or not (lo[1] > 0).all():
        return math.inf
    b = log(Ball.exact(lo[1]))
    ends = [((log(Ball.exact(x)) - b) * x).hi for x in (lo[0], hi[0])]
    return up(float((Ball.exact(np.maximum(*ends)) * weight).sum().hi))


def _value_of_log_sums(image: Arguments, y: Ball, weight: Array) -> float:
    f = image.function
    return float((log_of_sum(Ball.exact(y.hi.reshape(f.count, f.group))) * weight).sum().hi)


def _entropy_of_numbers(y: Ball) -> Ball:
    positive = y.mid > 0
    found = _product_with_log(np.where(positive, y.mid, 1.0))
    return Ball(np.where(positive, found.mid, 0.0), np.where(y.mid >= 0, found.rad, np.inf))


def _logistic_of_numbers(y: Ball) -> Ball:
    return log_of_sum(Ball(np.stack([0 * y.mid, y.mid], 1), np.stack([0 * y.rad, y.rad], 1)))


def log_of_sum(y: Ball) -> Ball:
    """Return ``log(sum exp)`` of each row."""
    largest = y.mid.max(axis=1)
    return log(exp(y - largest[:, None]).sum(1)) + largest


def real_form(C: Any) -> Array:
    """Return ``[P, -Q; Q, P]`` of a complex matrix ``P + i Q``; a real one stays."""
    return np.block([[C.real, -C.imag], [C.imag, C.real]]) if np.iscomplexobj(C) else np.asarray(C)


_NUMBERS: dict[type, Callable[[Ball], Ball]] = {
    NegativeEntropy: _entropy_of_numbers,
    Exponential: exp,
    Logistic: _logistic_of_numbers,
}
_FUNCTIONS: dict[type, Callable[[Arguments, Ball, Array], float]] = {
    EntropySum: _value_of_entropies,
    RelativeEntropy: _value_of_relative_entropy,
    TraceLog: _value_of_trace_log,
    NumbersRelativeEntropy: _value_of_ratios,
    LogSumExp: _value_of_log_sums,
    **dict.fromkeys(_NUMBERS, _value_of_numbers),
}
