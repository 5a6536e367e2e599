"""Times of two versions of bregopt on the small problems of threads.py, measured in turns.

    make bench BASE=main [HEAD=.]
    python benchmarks/compare.py main [.] [--rounds 8] [--seconds 0.2] [--only max_cut]
    python benchmarks/compare.py main [.] --tables [--data FOLDER] [--rounds 3]

A version is a commit, whose files git writes to a temporary folder, or a folder with a checkout; ``.`` is the
current state of the files. Both versions run the same calls with the same Python and dependencies. A round
has a process for each version. The two take turns call by call on one core, so that a slower machine slows
both. A time is CPU seconds with one BLAS thread. The table has the medians over the rounds, of times and of
ratios, and the quartiles of the ratios. It marks a call if three quarters of the rounds change by more than
5 %.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from pathlib import Path

import threads

ROOT = Path(__file__).resolve().parents[1]
CHANGE = 0.05  # relative change of a time beyond which a call is marked
HEAD = "| call | base, ms | head, ms | ratio | quartiles | |\n|---|--:|--:|--:|--:|---|\n"


def timed(call):
    """Return the CPU seconds of a call, or None if this version refuses it."""
    begin = time.process_time()
    try:
        call()
    except Exception as error:  # a version may lack a function of a call
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return None
    return time.process_time() - begin


def child():
    """Print the path of bregopt and the names of the calls; then time the call that each input line names."""
    warnings.simplefilter("ignore")
    import bregopt

    calls = dict(threads.ready_made())
    if sys.argv[2:]:
        from table_calls import of_tables

        calls = dict(of_tables(Path(sys.argv[2])))
    print(json.dumps([bregopt.__file__, list(calls)]), flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(calls[line.rstrip("\n")])), flush=True)


class Version:
    """A process that imports one version and times calls on request."""

    def __init__(self, folder, arguments):
        environment = os.environ | dict.fromkeys(threads.VARIABLES, "1") | {"PYTHONPATH": str(folder)}
        command = [sys.executable, __file__, "--child", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)
        source, self.calls = self.answer()
        if not Path(source).is_relative_to(folder):
            sys.exit(f"Python imports bregopt from {source}, not from {folder}.")

    def answer(self):
        """Return the next line that the process prints."""
        line = self.process.stdout.readline()
        if not line:
            sys.exit("A version ended; its own message is above.")
        return json.loads(line)

    def time(self, name):
        """Return the CPU seconds of a call."""
        print(name, file=self.process.stdin, flush=True)
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def checkout(version, folder):
    """Return a folder with the files of a version: a folder itself, or a new one for a commit."""
    if Path(version).is_dir():
        return Path(version).resolve()
    tar = Path(f"{folder}.tar")
    git = ["git", "-C", str(ROOT), "archive", "--output", str(tar), version, "bregopt"]
    if subprocess.run(git, check=False).returncode:
        sys.exit(f"{version} is neither a folder nor a commit.")
    with tarfile.open(tar) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4
        archive.extractall(folder)
    return folder.resolve()


def in_turns(base, head, name, seconds):
    """Return the median times of both versions and their median ratio, or None if one refuses the call."""
    if None in (base.time(name), head.time(name)):  # the first call of a process loads and caches
        return None
    pairs, order = [], (base, head)
    while not pairs or sum(map(sum, pairs)) < 2 * seconds:
        spent = {version: version.time(name) for version in order}
        pairs.append((spent[base], spent[head]))
        order = order[::-1]
    ratios = [after / before for before, after in pairs]
    return [statistics.median(values) for values in (*zip(*pairs, strict=True), ratios)]


def one_round(folders, arguments, words, seconds, swapped):
    """Yield the name and times of each call in two new processes; with `swapped` the second starts first."""
    with Version(folders[swapped], arguments) as first, Version(folders[not swapped], arguments) as second:
        base, head = (second, first) if swapped else (first, second)
        for name in base.calls:
            if words in name:
                yield name, in_turns(base, head, name, seconds)


def quartiles(values):
    """Return the lower and the upper quartile."""
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return lower, upper


def mark(lower, upper):
    """Return the mark for the quartiles of a ratio: slower, faster or nothing."""
    if lower > 1 + CHANGE:
        return "slower"
    return "faster" if upper < 1 - CHANGE else ""


def row(name, rounds):
    """Return a line of the table and its ratio, or None if a version refuses the call."""
    if None in rounds:
        return f"| {name} | | | | | refused |", None
    base, head, ratios = zip(*rounds, strict=True)
    ratio, (lower, upper) = statistics.median(ratios), quartiles(ratios)
    cells = [f"{1e3 * statistics.median(spent):.2f}" for spent in (base, head)]
    cells += [f"{ratio:.2f}", f"{lower:.2f} to {upper:.2f}", mark(lower, upper)]
    return f"| {name} | {' | '.join(cells)} |", ratio


def main():
    """Measure both versions, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="a commit or a folder")
    parser.add_argument("head", nargs="?", default=".", help="a commit or a folder; default: this folder")
    parser.add_argument("--rounds", type=int, default=8, help="each has processes of its own")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each call and version in a round")
    parser.add_argument("--only", default="", metavar="WORDS", help="calls whose name contains these words")
    parser.add_argument(
        "--tables", action="store_true", help="calls of the saved tables instead of small ones"
    )
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="for --tables")
    options = parser.parse_args()
    arguments = [str(options.data)] if options.tables else []
    times = {}
    if hasattr(os, "sched_setaffinity"):  # cores differ in speed, because other processes run on them
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as scratch:
        names = ("base", options.base), ("head", options.head)
        folders = [checkout(version, Path(scratch) / side) for side, version in names]
        for k in range(options.rounds):
            for name, spent in one_round(folders, arguments, options.only, options.seconds, k % 2 == 1):
                times.setdefault(name, []).append(spent)
            print(f"round {k + 1} of {options.rounds}", file=sys.stderr)
    rows, ratios = zip(*(row(name, rounds) for name, rounds in times.items()), strict=True)
    print(HEAD + "\n".join(rows))
    if known := [ratio for ratio in ratios if ratio is not None]:
        mean = statistics.geometric_mean(known)
        print(f"\n{options.head} takes {mean:.3f} of the time of {options.base}, in the geometric mean")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child()
    else:
        main()
