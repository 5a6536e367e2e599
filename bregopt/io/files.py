"""Bytes and lines of files: regular files only, and never more than memory holds, packed or unpacked."""

from __future__ import annotations

import gzip
import io
import stat
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.memory import check_memory

__all__ = ["ARRAYS", "Lines", "is_standard", "number", "path_of", "read_bytes", "read_text", "unpacked"]

# Bytes of memory that a reader needs for each byte of a file. In text, "1," becomes strings and a number. An
# array is copied when it is read, checked and made symmetric.
TEXT, ARRAYS = 30, 4
_CHUNK = 2**24  # bytes that are unpacked at a time


def path_of(value: Any) -> Path:
    """Return a user's `path`, or raise an error that names it."""
    if not isinstance(value, str | PathLike):
        raise TypeError(f"path is {value!r}; expected a str or a Path")
    return Path(value)


def is_standard(path: Path) -> bool:
    """Whether a path is the standard input or output: ``-``, or ``-`` and an ending, such as ``-.csv``."""
    return path.parent == Path() and path.name.partition(".")[0] == "-"


def read_bytes(path: Path, memory: int = TEXT) -> bytes:
    """Return the content of a file, or of the standard input.

    Parameters
    ----------
    path : Path
        ``-``, also with an ending, is the standard input.
    memory : int
        Bytes of memory that its reader needs for each byte of the file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is a folder, pipe or device, may not be read, or is too large for this machine.
    """
    if is_standard(path):
        return _from_parts(sys.stdin.buffer, path, memory)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} cannot be read: it is a folder, pipe or device; expected a file")
        check_memory(memory * found.st_size, str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file without its byte-order mark; raises as :func:`read_bytes` does."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read as {path.suffix}: it is not UTF-8 text ({error})") from error


def unpacked(path: Path, packed: bytes) -> bytes:
    """Return the content of gzip data; raise a ValueError if it is damaged or larger than memory."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            return _from_parts(file, f"{path}, unpacked,", TEXT)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as gzip: {error}") from error


def _from_parts(file: Any, name: object, memory: int) -> bytes:
    """Return the content of a stream whose size is not known; refuse it once it is too large for memory."""
    parts: list[bytes] = []
    while part := file.read(_CHUNK):
        parts.append(part)
        check_memory(memory * _CHUNK * len(parts), str(name))
    return b"".join(parts)


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
