"""Semidefinite programs in SDPA's sparse form: files, and the error measures of an answer.

maximize  <F0, X>  subject to  <F_i, X> = b_i,  X psd      (its dual:)
minimize  b'y      subject to  Z = sum_i y_i F_i - F0  psd
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

Array = Any
_PLAIN = str.maketrans("{}(),", "     ")


@dataclass(frozen=True)
class SDP:
    """The data of one problem; a diagonal block is the vector of its diagonal.

    Parameters
    ----------
    b : array of shape (m,)
    orders : tuple of int
        Orders of the blocks; negative for diagonal ones, as in the files.
    F : tuple of csr_array of shape (m + 1, size of the block)
        Row `i` holds the block of ``F_i``, row 0 that of ``F0``.
    """

    b: Array
    orders: tuple[int, ...]
    F: tuple[Any, ...]

    @property
    def m(self) -> int:
        """The number of rows."""
        return len(self.b)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each block as an array."""
        return [(n, n) if n > 0 else (-n,) for n in self.orders]

    def apply(self, X: Sequence[Array]) -> Array:
        """Return ``<F_i, X>`` for i = 0 .. m."""
        return sum(F @ X_b.ravel() for F, X_b in zip(self.F, X, strict=True))

    def combine(self, y: Array) -> list[Array]:
        """Return ``sum_i y_i F_i``, i = 0 .. m, by blocks."""
        return [(F.T @ y).reshape(shape) for F, shape in zip(self.F, self.shapes, strict=True)]

    def slack(self, y: Array) -> list[Array]:
        """Return ``sum_i y_i F_i - F0`` for y of shape (m,)."""
        return self.combine(np.concatenate([[-1.0], y]))


@dataclass(frozen=True)
class Point:
    """The point that a solver returns."""

    X: Sequence[Array]
    y: Array
    Z: Sequence[Array]


def objectives(sdp: SDP, point: Point) -> tuple[float, float]:
    """Return ``<F0, X>`` and ``b'y``."""
    return float(sdp.apply(point.X)[0]), float(sdp.b @ point.y)


def dimacs(sdp: SDP, point: Point) -> Array:
    """Return the six DIMACS error measures of an answer, recomputed from the data."""
    primal, dual = objectives(sdp, point)
    size_b = 1 + np.abs(sdp.b).max()
    size_c = 1 + max(np.abs(F[[0]].data).max(initial=0.0) for F in sdp.F)
    slack = sdp.slack(point.y)
    off = np.sqrt(sum(((S - Z) ** 2).sum() for S, Z in zip(slack, point.Z, strict=True)))
    inner = sum(float((X * Z).sum()) for X, Z in zip(point.X, point.Z, strict=True))
    size = 1 + abs(primal) + abs(dual)
    return np.array(
        [
            np.linalg.norm(sdp.apply(point.X)[1:] - sdp.b) / size_b,
            max(0.0, -least_eigenvalue(point.X)) / size_b,
            off / size_c,
            max(0.0, -least_eigenvalue(point.Z)) / size_c,
            (dual - primal) / size,
            inner / size,
        ]
    )


def least_eigenvalue(blocks: Sequence[Array]) -> float:
    """Return the least eigenvalue of a block matrix."""
    return float(min(np.linalg.eigvalsh(B)[0] if B.ndim == 2 else B.min() for B in blocks))


def proof(sdp: SDP, point: Point, side: str) -> float:
    """Return the error of a point as a proof that one side has no feasible point; 0 is a proof.

    There is no y if ``X psd``, ``<F_i, X> = 0``, ``<F0, X> = 1``; no X if ``sum y_i F_i psd``, ``b'y = -1``.
    """
    if side == "y":
        values = sdp.apply(point.X)
        scale, off = values[0], max(np.linalg.norm(values[1:]), -least_eigenvalue(point.X))
    else:
        ray = sdp.combine(np.concatenate([[0.0], point.y]))
        scale, off = -sdp.b @ point.y, -least_eigenvalue(ray)
    return max(off, 0.0) / scale if scale > 0 else np.inf


def read_sdp(path: Path) -> SDP:
    """Read a file in SDPA's sparse format, without bregopt, whose answers are judged by the result."""
    lines = path.read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line[:1] not in ('"', "*"))
    m = int(re.findall(r"\d+", lines[start])[0])
    orders = tuple(int(n) for n in re.findall(r"-?\d+", lines[start + 2]))
    numbers = numbers_of(" ".join(lines[start + 3 :]))
    return sdp_of(numbers[:m], orders, numbers[m:].reshape(-1, 5))


def sdp_of(b: Array, orders: tuple[int, ...], entries: Array) -> SDP:
    """Return a problem from the entries (matrix, block, i, j, value) of upper triangles, counted from 1."""
    F = []
    for k, n in enumerate(orders):
        mine = entries[entries[:, 1] == k + 1]
        i, j = (mine[:, c].astype(int) - 1 for c in (2, 3))
        twice = i != j
        matrix = np.concatenate([mine[:, 0], mine[twice, 0]]).astype(int)
        place = np.concatenate([i * n + j, (j * n + i)[twice]]) if n > 0 else i
        value = np.concatenate([mine[:, 4], mine[twice, 4]])
        F.append(sp.csr_array((value, (matrix, place)), shape=(len(b) + 1, n * n if n > 0 else -n)))
    return SDP(np.asarray(b, dtype=float), orders, tuple(F))


def numbers_of(text: str) -> Array:
    """Return the numbers of a text with SDPA's punctuation."""
    return np.fromstring(text.translate(_PLAIN), sep=" ")


def write_sdp(sdp: SDP, path: Path) -> None:
    """Write a file in SDPA's sparse format, with all digits."""
    header = (sdp.orders, sdp.b.tolist())
    lines = [str(sdp.m), str(len(sdp.orders)), *(" ".join(map(repr, numbers)) for numbers in header)]
    for k, (n, F) in enumerate(zip(sdp.orders, sdp.F, strict=True), 1):
        entries = sp.coo_array(F)
        i, j = np.divmod(entries.col, n) if n > 0 else (entries.col, entries.col)
        kept = i <= j
        places = (entries.row, i + 1, j + 1, entries.data)
        for matrix, i_k, j_k, value in zip(*(part[kept].tolist() for part in places), strict=True):
            lines.append(f"{matrix} {k} {i_k} {j_k} {value!r}")
    path.write_text("\n".join(lines) + "\n")


def split(sdp: SDP, numbers: Array) -> list[Array]:
    """Return the blocks whose numbers stand one after another, row by row."""
    ends = np.cumsum([np.prod(shape) for shape in sdp.shapes])
    return [part.reshape(s) for part, s in zip(np.split(numbers, ends[:-1]), sdp.shapes, strict=True)]
