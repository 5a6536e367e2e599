"""The choice of a CVXPY solver, its options, and its result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from bregopt.clock import CutShort, checkpoint, foreign, interrupt, remaining
from bregopt.errors import SolverError, did_you_mean, import_whole
from bregopt.program import Program
from bregopt.records import dataclass
from bregopt.routes.base import Tuning

__all__ = [
    "FAILED",
    "Backend",
    "BackendStatus",
    "ReferenceTuning",
    "check_backend",
    "check_backend_options",
    "choose_backend",
]

# Arguments of cvxpy.Problem.solve itself; all others go to the backend.
_CVXPY_OPTIONS = {"method", "solver", "solver_path", "verbose", "warm_start", "gp", "qcp", "requires_grad"}
_CVXPY_OPTIONS |= {"enforce_dpp", "ignore_dpp", "canon_backend"}
FAILED = "solver_error"
"""The status of a backend that failed."""

_PANIC = "PanicException"  # of a solver in Rust; it derives from BaseException, and no solver exports it
_SCS_INTERRUPTED = -5  # SCS catches Ctrl-C itself, and CVXPY reports it as a failure


@dataclass(frozen=True, kw_only=True)
class ReferenceTuning(Tuning):
    """Constants of the reference, besides those of every method.

    Parameters
    ----------
    clarabel_order : int
        Largest order of a matrix in a linear objective for which the default backend is Clarabel, where it
        takes about a second. The time of SCS grows more slowly, and it is less accurate. A divergence has its
        own limit.
    clarabel_tol_ratio : float
        Tolerance of Clarabel, relative to ours. Its last steps converge fast, so that a small tolerance costs
        little, and our certificate requires it.
    scs_tol_ratio : float
        Tolerance of SCS, relative to ours. Its steps converge slowly.
    least_clarabel_tol : float
        Least tolerance of Clarabel. It does not get below in reasonable time.
    least_scs_tol : float
        The same for SCS.
    scs_max_iter : int
        Limit on the iterations of SCS where the option `max_iter` gives none.
    proof_tol : float
        Tolerance of the problems whose solutions are Farkas vectors and rays. The driver checks these to the
        same.
    zero_part : float
        Part of a ray of size one, or multiplier relative to the largest, that counts as zero. It is of the
        size of `proof_tol`.
    zero_multiplier : float
        Multiplier that counts as zero, relative to the size of the divergence, if there are ordinary
        variables too.
    interior_eigenvalue : float
        Least eigenvalue of the answer if its divergence is infinite on the boundary of the cone, relative to
        the largest or one.
    import_seconds : float
        Estimated seconds of the first import of CVXPY, which is one call without a checkpoint.
    compile_seconds : float
        Estimated seconds of CVXPY's compilation of any problem, also one call.
    compile_seconds_entry : float
        Additional seconds for each row and each entry of a matrix.
    compile_seconds_cone : float
        Additional seconds for each cone of a divergence.
    """

    # backend.py
    clarabel_order: int = 50
    clarabel_tol_ratio: float = 1e-3
    scs_tol_ratio: float = 1e-2
    least_clarabel_tol: float = 1e-12
    least_scs_tol: float = 1e-9
    scs_max_iter: int = 100_000
    # route.py
    proof_tol: float = 1e-9
    zero_part: float = 1e-9
    zero_multiplier: float = 1e-8
    interior_eigenvalue: float = 1e-13
    import_seconds: float = 1.5
    compile_seconds: float = 0.05
    compile_seconds_entry: float = 1e-5
    compile_seconds_cone: float = 0.03


@dataclass(frozen=True)
class BackendStatus:
    """The status and number of iterations that a backend reports, in CVXPY's terms, and its words."""

    backend: str
    status: str
    iterations: int
    words: str


