"""A test-bed of problems whose optimum is known by construction, and the judge of every claim about them.

``python tests/library/truth.py`` draws some 10,000 problems from the families of :mod:`families`, solves each
at one of three tolerances by every way to call bregopt that takes it, and prints the tables of
docs/trust/measurements.md. Each claim is compared with the truth:

false word
    "optimal" with a value that is off by more than the tolerance allows, or without an optimum; "infeasible"
    or "unbounded" of a problem that is not.
error
    `error` below the true error.
bound
    The bound beyond the optimum by more than `error`.
interval
    ``verify()`` excludes the optimum.
accuracy
    An entry of ``X`` off the diagonal farther from the optimum than `accuracy` certifies.
order
    "optimal" with value and bound in the wrong order, in the eight digits that are printed.
gap
    "optimal" with value and bound further apart than the tolerance, relative to the larger.
exception
    The solve raises.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from families import FAMILIES, cases
from families.case import Case, rotation, sym
from families.statements import SPOILS, spoiled

import bregopt as bo

__all__ = ["FAMILIES", "ROUTES", "TOLS", "Case", "Tally", "answer", "cases", "judge", "rotation", "sym"]

TOLS = (1e-4, 1e-6, 1e-8)
SLACK = 1.1  # tolerances that a value may be off
BLURRED = (
    100.0  # the same where the tolerance blurs whether there is an optimum, or one side does not attain it
)
PROVEN = (
    "path",
    "bregman",
    "psdboost",
    "lowrank",
    "definiteboost",
    "cvxpy",
    "method",
    "spoiled",
)  # by verify()


REFERENCE = "cvxpy"
OTHERS = (REFERENCE, "spoiled")  # whose losses are not bregopt's

# --- Judging ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The claims of an answer compared with the truth: the status, and what is wrong."""

    status: str
    false_word: bool = False
    error: bool = False
    bound: bool = False
    interval: bool = False
    accuracy: bool = False
    order: bool = False
    gap: bool = False
    exception: bool = False
    says: str = ""

    @property
    def wrong(self) -> list[str]:
        """The claims that are wrong."""
        return [claim for claim in CLAIMS if getattr(self, claim)]

    @property
    def true(self) -> bool:
        """Whether no claim is wrong."""
        return not self.wrong


CLAIMS = tuple(field.name for field in fields(Verdict) if field.type == "bool")


def judge(
    case: Case,
    tol: float,
    status: str,
    value: float,
    bound: float,
    error: float,
    *,
    maximize: bool = False,
    interval: tuple[float, float] | None = None,
    farther: float = -np.inf,
    spoiled: bool = False,
) -> Verdict:
    """Return the verdict on an answer.

    Parameters
    ----------
    case : Case
    tol : float
    status : str
    value, bound, error : float
        Those of the answer; NaN if they are unknown.
    maximize : bool
    interval : pair of float, optional
        The bounds that ``verify()`` proves.
    farther : float
        By how much an entry of ``X`` is farther from the optimum than certified.
    spoiled : bool
        Whether the multipliers are not those of a route: `error`, which is of first order in them, then has
        to hold of an optimal answer only.
    """
    sign, known = -1.0 if maximize else 1.0, np.isfinite(case.value)
    truth = case.value if known else sign * case.value
    excluded = False
    if interval is not None and (case.attained or case.exact):
        room = (0.0 if not known else 2**-51 * abs(truth)) if case.exact else case.round_off
        excluded = not interval[0] - room <= truth <= interval[1] + room
    says = f"{value!r}, bound {bound!r}, error {error!r}, interval {interval}, truth {truth!r}"
    if status in ("infeasible", "unbounded"):
        false_word = case.value != (np.inf if status == "infeasible" else -np.inf)
        return Verdict(status, false_word=false_word, interval=excluded, says=says)
    optimal, regular = status == "optimal", case.distance > 10 * tol
    off, round_off = abs(value - truth), case.round_off
    sizes = [abs(number) for number in (value, bound) if np.isfinite(number)]
    size = max([case.unit / 100, *sizes])
    allowed = (SLACK if case.attained and regular else BLURRED) * tol * size + round_off
    if spoiled:  # `error` is of first order in the multipliers, which are not those of a route
        counts, promised = optimal, max(error, allowed)
    else:
        counts, promised = True, error * (1 + 1e-6) + round_off
    counts = counts and known and case.attained and regular
    crossed = sign * (bound - value)
    return Verdict(
        status,
        false_word=optimal and (off > allowed if known else regular),
        error=counts and off > promised,
        bound=counts and sign * (bound - truth) > promised,
        interval=excluded,
        accuracy=farther > 0,
        order=optimal and case.attained and regular and crossed > 10.0 ** (np.floor(np.log10(size)) - 7),
        gap=optimal and not case.cancels(value) and abs(value - bound) > SLACK * tol * max(sizes) + round_off,
        says=says,
    )


