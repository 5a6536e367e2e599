"""Bounds that are theorems, of the problems of SDPLIB, beside those that VSDP publishes.

Bounds are those of SDPLIB's minimization. VSDP's are those of its 2018 tables (github.com/vsdp/vsdp-2020,
doc/res/2018_12): the bounds with MOSEK, and the relative widths with MOSEK and SeDuMi, its two solvers that
prove most of these files. The bounds are printed there with four decimals.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bregopt as bo

INF = math.inf
# name: (lower with MOSEK, upper with MOSEK, relative width with MOSEK, with SeDuMi)
VSDP = {
    "arch0": (-0.56652, -0.55855, 8.0e-03, 2.7e-06),
    "arch8": (-7.057, -7.0349, 3.1e-03, 3.6e-06),
    "control1": (-17.7846, -17.7846, 1.0e-06, 3.0e-08),
    "control3": (-13.6333, -13.6331, 1.5e-05, 8.1e-07),
    "control4": (-19.7943, -19.7933, 4.8e-05, 2.7e-06),
    "control5": (-16.8836, -16.8823, 8.0e-05, 3.0e-05),
    "control7": (-20.6251, -20.6226, 1.2e-04, 4.4e-05),
    "gpp100": (44.9435, INF, INF, INF),
    "gpp124-1": (7.3431, INF, INF, INF),
    "gpp124-2": (46.8623, INF, INF, INF),
    "gpp124-3": (153.0141, INF, INF, INF),
    "gpp124-4": (418.9876, INF, INF, INF),
    "gpp250-1": (-INF, INF, INF, INF),
    "hinf1": (-2.0326, INF, INF, INF),
    "hinf2": (-10.9672, -10.9421, 2.3e-03, 2.1e-02),
    "hinf3": (-56.9409, INF, INF, INF),
    "hinf4": (-274.7643, INF, INF, INF),
    "hinf5": (-362.2816, INF, INF, INF),
    "hinf6": (-448.9291, INF, INF, INF),
    "hinf7": (-INF, INF, INF, INF),
    "hinf8": (-116.1462, INF, INF, INF),
    "hinf9": (-236.2493, -236.2492, 5.1e-07, 1.4e-05),
    "infd1": (-INF, INF, INF, INF),
    "infp1": (-INF, -23.1614, INF, INF),
    "maxG11": (-629.166, -629.1646, 2.1e-06, 6.5e-08),
    "mcp100": (-226.1574, -226.1573, 3.3e-07, 3.1e-08),
    "mcp124-1": (-141.9905, -141.9905, 1.6e-07, 4.3e-08),
    "mcp124-2": (-269.8802, -269.8802, 1.8e-07, 1.3e-08),
    "mcp124-3": (-467.7502, -467.7501, 9.5e-08, 1.2e-08),
    "mcp124-4": (-864.4119, -864.4119, 8.2e-08, 1.1e-08),
    "mcp250-1": (-317.2644, -317.2643, 1.7e-07, 4.3e-08),
    "qap10": (1092.5964, INF, INF, INF),
    "qap5": (436.0, INF, INF, INF),
    "qap7": (424.8172, INF, INF, INF),
    "qap8": (756.949, INF, INF, INF),
    "qap9": (1409.9311, INF, INF, INF),
    "theta1": (-23.0, -23.0, 1.3e-07, 3.2e-07),
    "theta2": (-32.8792, -32.8791, 2.1e-06, 5.0e-07),
    "theta3": (-42.167, -42.1669, 1.9e-06, 1.7e-06),
    "theta4": (-50.3212, -50.3212, 5.3e-07, 2.0e-06),
    "theta5": (-57.2323, -57.2322, 1.3e-06, 2.8e-06),
    "thetaG11": (-400.0, -400.0, 1.5e-09, 3.1e-09),
    "truss1": (9.0, 9.0, 1.7e-08, 7.4e-09),
    "truss2": (123.3804, 123.3804, 8.6e-09, 1.0e-08),
    "truss3": (9.11, 9.11, 3.7e-09, 2.0e-08),
    "truss4": (9.01, 9.01, 2.6e-08, 1.2e-08),
    "truss5": (132.6357, 132.6357, 1.8e-08, 1.5e-08),
    "truss6": (-INF, INF, INF, 1.8e-08),
    "truss7": (900.0014, 900.0028, 1.5e-06, 7.2e-08),
    "truss8": (133.1146, 133.1146, 8.4e-08, 1.5e-08),
}
TITLES = (
    *("file", "lower", "upper", "relative width", "solve", "verify", "further solves"),
    *("VSDP lower, MOSEK", "upper", "width", "width, SeDuMi"),
)
QUICK = ("control1", "gpp100", "hinf9", "infd1", "mcp100", "theta1", "truss1")
TOL = 1e-8
DIGITS = 1e-4  # of VSDP's printed bounds, which have four decimals and up to seven digits


@dataclass(frozen=True)
class Result:
    """Our bounds of a minimization, with CPU times in seconds."""

    name: str
    lower: float
    upper: float
    width: float
    solve: float
    verify: float
    solves: int
    refuted: bool

    @property
    def both(self) -> bool:
        """Whether both bounds are proven and finite."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)

    def contradicts(self, lower: float, upper: float) -> bool:
        """Whether VSDP's interval, as printed, and ours have no common point."""
        slack = DIGITS * (1 + abs(lower) * 1e-2 if math.isfinite(lower) else 1)
        return not self.refuted and (self.lower > upper + slack or self.upper < lower - slack)


