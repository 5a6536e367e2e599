"""Alternating directions on the augmented Lagrangian of the dual (Wen, Goldfarb, Yin 2010), extrapolated.

The method is a fixed-point iteration (Eckstein and Bertsekas 1992). From ``t`` a step takes the nearest point
``x`` to it in the cones, with prices times the penalty ``s`` of soft rows, its slack ``z = (x - t) / s``, and

    y = M^-1 ((b - A x) / s + A(c - z - n)),   M = A A',

and moves ``t`` towards ``x - s (c - A'y - n)``, and beyond it. Here ``n`` has the prices of bounds on
entries. ``y`` is found twice: for the last ``n``, and for the best one at that ``y``. With this symmetric
Gauss-Seidel step the method still converges (Sun, Toh, Yang 2015). Every few steps Anderson's extrapolation
of the last ones is tried. A step has one eigendecomposition of each matrix.
"""

from __future__ import annotations

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.routes.augmented_lagrangian.standard_form import StandardForm

# Length of a step, below two.
_OVERSTEP = 1.618
# Steps between two changes of the penalty, the share of them in which one residual is larger by the ratio,
# and the factor. Least and largest penalty.
_BALANCE_STEPS, _BALANCE_SHARE, _BALANCE_RATIO, _BALANCE_FACTOR = 10, 0.7, 1.5, 1.6
_LEAST_PENALTY, _LARGEST_PENALTY = 1e-6, 1e8
# Share of the residuals below which steps end early.
_FAST = 1e-3
# Steps that an extrapolation uses, steps between two of them, and the multiple of the identity in its
# equation, relative to the trace and the square of the last step: changes of equal steps are round-off.
_MEMORY, _EXTRAPOLATE_STEPS, _EXTRAPOLATION_RIDGE = 10, 5, 1e-10


class AlternatingDirections:
    """One run of the method.

    Parameters
    ----------
    form : StandardForm
    x : array of shape (size,)
    multipliers : array of shape (m + e,)

    Attributes
    ----------
    x : array of shape (size,)
        The last point, always in the cones.
    multipliers : array of shape (m + e,)
        The last ones, of the equations and then of the bounds on entries.
    primal, dual : float
        The residual of ``A x = b`` and of the bounds on entries, and the last move of ``x`` divided by twice
        the penalty. At a constant move of ``t`` with ``x`` at rest, only the first one is large, and the
        penalty falls.
    penalty : float
    steps : int
    """

    def __init__(self, form: StandardForm, x: Array, multipliers: Array) -> None:
        self._form, self.multipliers = form, multipliers
        self.penalty, self.steps = 1.0, 0
        self._larger, self._window = np.zeros(2), 0
        self.primal = self.dual = np.inf
        self.x = x
        y, n = np.split(multipliers, [form.m])
        slack = form.c - form.adjoint(y)
        slack[form.bounded] -= n
        self._continue_at(np.concatenate([x - slack, n]))
        self._last = _Steps(len(self._state))

    # Pays on: the least largest deviation, n = 100.
    def run(self, steps: int) -> None:
        """Take steps, or fewer where they reduce both residuals to a thousandth."""
        most = 0.0
        for step in range(steps):
            self._continue_at(self._last.next(self._state, self._end()))
            worst = max(self.primal, self.dual)
            most = most if step else _FAST * worst
            if worst < most:
                break
            ratio = self.primal / max(self.dual, TINY)
            self._larger += np.array([ratio > _BALANCE_RATIO, ratio < 1 / _BALANCE_RATIO])
            self._window += 1
            if self._window >= _BALANCE_STEPS and not self._last.trying:
                primal, dual = self._larger > _BALANCE_SHARE * self._window
                if primal:
                    self._set_penalty(max(self.penalty / _BALANCE_FACTOR, _LEAST_PENALTY))
                elif dual:
                    self._set_penalty(min(self.penalty * _BALANCE_FACTOR, _LARGEST_PENALTY))
                self._larger, self._window = np.zeros(2), 0

    def _end(self) -> Array:
        """Return the end of a step from the state, and set its multipliers and the primal residual."""
        form, x, s, E = self._form, self.x, self.penalty, self._form.bounded
        t, n = self._state[: len(x)], self._state[len(x) :] / s
        missed, left = form.activity(x) - form.b, form.c - (x - t) / s
        beyond = x[E] - np.clip(x[E], form.least, form.most)
        y, rest = self._best(left, n, missed)
        if len(E):
            wanted = x[E] - s * (rest[E] + n)
            n = (np.clip(wanted, form.least, form.most) - wanted) / s
            y, rest = self._best(left, n, missed)
        self.multipliers = np.concatenate([y, n])
        self.primal = float(np.hypot(np.linalg.norm(missed), np.linalg.norm(beyond)))
        self.steps += 1
        return np.concatenate([t - _OVERSTEP * s * rest, s * n])

    def _best(self, left: Array, n: Array, missed: Array) -> tuple[Array, Array]:
        """Return the best ``y`` for the prices `n` of bounds on entries, and what both leave of ``c - z``."""
        form, rest = self._form, left.copy()
        rest[form.bounded] -= n
        y = form.gram_solve(form.activity(rest) - missed / self.penalty)
        return y, rest - form.adjoint(y)

    def _continue_at(self, state: Array) -> None:
        """Set the state, its nearest point and the move to it."""
        x = self._form.nearest(state[: len(self.x)], self.penalty)
        self.dual = float(np.linalg.norm(x - self.x)) / self.penalty / 2  # the costs have norm one
        self._state, self.x = state, x

    def _set_penalty(self, penalty: float) -> None:
        """Change the penalty at the same ``x``, ``z`` and ``n``."""
        at_rest = np.concatenate([self.x, np.zeros(len(self._state) - len(self.x))])
        self._state = at_rest + penalty / self.penalty * (self._state - at_rest)
        self.penalty = penalty
        self._last.forget()


