"""Row families: arrays that represent ``m`` linear rows ``<A_k, X>``.

A new family is one file with a subclass of :class:`RowFamily`, which is :class:`Rows`. Solvers
use rows only through those methods.
"""

from bregopt.program.rows.algebra import (
    Bilinear,
    Sum,
    add_rows,
    combine_rows,
    dense_stack,
    multiplied_rows,
    stacked_rows,
    upper_triangles,
)
from bregopt.program.rows.base import (
    Coordinates,
    DenseRows,
    Products,
    RankOneTerms,
    RowFamily,
    Rows,
    SparseRows,
    placed_coordinates,
    storage,
)
from bregopt.program.rows.low_rank import Distances, Entries, RankOne, RankOnePairs, RankTwo

FAMILIES: tuple[type[Rows], ...] = (
    *(Entries, Distances, RankOne, RankOnePairs, RankTwo),
    *(Bilinear, SparseRows, DenseRows),
)

__all__ = [
    "FAMILIES",
    "Bilinear",
    "Coordinates",
    "DenseRows",
    "Distances",
    "Entries",
    "Products",
    "RankOne",
    "RankOnePairs",
    "RankOneTerms",
    "RankTwo",
    "RowFamily",
    "Rows",
    "SparseRows",
    "Sum",
    "add_rows",
    "combine_rows",
    "dense_stack",
    "multiplied_rows",
    "placed_coordinates",
    "stacked_rows",
    "storage",
    "upper_triangles",
]
