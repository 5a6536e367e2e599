"""Files: written whole or not at all; read if they fit in memory, and without pickled objects.

The lines of text formats come last, with errors that name them.
"""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import stat
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np

from bregopt.arrays import Array, check_memory
from bregopt.records import dataclass

# Bytes of memory that a reader needs for each byte of a file. In text, "1," becomes strings and a number. An
# array is copied when it is read, checked and made symmetric.
TEXT, ARRAYS = 30, 4
_CHUNK = 2**24  # bytes that are unpacked at a time
_EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NUMBERS = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}  # the largest size of each kind that is read, in bytes
_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # version 3 differs only in the names of fields
}
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the methods that numpy writes


def path_of(value: Any) -> Path:
    """Return a user's `path`, or raise an error that names it."""
    if not isinstance(value, str | PathLike):
        raise TypeError(f"path is {value!r}; expected a str or a Path")
    return Path(value)


def is_standard(path: Path) -> bool:
    """Whether a path is the standard input or output: ``-``, or ``-`` and an ending, such as ``-.csv``."""
    return path.parent == Path() and path.name.partition(".")[0] == "-"


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a file to write, which takes the place of `path` once it is complete and on the disk.

    Until then, and after any error, `path` has its earlier content. A link at `path` is replaced; the file
    that it leads to stays as it is.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    ValueError
        If `path` is a folder, pipe or device.
    OSError
        If it cannot be written, for example on a full disk; the message names `path`.
    """
    path = Path(path)
    # Random, so that nobody can put a link there first.
    new = path.with_name(f".bregopt-{os.urandom(8).hex()}.new")
    try:
        mode = _mode(path)
        with os.fdopen(os.open(new, _EXCLUSIVE, 0o666), "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            yield cast(BinaryIO, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with suppress(OSError):
            new.unlink()


def _mode(path: Path) -> int | None:
    """Return the permissions of a file that is replaced, None where there is none or a link."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        return None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} cannot be written: it is a folder, pipe or device; expected a file")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
    return stat.S_IMODE(mode)


@contextmanager
def locked(path: Path, name: str) -> Iterator[None]:
    """Keep other solves from a file or folder, by a lock on the file of this path and ``.lock``.

    The lock ends with its process. Where the system has none, solves are not told apart.

    Parameters
    ----------
    path : Path
    name : str
        The argument that is the path, for messages.

    Raises
    ------
    ValueError
        If another solve has it.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    file = path.with_name(f"{path.name}.lock")
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own = os.path.samestat(os.fstat(lock), file.stat())
        except OSError:
            own = False
        if not own:
            raise ValueError(f"{name} is {path}, which another solve writes now; give each solve its own")
        yield
        file.unlink(missing_ok=True)
    finally:
        os.close(lock)


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of the content of a file, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


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


def zipped(arrays: Mapping[str, Any], *, compressed: bool = False) -> bytes:
    """Return the content of an ``.npz`` file with these arrays, to be written at once.

    After an error in the middle of writing, such as a full disk, NumPy leaves an archive open.
    """
    packed = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(packed, **arrays)
    return packed.getvalue()


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file without its byte-order mark; raises as :func:`read_bytes` does."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read as {path.suffix}: it is not UTF-8 text ({error})") from error


def unpacked(path: Path, packed: bytes) -> bytes:
    """Return the content of gzip data; raise a ValueError if it is damaged or larger than memory."""
    import gzip  # few files are packed

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


@contextmanager
def reading(path: Path, name: str = "") -> Iterator[None]:
    """Name the file, and an array in it, in errors of readers of the standard library and of numpy."""
    try:
        yield
    except Exception as error:  # on damaged bytes these readers raise any error, even TokenError
        place = f"{name} of {path}" if name else str(path)
        raise ValueError(f"{place} cannot be read as {path.suffix}: {error}") from error


def read_arrays(path: Path, digest: str | None = None) -> dict[str, Any]:
    """Return all arrays of an ``.npz`` file by name: booleans, numbers and strings, of any shape.

    Parameters
    ----------
    path : Path
    digest : str, optional
        The SHA-256 that the file must have.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, has another digest, holds Python objects or numbers of rare types, or is too large
        for this machine, packed or unpacked; the message names the file and the array.
    """
    content = read_bytes(path, ARRAYS)
    if digest is not None and digest_of(content) != digest:
        raise ValueError(
            f"{path} is not the file that was written with this one: its SHA-256 differs; expected {digest}"
        )
    archive, members = archive_of(path, content)
    return {name: member_of(path, archive, member) for name, member in members.items()}


def archive_of(path: Path, content: bytes) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]:
    """Return an archive, and its members by the names of their arrays; together they fit in memory."""
    with reading(path):
        archive = zipfile.ZipFile(io.BytesIO(content))
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
    check_memory(ARRAYS * sum(member.file_size for member in members.values()), f"{path}, unpacked,")
    return archive, members


def member_of(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Return the array of one member of an archive."""
    with reading(path, member.filename):
        if member.compress_type not in _PACKED:
            raise ValueError("it is packed by a method that numpy does not use")
        content = archive.read(member)  # never more than the size checked above
    return array_of(path, content, member.filename.removesuffix(".npy"))


def array_of(path: Path, content: bytes, name: str = "") -> Any:
    """Return the array in the bytes of an ``.npy`` file; their number must agree with the header."""
    file = io.BytesIO(content)
    with reading(path, name):
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"its format has version {version}; expected one of {list(_HEADERS)}")
        shape, by_columns, dtype = _HEADERS[version](file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects; expected numbers")
        if dtype.kind != "U" and dtype.itemsize > _NUMBERS.get(dtype.kind, 0):
            raise ValueError(f"it holds numbers of type {dtype}; expected float64, int64 or similar")
        found, expected = len(content) - file.tell(), dtype.itemsize * math.prod(shape)
        if found != expected:
            raise ValueError(f"{found} bytes follow the header; expected {expected} for shape {shape}")
        order: Literal["C", "F"] = "F" if by_columns else "C"
        return np.ndarray(shape, dtype, content, offset=file.tell(), order=order).copy(order="K")


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
    if path.suffix.lower() == ".gz":
        import gzip  # few files are packed

        data = gzip.compress(data, mtime=0)
    with replacing(path) as file:
        file.write(data)


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
