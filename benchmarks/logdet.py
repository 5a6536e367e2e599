"""The log-det family beside its peers: one table a command.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/logdet.py TABLE [--quick] [--data FOLDER]

Calls take turns; ratios are medians of the ratios of the turns. A peer that is not installed is left out.
The table of a full run goes to benchmarks/results/logdet_TABLE.md.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

_RESULTS = Path(__file__).parent / "results"
# Tables, and the modules whose `lines(quick, data)` yields the lines of one.
TABLES: dict[str, str] = {
    "designs": "logdet_designs",
    "ellipsoids": "logdet_ellipsoids",
    "completion": "logdet_completion",
    "lasso": "logdet_lasso",
    "logarithms": "logdet_logarithms",
}


def main() -> None:
    """Print a table, and save that of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", choices=sorted(TABLES))
    parser.add_argument("--quick", action="store_true", help="small orders only; nothing is saved")
    parser.add_argument("--data", type=Path, default=None, help="folder of real matrices")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    found = []
    for line in importlib.import_module(TABLES[options.table]).lines(options.quick, options.data):
        print(line, flush=True)
        found.append(f"{line}\n")
    if not options.quick:
        (_RESULTS / f"logdet_{options.table}.md").write_text("".join(found))


if __name__ == "__main__":
    main()
