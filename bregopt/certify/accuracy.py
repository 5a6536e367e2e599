"""How far ``X`` is from the optimum, entry by entry, where the objective is strongly convex.

Let ``f`` be the objective, ``d(y)`` Lagrange's bound, ``X_y`` the minimizer of the Lagrangian, and ``F`` any
feasible matrix. With the Bregman distance ``D`` of the objective, the optimum ``X*`` satisfies

    D(F, X*) + D(X*, X_y) <= f(F) - d(y) = D(F, X_y) + <Z, F> + the rows' terms,

as both sides of ``X*`` are bounded by the first-order conditions (the three-point inequality). The right side
is a sum of nonnegative terms. It is computed as such, because ``f - d`` loses all digits near the optimum,
and with the ``F`` of :mod:`bregopt.certify.restoration` it decreases with the square of the residuals.

What follows for an entry depends on the divergence:

* Frobenius, ``D = mu |H o (X - X*)|^2``: the ball whose diameter is from ``F`` to ``X_y``, a little larger.
* LogDet: with ``X* = R R'`` and ``F = R (I + T) R'``, ``|T|_F <= omega^-1(D)`` for
  ``omega(t) = t - log(1 + t)``, as ``omega`` of a square root is subadditive; and
  ``X* <= F / (1 - |T|)`` (Nesterov and Nemirovskii 1994).
* von Neumann: ``D >= <E, log'(X_y + rho I) E> / 2`` for ``E = X* - X``, as ``log'`` decreases in the order of
  matrices; the ``rho`` follows from ``D >= |E|_F^2 / (2 largest eigenvalue)``.

Round-off is counted: that of an eigendecomposition moves ``X0``, and ``X*`` by no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array
from bregopt.certify.point import PrimalDualPoint
from bregopt.certify.restoration import Restored, least_solution, restored
from bregopt.certify.stacks import frobenius_radius
from bregopt.certify.weights import WeightedTerms, entries_by_curvature, weighted_terms
from bregopt.divergences import LogDet, ReciprocalSpectrum
from bregopt.divergences.frobenius import psd_part
from bregopt.divergences.spectrum import (
    ExponentialSpectrum,
    PositiveSpectrum,
    Product,
    exp_divided_differences,
)
from bregopt.linalg import inverse_of, root_of
from bregopt.program.program import Block, Program, divergence_of
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass

_FINER_STEPS, _FINER = 3, 0.01  # until the radius is this fraction of the first
_FAR = "no matrix that meets the constraints was found near X"
_LINEAR = "the objective is linear in X, which does not bound the distance"
_LOW_RANK = "X is LowRank"
_UNPROVEN = "the multipliers prove no bound"


class Accuracy(NamedTuple):
    """A certified bound on the distance of ``X`` from the optimum.

    Parameters
    ----------
    entries : array or DataFrame of shape (n, n)
        Bounds on ``|X - X*|``, entry by entry; infinite where nothing can be said.
    norm : float
        A bound on the Frobenius norm of ``X - X*``.
    largest : float
        The largest of the finite `entries`; infinite if there is none.
    reason : str
        Why nothing can be said, of all or some entries; empty if there is nothing to explain.
    """

    entries: Array | Any
    norm: float
    largest: float
    reason: str = ""

    @classmethod
    def of(cls, entries: Array, norm: float, reason: str = "") -> Accuracy:
        """Return the accuracy of an `X` with these bounds."""
        finite = entries[np.isfinite(entries)]
        return cls(entries, norm, float(finite.max()) if len(finite) else math.inf, reason)

    @property
    def phrase(self) -> str:
        """The statement, as a phrase about ``X``."""
        if not math.isfinite(self.largest):
            return f"nothing is known of the distance from the optimum: {self.reason}"
        some = f" ({self.reason})" if self.reason else ""
        return f"within {self.largest:.1g} of the optimum, entry by entry{some}"

    def __repr__(self) -> str:
        verb = "is " if math.isfinite(self.largest) else ": "
        norm = f"; {self.norm:.1g} in the Frobenius norm" if math.isfinite(self.norm) else ""
        return f"X {verb}{self.phrase}{norm}" if verb == "is " else f"X: {self.phrase}"


def unknown_accuracy(n: int, reason: str) -> Accuracy:
    """Return the accuracy of which nothing can be said."""
    return Accuracy(np.full((n, n), np.inf), math.inf, math.inf, reason)


def accuracies(
    program: Program,
    X: Sequence[Any],
    u: Array,
    y: Array,
    S: Sequence[Array | None] | None = None,
    finer: Sequence[Array] | None = None,
) -> tuple[Accuracy, ...]:
    """Return the accuracy of each matrix of an answer.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
        Any matrices; they need not be feasible.
    u : array of shape (k,)
    y : array of shape (m,)
        Multipliers, clipped to their range.
    S : sequence of arrays or None, optional
        As for :class:`~bregopt.certify.PrimalDualPoint`.
    finer : sequence of arrays of shape (n_b, n_b), optional
        Better matrices with these multipliers, near which a feasible point is sought.
    """
    if any(isinstance(own, LowRank) for own in X):
        return tuple(unknown_accuracy(own.shape[0], _LOW_RANK) for own in X)
    curved = [block.nearness is not None for block in program.blocks]
    if not any(curved):
        return tuple(unknown_accuracy(len(own), _LINEAR) for own in X)
    y = program.bounds.clip(y)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        near = _best(program, y) or _of_point(program, X if finer is None else finer, u, y, S)
    if isinstance(near, str):
        return tuple(unknown_accuracy(len(own), near) for own in X)
    balls = [
        unknown_accuracy(len(own), _LINEAR)[:2] if block.nearness is None else ball_around(block, near, b)
        for b, (block, own) in enumerate(zip(program.blocks, X, strict=True))
    ]
    if near.weighted is not None and finer is not None:
        balls = _with_curvature(program, near, balls)
    found = []
    for b, (block, own) in enumerate(zip(program.blocks, X, strict=True)):
        if block.nearness is None:
            found.append(unknown_accuracy(len(own), _LINEAR))
            continue
        entries, norm = balls[b]
        if not np.isfinite(norm) and not np.isfinite(entries).any():
            found.append(unknown_accuracy(len(own), _UNPROVEN))
            continue
        change = np.abs(own - near.F[b])
        entries = _with_fixed(program, b, own, entries + change)
        norm = min(norm + float(np.linalg.norm(change)), float(np.linalg.norm(entries)))
        reason = "" if np.isfinite(entries).all() else "nothing can be said of entries without weight"
        found.append(Accuracy.of(entries, norm, reason))
    return tuple(found)


def _with_curvature(
    program: Program, near: Near, balls: list[tuple[Array, float]]
) -> list[tuple[Array, float]]:
    """Return the bounds on entries of weighted squares that the curvature of the cone makes sharper."""
    assert near.weighted is not None
    found = entries_by_curvature(program, near.restored, near.weighted, [entries for entries, _ in balls])
    both = []
    for b, ((entries, norm), own) in enumerate(zip(balls, found, strict=True)):
        entries = np.minimum(
            entries, own + len(own) * EPS * float(np.linalg.norm(near.F[b])) + _rest(near.restored, b)
        )
        both.append((entries, min(norm, float(np.linalg.norm(entries)))))
    return both


class Near(NamedTuple):
    """A feasible point, and what bounds the distance of the optimum from it.

    Parameters
    ----------
    F : sequence of arrays of shape (n_b, n_b)
    excess : float
        A bound on ``f(F) - d(y)``, in units of the objective, round-off included.
    spectra : sequence of Spectrum, or None
        Those of the minimizers ``X_y``, where they are known in closed form.
    restored : Restored
    weighted : WeightedTerms, optional
        The terms of the excess where all blocks have weighted squares.
    """

    F: Sequence[Array]
    excess: float
    spectra: Sequence[Any] | None
    restored: Restored
    weighted: WeightedTerms | None = None


def _best(program: Program, y: Array) -> Near | str | None:
    """Return the point of the multipliers or, where it is better, that after steps of Newton's method.

    A finer point costs an eigendecomposition, and measures the distance of `X` with its digits.
    """
    first = best = _lagrangian(program, y)
    if not isinstance(first, Near) or not program.bounds.all_hard or not program.m:
        return first
    for _ in range(_FINER_STEPS):
        assert isinstance(best, Near)
        y = program.bounds.clip(_newton_point(program, y, best))
        finer = _lagrangian(program, y)
        if not isinstance(finer, Near) or not finer.excess < best.excess:
            break
        best = finer
        if best.excess <= _FINER**2 * first.excess:
            break
    return best


def _newton_point(program: Program, y: Array, near: Near) -> Array:
    """Return the multipliers after a step on the dual, zero for rows that are no equalities at the point."""
    A, held = program.A, near.restored.held
    spectra = near.spectra
    assert spectra is not None
    X = [spectrum.X for spectrum in spectra]

    def product(v: Array) -> Array:
        moved = []
        for b, spectrum in enumerate(spectra):
            S = np.asarray(A.adjoint(v, b))
            moved.append(spectrum.derivative(S).matrix(S))
        return A.apply(moved)

    known = np.where(held, 0.0, -y)
    residual = near.restored.activity - A.apply(X) - (product(known) if known.any() else 0.0)
    metric = np.maximum(A.norms() ** 2, TINY)
    step = least_solution(lambda v: np.where(held, product(v), 0.0), np.where(held, residual, 0.0), metric)
    return y + known + step


def _lagrangian(program: Program, y: Array) -> Near | str | None:
    """Return a feasible point near the minimizers of the Lagrangian; None where those have another form."""
    if not has_closed_form(program):
        return None
    spectra = []
    for b, block in enumerate(program.blocks):
        assert block.nearness is not None
        W, mu = block.C - program.A.adjoint(y, b), block.nearness.mu
        divergence: Any = divergence_of(block.nearness)
        logarithmic = isinstance(divergence, LogDet)
        found = _Inverse.of(divergence, W, mu) if logarithmic else divergence.spectrum(W, mu)
        if found is None:
            return _UNPROVEN
        spectra.append(found)
    return near_minimizers(program, y, spectra) or _FAR


def near_optimum(program: Program, y: Array) -> Near | None:
    """Return a feasible point near the minimizers of the Lagrangian, None if none is known."""
    near = _lagrangian(program, program.bounds.clip(y))
    return near if isinstance(near, Near) else None


def near_answer(
    program: Program, X: Sequence[Array], u: Array, y: Array, S: Sequence[Array | None]
) -> Near | None:
    """Return a feasible point near an answer, None if none is known."""
    near = _of_point(program, X, u, y, S)
    return near if isinstance(near, Near) else None


def has_closed_form(program: Program) -> bool:
    """Whether the minimizer of the Lagrangian is a function of a spectrum, without further restrictions."""
    plain = [b.nearness is not None and not b.nearness.parameters for b in program.blocks]
    known = all(divergence in _BALLS for divergence in program.divergences)
    return all(plain) and known and not program.k and not program.capped


def near_minimizers(program: Program, y: Array, spectra: Sequence[Any]) -> Near | None:
    """Return a feasible point near the minimizers of the Lagrangian, None if there is none near.

    Parameters
    ----------
    program : Program
    y : array of shape (m,)
    spectra : sequence of Spectrum
        The minimizers.
    """
    spectra = [_with_inverse(program, b, y, spectrum) for b, spectrum in enumerate(spectra)]
    # Pays on: Frobenius with four inequalities, n = 12.
    near = restored(program, [spectrum.X for spectrum in spectra], np.zeros(0), y)
    if near is None:
        return None
    excess = _row_terms(program, near.activity, y)
    for b, block in enumerate(program.blocks):
        excess += _own_terms(block, spectra[b], near, b)
    return Near(near.X, excess, spectra, near)


def _row_terms(program: Program, activity: Array, y: Array) -> float:
    """Return the rows' part of ``f - d``, nonnegative in each."""
    bounds = program.bounds
    side = np.where(y > 0, bounds.lo, bounds.hi)
    hard = np.maximum(y * np.where(y == 0, 0.0, activity - np.where(y == 0, 0.0, side)), 0.0)
    if bounds.all_hard:
        return float(hard.sum())
    soft = bounds.penalty(activity) + y * activity - bounds.conjugate(y)
    return float(np.where(bounds.hard, hard, np.maximum(soft, 0.0)).sum())


