"""The route `cvxpy`: solve by a foreign solver, and return the proof of the answer.

Infeasibility and unboundedness are proven by the solutions of programs that are always feasible and bounded.
The choice of a solver of CVXPY, its options and its result come last.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint, foreign, interrupt, remaining
from bregopt.errors import SolverError, did_you_mean, import_whole
from bregopt.program import Answer, Block, Penalty, Program, Start, StopReason, pays
from bregopt.program.program import divergence_of
from bregopt.records import dataclass, replace
from bregopt.rigorous import contradicts, recedes
from bregopt.routes import base
from bregopt.routes.alternatives import elastic, largest_trace, recession_box, steepest_ray
from bregopt.routes.base import Capabilities, Tuning, behind
from bregopt.routes.progress import Progress, reason
from bregopt.routes.reference.translate import Translation, as_declared, joined

# Arguments of cvxpy.Problem.solve itself; all others go to the backend.
_CVXPY_OPTIONS = {"method", "solver", "solver_path", "verbose", "warm_start", "gp", "qcp", "requires_grad"}
_CVXPY_OPTIONS |= {"enforce_dpp", "ignore_dpp", "canon_backend"}
FAILED = "solver_error"
"""The status of a backend that failed."""

_PANIC = "PanicException"  # of a solver in Rust; it derives from BaseException, and no solver exports it
_SCS_INTERRUPTED = -5  # SCS catches Ctrl-C itself, and CVXPY reports it as a failure
_FINER = 1e-2  # of the tolerance: backends judge gaps relative to one, we relative to the value
_LARGEST_MOVED = (
    30  # order up to which a linear program for multipliers inside the dual cone takes little time
)


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

    clarabel_order: int = 50
    clarabel_tol_ratio: float = 1e-3
    scs_tol_ratio: float = 1e-2
    least_clarabel_tol: float = 1e-12
    least_scs_tol: float = 1e-9
    scs_max_iter: int = 100_000
    proof_tol: float = 1e-9
    zero_part: float = 1e-9
    zero_multiplier: float = 1e-8
    interior_eigenvalue: float = 1e-13
    import_seconds: float = 1.5
    compile_seconds: float = 0.05
    compile_seconds_entry: float = 1e-5
    compile_seconds_cone: float = 0.03


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings(base.Settings):
    """Options of the route `cvxpy`.

    Parameters
    ----------
    backend : str, optional
        Any installed solver of CVXPY. None uses Clarabel for small problems and SCS for others.
    backend_options : dict, optional
        Options in the backend's terms; they override `tol`, `max_iter` and `time_limit`.
    tuning : ReferenceTuning
        Numerical constants of the method.
    """

    backend: str | None = None
    backend_options: Mapping[str, Any] | None = None
    tuning: ReferenceTuning = ReferenceTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend is not None:
            check_backend(self.backend)
        if self.backend_options is not None:
            check_backend_options(self.backend_options)


class Reference:
    """Every problem that can be declared, by CVXPY."""

    name: ClassVar[str] = "cvxpy"
    summary: ClassVar[str] = "every problem, by CVXPY and one of its solvers: the reference"
    citation: ClassVar[str] = (
        "Diamond, Boyd (2016), CVXPY: A Python-Embedded Modeling Language for Convex Optimization, JMLR 17"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "cvxpy_expression"}),
        penalties=frozenset(Penalty),
        caps=True,
        cones=True,
        matrices=20,
    )
    Settings: ClassVar[type[base.Settings]] = ReferenceSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        return None

    def choice(self, program: Program, settings: Any) -> str:
        return f"backend {choose_backend(program, settings.backend, settings.tuning)}"

    def translate(self, program: Program) -> Any:
        """Return the ``cvxpy.Problem`` of a program with dense blocks, one constraint for each declared.

        A constraint between two bounds becomes two.
        """
        return as_declared(program).problem

    def ask(self, problem: Any, settings: Any, tol: float) -> BackendStatus:
        """Solve any CVXPY problem in place by the backend of the settings."""
        backend = Backend(settings.backend.upper(), settings.backend_options or {}, settings.tuning)
        with clock.limited(settings.time_limit):
            return backend.solve(problem, tol, settings.max_iter, settings.verbose)

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        """Solve a program; `start` is not used, as most backends take none.

        The backend gets a linear program on the faces of its matrices, as few backends converge where the
        rows leave no interior. If it misses the tolerance in our scaled units, it solves once more in the
        user's units, and once more to a hundredth of the tolerance, unless backend options are given.
        """
        faces = () if program.curved else ("faces",)
        answer, certificate = _certified(program, (*faces, "scaling"), settings, progress)
        finer = replace(settings, tol=_FINER * settings.tol)
        for names, asked in ((faces, settings), ((*faces, "scaling"), finer)):
            inaccurate = answer.stop is StopReason.INACCURATE and not certificate.meets(settings.tol)
            if not inaccurate or settings.backend_options:
                break
            try:
                other, proven = _certified(program, names, asked, progress)
            except CutShort as cut:
                return replace(answer, stop=reason(cut))
            if other.stop is StopReason.INACCURATE and proven.worst < certificate.worst:
                answer, certificate = other, proven
        if answer.stop is StopReason.INACCURATE and certificate.meets(settings.tol):
            return replace(answer, stop=StopReason.CONVERGED)
        return answer


def _certified(
    program: Program, reductions: Sequence[str], settings: ReferenceSettings, progress: Progress
) -> tuple[Answer, Certificate]:
    """Return the backend's answer to the program after reductions, and its certificate."""
    answer = behind(reductions, _outcome)(program, settings, None, progress)
    # If the objective is constant, the multipliers are round-off of zero.
    constant = answer.stop is not StopReason.INFEASIBLE and not pays(program)
    if constant:
        answer = replace(answer, y=np.zeros(program.m), y_on_faces=None)
    elif answer.y_on_faces is None:  # else the faces come with large multipliers, beside which all are small
        answer = replace(answer, y=_cleaned(program, answer.y, settings.tuning))
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    if certificate.dual_residual > 0 and answer.y_on_faces is None:
        inside = _inside(program, answer)
        if inside is not None:
            answer = replace(answer, y=inside)
            certificate = certify(PrimalDualPoint(program, answer.X, answer.u, inside))
    progress.record(answer.iterations, certificate)
    return answer, certificate


