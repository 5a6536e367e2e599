"""Time and steps of the route `bregman` to a certified gap of 1e-8, against n, m, r and the condition number.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/curves.py [--quick]

A line has the median time of a method on an instance; it includes modeling. All instances are seeded. The
curve of a method ends at the first instance that it does not solve in 30 seconds. The lines go to
benchmarks/results/curves.csv; docs/figures.py draws them.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nearness import (
    Make,
    correlation_problem,
    distance_problem,
    low_rank_problem,
    start_matrix,
    timed,
)

Array = Any
_TOL = 1e-8
_LIMIT = 30.0  # seconds
_FIELDS = ("axis", "divergence", "method", "value", "seconds", "steps", "gap", "status")
_ALL = ("logdet", "von_neumann", "frobenius")


@dataclass(frozen=True)
class Axis:
    """The parameter of a curve, and the instance at each of its values.

    Parameters
    ----------
    name : str
    values, quick : tuple of int or float
        The grid, and a small one.
    instance : callable
        A function of a divergence and a value that returns the model.
    divergences : tuple of str
    """

    name: str
    values: tuple[float, ...]
    quick: tuple[float, ...]
    instance: Callable[[str, Any], Make]
    divergences: tuple[str, ...] = _ALL


def conditioned_matrix(n: int, condition: float, rng: np.random.Generator) -> Array:
    """Return a matrix of trace `n` with random eigenvectors and a geometric spectrum."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    w = np.geomspace(1, 1 / condition, n)
    S = (Q * (w * (n / w.sum()))) @ Q.T
    return (S + S.T) / 2


def _of_order(divergence: str, n: int) -> Make:
    return correlation_problem(divergence, start_matrix(n, np.random.default_rng(n)))


def _of_condition(divergence: str, condition: float) -> Make:
    return correlation_problem(divergence, conditioned_matrix(100, condition, np.random.default_rng(0)))


_MANY = (10, 20, 50, 100, 200, 500, 1000, 2000)
AXES = (
    Axis("n", (20, 50, 100, 200, 500, 1000), (20, 50, 100), _of_order),
    Axis("condition", (1e1, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12), (1e1, 1e6, 1e12), _of_condition),
    Axis("m hard", _MANY, (10, 100), lambda divergence, m: distance_problem(divergence, 100, m, False)),
    Axis("m soft", _MANY, (10, 100), lambda divergence, m: distance_problem(divergence, 100, m, True)),
    Axis(
        "r",
        (5, 10, 20, 50, 100),
        (5, 10),
        lambda divergence, r: low_rank_problem(divergence, 1000, r, 5000),
        ("logdet", "von_neumann"),
    ),
)


def curve(axis: Axis, divergence: str, method: str, values: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """Yield the lines of one curve, up to the first instance that is not solved."""
    for value in values:
        make = axis.instance(divergence, value)
        options = {"method": method, "tol": _TOL, "time_limit": _LIMIT}
        seconds, sol = timed(lambda make=make, options=options: make().solve(solver="bregman", **options))
        cells = (axis.name, divergence, method, f"{value:g}", f"{seconds:.3g}", sol.iterations)
        yield dict(zip(_FIELDS, (*cells, f"{sol.gap:.0e}", sol.status), strict=True))
        if sol.status != "optimal":
            return


def main() -> None:
    """Measure all curves and save them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small grid, not saved")
    quick = parser.parse_args().quick
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore")
    correlation_problem("logdet", np.eye(2))().solve()  # imports on first use are not timed
    lines, shown = [], csv.DictWriter(sys.stdout, _FIELDS, lineterminator="\n")
    shown.writeheader()
    for axis in AXES:
        for divergence in axis.divergences:
            for method in ("newton", "cyclic"):
                for line in curve(axis, divergence, method, axis.quick if quick else axis.values):
                    shown.writerow(line)
                    sys.stdout.flush()
                    lines.append(line)
    if quick:
        return
    target = Path(__file__).parent / "results" / "curves.csv"
    target.parent.mkdir(exist_ok=True)
    with target.open("w", newline="") as file:
        saved = csv.DictWriter(file, _FIELDS, lineterminator="\n")
        saved.writeheader()
        saved.writerows(lines)


if __name__ == "__main__":
    main()
