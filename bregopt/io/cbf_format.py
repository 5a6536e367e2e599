"""The Conic Benchmark Format as data: the sections of a file, with indices from zero.

Such a file states, with matrix variables ``X_j``, scalars ``x_j`` and cones ``K``,

    minimize or maximize   sum_j <F_j, X_j> + a'x + b
    subject to             sum_j <F_ij, X_j> + a_i'x + b_i  in  K,    for the rows i of CON
                           sum_j x_j H_ij + D_i  psd,                 for the matrices i of PSDCON
                           X_j  psd,   x  in  K.

Friberg (2016), CBLIB 2014: a benchmark library for conic mixed-integer and continuous optimization.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bregopt.arrays import Array

__all__ = ["COLUMNS", "LINEAR", "SECOND_ORDER", "SUFFIXES", "Cbf", "Entries"]

SUFFIXES = (".cbf", ".cbf.gz")

# The bounds of one row or scalar in a linear cone.
LINEAR: dict[str, tuple[float, float]] = {
    "F": (-np.inf, np.inf),
    "L+": (0.0, np.inf),
    "L-": (-np.inf, 0.0),
    "L=": (0.0, 0.0),
}
SECOND_ORDER = ("Q", "QR")  # ||v|| <= t of (t, v), and ||v||^2 <= 2 s t with s, t >= 0 of (s, t, v)

# The numbers of a line in the sections of entries. `con` counts rows of CON or matrices of PSDCON, `psd` and
# `var` matrix variables and scalars, and `row` and `column` those of a symmetric matrix.
COLUMNS: dict[str, tuple[str, ...]] = {
    "OBJFCOORD": ("psd", "row", "column", "value"),
    "OBJACOORD": ("var", "value"),
    "FCOORD": ("con", "psd", "row", "column", "value"),
    "ACOORD": ("con", "var", "value"),
    "BCOORD": ("con", "value"),
    "HCOORD": ("con", "var", "row", "column", "value"),
    "DCOORD": ("con", "row", "column", "value"),
}


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one section: a row of `index` for each of its columns but the last, and the values."""

    index: dict[str, np.ndarray]
    value: Array

    @classmethod
    def none(cls, section: str) -> Entries:
        """Return a section without entries."""
        return cls({name: np.zeros(0, dtype=np.intp) for name in COLUMNS[section][:-1]}, np.zeros(0))


@dataclass(eq=False)
class Cbf:
    """The content of a file.

    Parameters
    ----------
    maximize : bool
    psdvar, psdcon : list of int
        The orders of matrix variables and of matrix constraints.
    var, con : list of (str, int)
        The cones of the scalars and of the rows, each with its size.
    constant : float
        Of the objective.
    entries : dict from str to Entries
        The other sections, by their keywords.
    """

    maximize: bool = False
    psdvar: list[int] = field(default_factory=list)
    psdcon: list[int] = field(default_factory=list)
    var: list[tuple[str, int]] = field(default_factory=list)
    con: list[tuple[str, int]] = field(default_factory=list)
    constant: float = 0.0
    entries: dict[str, Entries] = field(default_factory=dict)

    def of(self, section: str) -> Entries:
        """Return the entries of a section, none if the file does not have it."""
        return self.entries.get(section) or Entries.none(section)
