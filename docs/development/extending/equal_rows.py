"""A reduction: hard rows that are equal become one."""

from dataclasses import dataclass, replace

import numpy as np

from bregopt.presolve import Reduced, register_reduction


@dataclass(frozen=True, eq=False)
class Merged(Reduced):
    """A program with one row for each group of equal ones, between the tightest of their bounds."""

    group: np.ndarray  # of each row
    below: np.ndarray  # the row that gives each group its lower bound
    above: np.ndarray  # the row that gives each group its upper bound

    @property
    def summary(self):
        return f"rows merged with equal ones: {self.whole.m - self.program.m}"

    def contradiction(self):
        crossed = (self.program.bounds.lo > self.program.bounds.hi).astype(float)
        return self._multipliers(crossed) + self._multipliers(-crossed) if crossed.any() else None

    def shrink(self, start):
        return replace(start, y=np.bincount(self.group, start.y))

    def restore(self, answer):
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces)
        return replace(answer, y=self._multipliers(answer.y), y_on_faces=on_faces)

    def _multipliers(self, own):
        y = np.zeros(self.whole.m)
        y[self.below] += np.maximum(own, 0.0)
        y[self.above] += np.minimum(own, 0.0)
        return y


@register_reduction
class EqualRows:
    """Equal rows have equal values at a random point, and equal norms."""

    name = "equal rows"
    universal = True

    def apply(self, program, tolerances):
        rng, bounds, m = np.random.default_rng(0), program.bounds, np.arange(program.m)
        X = [F @ F.T for F in (rng.normal(size=(block.n, block.n)) for block in program.blocks)]
        keys = [program.activity(X, rng.normal(size=program.k)), program.row_sizes]
        keys = [np.round(key / max(np.abs(key).max(initial=0.0), 1e-300), 12) for key in keys]
        keys = np.column_stack([*keys, np.where(bounds.hard, -1, m)])  # soft rows stay apart
        _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        if len(first) == len(m):
            return None
        ends = [np.lexsort((end, group)) for end in (-bounds.lo, bounds.hi)]
        below, above = (order[np.searchsorted(group[order], np.unique(group))] for order in ends)
        tightest = replace(bounds.slice(first), lo=bounds.lo[below], hi=bounds.hi[above])
        rows = {"A": program.A.slice(first), "B": program.B[first], "bounds": tightest, "labels": ()}
        return Merged(program, replace(program, **rows), group, below, above)
