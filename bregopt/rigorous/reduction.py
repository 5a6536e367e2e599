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
    bases: tuple[Array | None, ...] = (None,) * len(data.matrices)
    for reduction in (on_faces, on_ranges):
        data, found = reduction(data)
        while any(H is not None for H in found):  # a face may have further faces
            bases = tuple(map(_product, bases, found))
            data, found = reduction(data)
    return Reduced(data, bases)


def _product(H: Array | None, M: Array | None) -> Array | None:
    return M if H is None else H if M is None else H @ M
