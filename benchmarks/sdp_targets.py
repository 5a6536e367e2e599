"""What the table is to show: times beside those of peers, errors, and whether they are reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from sdp_cvxpy import CLARABEL, METHOD, SOLVER

OURS = "bregopt"
HOOKS = (METHOD, SOLVER)
BEST = "the best"
FEASIBLE = 1e-5  # the largest error measure of an answer that counts as the best


@dataclass(frozen=True)
class Result:
    """A solver on an instance: status, CPU seconds, largest DIMACS error, and whether the answer counts.

    `seconds` are without reading the file; `whole` are those of a program's whole process, as others time it.
    """

    solver: str
    says: str
    seconds: float
    whole: float
    error: float
    feasible: bool

    @property
    def ours(self) -> bool:
        """Whether it is a run of ours, by file or through CVXPY."""
        return self.solver.startswith(OURS)


Results = Mapping[str, Sequence[Result]]


def best_of(results: Sequence[Result], time: str = "seconds") -> Result | None:
    """Return the fastest peer with an answer that counts, None if there is none."""
    feasible = [r for r in results if r.feasible and not r.ours]
    return min(feasible, key=attrgetter(time), default=None)


@dataclass(frozen=True)
class Target:
    """A row of the summary.

    Parameters
    ----------
    row : str
    instances : sequence of str
    to_reach : str
    reached : function of the results of the instances that were run
        Returns the largest number that was reached, and whether it is enough.
    """

    row: str
    instances: Sequence[str]
    to_reach: str
    reached: Callable[[Results], tuple[str, bool]]

    def line(self, results: Results) -> str | None:
        """Return the row of the summary, None if no instance was run."""
        own = {name: results[name] for name in self.instances if name in results}
        if not own:
            return None
        reached, enough = self.reached(own)
        missing = "" if len(own) == len(self.instances) else f" ({len(own)} of {len(self.instances)} run)"
        return f"| {self.row}{missing} | {self.to_reach} | {reached} | {'yes' if enough else 'no'} |"


def by_file(result: Result) -> bool:
    """Whether it is a run of ours on the file."""
    return result.ours and result.solver not in HOOKS


def by_hooks(result: Result) -> bool:
    """Whether it is a run of ours through CVXPY."""
    return result.solver in HOOKS


def faster(
    row: str,
    instances: Sequence[str],
    limit: float,
    peer: str = BEST,
    runs: Callable[[Result], bool] = by_file,
) -> Target:
    """Return the target that our runs take at most `limit` times the time of a whole process of a peer."""

    def ratio(results: Sequence[Result]) -> float:
        named = next((r for r in results if r.solver == peer), None)
        other = best_of(results, "whole") if peer == BEST else named
        slowest = max(r.whole for r in results if runs(r))
        return np.nan if other is None else slowest / other.whole

    def reached(results: Results) -> tuple[str, bool]:
        ratios = {name: ratio(own) for name, own in results.items()}
        worst = max(ratios, key=lambda name: np.nan_to_num(ratios[name], nan=np.inf))
        solved = all(r.feasible for own in results.values() for r in own if runs(r))
        text = "" if np.isnan(ratios[worst]) else f"{ratios[worst]:.2g}x"
        where = f" on {worst}" if len(results) > 1 else ""
        return f"{text}{where}{'' if solved else ', not all solved'}", solved and ratios[worst] <= limit

    return Target(row, instances, f"at most {limit:g}x {peer}", reached)


def accurate(row: str, instances: Sequence[str], limit: float) -> Target:
    """Return the target that the largest DIMACS error of each run of ours is at most `limit`."""

    def reached(results: Results) -> tuple[str, bool]:
        errors = [max(r.error for r in own if r.ours) for own in results.values()]
        within = sum(error <= limit for error in errors)
        return f"{within} of {len(errors)}, largest {max(errors):.1e}", within == len(errors)

    return Target(row, instances, f"errors at most {limit:.1e}", reached)


def no_worse(row: str, instances: Sequence[str], peers: Sequence[str]) -> Target:
    """Return the target that our largest DIMACS error is no worse than that of the better peer."""

    def reached(results: Results) -> tuple[str, bool]:
        within = 0
        for own in results.values():
            theirs = [r.error for r in own if r.solver in peers]
            mine = max(r.error for r in own if r.ours)
            within += bool(mine <= np.nanmin(theirs, initial=np.inf))
        return f"{within} of {len(results)}", within == len(results)

    return Target(row, instances, f"errors at most those of the better of {' and '.join(peers)}", reached)


def numbered(name: str, *numbers: int) -> list[str]:
    """Return the names of numbered instances."""
    return [f"{name}{number}" for number in numbers]


TARGETS = [
    faster("truss5, 6, 7", numbered("truss", 5, 6, 7), 3, "CSDP"),
    faster("truss8", ["truss8"], 2, "CSDP"),
    faster("control4, 5", numbered("control", 4, 5), 1.2, "CSDP"),
    faster("control7", ["control7"], 1.6, "CSDP"),
    faster("qap9, 10", numbered("qap", 9, 10), 2, "CSDP"),
    accurate("qap9, 10", numbered("qap", 9, 10), 1e-6),
    faster("theta3, 4, 5", numbered("theta", 3, 4, 5), 1.1),
    faster("thetaG11", ["thetaG11"], 1.5),
    faster("200 LMIs of order 8, by file", ["200 LMIs of order 8"], 1),
    faster("200 LMIs of order 8, by both hooks", ["200 LMIs of order 8"], 1, CLARABEL, by_hooks),
    faster("50 LMIs of order 20, by file", ["50 LMIs of order 20"], 1),
    faster("50 LMIs of order 20, by both hooks", ["50 LMIs of order 20"], 1, CLARABEL, by_hooks),
    faster("dense rows, n = 60, m = 300, by file", ["dense rows, n = 60, m = 300"], 1),
    faster("dense rows, by both hooks", ["dense rows, n = 60, m = 300"], 1, CLARABEL, by_hooks),
    faster("200 blocks of order 6, by file", ["200 blocks of order 6"], 2, "CSDP"),
    faster("200 blocks of order 6, by both hooks", ["200 blocks of order 6"], 1, CLARABEL, by_hooks),
    accurate("control1, 3, 4, 5", numbered("control", 1, 3, 4, 5), 1.1e-7),
    accurate("qap5 to 10", numbered("qap", 5, 7, 8, 9, 10), 1e-6),
    no_worse("hinf1 to 9", numbered("hinf", *range(1, 10)), ["CSDP", "SDPA"]),
    faster("20 random SOC + PSD problems", ["20 SOC + PSD problems"], 1, "Clarabel", by_hooks),
    faster("robust beamforming", ["robust beamforming", "outage beamforming"], 1, "Clarabel", by_hooks),
    faster("sensor networks", ["sensor network"], 1, "Clarabel", by_hooks),
    faster("nuclear-norm regression", ["nuclear-norm regression"], 1, "Clarabel", by_hooks),
    faster("lambda_max", ["lambda_max"], 1, "Clarabel", by_hooks),
    faster("Chebyshev LMIs", ["Chebyshev LMI"], 1, "Clarabel", by_hooks),
    faster("band max-cut, width 4", [f"band max-cut, n = {n}" for n in (400, 1000, 2000)], 2, "Clarabel"),
]


def summary(results: Results) -> list[str]:
    """Return the table of the targets whose instances were run, empty if there are none."""
    lines = [line for target in TARGETS if (line := target.line(results)) is not None]
    return ["| | to reach | reached | |", "|---|---|---|---|", *lines, ""] if lines else []
