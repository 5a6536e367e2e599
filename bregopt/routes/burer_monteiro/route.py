"""The route `lowrank`: large sparse problems with a bounded trace or a definite cost, by ``X = R R'``.

The rank is increased until the bound meets the value (Boumal, Voroninski, Bandeira 2016). A minimizer ``R``
of given rank determines multipliers in closed form, ``W = C - A*(y)`` and ``W R = 0``. If ``W`` is psd,
``R R'`` is the solution. Otherwise an eigenvector of ``W`` with a negative eigenvalue is a direction in which
one more column decreases the value. Each stage certifies its multipliers.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import TINY, Array, Mask, finite_array
from bregopt.certify import (
    Certificate,
    PrimalDualPoint,
    certify,
    is_farkas,
    lowest,
    objective_size,
    relative_diagonal,
    with_trace_multipliers,
)
from bregopt.certify.eigenvalue_bound import LARGEST_DENSE
from bregopt.certify.proofs import MENDED
from bregopt.clock import CutShort, checkpoint, threads_for
from bregopt.linalg import turned
from bregopt.program import (
    ENDED,
    Answer,
    LowRank,
    Penalty,
    Program,
    SparseLowRankProgram,
    Start,
    StopReason,
    sparse_plus_low_rank,
)
from bregopt.records import dataclass
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.burer_monteiro.lagrangian import (
    BurerMonteiroTuning,
    Point,
    Surface,
    lagrangian,
    read_surface,
)
from bregopt.routes.burer_monteiro.trust_region import descend
from bregopt.routes.progress import Progress, reason

# Limit on the trust-region steps where the option `max_iter` gives none.
_DEFAULT_MAX_ITER = 3_000
# Columns of the first R at large orders: for maximum cuts of order 20,000, 40 take half of the time of 24.
# From a tolerance on fewer do: the loss of 16 columns is 5e-3 of the value at order 20,000 and 100,000.
_FIRST_RANK_LARGE, _FIRST_RANK_COARSE, _COARSE_TOL = 40, 16, 5e-3
# Rows, relative to the order, from which the rank of a solution grows with their number, and the share of the
# largest rank that the first R has: theta of 1,000 vertices and 10,000 edges has rank 47 of 142.
_MANY_ROWS, _FIRST_RANK_SHARE = 2, 0.45
# Least tolerance of a stage. Round-off prevents a smaller gradient.
_LEAST_STAGE_TOL = 1e-13
# Fraction of the tolerance that the last stages aim for, in the gradient and the rows. Below a half, so that
# these errors together stay within the tolerance.
_FINAL_SHARE = 0.3
# Fraction of the tolerance that the bounded multipliers of planes may cost.
_PLANE_SHARE = 0.1
# Number of columns that may be added at a time, and the same relative to the present ones, if that is more.
# Adding several saves eigenvalue proofs.
_ADDED_COLUMNS, _COLUMN_GROWTH = 4, 0.5
# Largest eigenvalue whose eigenvector becomes a column, relative to the lowest eigenvalue; both are negative.
_ADDED_EIGENVALUE = 0.1
# Lanczos steps for the eigenvectors that become columns.
_LANCZOS_STEPS = 120
# Singular values of ``R``, relative to the largest, whose columns are dropped before others are added.
_GROWTH_RANK_TOL = 1e-5
# Bound, relative to the cost of the point, from which on the rows are taken to contradict each other.
_CONTRADICTION = 1e9
# Length of a row of ``R``, relative to the root mean square of all, below which it is tried at zero once the
# gap is within the tolerance. Newton's method is slow there.
_ZERO_ROW = 0.2
# Stages without halving the error after which the method stalls, if the rows hold to the tolerance, and if
# they do not: multipliers of rows converge linearly, over more stages.
_STALL_STAGES, _STALL_STAGES_INFEASIBLE = 4, 12
# Size of the random columns added to a start with too few columns, relative to the start.
_START_PERTURBATION = 0.1
# Largest penalty, relative to the first one. Above it the cost is round-off beside the penalty, and the
# method stalls. A point where the gradients of the rows vanish leads there without a step.
_LARGEST_PENALTY = 1e20
# The same with planes, and with planes at large orders. For balanced cuts of random graphs of order 5,000, 24
# take half of the time of 12. At order 10,000, 32 take half to nine tenths of the time of 40, and 24 up to
# four times as long, as more stages end at saddle points.
_FIRST_RANK_PLANES, _FIRST_RANK_PLANES_LARGE = 24, 32
# Largest order at which the first two ranks apply.
_LARGE_ORDER = 5_000
# Least factor. A bound early may be all that a caller waits for.
_STAGE_TOL_FASTEST = 0.03
# Fraction of the tolerance that the next stage's gap aims for, as the gap decreases with the gradient.
_GAP_SHARE = 0.5
# Least tolerance of a stage, relative to the primal residual. Minimizers need not be sharp before the rows
# hold. But their gradients cost the bound: it decreases by a factor where the bound does not get better.
_RESIDUAL_STAGE_TOL, _LOOSEST_DECREASE = 1e-2, 0.3
# Loss to which a stage's bound is proven, as a fraction of that left by the tolerance or explained by the
# gradient. The loss of the proven bound decreases with the square of the work.
_PROOF_SHARE = 0.9
# The same without spheres, as a fraction of the rows' residual and of its cost.
_MISSED_SHARE = 0.3
# Loss in the bound that shows a saddle point, relative to the loss that the gradient explains.
_SADDLE_LOSS = 3.0
# Singular values of ``R``, relative to the largest, whose columns are dropped after a stage.
_STAGE_RANK_TOL = 1e-4


@dataclass(frozen=True, kw_only=True)
class LowRankSettings(base.Settings):
    """Options of the route `lowrank`.

    Parameters
    ----------
    rank : int, optional
        Columns of the first ``R``; more are added if needed. By default 12, with planes
        such as ``e'Xe == 0`` 24. Where rows fix the diagonal or the trace, it is 40 for orders above 5000,
        with planes 32, and 16 where `tol` is at least 5e-3. There, with `m` rows, more than twice the order,
        it is at least ``0.45 sqrt(2 m)``.
    factor : LowRank, array of shape (n, k) or (n,), optional
        The first ``R``: a factor, such as that of an earlier answer, or a vector of signs (a partition).
    tuning : BurerMonteiroTuning
        Numerical constants of the method.
    """

    rank: int | None = None
    factor: Any = None
    tuning: BurerMonteiroTuning = BurerMonteiroTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is None:
            return
        if isinstance(self.rank, bool) or not isinstance(self.rank, Integral):
            raise TypeError(f"rank is {self.rank!r}; expected an integer")
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; expected at least 1")


class LowRankRoute:
    """Burer and Monteiro's factorization, with bounds that are proven at any final point."""

    name: ClassVar[str] = "lowrank"
    summary: ClassVar[str] = (
        "large sparse problems with an answer of low rank (cuts of graphs, matrix completion)"
    )
    citation: ClassVar[str] = (
        "Burer, Monteiro (2003), A Nonlinear Programming Algorithm for Solving Semidefinite Programs via "
        "Low-Rank Factorization, Math. Program. 95; Boumal, Voroninski, Bandeira (2016), The Non-convex "
        "Burer-Monteiro Approach Works on Smooth Semidefinite Programs, NIPS 29"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}),
        blocks=1,
        variables=False,
        penalties=frozenset({Penalty.HARD}),
    )
    Settings: ClassVar[type[base.Settings]] = LowRankSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        (sparse,) = sparse_plus_low_rank(program)
        if sparse is None:
            return "its cost or its rows have too many terms"
        if read_surface(program, sparse, settings.tuning) is None:
            (block,) = program.blocks
            return f"it needs rows that bound diag({block.name}) or the trace, or a diagonally dominant cost"
        return None

    def choice(self, program: Program, settings: Any) -> str:
        (block,) = program.blocks
        (sparse,) = sparse_plus_low_rank(program)
        surface = None if sparse is None else read_surface(program, sparse, settings.tuning)
        assert surface is not None
        others = program.m - len(surface.rows) - len(surface.planes)
        fixed = "trace" if len(surface.rows) == 1 and block.n > 1 else "diagonal"
        more = f"{others} more row{'s' if others > 1 else ''}" if others else ""
        first = f"R of {_first_columns(program, surface, settings)} columns at first"
        if not len(surface.rows):
            return f"{first}, with {program.m} rows"
        return f"{first}, on the spheres of the {fixed}" + (f" and {more}" if more else "")

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        (sparse,) = sparse_plus_low_rank(program)
        assert sparse is not None
        surface = read_surface(program, sparse, settings.tuning)
        assert surface is not None
        with threads_for(1):  # thin matrices: more threads would mostly wait
            return Staircase(program, sparse, surface, settings, start, progress).run()


