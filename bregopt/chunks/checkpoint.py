"""The state of a solve in a file, written whole after each pass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["Checkpoint", "State"]

_FACTS = ("m", "problem", "M0")  # by which the problem is known


class State(NamedTuple):
    """A factor of the best matrix so far, the value of every pass, and numbers that the method goes on from.

    Bounds are not stored: the rows may have changed, and a bound of other rows would prove nothing.
    """

    root: Array
    values: list[float]
    numbers: tuple[float, ...]


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
    best : (float, array of shape (r, k), tuple of float) or None
        The least value of the passes that were recorded, the factor of its matrix, and its numbers.
    """

    path: Path | None
    m: int
    problem: str
    M0: Array
    best: tuple[float, Array, tuple[float, ...]] | None = None

    @classmethod
    def of(cls, path: Any, m: int, problem: str, M0: Array) -> Checkpoint:
        """Return the checkpoint at a path.

        Raises
        ------
        TypeError, ValueError
            If `path` is not a path in an existing folder.
        """
        if path is None:
            return cls(None, m, problem, M0)
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"resume is {path!r}; expected the path of a file")
        if not Path(path).resolve().parent.is_dir():
            raise ValueError(f"resume is {path}; expected a file in a folder that exists")
        return cls(Path(path).resolve(), m, problem, M0)

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
            with np.load(self.path, allow_pickle=False) as stored:
                state = {name: stored[name] for name in ("root", "values", "numbers", *_FACTS)}
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise ValueError(f"resume is {self.path}, which is no checkpoint of bregopt ({error})") from None
        same = state["m"] == self.m and state["problem"] == self.problem
        if not same or not np.array_equal(state["M0"], self.M0):
            raise ValueError(
                f"resume is {self.path}, the checkpoint of {state['m']} rows, {state['problem']}, order "
                f"{len(state['M0'])}; expected this problem's {self.m} rows, {self.problem}, order "
                f"{len(self.M0)} and the same X0: give another file, or delete this one"
            )
        return State(state["root"], state["values"].tolist(), tuple(state["numbers"].tolist()))

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
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            np.savez(file, root=root, values=values, numbers=numbers, **facts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