# --- Ways to call bregopt ---------------------------------------------------------------------------


class Found(NamedTuple):
    """What an answer says; the solution, where there is one, says more, with rows in another order."""

    status: str
    value: float
    bound: float = np.nan
    error: float = np.nan
    solution: Any = None
    order: np.ndarray | None = None

    @classmethod
    def of(cls, sol: Any) -> Found:
        """Return what a solution says."""
        return cls(sol.status, sol.value, sol.dual_value, sol.error, sol)


def _directly(case: Case, tol: float, *, solver: str) -> Iterator[Found]:
    yield Found.of(case.make().solve(solver=solver, tol=tol))


def _spoiled(case: Case, tol: float) -> Iterator[Found]:
    """Spoil the answer of a route in one way."""
    problem = case.make()
    route = "bregman" if any(problem.program().divergences) else "path"
    rng = np.random.default_rng(zlib.crc32(f"{case.family} {case.name} {tol}".encode()))
    kind = str(rng.choice(list(SPOILS)))
    yield Found.of(problem.solve(solver=spoiled(route, kind, int(rng.integers(2**32))), tol=tol))


def _many(case: Case, tol: float) -> Iterator[Found]:
    for outcome in bo.solve_many([case.make()], progress=False, tol=tol):
        if isinstance(outcome, Exception):
            raise outcome
        yield Found.of(outcome)


def _spec(case: Case, tol: float) -> Iterator[Found]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.toml"
        case.make().to_spec(path)
        yield Found.of(bo.load_spec(path).problem.solve(tol=tol))


def _conic(case: Case, tol: float) -> Iterator[Found]:
    from bregopt.cvxpy import BREGOPT

    problem = case.make()
    if any(problem.program().divergences):
        raise bo.UnsupportedProblemError("CVXPY has no divergences")
    theirs = problem.to_cvxpy()
    theirs.solve(solver=BREGOPT, tol=tol)
    yield Found(theirs.status, theirs.value)


def _method(case: Case, tol: float) -> Iterator[Found]:
    import bregopt.cvxpy  # noqa: F401 - it registers the method

    problem = case.make()
    if case.exact and not case.well_posed and any(problem.program().divergences):
        raise bo.UnsupportedProblemError(
            "CVXPY gets the logarithm or inverse of X0, rounded: another problem"
        )
    theirs = problem.to_cvxpy()
    theirs.solve(method="bregopt", tol=tol)
    sol = theirs.solver_stats.extra_stats
    if isinstance(sol, bo.Solution) and sol.status == theirs.status and sol.value == theirs.value:
        yield Found.of(sol)
    else:
        yield Found(theirs.status, theirs.value)


def _nearest(case: Case, tol: float) -> Iterator[Found]:
    yield Found.of(bo.nearest_correlation(**_arguments(case), tol=tol))


def _stack(case: Case, tol: float) -> Iterator[Found]:
    """Solve a stack of the matrix with its rows in three orders, cold and in a chain."""
    arguments = _arguments(case)
    A = arguments.pop("A")
    orders = [np.random.default_rng(k).permutation(len(A)) for k in range(3)]

    def stacked(given: Any) -> Any:
        if np.ndim(given) == 2:
            return {k: given[np.ix_(order, order)] for k, order in enumerate(orders)}
        if np.ndim(given) == 1:
            return {k: given[order] for k, order in enumerate(orders)}
        return given

    own = {name: stacked(given) for name, given in arguments.items()}
    for start in (False, "chain"):
        found = bo.nearest_correlation(stacked(A), **own, tol=tol, warm_start=start)
        for k, order in enumerate(orders):
            yield Found.of(found[k])._replace(order=order)