def result(path: Path, name: str) -> Result:
    """Return our bounds of a file."""
    problem = bo.read_sdpa(path)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        solution = problem.solve(tol=TOL)
    seconds = time.process_time() - start
    start = time.process_time()
    found = solution.verify()
    proof = time.process_time() - start
    refuted = found.infeasible or found.unbounded
    return Result(
        name, -found.upper, -found.lower, found.relative_width, seconds, proof, found.solves, refuted
    )


def row(own: Result) -> str:
    """Return a line of the table."""
    lower, upper, mosek, sedumi = VSDP[own.name]
    bounds = "proven: no optimum" if own.refuted else f"{own.lower:.9g} | {own.upper:.9g}"
    if own.refuted:
        bounds += " |"
    width = "" if own.refuted else _width(own.width)
    times = f"{own.solve:.3g} | {own.verify:.2g} | {own.solves}"
    theirs = f"{lower:.8g} | {upper:.8g} | {_width(mosek)} | {_width(sedumi)}"
    return f"| {own.name} | {bounds} | {width} | {times} | {theirs} |"


def _width(width: float) -> str:
    return f"{width:.1e}" if math.isfinite(width) else ""


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table, and the counts below it."""
    if data is None:
        raise SystemExit("pass --data FOLDER, a folder with the files of SDPLIB in sdplib/")
    yield f"| {' | '.join(TITLES)} |"
    yield "|---|" + "--:|" * (len(TITLES) - 1)
    found = []
    for name in QUICK if quick else VSDP:
        path = data / "sdplib" / f"{name}.dat-s.gz"
        if path.exists():
            found.append(result(path, name))
            yield row(found[-1])
    if not found:
        raise SystemExit(f"no files of SDPLIB in {data / 'sdplib'}")
    yield from ("", _counts(found))


def _counts(found: Sequence[Result]) -> str:
    """Return the sentence on the counts."""
    widths = [own.width for own in found if own.both]
    counts = [sum(math.isfinite(VSDP[own.name][k]) for own in found) for k in (2, 3)]
    wrong = [own.name for own in found if own.contradicts(*VSDP[own.name][:2])]
    cheap = [own.verify / own.solve for own in found if not own.solves and not own.refuted]
    others = [own.verify / own.solve for own in found if own.solves]
    lower = sum(math.isfinite(own.lower) for own in found)
    return (
        f"Of {len(found)} files, solved to {TOL:g}, both bounds: {len(widths)} (VSDP with MOSEK {counts[0]}, "
        f"with SeDuMi {counts[1]}); lower {lower}; median relative width {np.median(widths):.1e}; proven to "
        f"have no optimum: {sum(own.refuted for own in found)}; intervals that contradict VSDP's: "
        f"{', '.join(wrong) or 'none'}. CPU seconds; one BLAS thread. Without further solves ({len(cheap)} "
        f"files) the proof takes {100 * np.median(cheap):.0f} % of the time of the solve in the median, with "
        f"further solves ({len(others)} files) {100 * np.median(others or [0.0]):.0f} %."
    )
