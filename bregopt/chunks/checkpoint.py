"""The state of a solve in a file, written whole after each step."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["Checkpoint", "State"]


class State(NamedTuple):
    """A factor of the matrix, and the value of every pass.

    Bounds are not stored: the rows may have changed, and a bound of other rows would prove nothing.
    """

    root: Array
    values: list[float]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A file, None for no checkpoints, and the facts by which the problem is known.

    Parameters
    ----------
    path : Path or None
    m : int
        The number of rows.
    divergence : str
    M0 : array of shape (r, r)
    """

    path: Path | None
    m: int
    divergence: str
    M0: Array

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

    def save(self, root: Array, values: list[float]) -> None:
        """Store a state; a file that exists is replaced in one step, so it is whole at any time."""
        if self.path is None:
            return
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            np.savez(file, root=root, values=values, m=self.m, divergence=self.divergence, M0=self.M0)
        os.replace(new, self.path)