def _arguments(case: Case) -> dict[str, Any]:
    if case.nearest is None:
        raise bo.UnsupportedProblemError("the problem is no nearest correlation")
    return dict(case.nearest)


ROUTES: dict[str, Callable[[Case, float], Iterator[Found]]] = {
    **{
        route: partial(_directly, solver=route)
        for route in ("path", "bregman", "psdboost", "lowrank", "definiteboost", "cvxpy")
    },
    "BREGOPT": _conic,
    "method": _method,
    "nearest_correlation": _nearest,
    "stack": _stack,
    "solve_many": _many,
    "spec": _spec,
    "spoiled": _spoiled,
}


def answer(case: Case, route: str, tol: float) -> Verdict | None:
    """Return the verdict on a route's answer, None if the route does not take the problem.

    Of several answers, the verdict on the first that is wrong.
    """
    import cvxpy as cp

    maximize = isinstance(case.make().objective, bo.Maximize)
    verdict = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for found in ROUTES[route](case, tol):
                interval = None
                if route in PROVEN and found.solution is not None:
                    proof = found.solution.verify(resolve=False)
                    interval = (proof.lower, proof.upper)
                verdict = judge(
                    case,
                    tol,
                    *found[:4],
                    maximize=maximize,
                    interval=interval,
                    farther=_farther(case, found),
                    spoiled=route == "spoiled",
                )
                if not verdict.true:
                    break
        except bo.InfeasibleRowError:
            return judge(case, tol, "infeasible", np.inf, np.inf, np.nan)
        except bo.UnsupportedProblemError:
            return None
        except cp.SolverError as error:
            return Verdict("solver_error", says=str(error))
        except Exception as error:  # whatever it is, a user would see it
            return Verdict("exception", exception=True, says=f"{type(error).__name__}: {error}")
    return verdict


def _farther(case: Case, found: Found) -> float:
    """Return by how much an entry of ``X`` is farther from the optimum than its certified accuracy."""
    sol = found.solution
    accuracy = getattr(sol, "accuracy", None)
    if case.X is None or accuracy is None or sol.X is None:
        return -np.inf
    order = np.arange(len(case.X)) if found.order is None else found.order
    missed = np.abs(np.asarray(sol.X) - case.X[np.ix_(order, order)]) - accuracy.entries
    return float(missed[~np.eye(len(order), dtype=bool)].max()) - 1e-15 * float(np.abs(case.X).max())


# --- The tables -------------------------------------------------------------------------------------

HEADING = "| problems | optimal | no answer, proven | other | " + " | ".join(CLAIMS).replace("_", " ")
HEADING += " | well posed: optimal |"


class Judged(NamedTuple):
    """A verdict, and what it is on."""

    route: str
    tol: float
    family: str
    name: str
    well_posed: bool
    verdict: Verdict


@dataclass(frozen=True)
class Tally:
    """Verdicts, and how many of them are what."""

    verdicts: Sequence[Judged]

    @classmethod
    def of(cls, route: str, tol: float, found: Iterable[Case]) -> Tally:
        """Solve all problems that a route takes."""
        verdicts = [(case, answer(case, route, tol)) for case in found]
        return cls(
            [
                Judged(route, tol, case.family, case.name, case.well_posed and route not in OTHERS, verdict)
                for case, verdict in verdicts
                if verdict is not None
            ]
        )

    @property
    def wrong(self) -> list[str]:
        """The problems with a wrong claim."""
        return [
            f"{', '.join(one.verdict.wrong)}: {_named(one)}" for one in self.verdicts if not one.verdict.true
        ]

    @property
    def lost(self) -> list[str]:
        """The well-posed problems that do not end optimal."""
        return [_named(one) for one in self.verdicts if one.well_posed and one.verdict.status != "optimal"]

    @property
    def well_posed(self) -> int:
        """The number of well-posed problems."""
        return sum(one.well_posed for one in self.verdicts)

    def __str__(self) -> str:
        statuses = Counter(one.verdict.status for one in self.verdicts)
        proven = statuses["infeasible"] + statuses["unbounded"]
        rest = len(self.verdicts) - statuses["optimal"] - proven
        claims = [sum(getattr(one.verdict, claim) for one in self.verdicts) for claim in CLAIMS]
        solved = f"{self.well_posed - len(self.lost)} of {self.well_posed}"
        cells = (len(self.verdicts), statuses["optimal"], proven, rest, *claims, solved)
        return "| " + " | ".join(map(str, cells)) + " |"


