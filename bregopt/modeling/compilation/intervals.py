"""The data of a problem whose parameters may have any value in an interval, for proven bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.modeling.affine import Affine
from bregopt.modeling.compilation.coefficients import AffineNumbers, ParametricMatrix
from bregopt.modeling.variables import Parameter
from bregopt.program import Program
from bregopt.records import replace
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data, MatrixData, Spread, data_of

__all__ = ["interval_data", "uncertain"]


def uncertain(compiled: Any) -> tuple[str, ...]:
    """Return the names of the parameters with intervals."""
    return tuple(p.name for p in compiled.parameters if p.lo is not None)


def interval_data(compiled: Any, program: Program) -> Data:
    """Return the data of a program with the radii that follow from the intervals of its parameters.

    Parameters
    ----------
    compiled : Compiled
    program : Program
        At the current values of the parameters.

    Raises
    ------
    ValueError
        If a parameter with an interval is a weight, or a constant of the objective.
    """
    if not uncertain(compiled):
        return data_of(program)
    _check_places(compiled)
    values = _joined(p.elements for p in compiled.parameters)
    radii = _joined(p.radius for p in compiled.parameters)
    spreads = []
    for b, block in enumerate(program.blocks):
        parts = [(0, compiled.parts.rows.get(b)), (program.m, compiled.parts.costs.get(b))]
        found = [_spread(M, first, block.n, values, radii) for first, M in parts if M is not None]
        spreads.append(Spread(*map(np.concatenate, zip(*found, strict=True))) if found else None)
    data = data_of(program, spreads)
    anchors = {
        t.X.name: t.X0.radius for t in compiled.divergences if isinstance(t.X0, Parameter) and t.copies == 1
    }
    matrices = tuple(_with_radius(block, anchors.get(block.name)) for block in data.matrices)
    c = np.zeros(program.k)
    if compiled.parts.c is not None:
        c[compiled.parts.c.places] = _radius(compiled.parts.c.numbers, values, radii)
    return replace(
        data,
        matrices=matrices,
        lo_rad=_radius(compiled.lower, values, radii),
        hi_rad=_radius(compiled.upper, values, radii),
        B_rad=_sparse_radius(compiled.parts.B, values, radii),
        c=Ball(program.c, c),
    )


def _with_radius(block: MatrixData, rad: Array | None) -> MatrixData:
    """Return a block with the radii of its ``X0``; the average with the transpose is the matrix itself."""
    if rad is None or block.anchor is None:
        return block
    X0 = Ball(block.anchor.X0.mid, np.maximum(rad, rad.T))
    return replace(block, anchor=replace(block.anchor, X0=X0))


def _radius(numbers: AffineNumbers, values: Array, radii: Array) -> Array:
    """Return how far numbers may be from those at `values`, with the rounding of both."""
    if numbers.slope is None:
        return np.zeros(len(numbers.constant))
    slope = abs(numbers.slope)
    spread: Array = slope @ radii
    constant = np.where(np.isfinite(numbers.constant), np.abs(numbers.constant), 0.0)
    terms = int(np.diff(slope.indptr).max(initial=0)) + 4
    rounding = terms * EPS * (constant + slope @ np.abs(values) + spread)
    return np.where(spread > 0, spread + 2 * rounding, 0.0)


def _sparse_radius(matrix: ParametricMatrix | None, values: Array, radii: Array) -> Any:
    """Return the radii of a sparse matrix, None where all are zero."""
    if matrix is None:
        return None
    rad = _radius(matrix.numbers, values, radii)
    return replace(matrix, numbers=AffineNumbers(rad, None)).at(values) if rad.any() else None


def _spread(matrix: ParametricMatrix, first: int, n: int, values: Array, radii: Array) -> tuple[Any, ...]:
    """Return the rows, entries and radii of the coefficients of a matrix variable."""
    row, place = np.divmod(matrix.places, n * n)
    rad = _radius(matrix.numbers, values, radii)
    kept = rad > 0
    return row[kept] + first, place[kept], rad[kept]


def _check_places(compiled: Any) -> None:
    """Raise a ValueError if a parameter with an interval is where intervals are not supported."""
    weights: list[Any] = [
        *compiled.weights,
        *(t.parameter for t in compiled.divergences if t.parameter is not None),
    ]
    weights += [c.penalty.gamma for c, _ in compiled.constraint_slices if c.penalty is not None]
    places = [("a weight", w) for w in weights if isinstance(w, Affine)]
    places.append(("a constant of the objective", compiled.goal.constant_part()))
    for place, e in places:
        for p in e.parameters:
            if p.lo is not None:
                raise ValueError(
                    f"parameter {p.name} with an interval is {place}; expected bounds or coefficients"
                )
    for t in compiled.divergences:
        for p in t.data:
            plain = p is t.X0 and t.copies == 1 and not t.complemented
            if p.lo is not None and not plain:
                raise ValueError(
                    f"parameter {p.name} with an interval is in the {t.divergence} divergence of {t.X.name}; "
                    "expected the X0 of a real matrix"
                )


def _joined(parts: Iterator[Any]) -> Array:
    return np.concatenate([np.zeros(0), *(np.ravel(part) for part in parts)])
