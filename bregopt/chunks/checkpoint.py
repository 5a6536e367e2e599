"""The state of a solve in a file, written whole after each pass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["Checkpoint", "State"]


class State(NamedTuple):
    """A factor of the best matrix so far, and the value of every pass.

    Bounds are not stored: the rows may have changed, and a bound of other rows would prove nothing.
    """

    root: Array
    values: list[float]


@dataclass(eq=False)
class Checkpoint:
    """A file, None for no checkpoints, and the facts by which the problem is known.

    Parameters
    ----------
    path : Path or None
    m : int
        The number of rows.
    divergence : str
    M0 : array of shape (r, r)
    best : (float, array of shape (r, r)) or None
        The least value of the passes that were recorded, and the factor of its matrix.
    """

    path: Path | None
    m: int
    divergence: str
    M0: Array
    best: tuple[float, Array] | None = None

    @classmethod
    def of(cls, path: Any, m: int, divergence: str, M0: Array) -> Checkpoint:
        """Return the checkpoint at a path.

        Raises
        ------
        TypeError, ValueError
            If `path` is not a path in an existing folder.
        """
        if path is None:
            return cls(None, m, divergence, M0)
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"resume is {path!r}; expected the path of a file")
        if not Path(path).resolve().parent.is_dir():
            raise ValueError(f"resume is {path}; expected a file in a folder that exists")
        return cls(Path(path).resolve(), m, divergence, M0)

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
                state = {name: stored[name] for name in ("root", "values", "m", "divergence", "M0")}
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise ValueError(f"resume is {self.path}, which is no checkpoint of bregopt ({error})") from None
        same = state["m"] == self.m and state["divergence"] == self.divergence
        if not same or not np.array_equal(state["M0"], self.M0):
            raise ValueError(
                f"resume is {self.path}, the checkpoint of {state['m']} rows, {state['divergence']}, order "
                f"{len(state['M0'])}; expected this problem's {self.m} rows, {self.divergence}, order "
                f"{len(self.M0)} and the same X0: give another file, or delete this one"
            )
        return State(state["root"], state["values"].tolist())

    def record(self, value: float, root: Array, values: list[float]) -> None:
        """Store a pass at ``root root'``; a file that exists is replaced in one step, so it is always whole.

        Parameters
        ----------
        value : float
        root : array of shape (r, r)
        values : list of float
            Of all passes, this one included.
        """
        if self.path is None:
            return
        if self.best is None or value <= self.best[0]:
            self.best = value, root
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            np.savez(file, root=self.best[1], values=values, m=self.m, divergence=self.divergence, M0=self.M0)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