def _inside(program: Program, answer: Answer) -> Array | None:
    """Return multipliers with ``C - A*(y)`` psd near the backend's, None where none are found.

    A backend leaves eigenvalues below zero, and their cost counts at an ``X`` of the size of its answer only.
    The optimum may be larger (condition 2^45 in tests/library/truth.py).
    """
    if program.curved or program.k or max(program.A.orders) > _LARGEST_MOVED:
        return None
    from bregopt.rigorous.data import data_of
    from bregopt.rigorous.proof import interior_multipliers

    y = program.bounds.clip(answer.y)
    try:
        direction = interior_multipliers(data_of(program), y)
    except (ValueError, MemoryError):  # too large to be listed
        return None
    if direction is None:
        return None
    length = 0.0
    for b, block in enumerate(program.blocks):
        least = float(np.linalg.eigvalsh(block.C - program.A.adjoint(y, b))[0])
        rise = float(np.linalg.eigvalsh(-program.A.adjoint(direction, b))[0])
        if least < 0 and not rise > 0:
            return None
        length = max(length, -least / rise) if least < 0 else length
    return y + 2 * length * direction


def _cleaned(program: Program, y: Array, tuning: ReferenceTuning) -> Array:
    """Return the multipliers, with zero for those that are noise relative to the rest or the divergence."""
    size = program.row_sizes
    scaled = np.abs(y) * size
    units = [b.nearness.mu * divergence_of(b.nearness).unit for b in program.blocks if b.nearness is not None]
    noise = tuning.zero_part * scaled.max(initial=0.0)
    if units and program.k:
        noise += tuning.zero_multiplier * min(units)
    return np.where(scaled > noise, y, 0.0)


def _outcome(
    program: Program, settings: ReferenceSettings, start: Start | None, progress: Progress
) -> Answer:
    """Return the answer to a program with matrices on faces ``X = V M V'``, from that in ``M``."""
    faces = program.faces
    for b, face in enumerate(faces):
        if face.codimension and face.order:  # CVXPY takes no matrix of order zero
            program = program.restrict(b, face.basis)
    answer = _reported(program, settings, progress)
    lifted = (face.lift(M) if face.order else M for face, M in zip(faces, answer.X, strict=True))
    return replace(answer, X=tuple(lifted))