class Staircase:
    """One run of the method.

    Parameters
    ----------
    program : Program
        One block, linear, the trace bounded or the cost definite.
    sparse : SparseLowRankProgram
    surface : Surface
    settings : LowRankSettings
    start : Start, optional
    progress : Progress
    """

    def __init__(
        self,
        program: Program,
        sparse: SparseLowRankProgram,
        surface: Surface,
        settings: Any,
        start: Start | None,
        progress: Progress,
    ) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._tuning: BurerMonteiroTuning = settings.tuning
        self._largest_rank = largest_rank(program)
        self._units = surface.units[:, None]
        self._rng = np.random.default_rng(settings.seed)
        self._L = lagrangian(program, sparse, surface, None if start is None else start.y)
        self._largest_penalties = _LARGEST_PENALTY * self._L.rho
        columns = _first_columns(program, surface, settings)
        R = _first_factor(program, surface, settings, start, columns, self._rng)
        checkpoint()
        self._at = self._L.retract(R)
        self._steps = 0
        self._best: tuple[tuple[bool, float], Array] | None = None
        self._y, self._bound = np.zeros(program.m), -np.inf

    def run(self) -> Answer:
        try:
            stop = self._run_stages()
        except CutShort as cut:
            stop = reason(cut)
            if self._best is None:
                self._y = self._multipliers(self._at)
        if stop is StopReason.INFEASIBLE:
            return Answer.without_point(self._program, self._y, stop, self._steps)
        # If the surface satisfies all rows the last point has the lowest value.
        R = self._at.R
        if self._best is not None and (stop not in ENDED or len(self._L.y)):
            R = self._best[1]
        X = LowRank(self._units * _truncated(R, 0.0))
        return Answer((X,), np.zeros(0), self._y, stop, self._steps)

    def _multipliers(self, at: Point) -> Array:
        """Return the multipliers of all rows at a point."""
        loss = _PLANE_SHARE * self._settings.tol * self._scale
        return self._L.multipliers(at, self._program.m, loss)

    def _run_stages(self) -> StopReason:
        """Run the stages, and return the reason to stop."""
        tol, tuning = self._settings.tol, self._tuning
        stage_tol, final = tuning.first_stage_tol, _FINAL_SHARE * tol
        loosest = stage_tol
        residuals = np.full(len(self._L.y), np.inf)
        gaps: list[float] = []
        while True:
            checkpoint()  # a stage may take no step
            cut_short = self._descend(stage_tol * self._scale / np.sqrt(self._L.surface.trace))
            certificate = self._certified()
            if certificate.meets(tol):
                return StopReason.CONVERGED
            if cut_short is not None:
                return cut_short
            if certificate.dual > _CONTRADICTION * self._size(self._at.cost) and self._is_refuted():
                return StopReason.INFEASIBLE
            gaps.append(max(certificate.gap, certificate.primal_residual))
            if self._increase_rank():
                continue
            feasible = certificate.primal_residual <= tol
            patience = _STALL_STAGES if feasible else _STALL_STAGES_INFEASIBLE
            if len(gaps) > patience and gaps[-1] > 0.5 * gaps[-1 - patience] and stage_tol <= final:
                return StopReason.STALLED
            before, residuals = residuals, self._L.residuals(self._at)
            self._L = self._L.updated(self._at, before, feasible, final * self._scale)
            if (self._L.rho > self._largest_penalties).any():
                return StopReason.STALLED
            self._at = self._L.retract(_truncated(self._at.R, _STAGE_RANK_TOL))
            reached = self._at.gradient_norm * np.sqrt(self._L.surface.trace) / self._scale
            needed = _GAP_SHARE * tol / gaps[-1]
            if certificate.dual < self._bound:
                loosest = max(_LOOSEST_DECREASE * loosest, 2 * final)
            stage_tol = max(
                min(stage_tol, reached) * np.clip(needed, _STAGE_TOL_FASTEST, tuning.stage_tol_decrease),
                min(_RESIDUAL_STAGE_TOL * certificate.primal_residual, loosest),
                _LEAST_STAGE_TOL,
            )

    def _is_refuted(self) -> bool:
        """Whether the multipliers contradict every point. They then grow in proportion to a Farkas vector."""
        (block,) = self._program.blocks
        if block.n > LARGEST_DENSE or not is_farkas(self._program, self._y, MENDED, conclusive=False):
            return False
        self._y = with_trace_multipliers(self._program, self._y)
        return True

    @property
    def _scale(self) -> float:
        """The reference value of the gap.

        On spheres the first cost may be near zero, and the penalties are no larger than it becomes. Without
        spheres they have no limit.
        """
        return self._size(self._at.value if len(self._L.surface.square) else self._at.cost)

    def _size(self, value: float) -> float:
        return max(objective_size(self._program, value + self._program.offset), TINY)

    def _descend(self, tol: float) -> StopReason | None:
        """Minimize at the current rank; return the reason if it was cut short."""
        limit = self._settings.max_iter or _DEFAULT_MAX_ITER
        for point in descend(self._L, self._at, tol):
            self._at = point
            self._steps += 1
            if self._steps >= limit:
                return StopReason.MAX_ITER
        return None

    def _certified(self) -> Certificate:
        """Return the certificate of the current point, and keep the best bound and matrix."""
        at, tol = self._L.sharpened(self._at), self._settings.tol
        R, y = at.R, self._multipliers(at)
        certificate = self._certificate(R, y, at.gradient_norm)
        small = _nearly_zero_rows(R, _ZERO_ROW)
        if small.any() and certificate.gap <= tol < certificate.primal_residual:
            other = self._L.retract(np.where(small[:, None], 0.0, R)).R
            proven = self._certificate(other, y, at.gradient_norm)
            R, certificate = (other, proven) if proven.meets(tol) else (R, certificate)
        self._progress.record(self._steps, certificate, rank=R.shape[1])
        # Round-off of large multipliers may put an earlier bound above the solution.
        if certificate.dual > self._bound or certificate.meets(tol):
            self._y, self._bound = y, certificate.dual
        # As long as rows are missed, their cost, which is in the gap, says more than the worst of them.
        missed = certificate.primal_residual > tol
        error = missed, certificate.gap if missed else max(certificate.gap, certificate.primal_residual)
        if self._best is None or error < self._best[0]:
            self._best = error, R
        return certificate

    def _certificate(self, R: Array, y: Array, gradient: float) -> Certificate:
        """Return the certificate of a point; its bound is as sharp as needed."""
        X, u = (LowRank(self._units * R),), np.zeros(0)
        loss = self._proof_loss(PrimalDualPoint(self._program, X, u, y), gradient)
        return certify(PrimalDualPoint(self._program, X, u, y, loss=loss))

    def _proof_loss(self, point: PrimalDualPoint, gradient: float) -> float:
        """Return the loss in the bound that is left by the tolerance, or explained by the gradient."""
        slope, scale = gradient * np.sqrt(self._L.surface.trace), self._scale
        missed = abs(point.primal - self._program.offset - point.row_terms)
        left = self._settings.tol * scale - missed - float(np.abs(point.y) @ point.violations)
        loss = _PROOF_SHARE * max(left, slope)
        # Callers that repair X on spheres, as for theta, need each bound. Else the rows' residual stays.
        # Pays on: completion of a matrix of 1,500 x 1,500.
        if not len(self._L.surface.square):
            loss = max(loss, _MISSED_SHARE * max(missed, min(point.primal_residual, 1.0) * scale))
        return loss

    def _increase_rank(self) -> bool:
        """Whether the rank was increased along a direction of negative curvature."""
        L, at = self._L, self._at
        R = _truncated(at.R, _GROWTH_RANK_TOL)
        more = max(_ADDED_COLUMNS, int(_COLUMN_GROWTH * R.shape[1]))
        room = min(more, self._largest_rank - R.shape[1])
        noise = _SADDLE_LOSS * np.sqrt(L.surface.trace) * at.gradient_norm
        loss = max(noise, _FINAL_SHARE * self._settings.tol * self._scale)
        if room <= 0:
            return False
        V = self._negative_directions(room, -loss / L.surface.trace)
        if V.shape[1] == 0:
            return False
        step = np.sqrt(L.surface.trace / V.shape[1])
        while step > 1e-6 * np.sqrt(L.surface.trace):
            new = L.retract(np.hstack([R, step * V]))
            if new.value < at.value:
                self._at = new
                return True
            step /= 2
        return False

    def _negative_directions(self, count: int, enough: float) -> Array:
        """Return unit vectors of negative curvature, at most `count`; none above the eigenvalue `enough`.

        Eigenvalues are relative to the diagonal, as in the certificate.
        """
        surface = self._L.surface
        W = self._at.off_planes(surface)
        root = np.ones(W.n)
        if len(surface.square) == W.n:
            D = relative_diagonal(self._at.curvature)
            root = np.sqrt(float(D @ surface.square) / surface.trace / D)
        N = W.scaled(root)
        values, V = lowest(N, count, _LANCZOS_STEPS)
        if values[0] > enough:
            return V[:, :0]
        V = root[:, None] * V[:, values <= _ADDED_EIGENVALUE * values[0]]
        return V / np.linalg.norm(V, axis=0)


