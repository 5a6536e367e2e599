"""One block's term of the dual function, ``min_X <C - A*(y), X> + mu D(X, X0)``, for Newton's method.

Its point is a function of a spectrum, which the divergence returns. The gradient of the term is ``-A(X)``,
its Hessian ``-H`` with ``H v = A(X'[A*(v)])``. The dual function is the sum of these terms and of the rows'
terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.divergences import Divergence, ReciprocalSpectrum, Spectrum
from bregopt.divergences.spectrum import DifferenceSpectrum
from bregopt.program import Block, LinearMap, Program
from bregopt.program.anchor import divergence_of
from bregopt.program.rows import Rows
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["BlockDual", "RowCurvature", "block_duals", "exponential_rows"]


class BlockDual:
    """The term of one block.

    Parameters
    ----------
    block : Block
        With a divergence that has a spectrum.
    A : LinearMap
        The rows in this block.
    tuning : ProjectionTuning
    """

    def __init__(self, block: Block, A: LinearMap, tuning: ProjectionTuning) -> None:
        assert block.nearness is not None
        self.divergence: Divergence = divergence_of(block.nearness)
        self.mu, self.C = block.nearness.mu, block.C
        self._cap = {} if block.cap is None else {"cap": block.cap}
        self._A, self._action, self._tuning = A, RowAction(A, tuning.interior), tuning
        self._curvature = RowCurvature(A, tuning)

    def slack(self, y: Array) -> Array:
        """Return ``C - A*(y)``."""
        return self.C - self._A.adjoint(y)

    def spectrum(self, y: Array) -> Spectrum | None:
        """Return the minimizer at given multipliers, None outside the domain of the dual."""
        checkpoint(len(self.C))
        return self.divergence.spectrum(self.slack(y), self.mu, **self._cap)

    def unconstrained(self) -> Spectrum:
        """Return the minimizer of the divergence alone."""
        found = self.divergence.spectrum(0 * self.C, self.mu, **self._cap)
        assert found is not None
        return found

    def divergence_at(self, y: Array, term: float, X: Array) -> float:
        """Return ``D(X, X0)`` of the minimizer `X` at given multipliers, from the value of the `term`."""
        return (term - float(np.vdot(self.slack(y), X))) / self.mu

    def reach(self, spectrum: Spectrum, d: Array) -> float:
        """Return the largest step along `d` inside the domain of a LogDet term; infinite for other terms."""
        return (
            spectrum.reach(self._action.adjoint(d)) if isinstance(spectrum, ReciprocalSpectrum) else math.inf
        )

    def product(self, spectrum: Spectrum, v: Array) -> Array:
        """Return ``H v``."""
        S = self._action.adjoint(v)
        moved = spectrum.derivative(S)
        activity = self._action.apply_product(moved.L, moved.R)
        if moved.share:
            activity += moved.share * self._action.apply(S.toarray() if sp.issparse(S) else S)
        if moved.M is not None:
            activity += self._action.apply(moved.M)
        return activity

    def curvature(self, spectrum: Spectrum) -> Array:
        """Return the approximate diagonal of ``H``, bounded away from zero."""
        return self._curvature(spectrum)


class RowCurvature:
    """The approximate diagonal of ``H`` for the rows of one block, as a function of the spectrum.

    Parameters
    ----------
    A : LinearMap
    tuning : ProjectionTuning
    """

    def __init__(self, A: LinearMap, tuning: ProjectionTuning) -> None:
        self._squares, self._tuning = A.norms() ** 2, tuning
        self._terms = [_TermCurvature(term.at, term.rows, A.orders[0], tuning) for term in A.terms]

    def __call__(self, spectrum: Spectrum | DifferenceSpectrum) -> Array:
        """Return the diagonal, bounded away from zero."""
        diagonal = np.zeros(len(self._squares))
        of_entries: Array | None = None
        for term in self._terms:
            if term.diagonal is not None:
                i, weight = term.diagonal
                diagonal[term.at] += weight**2 * spectrum.curvature(spectrum.V[i])
            elif term.rank_one is not None:
                p = term.rank_one
                part = p.weight**2 * spectrum.curvature(p.U @ spectrum.V)
                diagonal[term.at] += np.bincount(p.row, weights=part, minlength=term.rows.m)
            else:
                of_entries = spectrum.entry_curvature() if of_entries is None else of_entries
                t = term.entries or term.rows.coordinates()
                part = t.value**2 * of_entries[t.i, t.j] * np.where(t.i == t.j, 1.0, 0.5)
                diagonal[term.at] += np.bincount(t.row, weights=part, minlength=term.rows.m)
        least = self._tuning.least_curvature * spectrum.typical_derivative * self._squares
        return np.maximum(diagonal, np.where(least > 0, least, TINY))


class _TermCurvature:
    """One term of the rows in the form that gives the curvature at the lower cost.

    `diagonal` are the indices and weights of diagonal entries; `entries` are its coordinates if each row has
    few; `rank_one` are its rank-one terms. Curvatures along vectors are used where they cost less than those
    of all entries together.
    """

    def __init__(self, at: IntArray, rows: Rows, n: int, tuning: ProjectionTuning) -> None:
        self.at, self.rows = at, rows
        self.entries = rows.coordinates() if rows.few_terms else None
        few = (rows.rank is not None and not rows.few_terms) or rows.m <= tuning.rank_one_ratio * n
        own = self.entries if few and rows.single else None
        on_diagonal = own is not None and np.array_equal(own.i, own.j)
        self.diagonal = (own.i, own.value) if own is not None and on_diagonal else None
        self.rank_one = rows.rank_one_terms() if few and self.diagonal is None else None


def block_duals(program: Program, tuning: ProjectionTuning) -> list[BlockDual]:
    """Return the terms of all blocks."""
    return [BlockDual(block, program.A.of_block(b), tuning) for b, block in enumerate(program.blocks)]


def exponential_rows(A: LinearMap, blocks: Sequence[BlockDual]) -> Mask:
    """Return the mask of the rows with an activity of one sign that is nearly exponential in the multipliers.

    They are definite, in blocks whose minimizer is an exponential.
    """
    if not any(block.divergence.exponential for block in blocks):
        return np.zeros(A.m, dtype=bool)
    mask: Mask = A.definite_signs != 0
    for term in A.terms:
        if not blocks[term.block].divergence.exponential:
            mask[term.place] = False
    return mask
