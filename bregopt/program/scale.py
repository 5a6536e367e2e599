"""Magnitudes of a program's answer, multipliers and objective, and of the work, from its data alone.

Gaps and residuals are relative to these scales. Iterates and multipliers may diverge. A scale that diverged
with them would hide any error, so the scales do not depend on them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.divergences import BUILT_IN, Divergence, psd_part
from bregopt.divergences.rows import Penalty
from bregopt.program.program import Block, Nearness, Program, divergence_of
from bregopt.program.rows import Sum
from bregopt.program.rows.base import LowRank, frobenius_norm
from bregopt.records import dataclass, kept

_LARGEST_FORMED = 500  # the order up to which a cost matrix is formed to find its largest entry
_APART = 1e3  # factor between coefficients from which they are in different units
_RESOLUTION = 1e-6  # fraction of the linear scale: smaller objectives count as zero


@dataclass(frozen=True)
class Scale:
    """Magnitudes that follow from the data of a program.

    They scale with the objective, with each row, and with ``X`` and its bounds.

    Parameters
    ----------
    primal : float
        Of ``X``, the letter rho on the page of certificates: the largest of ``|b_k| / ||A_k||`` over the
        bounds of the rows, the bounds of boxes and ``||X0||``; where all of them are zero, the norm that the
        caps allow, or one. Where every matrix has a cap, and there are no variables, it is at most that norm.
    dual : float
        Of ``C - A*(y)``, the letter eta: the largest of ``||C||`` and ``|c_j|``, the latter relative to the
        column of ``u_j``, and the slopes of squared rows. If those are zero and there is no divergence, the
        least price of a soft row; zero without one.
    objective : float
        The largest of ``mu`` times the scale of each divergence, the weight of each logarithm, and `dual`
        times the size that the rows demand of ``X``; of a tangent no more than that of the costs beside the
        terms, and the terms. A bound that ``X = 0`` meets, such as a large one on the
        trace, demands nothing. Such bounds count only where nothing is demanded.
    resolution : float
        The objective that counts as zero: a millionth of `dual` times that size, or the sum of ``mu`` times
        unit and resolution of each divergence, and a thousandth of each hinge's bound at its price. Where
        ``X = 0`` is optimal all terms of the objective vanish.
    """

    primal: float
    dual: float
    objective: float
    resolution: float

    @property
    def price(self) -> float:
        """The scale of ``C - A*(y)`` and of reduced costs: without costs the divergences set it."""
        return max(self.dual or self.objective / self.primal, TINY)


@kept
def pays(program: Program) -> bool:
    """Whether the objective is not constant; if it is, any feasible point is optimal."""
    costs = program.c.any() or any(block.cost_norm for block in program.blocks)
    return bool(costs) or any(program.divergences) or not program.bounds.all_hard or bool(program.terms)


@kept
def scale_of(program: Program) -> Scale:
    """Return the scales of a program; computed once for each program."""
    demanded, allowed = _stated_sizes(program)
    square, all_capped, units, resolution = 0.0, program.k == 0, [0.0], 0.0
    for block in program.blocks:
        if block.cap is None:
            all_capped = False
        else:
            square += block.n * block.cap**2
        if block.nearness is not None:
            demanded = max(demanded, frobenius_norm(block.nearness.X0))
            share = getattr(divergence_of(block.nearness), "resolution", Divergence.resolution)
            units.append(block.nearness.mu * _unit(block.nearness))
            resolution += share * units[-1]
    below_caps = math.sqrt(square)  # the largest norm of matrices that have caps
    largest = below_caps if all_capped else math.inf
    demand = min(demanded, largest)
    primal = min(max(demand, allowed) or below_caps or 1.0, largest)
    dual = _dual_size(program, primal)
    bounds = program.bounds
    if not bounds.all_hard:
        units += bounds.gamma[bounds.kind == int(Penalty.LOG)].tolist()
        hinge = bounds.kind == int(Penalty.HINGE)  # it is a difference of activity and bound
        resolution += Divergence.resolution * float(bounds.gamma[hinge] @ bounds.sizes[hinge])
    linear = dual * (demand or primal)
    if program.tangent is not None:
        posed = _dual_size(program.tangent.program, primal)
        linear = min(linear, posed * (demand or primal) + program.tangent.terms)
    return Scale(primal, dual, max(linear, *units), max(_RESOLUTION * linear, resolution))


def _unit(nearness: Nearness) -> float:
    """Return the scale of a divergence; at most ``D(2 X0, X0)`` for one that is not built in."""
    divergence = divergence_of(nearness)
    if type(divergence) in BUILT_IN:
        return divergence.unit
    doubled = divergence.value(2 * psd_part(np.asarray(nearness.X0)))
    return min(divergence.unit, doubled) if 0 < doubled < np.inf else 0.0


def _stated_sizes(program: Program) -> tuple[float, float]:
    """Return the largest size of ``X`` and ``u`` that a bound demands, and the largest that one states.

    A bound demands its violation at ``X = 0``, ``u = 0``. Variables are measured by their columns.
    """
    bounds, norms = program.bounds, program.row_units
    rows = norms > 0
    ends = np.array([bounds.lo[rows], bounds.hi[rows]]) / norms[rows]
    if program.k:
        columns = program.column_sizes
        boxes = columns > 0
        of_boxes = np.array([program.u_lo[boxes], program.u_hi[boxes]]) * columns[boxes]
        ends = np.concatenate([ends, of_boxes], axis=1)
    demanded = np.maximum.reduce(np.maximum(ends[0], -ends[1]), initial=0.0)
    allowed = np.maximum.reduce(np.abs(ends), axis=None, initial=0.0, where=np.isfinite(ends))
    return float(demanded), float(allowed)


def _dual_size(program: Program, primal: float) -> float:
    """Return the largest magnitude of a cost, or the least price of a soft row where there is none.

    A squared penalty has the cost of its slope at the activity zero. Its price, and that of a logarithm, is
    the slope at the scale of ``X``.
    """
    bounds, row_units = program.bounds, program.row_units
    sizes = list(map(_linear_size, program.blocks))
    if program.k:
        column = program.column_sizes
        used = column > 0
        # Slopes of convex terms cancel at an optimum; the costs alone would be no measure.
        costs = np.abs(program.c) if program.tangent is None else program.tangent.costs
        sizes.append(float((costs[used] / column[used]).max(initial=0.0)))
    if program.tangent is not None:
        sizes.append(program.tangent.size)
    square = bounds.kind == int(Penalty.SQUARE)
    if not bounds.all_hard:
        relaxed = np.maximum(np.maximum(bounds.lo, -bounds.hi), 0.0)[square]
        sizes.append(float((2 * bounds.gamma[square] * relaxed * row_units[square]).max(initial=0.0)))
    largest = max(sizes, default=0.0)
    if largest > 0 or any(program.divergences):
        return largest
    soft = ~bounds.hard & (row_units > 0)
    slope = np.where(square, 2 * row_units * primal, row_units)
    slope = np.where(bounds.kind == int(Penalty.LOG), 1 / primal, slope)
    return float((bounds.gamma[soft] * slope[soft]).min()) if soft.any() else 0.0


def _linear_size(block: Block) -> float:
    """Return the norm of the linear term of a block.

    Beside LogDet it is the smaller one of ``C`` and ``C + mu inv(X0)``: the objective is also
    ``<C + mu inv(X0), X> - mu logdet X``, with any ``X0``.
    """
    size = block.cost_norm
    if not size or block.nearness is None or not block.nearness.kind.barrier:
        return size
    if isinstance(block.nearness.X0, LowRank):
        return size
    inverse: Any = divergence_of(block.nearness).recession()
    return min(size, float(np.linalg.norm(block.C + block.nearness.mu * inverse)))


class DimacsSizes(NamedTuple):
    """The magnitudes that the DIMACS errors are relative to.

    Parameters
    ----------
    bounds : float
        One plus the largest magnitude of a bound of a row.
    costs : float
        One plus the largest magnitude of an entry of the costs.
    """

    bounds: float
    costs: float


@kept
def dimacs_sizes(program: Program) -> DimacsSizes | None:
    """Return what the errors are relative to; None where there is a divergence, a cap or a soft row."""
    if program.curved or not program.bounds.all_hard:
        return None
    costs = [float(np.maximum.reduce(np.abs(program.c), initial=0.0)), *map(_largest_entry, program.blocks)]
    return DimacsSizes(1 + float(np.maximum.reduce(program.bounds.sizes, initial=0.0)), 1 + max(costs))


def _largest_entry(block: Block) -> float:
    """Return the largest magnitude of an entry of ``C``."""
    if block.cost is None:
        return 0.0
    if block.n <= _LARGEST_FORMED:
        return float(np.abs(block.C).max(initial=0.0))
    if isinstance(block.cost, Sum):  # elsewhere a square has no larger entry than on the diagonal
        t, on = block.cost.terms.coordinates(), np.arange(block.n)
        places = np.concatenate([t.i, on]), np.concatenate([t.j, on])
        return float(np.abs(block.cost.entries(*places)).max(initial=0.0))
    t = block.cost.coordinates()
    i, j = np.minimum(t.i, t.j), np.maximum(t.i, t.j)
    _, inverse = np.unique(i * block.n + j, return_inverse=True)
    entry = np.bincount(inverse, np.where(i == j, t.value, t.value / 2))
    return float(np.abs(entry).max(initial=0.0))


def in_different_units(program: Program) -> bool:
    """Whether the sizes of rows, or of their parts in matrices, differ by decades."""
    return differ_by_decades(np.concatenate([program.row_sizes, *(term.norms for term in program.A.terms)]))


def differ_by_decades(sizes: Array) -> bool:
    """Whether some sizes, of those that are not zero, are so far from others that their units differ."""
    used = sizes[sizes > 0]
    return len(used) > 0 and bool(used.max() > _APART * used.min())


# --- Sizes of a method's work ---------------------------------------------------------------------------


def newton_flops(program: Program) -> float:
    """Return an estimate of the operations of a Newton step on all rows, in the rows or the entries."""
    return float(program.m) * min(program.m, entries_of(program)) ** 2


def entries_of(program: Program) -> int:
    """Return the number of entries of the symmetric matrices."""
    return sum(block.n * (block.n + 1) // 2 for block in program.blocks)


def price_range(program: Program, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return the least and the largest ``B'y`` of multipliers between `lower` and `upper`, shape ``(k,)``."""
    rows = np.repeat(np.arange(program.m), np.diff(program.B.indptr))
    ends = np.sort([program.B.data * lower[rows], program.B.data * upper[rows]], axis=0)
    least, largest = (
        np.bincount(program.B.indices, weights=end, minlength=program.k).astype(float) for end in ends
    )
    return least, largest