@dataclass(frozen=True)
class Backend:
    """A CVXPY solver by its CVXPY name, with backend options that override ours."""

    name: str
    options: Mapping[str, Any]
    tuning: ReferenceTuning

    def solve(
        self, problem: Any, tol: float, steps: int | None, verbose: bool, compiling: float = 0.0
    ) -> BackendStatus:
        """Solve a CVXPY problem in place, within the time that is left after CVXPY has compiled it.

        Parameters
        ----------
        problem : cvxpy.Problem
        tol : float
            Tolerance for Clarabel and SCS; other solvers keep their own tolerances and limits unless
            `options` set them.
        steps : int or None
            Limit on iterations.
        verbose : bool
        compiling : float
            Estimated time of CVXPY's compilation, in seconds.

        A failure of the backend is a status.

        Raises
        ------
        SolverError
            If the backend takes no such problem.
        TypeError, ValueError
            If the backend refuses one of `options`.
        CutShort
            If there is no time to compile the problem, or on Ctrl-C.
        """
        cp = import_whole("cvxpy")

        checkpoint(seconds=compiling)
        options = self._options(tol, steps)
        with foreign(), warnings.catch_warnings():
            # CVXPY warns of inaccurate answers; the driver judges them by their certificates instead.
            warnings.simplefilter("ignore", UserWarning)
            try:
                data, chain, inverse = problem.get_problem_data(
                    self.name, verbose=verbose, solver_opts=options
                )
            except cp.SolverError as error:
                raise SolverError(f"CVXPY's solver {self.name} failed: {error}") from error
            checkpoint()
            options = self._options(tol, steps)  # with the remaining time
            try:
                found = chain.solve_via_data(problem, data, verbose=verbose, solver_opts=options)
                if isinstance(found, dict) and found.get("info", {}).get("status_val") == _SCS_INTERRUPTED:
                    interrupt()
                problem.unpack_results(found, chain, inverse)
            except (CutShort, MemoryError):
                raise
            except BaseException as error:
                refused = bool(self.options) and isinstance(error, TypeError | ValueError)
                panic = type(error).__name__ == _PANIC
                if refused or not (panic or isinstance(error, Exception)):
                    raise
                return BackendStatus(self.name, FAILED, 0, f"{self.name} failed: {error}")
        status = str(problem.status)
        steps_taken = int(problem.solver_stats.num_iters or 0)
        return BackendStatus(self.name, status, steps_taken, f"{self.name} says {status}.")

    def _options(self, tol: float, steps: int | None) -> dict[str, Any]:
        seconds = remaining()
        return {**self._limits(tol, steps, None if seconds == math.inf else seconds), **self.options}

    def _limits(self, tol: float, steps: int | None, seconds: float | None) -> dict[str, Any]:
        tuning = self.tuning
        if self.name == "CLARABEL":
            solver_tol = max(tuning.clarabel_tol_ratio * tol, tuning.least_clarabel_tol)
            options = {"tol_gap_abs": solver_tol, "tol_gap_rel": solver_tol, "tol_feas": solver_tol}
            limits = {"max_iter": steps, "time_limit": seconds, **_accept_unknown()}
        elif self.name == "SCS":
            solver_tol = max(tuning.scs_tol_ratio * tol, tuning.least_scs_tol)
            options = {"eps_abs": solver_tol, "eps_rel": solver_tol}
            limits = {"max_iters": steps or tuning.scs_max_iter, "time_limit_secs": seconds}
        else:
            return {}
        return options | {name: value for name, value in limits.items() if value is not None}


def _accept_unknown() -> dict[str, bool]:
    """Return the option that keeps an answer short of the tolerance, if this CVXPY has it."""
    from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

    return {CLARABEL.ACCEPT_UNKNOWN: True} if hasattr(CLARABEL, "ACCEPT_UNKNOWN") else {}


def check_backend(name: Any) -> None:
    """Raise a TypeError or ValueError unless `name` is that of an installed CVXPY solver."""
    if not isinstance(name, str):
        raise TypeError(f"backend is {name!r}; expected the name of a CVXPY solver, such as 'CLARABEL'")
    cp = import_whole("cvxpy")

    installed = cp.installed_solvers()
    if name.upper() not in installed:
        raise ValueError(f"unknown backend {name!r}{did_you_mean(name.upper(), installed)}")


def check_backend_options(options: Any) -> None:
    """Raise a TypeError or ValueError unless `options` is a dict of options of a backend."""
    if not isinstance(options, Mapping):
        raise TypeError(f"backend_options is {options!r}; expected a dict")
    for name in options:
        if not isinstance(name, str):
            raise TypeError(f"backend_options has the key {name!r}; expected the name of an option")
        if name in _CVXPY_OPTIONS:
            raise ValueError(
                f"backend_options has {name!r}, which is no option of a backend; "
                "expected options in the backend's own words; backend and verbose are options of this route"
            )


def choose_backend(program: Program, name: str | None, tuning: ReferenceTuning) -> str:
    """Return the requested backend in CVXPY's spelling, or one that suits the size of the program."""
    if name is not None:
        return name.upper()
    small = all(
        b.n <= (tuning.clarabel_order if b.nearness is None else b.nearness.kind.cvxpy_order)
        for b in program.blocks
    )
    return "CLARABEL" if small else "SCS"