def _first_columns(program: Program, surface: Surface, settings: Any) -> int:
    """Return the number of columns of the first ``R``, at most the number that can be needed."""
    (block,) = program.blocks
    tuning = settings.tuning
    default = _FIRST_RANK_PLANES if len(surface.planes) else tuning.first_rank
    if block.n > _LARGE_ORDER and len(surface.rows):
        default = _FIRST_RANK_PLANES_LARGE if len(surface.planes) else _FIRST_RANK_LARGE
        default = default if settings.tol < _COARSE_TOL else _FIRST_RANK_COARSE
    if program.m > _MANY_ROWS * block.n and len(surface.rows):
        default = max(default, int(_FIRST_RANK_SHARE * largest_rank(program)))
    columns = settings.rank or default
    return int(min(columns, largest_rank(program)))


def largest_rank(program: Program) -> int:
    """Return one more than a rank that some solution does not exceed (Barvinok 1995, Pataki 1998)."""
    (block,) = program.blocks
    return min(int(np.sqrt(2 * program.m)) + 1, block.n)


# Pays on: theta of a path of 5 vertices.
def _nearly_zero_rows(R: Array, zero: float) -> Mask:
    """Return the mask of the rows of a factor that may converge to zero, where Newton steps are slow.

    There the value is flat to fourth order, and rows of the program on these entries have their largest
    violations.
    """
    length = np.linalg.norm(R, axis=1)
    return (length > 0) & (length < zero * np.sqrt(np.mean(length**2)))


