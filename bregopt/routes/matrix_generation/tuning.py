"""The numerical constants of matrix generation."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.tuning import Tuning

__all__ = ["MatrixGenerationTuning"]


@dataclass(frozen=True, kw_only=True)
class MatrixGenerationTuning(Tuning):
    """Constants of matrix generation, besides those of every method.

    `progress_ratio` applies to the gaps of the rounds.

    Parameters
    ----------
    interior : InteriorPointTuning
        Constants of the interior-point method that solves the semidefinite master.
    linear_cuts : int
        Eigenvectors added in each round of the linear master. On margin SDPs 3 to 5 were best, and 24 were
        slower.
    semidefinite_cuts : int
        Eigenvectors added in each round of the semidefinite master.
    sample_rows : int
        Least number of hinge rows in the sample.
    truncation_tol : float
        Largest gap and residual of an answer from which eigenvalues are dropped, relative to the tolerance.
        Below one, so that the certificate of the route still meets the tolerance after round-off.
    truncation_limits : tuple of float
        Limits below which eigenvalues are dropped from the answer, relative to the trace, tried in order.
    balancing_steps : int
        Limit on the corrections that make the dual residual of unbounded variables zero. One suffices unless
        a multiplier reaches an end of its range.
    simplex_seconds : float
        Seconds of the first run of HiGHS between two checkpoints. Ctrl-C does not reach HiGHS, and each run
        starts from the last basis.
    decomposed_order : int
        Largest order at which all eigenvalues of ``A*(y) - C`` are computed, instead of a few by Lanczos's
        method.
    first_master_tol : float
        Tolerance of the first semidefinite master.
    master_tol_ratio : float
        Tolerance of the next semidefinite master, relative to the gap.
    least_master_tol : float
        Least tolerance of a semidefinite master, relative to that of the problem.
    memory_rounds : int
        Rounds for which an unused direction stays in the basis.
    used_eigenvalue : float
        Least eigenvalue of a used direction, relative to the trace times the square root of the master's
        tolerance. The eigenvalues of unused directions on the central path are of the order of the
        tolerance.
    least_working_set : int
        Size of the working set up to which no rows leave, and number of rows that may join at once. So few
        rows cost little.
    first_price : float
        First price of violating a hard row, relative to a guess of the row's multiplier.
    first_smoothing : float
        First weight of the best multipliers in the priced ones. On margin SDPs 0.8 to 0.9 was best.
    smoothing_increase : float
        Increase of the weight at a step, relative to its distance from one.
    smoothing_decrease : float
        Decrease of the weight at a step.
    """

    interior: InteriorPointTuning = InteriorPointTuning()
    # route.py
    linear_cuts: int = 5
    semidefinite_cuts: int = 16
    # generation.py
    sample_rows: int = 1_000
    truncation_tol: float = 0.9
    # incumbent.py
    truncation_limits: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10)
    balancing_steps: int = 3
    # linear_master.py
    simplex_seconds: float = 0.2
    # oracle.py
    decomposed_order: int = 700
    # semidefinite_master.py
    first_master_tol: float = 1e-2
    master_tol_ratio: float = 0.1
    least_master_tol: float = 0.2
    memory_rounds: int = 3
    used_eigenvalue: float = 1e-2
    least_working_set: int = 300
    first_price: float = 3.0
    # generation.py, its smoothing
    first_smoothing: float = 0.8
    smoothing_increase: float = 0.1
    smoothing_decrease: float = 0.1