def _own_terms(block: Block, spectrum: Any, near: Restored, b: int) -> float:
    """Return a block's part of ``f(F) - d(y)``: its divergence from ``X_y``, and ``<Z, F>``."""
    mu: float = spectrum.mu
    if isinstance(spectrum, PositiveSpectrum):
        distance, excess = _positive_terms(spectrum, near, b)
        return float(mu * (distance**2 + excess))
    if isinstance(spectrum, ExponentialSpectrum):
        V, half = spectrum.V, np.exp(spectrum.theta / 2)
        M = (V.T @ near.changed(b, V)) * (half / np.maximum(half[:, None], TINY))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite proves nothing
            share = float(np.linalg.norm(M + M.T + M @ M.T))  # of X_y, by which F is smaller at most
        E = V.T @ (near.X[b] - spectrum.X) @ V
        mean = np.maximum(exp_divided_differences(spectrum.theta), TINY)
        return float(mu * np.sum(E**2 / mean) / 2 / (1 - share)) if share <= 0.5 else math.inf
    # The eigenvalues t of F relative to X_y have the norm of M + M' + MM' with M similar to K.
    square = float(np.vdot(near.changed(b, spectrum.X), near.changed(b, spectrum.Z).T)) / mu
    share = math.sqrt(max(2 * near.square(b) + 2 * square, 0.0)) + max(square, 0.0)
    return float(mu * share**2 / 2 / (1 - share)) if share <= 0.5 else math.inf


