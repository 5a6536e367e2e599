"""What a solver receives, and what proves an answer: arrays and formulas, no syntax and no solver."""

from bregopt.program.bounds import Bounds, Penalty, Target
from bregopt.program.certificate import (
    Certificate,
    bound_inside,
    certificate_inside,
    certificate_of,
    certify,
    objective_size,
    primal_residual,
)
from bregopt.program.consistency import check_families
from bregopt.program.dimacs import dimacs_errors
from bregopt.program.eigenvalue_bound import lowest, proven_bound, smallest_eigenvalue
from bregopt.program.face import Face
from bregopt.program.faces import Faces, find_faces
from bregopt.program.linear_map import LinearMap, Term
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.program import Block, Nearness, Program, Share
from bregopt.program.proofs import is_farkas, is_ray
from bregopt.program.range_space import RangeSpace, check_rows, range_space
from bregopt.program.scale import Scale, pays, scale_of
from bregopt.program.thin import ThinMatrix, ThinProgram, ThinRows, stored_terms, thin_program
from bregopt.program.trace_bound import TraceBound, trace_bound, with_trace_row

__all__ = [
    "Block",
    "Bounds",
    "Certificate",
    "Face",
    "Faces",
    "LinearMap",
    "LowRank",
    "Matrix",
    "Nearness",
    "Penalty",
    "Program",
    "RangeSpace",
    "Scale",
    "Share",
    "Target",
    "Term",
    "ThinMatrix",
    "ThinProgram",
    "ThinRows",
    "TraceBound",
    "bound_inside",
    "certificate_inside",
    "certificate_of",
    "certify",
    "check_families",
    "check_rows",
    "dimacs_errors",
    "find_faces",
    "is_farkas",
    "is_ray",
    "lowest",
    "objective_size",
    "pays",
    "primal_residual",
    "proven_bound",
    "range_space",
    "scale_of",
    "smallest_eigenvalue",
    "stored_terms",
    "thin_program",
    "trace_bound",
    "with_trace_row",
]
