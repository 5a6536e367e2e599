"""The interface of a route: its capabilities as data, its settings and constants, and its methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol

import numpy as np

from bregopt.arrays import LARGEST, shortage
from bregopt.certify import trace_bound
from bregopt.divergences import DIVERGENCES, SCALARS
from bregopt.errors import did_you_mean
from bregopt.presolve import presolve
from bregopt.presolve.coordinates import RANK_TOL
from bregopt.program import Answer, Block, LowRank, Nearness, Penalty, Program, Start
from bregopt.records import cached_property, dataclass, field_names, replace
from bregopt.routes.progress import Progress, Watcher

Seed = int | np.random.Generator | np.random.SeedSequence
Method = Callable[[Program, Any, Start | None, Progress], Answer]

_EXPECTED = {
    "tol": "above 0 and below 1",
    "tol_X": "above 0 and below 1",
    "rank_tol": "above 0 and below 1",
    "time_limit": f"above 0 and below {LARGEST:g}",
}
_OF_X = 1e-6  # certified distance of entries from the optimum, unless `tol` is larger
_LARGEST_COUNT = 2**31 - 1  # of iterations: a C int, the type of foreign solvers


@dataclass(frozen=True)
class Capabilities:
    """The problems that a route accepts.

    Parameters
    ----------
    objectives : frozenset of str
        Features of a divergence, one of which is required: a name, a fact or an optional method of
        :class:`~bregopt.divergences.Divergence`, such as "spectrum"; "linear" for blocks without one.
    blocks : int or None
        Largest number of matrix variables; None for any.
    variables : bool
        Whether ordinary variables may occur.
    penalties : frozenset of Penalty
        Penalties that soft rows may have.
    caps : bool
        Whether blocks may have an upper bound on their eigenvalues.
    cones : bool
        Whether ordinary variables may be in second-order cones.
    needs_trace_bound : bool
        Whether the rows must bound the trace of each block.
    matrices : int
        Least number of dense matrices of a block's order in memory at once; 0 for none. A problem whose
        matrices do not fit into memory is refused with the numbers.
    reductions : tuple of str
        Names of the reductions that a program undergoes for this route (:data:`bregopt.presolve.REQUESTED`),
        besides the universal ones.
    terms : bool
        Whether the program may have convex terms, such as entropies.
    squares : bool
        Whether squared distances are taken beside matrices without a divergence, and beside variables.
    linear : bool
        Whether programs are taken in which no matrix has a divergence, and no variable is in a cone.
    """

    objectives: frozenset[str]
    blocks: int | None = None
    variables: bool = True
    penalties: frozenset[Penalty] = frozenset(Penalty) - {Penalty.LOG}
    caps: bool = False
    cones: bool = False
    needs_trace_bound: bool = False
    matrices: int = 0
    reductions: tuple[str, ...] = ()
    terms: bool = False
    squares: bool = False
    linear: bool = True

    def refusal(self, program: Program) -> str | None:
        """Return the reason why the route does not take the program, None if it does."""
        if program.terms and not self.terms:
            return f"it does not take {program.terms[0].function.name}"
        if self.blocks is not None and len(program.blocks) > self.blocks:
            return f"it takes {self.blocks} matrix variable, the problem has {len(program.blocks)}"
        squares = self.squares and program.has_squares_beside_others
        for block in program.blocks:
            objective = self._not_taken(None if squares else block.nearness)
            if objective is not None:
                return f"it does not take {objective} (of {block.name})"
            if block.cap is not None and not self.caps:
                return f"it does not take a bound on eigenvalues (lambda_max of {block.name})"
        if program.k and not self.variables:
            return f"it does not take ordinary variables (the problem has {program.k})"
        if program.cones.count and not self.cones:
            return f"it does not take second-order cones (the problem has {program.cones.count})"
        if not program.bounds.all_hard:
            for penalty in sorted(program.bounds.kinds - self.penalties - {Penalty.HARD}):
                if penalty is Penalty.LOG:
                    return "it does not take logarithms of affine expressions"
                paid = "a hinge" if penalty is Penalty.HINGE else SCALARS[penalty].name
                return f"it does not take soft rows with {paid}"
        if self.needs_trace_bound:
            for b, block in enumerate(program.blocks):
                if trace_bound(program, b) is None:
                    rows = f"it needs rows that bound the trace of {block.name}"
                    return f"{rows}, such as bo.trace(X) <= t, or the option trace_bound"
        short = None
        if self.matrices:
            short = shortage(8.0 * self.matrices * sum(order**2 for order in map(_order, program.blocks)))
        if short is not None or self.linear or not program.blocks:
            return short
        if any(program.divergences) or program.cones.count:
            return None
        return f"it does not take a linear objective (of {program.blocks[0].name})"

    def _not_taken(self, nearness: Nearness | None) -> str | None:
        """Return the objective of a block that the route does not take, None if it takes it."""
        if nearness is None:
            return None if "linear" in self.objectives else "a linear objective"
        kinds = dict.fromkeys((DIVERGENCES[nearness.divergence], nearness.kind))
        return next((kind.phrase() for kind in kinds if not any(map(kind.offers, self.objectives))), None)


def _order(block: Block) -> int:
    """Return the order of a block's matrix in a route: for a low-rank ``X0`` that of its range space."""
    X0 = None if block.nearness is None else block.nearness.X0
    return min(block.n, X0.factor.shape[1]) if isinstance(X0, LowRank) else block.n


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Constants of the termination monitor, which every method has.

    Each method gathers the constants that change its steps in one class of its own; others stand at the head
    of the chapter that uses them. The status of an answer comes from its certificate and never depends on
    these constants: a bad choice costs time, or an answer. ``benchmarks/tuning.py`` measures the effect of
    each.

    Parameters
    ----------
    farkas_residual : float
        Relative primal residual below which multipliers are tested for a Farkas vector only at steps whose
        number is a power of two. A test costs an eigenvalue.
    farkas_step : int
        First step at which multipliers are tested for a Farkas vector; earlier ones rarely point anywhere.
    progress_ratio : float
        Ratio of the error to that at the last progress that counts as progress.
    """

    farkas_residual: float = 1e-3
    farkas_step: int = 3
    progress_ratio: float = 0.9

    def __post_init__(self) -> None:
        for name in field_names(type(self)):
            _check_constant(name, getattr(self, name), getattr(type(self), name))


def _check_constant(name: str, value: Any, default: Any) -> None:
    """Refuse a value that is not of the kind of the default, or not positive and finite."""
    if isinstance(default, tuple):
        if not isinstance(value, tuple) or not value:
            raise TypeError(f"{name} is {value!r}; expected a tuple of numbers")
        for own in value:
            _check_constant(name, own, default[0])
        return
    whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise TypeError(f"{name} is {value!r}; expected {'an integer' if whole else 'a number'}")
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; expected a positive number")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of every route.

    Parameters
    ----------
    tol : float
        Largest relative gap and residual of an "optimal" answer.
    tol_X : float or None
        Largest certified distance of an entry of ``X`` from the optimum at which Newton's method for nearness
        problems stops, relative to the largest entry of ``X``; where rows fix the diagonal, to
        ``sqrt(X_ii X_jj)``. None for the larger of `tol` and 1e-6. It does not change the status.
    max_iter : int or None
        Limit on cycles, rounds or steps; None for the limit of the route.
    time_limit : float or None
        Limit on the time in seconds.
    proven : bool
        Prove both bounds with all rounding, as :meth:`bregopt.Solution.verify` does. An answer then is
        "optimal" only if the proven interval of the optimum is within `tol`, too; a second solve to a smaller
        tolerance looks for a narrower one where that is needed.
    verbose : bool
        Print a table of the progress.
    callback : callable or None
        Called with a :class:`~bregopt.routes.progress.Step` whenever the certificate is evaluated; True ends
        the solve. Its exceptions reach the caller.
    progress : bool
        Show a bar of the digits of the gap (needs tqdm).
    seed : int, numpy.random.Generator or SeedSequence
        Seed of every random choice; a generator continues from its current state.
    rank_tol : float
        Singular values of a ``LowRank`` factor below this fraction of the largest count as zero.
    tuning : Tuning
        Numerical constants of the method; those of :func:`bregopt.tuning` by default.
    """

    tol: float = 1e-6
    tol_X: float | None = None
    max_iter: int | None = None
    time_limit: float | None = None
    proven: bool = False
    verbose: bool = False
    callback: Watcher | None = None
    progress: bool = False
    seed: Seed = 0
    rank_tol: float = RANK_TOL
    tuning: Tuning = Tuning()

    def __post_init__(self) -> None:
        for name in ("tol", "tol_X", "rank_tol", "time_limit"):
            value = getattr(self, name)
            if value is None and name in ("tol_X", "time_limit"):
                continue
            if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"{name} is {value!r}; expected a number")
            number: Any = value  # not float(value), which fails for very large integers
            if not 0 < number < (LARGEST if name == "time_limit" else 1):
                raise ValueError(f"{name} is {value!r}; expected a number {_EXPECTED[name]}")
            if type(value) is not float:  # NumPy computes with no fraction
                object.__setattr__(self, name, float(number))
        for name, least, largest in (("max_iter", 1, _LARGEST_COUNT), ("seed", 0, math.inf)):
            value = getattr(self, name)
            if value is None and name == "max_iter":
                continue
            if name == "seed" and isinstance(value, np.random.Generator | np.random.SeedSequence):
                continue
            if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
                other = ", a numpy Generator or SeedSequence" if name == "seed" else ""
                raise TypeError(f"{name} is {value!r}; expected an integer{other}")
            if value < least:
                raise ValueError(f"{name} is {value!r}; expected a number above {least - 1}")
            if int(value) > largest:
                raise ValueError(f"{name} is {value!r}; expected at most {largest:.0f}")
        for name in ("proven", "verbose", "progress"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is {getattr(self, name)!r}; expected True or False")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback is {self.callback!r}; expected a function of one argument")
        own = type(type(self).tuning)
        if not isinstance(self.tuning, own):
            found = type(self.tuning).__name__
            raise TypeError(f"tuning is of type {found}; expected {own.__name__}, such as bo.tuning(solver)")

    @cached_property
    def asked_of_X(self) -> float:
        """The distance of entries of ``X`` from the optimum that is asked for."""
        return max(self.tol, _OF_X) if self.tol_X is None else self.tol_X

    def completed(self, program: Program) -> Program:
        """Return the program with the rows that the options add, after its own."""
        return program