def _with_inverse(program: Program, b: int, y: Array, spectrum: Any) -> Any:
    """Return a minimizer of LogDet with its inverse; others as they are."""
    if not isinstance(spectrum, ReciprocalSpectrum):
        return spectrum
    block = program.blocks[b]
    assert block.nearness is not None
    divergence = divergence_of(block.nearness)
    assert isinstance(divergence, LogDet)
    found = _Inverse.of(divergence, block.C - program.A.adjoint(y, b), spectrum.mu)
    return spectrum if found is None else found


@dataclass(eq=False)
class _Inverse:
    """The minimizer ``X = mu inv(Z)`` of a linear function and a LogDet divergence."""

    X: Array
    Z: Array
    mu: float

    @classmethod
    def of(cls, divergence: LogDet, W: Array, mu: float) -> _Inverse | None:
        """Return the minimizer of ``<W, X> + mu D(X, X0)``, None where there is none."""
        Z = W + mu * divergence.inverse
        Z = (Z + Z.T) / 2
        root = root_of(Z)
        return None if root is None else cls(mu * inverse_of(root), Z, mu)

    def derivative(self, S: Array) -> Product:
        """Return the change of the minimizer as ``W`` changes by ``-S``."""
        return Product(0.0, self.X @ S / self.mu, self.X)


