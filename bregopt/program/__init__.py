"""The data that a solver receives: arrays and formulas, without modeling syntax or solvers."""

from bregopt.divergences.rows import Penalty
from bregopt.program.bounds import NO_CONES, Bounds, Face, SecondOrderCones
from bregopt.program.linear_map import (
    LinearMap,
    SparseLowRankProgram,
    SparseLowRankRows,
    SparsePlusLowRank,
    Term,
    sparse_plus_low_rank,
    stored_terms,
)
from bregopt.program.program import (
    ENDED,
    LIMITS,
    Answer,
    Block,
    Declaration,
    Nearness,
    ParameterSlope,
    Program,
    Start,
    StopReason,
    divergence_of,
)
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.program.scale import Scale, pays, scale_of

__all__ = [
    "ENDED",
    "LIMITS",
    "NO_CONES",
    "Answer",
    "Block",
    "Bounds",
    "Declaration",
    "Face",
    "LinearMap",
    "LowRank",
    "Matrix",
    "Nearness",
    "ParameterSlope",
    "Penalty",
    "Program",
    "Scale",
    "SecondOrderCones",
    "SparseLowRankProgram",
    "SparseLowRankRows",
    "SparsePlusLowRank",
    "Start",
    "StopReason",
    "Term",
    "divergence_of",
    "pays",
    "scale_of",
    "sparse_plus_low_rank",
    "stored_terms",
]