def _truncated(R: Array, tol: float) -> Array:
    """Return `R` rotated to orthogonal columns, without those below `tol` relative to the largest."""
    columns = turned(R)
    length = np.linalg.norm(columns, axis=0)
    return columns[:, : max(int((length > tol * length[0]).sum()), 1)]


def _first_factor(
    program: Program,
    surface: Surface,
    settings: Any,
    start: Start | None,
    columns: int,
    rng: np.random.Generator,
) -> Array:
    """Return the first ``R``, with at least `columns` columns; it need not be on the surface."""
    (block,) = program.blocks
    n = block.n
    if settings.factor is not None:
        given = _given(settings.factor, n) / surface.units[:, None]
    elif start is not None and start.X:
        (X,) = start.X
        given = (X.factor if isinstance(X, LowRank) else _factor(X)) / surface.units[:, None]
    else:
        return rng.normal(size=(n, columns)) * np.sqrt(surface.trace / (n * columns))
    if given.shape[1] >= columns:
        return np.array(given)
    size = _START_PERTURBATION * float(np.linalg.norm(given)) / np.sqrt(n * columns)
    more = columns - given.shape[1]
    return np.hstack([given, rng.normal(size=(n, more)) * size])


def _given(value: Any, n: int) -> Array:
    """Return the factor that the user gives."""
    if isinstance(value, LowRank):
        factor = value.factor
    else:
        array = finite_array(value, "factor", ndim=(1, 2))
        factor = array[:, None] if array.ndim == 1 else array
    if factor.shape[0] != n or factor.shape[1] == 0:
        raise ValueError(f"factor has shape {np.shape(factor)}; expected {n} rows, one for each of X")
    return factor


def _factor(X: Array) -> Array:
    eigenvalues, Q = np.linalg.eigh(X)
    positive = eigenvalues > 1e-9 * eigenvalues[-1]
    return Q[:, positive] * np.sqrt(eigenvalues[positive])