def _positive_terms(spectrum: PositiveSpectrum, near: Restored, b: int) -> tuple[float, float]:
    """Return ``|F - X_y|`` and ``<Z, F> / mu``, the latter as a sum of squares.

    Both are those of the matrix on the rows, which differs by a congruence of the size that round-off leaves.
    """
    k = spectrum.negative
    P = spectrum.V[:, k:] * np.sqrt(spectrum.theta[k:])
    N = spectrum.V[:, :k] * np.sqrt(-spectrum.theta[:k])
    distance = float(np.linalg.norm(near.X[b] - spectrum.X)) + _rest(near, b)
    root = float(np.linalg.norm(N.T @ near.moved(b, P)) + np.linalg.norm(N.T @ near.left(b, P)))
    return distance, 2 * root**2


def _rest(near: Restored, b: int) -> float:
    """Return the norm of the change of a matrix by what round-off leaves of the residual."""
    return 2 * float(np.linalg.norm(near.left(b, near.X[b])))


def _of_point(
    program: Program, X: Sequence[Array], u: Array, y: Array, S: Sequence[Array | None] | None
) -> Near | str:
    """Return a feasible point near the answer, with the difference of its value and the bound.

    The difference of two numbers is known to their round-off only, and the distance to the root of that.
    """
    u = np.clip(u, program.u_lo, program.u_hi)
    near = restored(program, [psd_part(own) for own in X], u, y)
    if near is None:
        return _FAR
    if S is not None and not program.k and all(map(_is_weighted, program.blocks)):
        weighted = weighted_terms(program, near, y, S, _row_terms(program, near.activity, y))
        if weighted is not None:
            return Near(near.X, weighted.excess, None, near, weighted)
    point = PrimalDualPoint(program, near.X, u, y, S=S)
    bound = point.bound
    dual = bound.value - bound.cost
    if not (math.isfinite(dual) and math.isfinite(point.primal)):
        return _UNPROVEN
    terms = [point.primal, dual, point.costs, float(np.abs(program.c) @ np.abs(u)), point.penalties]
    terms += [float(np.abs(point.y) @ np.abs(point.activity)), *point.divergences]
    noise = 64 * EPS * sum(map(abs, terms))
    return Near(near.X, max(point.primal - dual, 0.0) + noise, None, near)


