"""The pages beside their code: the output of each block, and the output that the page shows.

    python docs/pages.py [PAGE ...]
    python docs/pages.py --made-by SCRIPT [--data FOLDER]

runs the blocks of the pages (all of them by default) and writes what they print into the blocks that show
something else. Review it as a diff. ``make docs-numbers`` is the same; tests/project/test_docs.py compares
only. The second form runs the commands that make tables, which may take long, and pastes what they print.

The blocks of a page run in order, in one namespace and one empty folder. A ``text`` block right after a
Python block is the output of that block, and lines after ``$ bregopt ...`` are the output of the command.
Both are compared up to a line of three dots. A TOML block that begins with ``# name.toml`` is that file. Two
comments, which no reader sees, stand on lines of their own before a block, and one before a table:

``<!-- free: iterations, s -->``
    Numbers that differ from machine to machine in the block that follows: those right before or after one of
    the words, in a column under it, or in a line that begins with it.
``<!-- python ... -->``
    A Python block that the page does not show: assertions on what its sentences say.
``<!-- made by: python examples/papers/digits.py --data FOLDER -->``
    The command that prints the table; of the tables it prints, the one with the same titles of columns.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bregopt import cli
from bregopt.divergences import DIVERGENCES
from bregopt.presolve import REQUESTED, UNIVERSAL
from bregopt.routes import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

PART = re.compile(
    r"^```(?P<language>python|text|console|toml)\n(?P<text>.*?)^```$"
    r"|^<!-- (?P<kind>python|free:)(?P<comment>.*?)-->$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ bregopt (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
MADE = re.compile(r"^<!-- made by: (?P<command>.+) -->\n\n(?P<table>(?:\|.*\n)+)", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.?\d*(?:e[-+]?\d+)?(?![A-Za-z_])")
DOTS = "...\n"
GAP = re.compile(r"certified gap +(\S+)$")

# Gaps, residuals and errors in floating point depend on the processor.
SMALL = 1e-5  # the largest number in e-notation that counts as a gap, residual or error
WITHIN = 10.0  # the factor within which two of them agree
ROUND_OFF = 1e-9  # two of them below this always agree


@dataclass(frozen=True)
class Output:
    """The output shown in ``source[start:end]``, the output of the code, and the words of free numbers."""

    start: int
    end: int
    shown: str
    printed: str
    free: tuple[str, ...]

    def differences(self) -> list[str]:
        """Return the lines of the page that the code does not print, each with the one that it does."""
        head, dots, _ = self.shown.partition(DOTS)
        expected, found = _lines(head), _lines(self.printed)
        found = found[: len(expected)] if dots else found
        if len(expected) != len(found):
            return [f"{len(expected)} lines are shown, {len(found)} are printed:\n{self.printed}"]
        pairs = enumerate(zip(expected, found, strict=True))
        return [
            f"shown   {a}\nprinted {b}" for k, (a, b) in pairs if not agree(expected[:k], a, b, self.free)
        ]

    def corrected(self) -> str:
        """Return the output that the page should show.

        Lines that agree stay, so that times change with something else only; counts are brought up to date.
        """
        head, dots, tail = self.shown.partition(DOTS)
        old, new = _lines(head), _lines(self.printed)
        if dots:
            new = new[: len(old)]
        stale = [
            _counts(a) != _counts(b) or not agree(old[:k], a, b, self.free)
            for k, (a, b) in enumerate(zip(old, new, strict=False))
        ]
        table = any("---" in line for line in old)  # whose columns have the width of their numbers
        if len(old) == len(new) and not (table and any(stale)):
            new = [b if wrong else a for a, b, wrong in zip(old, new, stale, strict=True)]
        return "\n".join(new) + "\n" + dots + tail


def agree(above: list[str], shown: str, printed: str, free: tuple[str, ...]) -> bool:
    """Whether a line of a page agrees with the printed line, numbers to the digits that are shown.

    A value and its bound have no more digits than the certified gap at the end of their line leaves them.

    Parameters
    ----------
    above : list of str
        The lines over it, with the titles of columns.
    """
    if _words(shown) != _words(printed):
        return False
    proven = GAP.search(shown)
    within = float(proven.group(1)) if proven else 0.0
    pairs = zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True)
    return all(_same(a.group(), b.group(), within) or _is_free(above, shown, a, free) for a, b in pairs)


def _lines(text: str) -> list[str]:
    return text.strip("\n").splitlines()


def _words(line: str) -> str:
    """Return a line without its numbers; spaces and rules may be of any length."""
    return " ".join(re.sub(r"-{3,}", "---", NUMBER.sub("#", line)).split())


def _counts(line: str) -> list[str]:
    return [number for number in NUMBER.findall(line) if number.isdigit()]


def _same(shown: str, printed: str, within: float = 0.0) -> bool:
    """Whether two numbers agree, to their digits or `within` a certified gap, relative to them."""
    a, b = float(shown), float(printed)
    if "e" in shown and max(abs(a), abs(b)) <= SMALL:
        low, high = sorted((abs(a), abs(b)))
        return high <= ROUND_OFF or high <= WITHIN * low
    unit = max(_unit(shown), _unit(printed))
    if unit == 1 and "e" not in shown:
        return a == b
    return abs(a - b) <= max(1.01 * unit, within * abs(a))


def _unit(number: str) -> float:
    """Return the value of one unit in the last digit."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _is_free(above: list[str], line: str, number: re.Match[str], free: tuple[str, ...]) -> bool:
    before, after = re.findall(r"[\w%]+", line[: number.start()]), re.findall(r"[\w%]+", line[number.end() :])
    near = {*before[:1], *before[-1:], *after[:1]}
    ends = {
        title.group() for row in above for title in re.finditer(r"\w+", row) if title.end() == number.end()
    }
    return bool((near | ends) & set(free))


