"""Row families: arrays that represent ``m`` linear rows ``<A_k, X>``.

A new family is one file with a subclass of :class:`RowFamily` that has the methods of :class:`Rows`. Solvers
use rows only through those methods.
"""

from bregopt.program.rows.algebra import (
    add_rows,
    combine_rows,
    concatenate_rows,
    dense_stack,
    stacked_rows,
    storage,
    upper_triangles,
)
from bregopt.program.rows.base import Coordinates, Products, RankOneTerms, RowFamily, Rows
from bregopt.program.rows.bilinear import Bilinear
from bregopt.program.rows.dense import DenseRows
from bregopt.program.rows.distances import Distances
from bregopt.program.rows.entries import Entries
from bregopt.program.rows.multiplication import multiplied_rows
from bregopt.program.rows.rank_one import RankOne
from bregopt.program.rows.rank_one_pairs import RankOnePairs
from bregopt.program.rows.rank_two import RankTwo
from bregopt.program.rows.sparse import SparseRows

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
    "add_rows",
    "combine_rows",
    "concatenate_rows",
    "dense_stack",
    "multiplied_rows",
    "stacked_rows",
    "storage",
    "upper_triangles",
]
