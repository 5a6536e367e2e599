"""What text formats share: lines with errors that name them, and the refusal of what no format can state."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bregopt.arrays import Array
from bregopt.files import read_bytes, replacing, unpacked
from bregopt.program import Program
from bregopt.records import dataclass

__all__ = ["Lines", "check_linear", "number", "read_latin", "write_ascii"]


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of a text file, comments blanked, and the errors that name one of them."""

    path: Path
    lines: list[str]

    def error(self, line: int, found: str, expected: str) -> ValueError:
        """Return the error for the line with this index."""
        return ValueError(f"{self.path}, line {line + 1}: {found}; expected {expected}")

    def written(self, at: int) -> list[int]:
        """Return the indices of the lines from `at` on that are not blank."""
        return [k for k, text in enumerate(self.lines[at:], start=at) if text.strip()]

    def table(self, which: Sequence[int], columns: Sequence[str]) -> Array:
        """Return the numbers of lines; each line has one number for each of the `columns`.

        Raises
        ------
        ValueError
            If a line has other content; the message names the first such line.
        """
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # lines without a number
            table = np.loadtxt([self.lines[k] for k in which], ndmin=2, comments=None)
            if table.shape == (len(which), len(columns)):
                return table
        return np.array(list(self._rows(which, columns)))  # slower, but names the bad line

    def _rows(self, which: Sequence[int], columns: Sequence[str]) -> Iterator[list[float]]:
        for k in which:
            words = self.lines[k].split()
            if len(words) != len(columns):
                raise self.error(k, f"{len(words)} words", _listed(columns))
            try:
                yield [number(word) for word in words]
            except ValueError as error:
                raise self.error(k, repr(error.args[0]), "a number") from None


def read_latin(path: Path) -> str:
    """Return a text with the line ends of Unix, unpacked if its name ends with ``.gz``.

    Latin-1 decodes every byte, so a comment may have any encoding; words that are no numbers fail later.
    """
    raw = read_bytes(path)
    text = (unpacked(path, raw) if path.suffix.lower() == ".gz" else raw).decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_ascii(path: Path, text: str) -> None:
    """Write a text, packed if the name ends with ``.gz``: without the time of day, so bytes repeat."""
    data = text.encode("ascii")
    with replacing(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data)


def number(word: str) -> float:
    """Return a word as a number; if it is none, raise a ValueError with the word as its argument."""
    if "_" in word:  # Python reads 1_0 as ten
        raise ValueError(word)
    try:
        return float(word)
    except ValueError:
        raise ValueError(word) from None


def _listed(columns: Sequence[str]) -> str:
    *first, last = columns
    return f"{len(columns)} numbers: {', '.join(first)} and {last}" if first else f"1 number: {last}"


def check_linear(program: Program, file: str) -> None:
    """Refuse a program with a divergence, a bound on eigenvalues or a soft row; `file` is the kind of file.

    Raises
    ------
    ValueError
        The message names the term or row.
    """
    for block, divergence in zip(program.blocks, program.divergences, strict=True):
        if divergence is not None:
            raise ValueError(
                f"the objective has the {divergence} divergence of {block.name}; "
                f"{file} takes linear objectives only"
            )
        if block.cap is not None:
            raise ValueError(
                f"lambda_max({block.name}) <= {block.cap:g} is no row; {file} takes rows only. Declare "
                f"S = bo.PSD({block.n}) and the rows {block.name} + S == {block.cap:g} * np.eye({block.n})"
            )
    soft = np.flatnonzero(~program.bounds.hard)
    if len(soft):
        raise ValueError(f"{program.row_name(int(soft[0]))} is soft; {file} takes hard rows only")