def run(page: Path) -> Iterator[Output]:
    """Run the blocks of a page in an empty folder, and yield what it shows and what they print."""
    source, namespace = page.read_text(), {"__name__": "page"}
    registries: list[dict[str, Any]] = [registry._registered, DIVERGENCES, UNIVERSAL, REQUESTED]
    before = [dict(held) for held in registries]  # a page may add to them
    os.environ["MPLBACKEND"] = "Agg"
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("error")
            yield from _outputs(source, page.name, namespace)
    finally:
        for held, known in zip(registries, before, strict=True):
            held.clear()
            held.update(known)


def _outputs(source: str, name: str, namespace: dict[str, Any]) -> Iterator[Output]:
    printed, free, end = "", (), 0
    for part in PART.finditer(source):
        if source[end : part.start()].strip():
            printed, free = "", ()
        end = part.end()
        language, text = part["language"] or part["kind"], part["text"] or part["comment"]
        if language == "free:":
            free = tuple(word.strip() for word in text.split(","))
        elif language == "python":
            printed = _printed(lambda text=text: exec(compile(text, name, "exec"), namespace))
        elif language == "text":
            if printed:
                yield Output(part.start("text"), part.end("text"), text, printed, free)
            printed, free = "", ()
        elif language == "console":
            yield from _commands(text, part.start("text"), free)
            free = ()
        elif file := re.match(r"# (\S+\.toml)\n", text):
            Path(file.group(1)).write_text(text)


def _commands(text: str, start: int, free: tuple[str, ...]) -> Iterator[Output]:
    """Run the commands of a block; one whose file the page did not make is only parsed."""
    for command in COMMAND.finditer(text):
        arguments = shlex.split(command.group(1))
        options = cli._parser().parse_args(arguments)
        if not getattr(options, "file", Path("no file")).exists():
            continue
        printed = _printed(lambda arguments=arguments: _checked(cli.main(arguments)))
        if command.group(2).strip():
            yield Output(start + command.start(2), start + command.end(2), command.group(2), printed, free)


