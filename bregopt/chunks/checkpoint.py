"""The state of a solve in a file, written whole after each pass, by one solve at a time."""

from __future__ import annotations

import hashlib
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.chunks.sources import Source
from bregopt.files import locked, read_arrays, replacing, zipped
from bregopt.records import dataclass

__all__ = ["Checkpoint", "State"]

_FACTS = ("m", "problem", "M0", "data")  # by which the problem is known
_SAMPLE = 4096  # rows of each of three parts of the data, in their digest


class State(NamedTuple):
    """A factor of the best matrix so far, the value of every pass, and numbers that the method goes on from.

    Bounds are not stored: weights may have changed, and a bound of other rows would prove nothing.
    """

    root: Array
    values: list[float]
    numbers: tuple[float, ...]


def _digest_of(*sources: Source | float | None) -> str:
    """Return a SHA-256 of the first, middle and last rows of data; of few rows it has all of them."""
    found = hashlib.sha256()
    for source in sources:
        if not isinstance(source, Source):
            found.update(repr(source).encode())
            continue
        m = len(source)
        found.update(f"{source.shape}".encode())
        for start in sorted({0, max(0, (m - _SAMPLE) // 2), max(0, m - _SAMPLE)}):
            part = source.part(start, min(start + _SAMPLE, m)).read()
            found.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
    return found.hexdigest()


@dataclass(eq=False)
class Checkpoint:
    """A file, None for no checkpoints, and the facts by which the problem is known.

    Parameters
    ----------
    path : Path or None
    m : int
        The number of rows.
    problem : str
        The name of the divergence, or of another problem.
    M0 : array of shape (r, r)
        The start.
    data : str
        The digest of the rows.
    count : int
        How many numbers the method goes on from.
    best : (float, array of shape (r, k), tuple of float) or None
        The least value of the passes that were recorded, the factor of its matrix, and its numbers.
    """

    path: Path | None
    m: int
    problem: str
    M0: Array
    data: str = ""
    count: int = 0
    best: tuple[float, Array, tuple[float, ...]] | None = None

    @classmethod
    def of(
        cls, path: Any, m: int, problem: str, M0: Array, sources: tuple[Any, ...] = (), count: int = 0
    ) -> Checkpoint:
        """Return the checkpoint at a path, of data in `sources`.

        Raises
        ------
        TypeError, ValueError
            If `path` is not a path in an existing folder.
        """
        if path is None:
            return cls(None, m, problem, M0)
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"resume is {path!r}; expected the path of a file")
        if not Path(path).absolute().parent.is_dir():
            raise ValueError(f"resume is {path}; expected a file in a folder that exists")
        return cls(Path(path).absolute(), m, problem, M0, _digest_of(*sources), count)

    def held(self) -> AbstractContextManager[None]:
        """Keep other solves from the file, as :func:`bregopt.files.locked` does."""
        return nullcontext() if self.path is None else locked(self.path, "resume")

    def load(self) -> State | None:
        """Return the stored state, None where there is no file.

        Raises
        ------
        ValueError
            If the file is no checkpoint, or one of another problem.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            stored = read_arrays(self.path)
            state = {name: stored.pop(name) for name in ("root", "values", "numbers", *_FACTS)}
        except (ValueError, KeyError) as error:
            raise ValueError(f"resume is {self.path}, which is no checkpoint of bregopt ({error})") from None
        same = all(np.array_equal(state[name], getattr(self, name)) for name in _FACTS)
        if not same:
            raise ValueError(
                f"resume is {self.path}, the checkpoint of {state['m']} rows, {state['problem']}, order "
                f"{len(np.atleast_1d(state['M0']))}; expected this problem's {self.m} rows, {self.problem}, "
                f"order {len(self.M0)}, the same X0 and the same data: give another file, or delete this one"
            )
        root, values, numbers = (state[name] for name in ("root", "values", "numbers"))
        shaped = root.ndim == 2 and len(root) == len(self.M0) and values.ndim == 1
        numeric = all(part.dtype.kind == "f" for part in (root, values)) and numbers.dtype.kind in "fiu"
        sound = shaped and numeric and numbers.shape == (self.count,)
        if not sound or not np.isfinite(root).all() or not root.any() or np.isnan(values).any():
            raise ValueError(
                f"resume is {self.path}, which was changed: its fields root, values or numbers have other "
                "types or shapes than a solve writes, or NaN; delete it"
            )
        return State(root, values.tolist(), tuple(numbers.tolist()))

    def record(self, value: float, root: Array, values: list[float], numbers: tuple[float, ...] = ()) -> None:
        """Store a pass at ``root root'``; a file that exists is replaced in one step, so it is always whole.

        Parameters
        ----------
        value : float
        root : array of shape (r, k)
        values : list of float
            Of all passes, this one included.
        numbers : tuple of float
            That the method goes on from.
        """
        if self.path is None:
            return
        if self.best is None or value <= self.best[0]:
            self.best = value, root, numbers
        _, root, numbers = self.best
        facts = {name: getattr(self, name) for name in _FACTS}
        with replacing(self.path) as file:
            file.write(zipped({"root": root, "values": values, "numbers": numbers, **facts}))
