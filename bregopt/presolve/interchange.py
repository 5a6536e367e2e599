"""Variables that symmetry makes equal: those of mirrored entries of a matrix, and all that hangs on them.

The variables and rows of a program are colored. At first the color of a variable is its cost, its box and its
part in a second-order cone, that of a row its bounds and its coefficients of the matrices. Then a row is
colored anew by the coefficients and colors of its variables, a variable by those of its rows, a vector in a
cone by the colors of its elements and they by its color, until no color splits. This is color refinement
(Grohe, Kersting, Mladenov, Selman 2014, Dimension reduction via colour refinement).

Let ``u`` be feasible. With the mean of each color in place of its variables, a row of a color has the mean
activity of the rows of that color, and a vector is no longer, as norms are convex. So the means are feasible,
and with convex penalties no dearer: of each color one variable is left. In place of ``k`` equal elements a
vector has ``sqrt(k)`` times one of them. The rows of a color are then parallel, and share their multipliers.

The deviations ``|X_ij - S_ij| <= u_ij`` of a symmetric matrix are 380 variables at order 20, of which 190
differ, and so are the cones of their powers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.svec import coefficients, comparable, orientation, oriented
from bregopt.program import Answer, Program, SecondOrderCones, Start
from bregopt.records import dataclass, replace

_Hashes = npt.NDArray[np.uint64]

_PASSES = 30  # of the refinement: along a chain, each one reaches the next link


@dataclass(frozen=True, eq=False)
class Interchanged(Reduced):
    """A program in which one variable stands for all of its color.

    Parameters
    ----------
    of : int array of shape (k,)
        The place of the variable that stands for each.
    scale : array of shape (k,)
        What that variable is divided by.
    group : int array of shape (m,)
        The colors of the rows.
    sign : array of shape (m,)
        The sign with which a row has the coefficients of its color.
    """

    of: IntArray
    scale: Array
    group: IntArray
    sign: Array

    @property
    def summary(self) -> str:
        return f"{self.whole.k - self.program.k} variables interchangeable with another"

    def shrink(self, start: Start) -> Start:
        return replace(start, u=np.bincount(self.of, start.u * self.scale) / np.bincount(self.of))

    def restore(self, answer: Answer) -> Answer:
        return with_multipliers(answer, self._shared, u=answer.u[self.of] / self.scale)

    def _shared(self, y: Array) -> Array:
        """Return multipliers with the same sums of which the rows of a color have their mean."""
        means = np.bincount(self.group, self.sign * y) / np.bincount(self.group)
        return self.sign * means[self.group]


# Pays on: sparse component within a norm, n = 24.
def interchangeable_variables(program: Program, tolerances: Tolerances) -> Interchanged | None:
    """Let the variables of one color be one."""
    if not comparable(program):
        return None
    rows, cones = coefficients(program), program.cones
    sign = np.where(np.diff(rows[:, : -program.k].indptr) > 0, orientation(rows), 1.0)
    colors = _refined(program, rows, sign)
    if colors is None:
        return None
    variable, row, vector = colors
    # Of the vectors of a color one is left, and its first element of each color.
    vectors = np.flatnonzero(np.isin(cones.owner, np.unique(vector, return_index=True)[1]))
    color, first, times = np.unique(variable[cones.index[vectors]], return_index=True, return_counts=True)
    stands, root = np.unique(variable, return_index=True)[1], np.ones(int(variable.max()) + 1)
    stands[color], root[color] = cones.index[vectors[first]], np.sqrt(times)
    left, scale = np.sort(stands), root[variable]
    of, elements = np.searchsorted(left, stands[variable]), vectors[np.sort(first)]
    dimensions = np.bincount(cones.owner[elements])
    cones = SecondOrderCones(of[cones.index[elements]], dimensions[dimensions > 0])
    P = sp.csr_array((1 / scale, (np.arange(program.k), of)))
    merged = replace(
        program,
        B=sp.csr_array(program.B @ P),
        c=P.T @ program.c,
        u_lo=program.u_lo[left] * scale[left],
        u_hi=program.u_hi[left] * scale[left],
        cones=cones,
    )
    return Interchanged(program, merged, of, scale, row, sign)


class _Colors(NamedTuple):
    """The colors of variables, of rows, and of vectors in second-order cones, as numbers from zero."""

    variables: IntArray
    rows: IntArray
    vectors: IntArray


def _refined(program: Program, rows: Any, sign: Array) -> _Colors | None:
    """Return the colors; None if no two variables have the same.

    Colors are compared by sums of random numbers modulo ``2^64``, one for each coefficient and color.
    """
    bounds, cones, rng = program.bounds, program.cones, np.random.default_rng(0)
    row = np.repeat(np.arange(program.m), np.diff(rows.indptr))
    values, number = np.unique(sign[row] * rows.data, return_inverse=True)
    weight, column = _random(rng, len(values))[number], rows.indices - (rows.shape[1] - program.k)
    entry, own = np.flatnonzero(column < 0), np.flatnonzero(column >= 0)
    matrices = _sums(row[entry], weight[entry] * _random(rng, rows.shape[1])[rows.indices[entry]], program.m)
    row, column, weight = row[own], column[own], weight[own]
    part = np.zeros(program.k)
    part[cones.index] = 1.0
    part[cones.axes] = 2.0
    of_rows = _numbered(matrices, *oriented(bounds, sign), bounds.kind, bounds.gamma)
    of_variables = _numbered(program.c, program.u_lo, program.u_hi, part)
    for _ in range(_PASSES):
        count = int(of_variables.max()) + 1
        if count == program.k:
            break
        tint = _random(rng, count)[of_variables]
        of_rows = _numbered(of_rows, _sums(row, weight * tint[column], program.m))
        of_vectors = _numbered(_sums(cones.owner, tint[cones.index], cones.count))
        around = np.zeros(program.k)
        around[cones.index] = 1 + of_vectors[cones.owner]
        tint = _random(rng, program.m)[of_rows]
        of_variables = _numbered(of_variables, around, _sums(column, weight * tint[row], program.k))
        if of_variables.max() < count:
            return _Colors(of_variables, of_rows, of_vectors)
    return None


def _random(rng: np.random.Generator, count: int) -> _Hashes:
    return rng.integers(2**64, size=count, dtype=np.uint64)


def _sums(place: IntArray, values: _Hashes, count: int) -> _Hashes:
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, place, values)
    return total


def _numbered(*labels: Any) -> IntArray:
    """Return a number from zero for each tuple of labels."""
    numbers = np.zeros(len(labels[0]), dtype=np.intp)
    for label in labels:
        _, own = np.unique(label, return_inverse=True)
        both = numbers * (int(own.max(initial=0)) + 1) + own
        numbers = np.ravel(np.unique(both, return_inverse=True)[1])
    return numbers
