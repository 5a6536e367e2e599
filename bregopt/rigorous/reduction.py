"""The problem that proofs are about: blocks on faces and ranges, where they have an interior."""

from __future__ import annotations

from typing import NamedTuple

from bregopt.arrays import Array
from bregopt.rigorous.data import Data
from bregopt.rigorous.faces import on_faces
from bregopt.rigorous.ranges import on_ranges

__all__ = ["Reduced", "reduced"]


class Reduced(NamedTuple):
    """A problem with the same optimum, and a matrix near ``H`` of each block ``X = H M H'``, else None."""

    data: Data
    bases: tuple[Array | None, ...]


def reduced(data: Data) -> Reduced:
    """Return the problem on the faces of its rows and the ranges of low-rank ``X0``.

    Raises
    ------
    ValueError
        If its rows have too many terms to be listed.
    """
    data, faces = on_faces(data)
    data, ranges = on_ranges(data)
    return Reduced(data, tuple(P if Q is None else Q for P, Q in zip(faces, ranges, strict=True)))
