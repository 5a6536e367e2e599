"""A conic program read as its dual: the matrices are the blocks of ``z``, each variable ``x`` has a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.cvxpy.conic.form import Conic
from bregopt.cvxpy.conic.parts import blocks_of, map_of
from bregopt.program import Bounds, Program

__all__ = ["Dual", "read_dual"]


@dataclass(frozen=True, eq=False)
class Dual:
    """(D): its rows belong to the variables ``x``; its ``u`` is the part of ``z`` outside the matrices."""

    dual: ClassVar[bool] = True
    conic: Conic
    program: Program

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        return y

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, or of a ray."""
        return np.concatenate([u, self.conic.triangles(S)])


def read_dual(conic: Conic) -> Dual:
    """Return the reading of (D)."""
    A, linear, first_psd = conic.A, conic.linear, conic.first_psd
    psd = sp.coo_array(A[first_psd:])
    row = np.arange(first_psd)
    program = Program(
        blocks=blocks_of(conic, conic.b[first_psd:]),
        A=map_of(conic, A.shape[1], psd.col, psd.row, psd.data),
        B=sp.csr_array(A[:first_psd].T),
        bounds=Bounds.of_hard_rows(-conic.c, -conic.c),
        c=conic.b[:first_psd],
        u_lo=np.where((row >= conic.zero) & (row < linear), 0.0, -np.inf),
        u_hi=np.full(first_psd, np.inf),
        cones=conic.cones(linear),
    )
    return Dual(conic, program)
