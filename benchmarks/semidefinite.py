"""Semidefinite programs by bregopt and its peers: median times and error measures, with one BLAS thread.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/semidefinite.py [--only truss blocks] [--quick]

CSDP, SDPA and DSDP are called as programs (Debian: coinor-csdp, sdpa, dsdp), SCS and Clarabel on conic data
built directly and through CVXPY. The same code computes the errors of all answers from the data. A table of
what is to be reached comes first. The tables of a full run go to benchmarks/results/semidefinite.md.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

from sdp_cone_table import cone_table
from sdp_conic import DIRECT
from sdp_cuts import cut_table
from sdp_peers import PROGRAMS, TOL, blas_of
from sdp_problems import GROUPS, QUICK, instances
from sdp_small import small_table
from sdp_table import Settings, solve_table
from sdp_targets import FEASIBLE, Result, summary

_ROOT = Path(__file__).resolve().parents[1]
_GROUPS = (*GROUPS, "cones", "cuts", "small")

_PREAMBLE = """# Semidefinite programs beside their peers

maximize <F0, X> subject to <F_i, X> = b_i, X psd; its dual minimizes b'y with Z = sum y_i F_i - F0 psd.
One BLAS thread; medians of up to {repeats} runs, one where a run takes 5 s or more; stopped at {cap:g} s
of CPU; every solver is asked for {tol:g}.

The DIMACS errors are recomputed from the data and each solver's X, y, Z: rows of X, cone of X, rows of Z,
cone of Z, gap by the objectives, gap by <X, Z>. Times of CSDP, SDPA and DSDP include starting and reading
the file, not writing the answer; those through CVXPY its compilation; those of the others none of these. The
last column is the CPU time over ours by file, without the reading where the program tells it (SDPA, DSDP),
and in our rows that of the fastest peer whose first five errors are at most {feasible:g}. Below 0.05 s times
mean little. Clarabel decomposes sparse cones, its default.

The first table has what is to be reached, by the slowest of our runs on each instance, and whether it is:
our solve over the whole process of a program, as such programs are timed elsewhere.

BLAS of the programs: {blas}.
"""


def preamble(settings: Settings) -> list[str]:
    """Return the text above the tables."""
    files = [f"{peer.name} {blas_of(peer.program, settings.environment)}" for peer in PROGRAMS]
    text = _PREAMBLE.format(
        repeats=settings.repeats, cap=settings.cap, tol=TOL, feasible=FEASIBLE, blas=", ".join(files)
    )
    return [*text.splitlines(), ""]


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    names = [peer.name for peer in (*PROGRAMS, *DIRECT)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help=f"groups ({', '.join(_GROUPS)}) or instances"
    )
    parser.add_argument("--solvers", nargs="+", choices=names, default=names, help="peers to run")
    parser.add_argument("--route", default="path", help="our route")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is taken")
    parser.add_argument("--cap", type=float, default=60.0, help="CPU seconds allowed for one solve")
    parser.add_argument("--quick", action="store_true", help="small instances only")
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared" / "data", help="data folder")
    parser.add_argument(
        "--blas", type=Path, help="folder of the libblas.so.3 and liblapack.so.3 of the programs"
    )
    parser.add_argument("--output", type=Path, help="where the tables go; for a full run the results folder")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 first")
    if not options.quick and not options.only and options.output is None:
        options.output = Path(__file__).parent / "results" / "semidefinite.md"
    return options


def main() -> None:
    """Run the chosen instances and save the tables."""
    options = arguments()
    warnings.simplefilter("ignore")
    environment = dict(os.environ)
    if options.blas is not None:
        environment["LD_LIBRARY_PATH"] = str(options.blas.resolve())
    settings = Settings(options.repeat, options.cap, options.route, options.solvers, environment)
    wanted = options.only or _GROUPS
    chosen = [
        instance
        for instance in instances(options.data)
        if {instance.name, instance.group} & set(wanted) and (instance.name in QUICK or not options.quick)
    ]
    lines, results = [], dict[str, list[Result]]()
    if chosen:
        lines, results = solve_table(chosen, settings)
    if "cones" in wanted:
        print()
        added, found = cone_table(options.solvers, options.repeat, options.cap, options.quick)
        lines, results = [*lines, "", *added], results | found
    if "cuts" in wanted:
        lines += ["", *cut_table(options.data, options.cap, options.quick)]
    if "small" in wanted:
        lines += ["", *small_table(settings.repeats)]
    above = [*preamble(settings), *summary(results)]
    print("\n".join(["", *above]))
    if options.output is not None:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text("\n".join([*above, *lines]) + "\n")


if __name__ == "__main__":
    main()
