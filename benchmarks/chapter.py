"""What the benchmarks of a chapter share: one command prints one of its tables."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Sequence
from pathlib import Path

_RESULTS = Path(__file__).parent / "results"


def print_table(chapter: str, tables: Sequence[str], about: str | None) -> None:
    """Print the table that the command line names, and save that of a full run.

    The module CHAPTER_TABLE yields its lines by `lines(quick, data)`; they go to results/CHAPTER_TABLE.md.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("table", choices=sorted(tables))
    parser.add_argument("--quick", action="store_true", help="small orders only; nothing is saved")
    parser.add_argument("--data", type=Path, default=None, help="folder of real matrices")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    name, found = f"{chapter}_{options.table}", []
    for line in importlib.import_module(name).lines(options.quick, options.data):
        print(line, flush=True)
        found.append(f"{line}\n")
    if not options.quick:
        (_RESULTS / f"{name}.md").write_text("".join(found))
