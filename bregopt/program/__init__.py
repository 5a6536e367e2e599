"""The data that a solver receives: arrays and formulas, without modeling syntax or solvers."""

from bregopt.program.answer import ENDED, LIMITS, Answer, Start, StopReason
from bregopt.program.bounds import Bounds, Penalty, Target
from bregopt.program.cones import NO_CONES, SecondOrderCones
from bregopt.program.face import Face
from bregopt.program.linear_map import LinearMap, Term
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Block, Declaration, Nearness, ParameterSlope, Program, divergence_of
from bregopt.program.scale import Scale, pays, scale_of
from bregopt.program.sparse_plus_low_rank import (
    SparseLowRankProgram,
    SparseLowRankRows,
    SparsePlusLowRank,
    sparse_plus_low_rank,
    stored_terms,
)

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
    "Target",
    "Term",
    "divergence_of",
    "pays",
    "scale_of",
    "sparse_plus_low_rank",
    "stored_terms",
]