def _named(one: Judged) -> str:
    verdict = one.verdict
    return f"{one.route} {one.tol:.0e} {one.family}, {one.name}: {verdict.status} {verdict.says}"


def table(title: str, tallies: Iterable[tuple[str, Tally]]) -> Iterator[str]:
    """Yield the lines of a table with a tally in each line."""
    yield f"| {title} {HEADING}"
    yield "|---" * (HEADING.count("|")) + "|"
    for name, tally in tallies:
        yield f"| {name} {tally}"


def drawn(seed: int, number: int) -> list[Case]:
    """Return one problem of each kind."""
    return [
        case
        for k, family in enumerate(FAMILIES)
        for case in family(np.random.default_rng([seed, number, k]), 1)
    ]


def judged(
    seed: int, number: int, routes: Sequence[str], most: int | None = None
) -> tuple[int, list[Judged]]:
    """Solve one problem of each kind, each at one tolerance; return their number and the verdicts.

    With `most`, a route solves no more than this many, the first that it takes in a random order.
    """
    rng = np.random.default_rng([seed, number])
    kinds = drawn(seed, number)
    found = [(kinds[k], float(rng.choice(TOLS))) for k in rng.permutation(len(kinds))]
    verdicts = [
        one._replace(name=f"{one.name} of round {number}")
        for route in routes
        for one in islice((one for case, tol in found for one in Tally.of(route, tol, [case]).verdicts), most)
    ]
    return len(found), verdicts


def in_own_process(number: int, seed: int, routes: Sequence[str]) -> tuple[int, list[Judged]]:
    """Return what :func:`judged` returns; each route once more in a process of its own if one dies.

    Backends of CVXPY may abort their process. The problems of such a route count as one exception.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(judged, seed, number, routes).result()
        except BrokenProcessPool:
            if len(routes) == 1:
                died = Verdict("exception", exception=True, says="the process died")
                one = Judged(routes[0], TOLS[0], "all", f"round {number}", False, died)
                return len(drawn(seed, number)), [one]
    found = [in_own_process(number, seed, [route]) for route in routes]
    return found[0][0], [one for _, verdicts in found for one in verdicts]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Solve problems of known truth in every way.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="draws of each kind; 100 are 10,000 problems")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--route", choices=ROUTES, action="append", help="all of them by default")
    parser.add_argument("--list", action="store_true", help="name what is wrong and what is lost")
    options = parser.parse_args()
    routes = options.route or list(ROUTES)
    problems, verdicts = 0, []
    with ThreadPoolExecutor(options.jobs) as pool:
        solve = partial(in_own_process, seed=options.seed, routes=routes)
        for count, found in pool.map(solve, range(options.count)):
            problems += count
            verdicts += found
    verdicts.sort(key=lambda one: (routes.index(one.route), -one.tol, one.family))
    for line in tables(problems, verdicts):
        print(line)
    if options.list:
        tally = Tally(verdicts)
        print("", *(f"wrong {line}" for line in tally.wrong), sep="\n")
        print(*(f"lost {line}" for line in tally.lost), sep="\n")


def tables(problems: int, verdicts: Sequence[Judged]) -> Iterator[str]:
    """Yield the lines of the tables: of all ways to solve, and of bregopt's own by tolerance and family."""
    yield f"{problems} problems, {len(verdicts)} answers"
    own = [one for one in verdicts if one.route != REFERENCE]
    groups: dict[str, Callable[[Judged], Any]] = {
        "by": lambda one: one.route,
        "tol": lambda one: f"{one.tol:.0e}",
        "family": lambda one: one.family,
    }
    for title, key in groups.items():
        counted = verdicts if title == "by" else own
        names = dict.fromkeys(map(key, counted))
        parts = [(name, Tally([one for one in counted if key(one) == name])) for name in names]
        yield from ("", *table(title, parts))


if __name__ == "__main__":
    main()
