"""The demo: four real problems, declared, routed, solved, certified and checked against CVXPY."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bregopt.demo import correlation, cut, kernel, margin
from bregopt.demo.report import Case, Line, summary_table
from bregopt.errors import require
from bregopt.files import replacing

__all__ = ["main"]

_CASES = (
    ("Nearest correlation matrix: ten price series with gaps", correlation.run),
    ("Kernel learning: digits 3, 8, 9, rank 16, 300 pairs", kernel.run),
    ("Soft-margin metric: wine, one triplet a point", margin.run),
    ("Minimum balanced cut: Zachary's karate club", cut.run),
)


def main(output: Path, verbose: bool = True) -> int:
    """Run all cases, save their pictures and print the summary.

    Parameters
    ----------
    output : Path
        Folder for the pictures; created if it does not exist.
    verbose : bool
        Print the progress table of each solve.

    Returns
    -------
    int
        The exit status: 0 if all answers agree with the reference, else 4.
    """
    matplotlib: Any = require("matplotlib", "all")
    matplotlib.use("Agg")
    output.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    for number, (title, run) in enumerate(_CASES, start=1):
        _say(f"\n[{number}/{len(_CASES)}] {title}\n")
        case = run(verbose)
        for finding in case.findings:
            _say(f"  {finding}")
        _say(f"  picture: {_saved(case, output)}")
        lines.extend(case.lines)
    agreed = all(line.agrees for line in lines)
    _say(f"\n{summary_table(lines)}\n")
    _say(
        "Every answer agrees with CVXPY within the certified errors."
        if agreed
        else "NOT every answer agrees."
    )
    return 0 if agreed else 4


def _saved(case: Case, output: Path) -> Path:
    figure_class: Any = require("matplotlib.figure", "plot").Figure
    figure = figure_class(layout="constrained")
    case.draw(figure)
    path = output / f"{case.name}.png"
    with replacing(path) as file:
        figure.savefig(file, dpi=130, format="png")
    return path


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
