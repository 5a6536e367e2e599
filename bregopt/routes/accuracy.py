"""The accuracy of an answer in the user's terms: his units and labels, and when it is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify.accuracy import (
    Accuracy,
    Near,
    accuracies,
    ball_around,
    has_closed_form,
    unknown_accuracy,
)
from bregopt.certify.certificate import ROUND_OFF_OF_TERMS
from bregopt.program import LowRank, Program, scale_of
from bregopt.records import cached_property, dataclass

if TYPE_CHECKING:
    from bregopt.routes.solution import Solution

_STEPS_TO_HALVE = 2

_NO_PROGRAM = "the answer does not hold its problem"
_TERMS = "entropies and exponentials are not treated"
_OTHER = "the problem was solved in terms of another matrix"
_FEW = 400  # entries of matrices up to which the theorem takes less than a tenth of a second


@dataclass(frozen=True, eq=False)
class Units:
    """``X = inv(S) Y inv(S) + Diag(t)`` for the matrix ``Y`` of the program.

    Parameters
    ----------
    s : array of shape (n,)
        The diagonal of ``S``, above zero.
    t : array of shape (n,)
    """

    s: Array
    t: Array

    def scaled(self, scale: Array) -> Units:
        """Return the units of ``Diag(scale) X Diag(scale)``."""
        return Units(self.s / scale, self.t * scale**2)

    def of_program(self, X: Array) -> Array:
        """Return ``Y``."""
        return (X - np.diag(self.t)) * np.outer(self.s, self.s)

    def of_user(self, known: Accuracy) -> Accuracy:
        """Return the accuracy of ``X`` from that of ``Y``."""
        norm = min(known.norm / float(self.s.min()) ** 2, float(np.linalg.norm(known.entries / self._outer)))
        return Accuracy.of(known.entries / self._outer, norm, known.reason)

    @property
    def _outer(self) -> Array:
        return np.outer(self.s, self.s)


def accuracy_of(solution: Solution) -> Accuracy | tuple[Accuracy, ...] | None:
    """Return the accuracy of each matrix of an answer, None without one."""
    if solution.X is None:
        return None
    raw = solution._in_program or solution
    given = solution.X if isinstance(solution.X, tuple) else (solution.X,)
    if raw._program is None or raw.duals is None:
        found = [unknown_accuracy(own.shape[0], _NO_PROGRAM) for own in given]
    elif raw._program.tangent is not None:  # whose optimum may be another one
        found = [unknown_accuracy(own.shape[0], _TERMS) for own in given]
    else:
        found = _known(solution, raw, given)
    labeled = [_labeled(known, own) for known, own in zip(found, given, strict=True)]
    return tuple(labeled) if isinstance(solution.X, tuple) else labeled[0]


def _known(solution: Solution, raw: Solution, given: tuple[Any, ...]) -> list[Accuracy]:
    program, units = raw._program, solution._units
    assert program is not None
    own = [_of_program(X, units) for X in given]
    orders = [block.n for block in program.blocks]
    if [X.shape[0] for X in own] != orders[: len(own)]:
        return [unknown_accuracy(X.shape[0], _OTHER) for X in given]
    X, (_, u, y) = [*own, *raw.X[len(own) :]], raw._point
    forms = [np.iscomplexobj(each) for each in given]
    if not any(program.divergences):
        found = _proven(program, X, u, y, forms)
    else:
        found = accuracies(program, X, u, y, raw._S)
        if not has_closed_form(program):
            found = _sharper(found, _of_refined(program, raw, X))
            if _entries(program) <= _FEW:
                found = _sharper(found, _proven(program, X, u, y, forms))
    return [_of_user(known, X if units is None else units, X) for known, X in zip(found, given, strict=False)]


def _entries(program: Program) -> int:
    return sum(block.n * (block.n + 1) // 2 for block in program.blocks)


def _proven(
    program: Program, X: list[Any], u: Array, y: Array, hermitian: Sequence[bool]
) -> tuple[Accuracy, ...]:
    """Return the accuracy by the theorem of Newton and Kantorovich."""
    from bregopt.rigorous.newton_kantorovich import newton_kantorovich  # only those who ask wait
    from bregopt.rigorous.reduction import with_violations

    program, u = with_violations(program, X, u)
    return newton_kantorovich(program, X, u, y, hermitian)


def _of_refined(program: Program, raw: Solution, X: list[Any]) -> tuple[Accuracy, ...] | None:
    """Return the accuracy by an answer that Newton's method refines, None where it has none."""
    from bregopt.routes.derivatives.derivative import optimum_of  # only those of weighted distances wait

    try:
        at, _ = optimum_of(program, raw)
    except ValueError:
        return None
    return accuracies(program, X, at.u, at.y, at.slacks, at.X)