def _is_weighted(block: Block) -> bool:
    """Whether the objective of a block is a weighted sum of squares."""
    nearness = block.nearness
    if nearness is None or nearness.divergence != "frobenius" or block.cap is not None:
        return False
    return set(nearness.parameters) == {"weights"}


def _with_fixed(program: Program, b: int, X: Array, entries: Array) -> Array:
    """Return the bounds with the distances of fixed entries, which rows without anything else state."""
    bounds, alone = program.bounds, program.bounds.equal & program.in_one_matrix
    for term in program.A.terms_of(b):
        if not term.rows.single:
            continue
        t = term.rows.coordinates()
        at = term.at[t.row]
        fixed = alone[at] & (t.value != 0)
        i, j, value = t.i[fixed], t.j[fixed], bounds.lo[at[fixed]] / t.value[fixed]
        entries[i, j] = entries[j, i] = np.abs(X[i, j] - value)
    return entries


# The distance of an optimum from a feasible point, by divergence. Each returns bounds on the entries, and on
# the Frobenius norm.


def _frobenius(block: Block, near: Near, b: int) -> tuple[Array, float]:
    assert block.nearness is not None
    n, mu = block.n, block.nearness.mu
    if near.spectra is not None:
        own, others = _positive_terms(near.spectra[b], near.restored, b)
        radius = float(frobenius_radius(own, max(near.excess / mu - own**2, others)))
        noise = n * EPS * float(np.abs(near.spectra[b].theta).max(initial=0.0))
    else:
        radius = math.sqrt(near.excess / mu)
        if near.weighted is not None:
            own = near.weighted.square[b] / mu
            radius = float(frobenius_radius(math.sqrt(own), near.excess / mu - own))
        noise = n * EPS * float(np.linalg.norm(near.F[b]))
    noise += _rest(near.restored, b)
    weights = block.nearness.parameters.get("weights")
    if weights is None:
        radius += noise
        entries = np.full((n, n), radius / math.sqrt(2))
        np.fill_diagonal(entries, radius)
        return entries, radius
    H = np.asarray(weights, dtype=np.float64)
    share = np.where(np.eye(n, dtype=bool), 1.0, math.sqrt(2)) * H
    entries = np.divide(radius, share, out=np.full((n, n), np.inf), where=H > 0) + noise
    return entries, radius / float(H.min()) + noise if H.min() > 0 else math.inf