class _Steps:
    """The last steps of a fixed-point iteration, and Anderson's extrapolation of them (type II; 1965).

    An extrapolated point is kept where the step from it is no longer than the last one before it.

    Parameters
    ----------
    size : int
        Length of the states.
    """

    def __init__(self, size: int) -> None:
        self._ends, self._moves = np.zeros((2, _MEMORY + 1, size))
        self._count = self._known = 0
        self._tried: tuple[Array, float] | None = None

    @property
    def trying(self) -> bool:
        """Whether the last point is extrapolated, and the step from it unknown."""
        return self._tried is not None

    def forget(self) -> None:
        """Forget the steps, as those of another penalty follow."""
        self._known, self._tried = 0, None

    def next(self, start: Array, end: Array) -> Array:
        """Return where to continue after the step from `start` to `end`: at `end`, or where it is better."""
        at = self._count % (_MEMORY + 1)
        move = np.subtract(end, start, out=self._moves[at])
        length = float(np.linalg.norm(move))
        if self._tried is not None:
            before, least = self._tried
            self._tried = None
            if length > least:
                self._known = 0
                return before
        self._ends[at] = end
        self._count += 1
        self._known = min(self._known + 1, _MEMORY + 1)
        if self._count % _EXTRAPOLATE_STEPS or self._known < 3:
            return end
        order = (at - np.arange(self._known)[::-1]) % (_MEMORY + 1)
        differences = np.diff(np.eye(_MEMORY + 1)[order], axis=0)
        changes = differences @ self._moves
        gram = changes @ changes.T
        gram[np.diag_indices(len(gram))] += _EXTRAPOLATION_RIDGE * (np.trace(gram) + length**2) + TINY
        self._tried = end, length
        shares = np.linalg.solve(gram, changes @ move) @ differences
        return end - shares @ self._ends