class Solver(Protocol):
    """A route. Register a class with :func:`bregopt.register_solver`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    citation: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    Settings: ClassVar[type[Settings]]

    def refusal(self, program: Program, settings: Any) -> str | None:
        """Return the reason why this route does not take the program, beyond its capabilities, or None."""
        ...

    def choice(self, program: Program, settings: Any) -> str:
        """Return the chosen method and the reason, for ``explain``; empty if the route has one method."""
        ...

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        """Solve a reduced program with dense blocks; low-rank blocks are restricted to their range space."""
        ...


def make_settings(solver: type[Solver], options: Mapping[str, Any]) -> Settings:
    """Return the settings of a route; unknown names raise a TypeError before any work."""
    known = field_names(solver.Settings)
    for name in options:
        if name not in known:
            raise TypeError(f"solver {solver.name!r} has no option {name!r}{did_you_mean(name, known)}")
    return solver.Settings(**options)


def behind(names: Sequence[str], method: Method) -> Method:
    """Return a method for original programs from one for reduced programs.

    Parameters
    ----------
    names : sequence of str
        Names of the reductions.
    method : callable
        Solves a program.
    """

    def run(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        presolved = presolve(program, names, settings)
        infeasible = presolved.infeasible()
        if infeasible is not None:
            return infeasible
        begin = None if start is None else presolved.shrink(start)
        margin = presolved.margin
        inside = settings if margin == 1 else replace(settings, tol=margin * settings.tol)
        answer = method(presolved.program, inside, begin, progress.within(presolved))
        return presolved.restore(answer)

    return run