def _checked(status: int) -> None:
    if status:
        raise RuntimeError(f"the command ended with status {status}")


def _printed(call: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        call()
    return output.getvalue()


def uses() -> dict[str, tuple[str, list[str]]]:
    """Return the shortest use of each public name, and other words for it, of docs/reference/uses.py."""
    source = (ROOT / "docs" / "reference" / "uses.py").read_text()
    parts = re.findall(r"^# (bregopt[\w.]+)(?:: (.*))?\n((?:.+\n)+)", source, re.MULTILINE)
    return {
        name: (code.rstrip(), [word for word in words.split(", ") if word]) for name, words, code in parts
    }


def experimental() -> list[str]:
    """Return the names in the reference that may change without a warning, as docs/upgrade.md says."""
    listed = (ROOT / "docs" / "upgrade.md").read_text().partition("<!-- experimental -->")[2].split("\n\n")[1]
    reference = (ROOT / "docs" / "reference" / "index.md").read_text()
    names = re.findall(r"^   (bregopt\.[\w.]+)$", reference, re.MULTILINE)
    stable = re.compile(r"bregopt\.(\w+|cvxpy\.\w+|learn\.\w+|online\.\w+)")
    return [name for name in names if not stable.fullmatch(name) or f"`{name}`" in listed]


def refresh(page: Path) -> int:
    """Write what the blocks print into a page where it shows something else; return how many were wrong."""
    source, wrong = page.read_text(), 0
    for output in reversed(list(run(page))):
        corrected = output.corrected()
        wrong += corrected != output.shown
        source = source[: output.start] + corrected + source[output.end :]
    if wrong:
        page.write_text(source)
    return wrong


def titles(table: str) -> list[str]:
    """Return the titles of the columns of a table in Markdown."""
    return [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]


def remake(script: str, data: Path | None) -> None:
    """Run the commands that name a script and paste the tables they print into the pages, in their order."""
    printed: dict[str, list[str]] = {}

    def pasted(made: re.Match[str]) -> str:
        command, old = made["command"], made["table"]
        if script not in command:
            return made.group()
        if command not in printed:
            printed[command] = TABLE.findall(_output_of(command, data))
        new = next(table for table in printed[command] if titles(table) == titles(old))
        printed[command].remove(new)
        heading = old.splitlines(keepends=True)[:2]  # with the page's alignment
        return f"<!-- made by: {command} -->\n\n" + "".join([*heading, *new.splitlines(keepends=True)[2:]])

    for page in PAGES:
        page.write_text(MADE.sub(pasted, page.read_text()))


def _output_of(command: str, data: Path | None) -> str:
    if "FOLDER" in command and data is None:
        raise SystemExit(f"{command}: say by --data where the data are")
    with tempfile.TemporaryDirectory() as folder:
        _, script, *arguments = (str(data) if word == "FOLDER" else word for word in shlex.split(command))
        call = [sys.executable, str(ROOT / script), *arguments]
        return subprocess.run(call, check=True, capture_output=True, text=True, cwd=folder).stdout


def main() -> None:
    """Refresh the pages, or the tables, that were asked for."""
    parser = argparse.ArgumentParser(description="Write what the blocks of the pages print into them.")
    parser.add_argument("pages", nargs="*", type=Path, help="all of them by default")
    parser.add_argument("--made-by", metavar="SCRIPT", help="make the tables of this script instead")
    parser.add_argument("--data", type=Path, help="the FOLDER of the script")
    options = parser.parse_args()
    if options.made_by:
        remake(options.made_by, options.data and options.data.resolve())
        return
    for page in [page.resolve() for page in options.pages] or PAGES:
        wrong = refresh(page)
        if wrong:
            sys.stdout.write(f"{page.relative_to(ROOT)}: {wrong} blocks written\n")


if __name__ == "__main__":
    main()