def _logdet(block: Block, near: Near, b: int) -> tuple[Array, float]:
    assert block.nearness is not None
    F, mu = near.F[b], block.nearness.mu
    rho = _inverse_omega(near.excess / mu)
    root, sizes, divergence = root_of(F), list[float](), divergence_of(block.nearness)
    if root is None:
        return np.full(F.shape, np.inf), math.inf
    if not isinstance(divergence, LogDet):  # bounds on the eigenvalues
        divergence = LogDet(np.asarray(block.nearness.X0))
    of_inverse, _ = divergence.errors_of_start  # relative to F it may be far larger than EPS cond(X0)
    rho += float(np.linalg.norm(root.T @ of_inverse @ root))
    if near.spectra is not None:
        sizes.append(float(np.linalg.norm(F)) * float(np.linalg.norm(near.spectra[b].Z)) / mu)
    else:
        sizes += [_condition(F), float(np.linalg.norm(block.C)) * float(np.linalg.norm(F)) / mu]
    rho += 4 * EPS * sum(sizes) + 4 * float(np.linalg.norm(near.restored.rest[b]))
    if not rho < 0.9:
        return np.full(F.shape, np.inf), math.inf
    root = np.sqrt(np.maximum(F.diagonal(), 0.0))
    outer = np.outer(root, root)
    first = rho / (1 - rho) * outer
    entries = rho * np.sqrt(((outer / (1 - rho)) ** 2 + (np.abs(F) + first) ** 2) / 2)
    entries = np.minimum(entries, first)
    return entries, float(np.linalg.norm(entries))


def _condition(X: Array) -> float:
    """Return an upper bound on the condition number of a positive definite matrix."""
    root = root_of(X)
    return math.inf if root is None else float(np.linalg.norm(X)) * float(np.linalg.norm(inverse_of(root)))


def _von_neumann(block: Block, near: Near, b: int) -> tuple[Array, float]:
    assert block.nearness is not None
    F, excess = near.F[b], near.excess / block.nearness.mu
    if not math.isfinite(excess):
        return np.full(F.shape, np.inf), math.inf
    if near.spectra is None:
        x, V = np.linalg.eigh(F)
        x, moved = np.maximum(x, 0.0), 0.0
    else:
        x, V = np.exp(near.spectra[b].theta), near.spectra[b].V
        moved = float(np.linalg.norm(F - near.spectra[b].X))
    most = float(x[-1]) + moved
    crude = excess + math.sqrt(excess**2 + 2 * excess * most)
    top = most + crude
    logs = np.log(np.maximum(x + moved + crude, TINY))
    divergence: Any = divergence_of(block.nearness)
    size = float(np.abs(logs).max()) + float(np.linalg.norm(getattr(divergence, "log_X0", 1.0)))
    noise = 4 * EPS * top * (len(F) * size + _condition(np.asarray(block.nearness.X0)))
    noise += _rest(near.restored, b)
    radius = math.sqrt(2 * excess * top) + noise
    shift = float(logs[-1])
    mean = exp_divided_differences(logs - shift) * math.exp(shift)
    square = V**2
    local = np.sqrt(2 * excess * (square @ mean @ square.T)) + noise
    entries = np.minimum(local, np.where(np.eye(len(F), dtype=bool), radius, radius / math.sqrt(2)))
    return entries, radius


_Ball = Callable[[Block, Near, int], tuple[Array, float]]
_BALLS: dict[str, _Ball] = {"frobenius": _frobenius, "logdet": _logdet, "von_neumann": _von_neumann}


def ball_around(block: Block, near: Near, b: int) -> tuple[Array, float]:
    """Return bounds on the distance of the optimum from a feasible point: of its entries, and of its norm."""
    assert block.nearness is not None
    return _BALLS[block.nearness.divergence](block, near, b)


def _omega(t: Array) -> Array:
    """Return ``t - log(1 + t)`` with all digits."""
    small = np.abs(t) < 1e-4
    series = t**2 * (0.5 - t * (1 / 3 - t * (0.25 - t / 5)))
    return np.where(small, series, t - np.log1p(np.where(small, 0.0, t)))


def _inverse_omega(value: float) -> float:
    """Return the ``t >= 0`` with ``t - log(1 + t) = value``, from above."""
    if not math.isfinite(value):
        return math.inf
    t = value + math.sqrt(2 * value)  # above the root, where Newton's method for a convex function descends
    for _ in range(6):
        slope = t / (1 + t)
        if slope > 0:
            t -= (float(_omega(np.array([t]))[0]) - value) / slope
    return t * (1 + 8 * EPS)