def _reported(program: Program, settings: ReferenceSettings, progress: Progress) -> Answer:
    """Return the backend's answer; if it claims infeasibility or unboundedness, a proof if found."""
    translation, reported = _solved(program, settings, progress, settings.tol)
    if "infeasible" in reported.status or "unbounded" in reported.status:
        answer = _infeasible(program, settings, progress, reported)
        if contradicts(program, answer.y):  # a ray means nothing without a feasible point
            return answer
    if "unbounded" in reported.status:
        ray = _unbounded(program, settings, progress, reported)
        if recedes(program, ray.X, ray.u):
            return ray
    limited = reported.status == "user_limit" or (settings.max_iter or np.inf) <= reported.iterations
    stop = progress.stop() or (StopReason.MAX_ITER if limited else StopReason.INACCURATE)
    return _answer(program, settings, translation, stop, reported)


def _infeasible(
    program: Program, settings: ReferenceSettings, progress: Progress, reported: BackendStatus
) -> Answer:
    """Return the least infeasible point and a Farkas vector, which CVXPY does not return."""
    translation, _ = _solved(elastic(program), settings, progress, settings.tuning.proof_tol)
    return _answer(program, settings, translation, StopReason.INFEASIBLE, reported)


def _unbounded(
    program: Program, settings: ReferenceSettings, progress: Progress, reported: BackendStatus
) -> Answer:
    """Return a ray, which CVXPY does not return."""
    translation, _ = _solved(steepest_ray(program), settings, progress, settings.tuning.proof_tol)
    ray = _answer(program, settings, translation, StopReason.UNBOUNDED, reported)
    without_ray = (largest_trace(block) == 0 for block in program.blocks)
    zero = settings.tuning.zero_part
    X = (
        np.zeros_like(direction) if at_zero else _without_noise(direction, zero)
        for direction, at_zero in zip(ray.X, without_ray, strict=True)
    )
    return replace(
        ray,
        X=tuple(X),
        u=np.clip(np.where(np.abs(ray.u) > zero, ray.u, 0.0), *recession_box(program)),
        y=np.zeros(program.m),
    )


def _solved(
    program: Program, settings: ReferenceSettings, progress: Progress, tol: float
) -> tuple[Translation, BackendStatus]:
    """Solve a program within the remaining time."""
    tuning = settings.tuning
    name = choose_backend(program, settings.backend, tuning)
    backend = Backend(name, settings.backend_options or {}, tuning)
    if "cvxpy" not in sys.modules:
        checkpoint(seconds=tuning.import_seconds)
    translation = joined(program)
    # An estimate of CVXPY's compile time in seconds; it is one call without a checkpoint.
    entries = program.m + sum(block.n**2 for block in program.blocks)
    cones = sum(b.nearness.kind.cvxpy_cones * b.n for b in program.blocks if b.nearness)
    seconds = tuning.compile_seconds + tuning.compile_seconds_entry * entries
    compiling = seconds + tuning.compile_seconds_cone * cones
    reported = backend.solve(translation.problem, tol, settings.max_iter, settings.verbose, compiling)
    return translation, reported


def _answer(
    program: Program,
    settings: ReferenceSettings,
    translation: Translation,
    stop: StopReason,
    reported: BackendStatus,
) -> Answer:
    interior = settings.tuning.interior_eigenvalue
    return Answer(
        X=tuple(
            _psd(block, X, interior) for block, X in zip(program.blocks, translation.matrices(), strict=True)
        ),
        u=program.cones.clipped(translation.variables()),
        y=translation.multipliers(),
        stop=stop,
        iterations=reported.iterations,
        detail=reported.words,
    )


def _without_noise(X: Array, zero: float) -> Array:
    eigenvalues, Q = np.linalg.eigh(X)
    Q = Q[:, eigenvalues > zero]
    return (Q * eigenvalues[eigenvalues > zero]) @ Q.T


def _psd(block: Block, X: Array, interior: float) -> Array:
    """Return the nearest psd matrix below the cap, just inside the cone if the divergence is finite there."""
    eigenvalues, Q = np.linalg.eigh(X)
    inside = block.nearness is not None and not block.nearness.kind.finite_on_boundary
    floor = interior * max(eigenvalues[-1], 1.0) if inside else 0.0
    largest = np.inf if block.cap is None else block.cap
    if eigenvalues[0] >= floor and eigenvalues[-1] <= largest:
        return X
    return (Q * np.clip(eigenvalues, floor, largest)) @ Q.T


# --- The backend ---


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