def _sharper(found: tuple[Accuracy, ...], others: tuple[Accuracy, ...] | None) -> tuple[Accuracy, ...]:
    """Return the sharper one of two bounds on each entry, as both hold."""
    if others is None:
        return found
    both = []
    for a, b in zip(found, others, strict=True):
        entries = np.minimum(a.entries, b.entries)
        reason = min(a, b, key=lambda each: int(np.isinf(each.entries).sum())).reason
        both.append(Accuracy.of(entries, min(a.norm, b.norm), reason))
    return tuple(both)


def _of_program(X: Any, units: Units | None) -> Any:
    """Return the matrix of the program."""
    if isinstance(X, LowRank):
        return X
    X = np.asarray(X)
    if np.iscomplexobj(X):
        return np.block([[X.real, -X.imag], [X.imag, X.real]])
    return X if units is None else units.of_program(X)


def _of_user(known: Accuracy, units: Any, X: Any) -> Accuracy:
    if isinstance(units, Units):
        return units.of_user(known)
    if isinstance(X, np.ndarray) and np.iscomplexobj(X):  # a block holds its real and its imaginary part
        n = len(X)
        entries = np.hypot(known.entries[:n, :n], known.entries[n:, :n])
        return Accuracy.of(entries, min(known.norm, float(np.linalg.norm(entries))), known.reason)
    return known


def _labeled(known: Accuracy, X: Any) -> Accuracy:
    """Return the accuracy with the labels of a DataFrame."""
    if not hasattr(X, "columns"):
        known.entries.setflags(write=False)
        return known
    return known._replace(entries=type(X)(known.entries, index=X.index, columns=X.columns))


def summary(found: Accuracy | tuple[Accuracy, ...] | None) -> str | None:
    """Return what a card says of the accuracy; None if nothing is known."""
    each = found if isinstance(found, tuple) and not isinstance(found, Accuracy) else (found,)
    known = [own.phrase for own in each if isinstance(own, Accuracy) and np.isfinite(own.largest)]
    return f"X is {'; '.join(known)}" if known else None


class NearnessRule:
    """The rule by which methods for nearness problems stop, once the certificate meets the tolerance.

    They go on until the entries of ``X`` are certified to `tol_X`, and value and bound agree to `tol`,
    relative to the larger of them. They end earlier where two steps do not halve the distance from that.
    Entries are relative to the largest entry of ``X``; where rows fix its diagonal, to ``sqrt(X_ii X_jj)``,
    which is one for correlations.

    Parameters
    ----------
    program : Program
    tol, tol_X : float

    Attributes
    ----------
    is_nearest : bool
        Whether the last point is nearer to what is asked for than all earlier ones.
    """

    def __init__(self, program: Program, tol: float, tol_X: float) -> None:
        self._program, self._tol, self._tol_X = program, tol, tol_X
        self._least = self._halved = math.inf  # the least distance, and that of the last halving
        self._steps = 0  # since then
        self.is_nearest = False

    @property
    def is_reached(self) -> bool:
        """Whether a point was as near as asked for."""
        return self._least <= 1

    @property
    def applies(self) -> bool:
        """Whether the accuracy of the matrices of the program is known at each step."""
        return has_closed_form(self._program)

    @cached_property
    def _fixed(self) -> list[bool]:
        """Whether the rows fix the diagonal of each block."""
        found = [0] * len(self._program.blocks)
        for term in self._program.A.terms:
            if term.rows.single:
                t = term.rows.coordinates()
                found[term.block] += int((self._program.bounds.equal[term.at[t.row]] & (t.i == t.j)).sum())
        return [count >= block.n for count, block in zip(found, self._program.blocks, strict=True)]

    def stops(self, near: Near | None, primal: float, dual: float) -> bool:
        """Whether a method stops at a point, of which the objective and the bound are known.

        The distance is infinite where no feasible point is near.
        """
        distance = math.inf if near is None else self._distance(near, primal, dual)
        self.is_nearest = distance < self._least
        self._least = min(distance, self._least)
        self._steps += 1
        if distance < math.inf and distance <= self._halved / 2:
            self._halved, self._steps = distance, 0
        return distance <= 1 or self._steps == _STEPS_TO_HALVE

    def _distance(self, near: Near, primal: float, dual: float) -> float:
        """Return the distance from what is asked for; at most one where it is reached."""
        program, worst = self._program, 0.0
        for b, block in enumerate(program.blocks):
            entries, _ = ball_around(block, near, b)
            entries = np.where(np.isfinite(entries), entries, 0.0)  # those without weight
            diagonal = np.maximum(near.F[b].diagonal(), 0.0)
            if self._fixed[b]:
                root = np.sqrt(diagonal)
                off = entries / np.maximum(root[:, None] * root, TINY)
                np.fill_diagonal(off, 0.0)
                worst = max(worst, float(off.max(initial=0.0)))
            else:
                worst = max(worst, float(entries.max()) / max(float(diagonal.max()), TINY))
        size = max(abs(primal - program.stated_constant), abs(dual - program.stated_constant))
        least = ROUND_OFF_OF_TERMS * scale_of(program).objective
        excess = 0.0 if near.excess <= least else near.excess / max(self._tol * size, TINY)
        return max(worst / self._tol_X, excess)
