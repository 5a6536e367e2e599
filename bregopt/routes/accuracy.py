"""The accuracy of an answer in the user's terms: his units, labels and complex matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.accuracy import Accuracy, accuracies, has_closed_form, unknown_accuracy
from bregopt.program import LowRank, Program
from bregopt.program.program import divergence_of
from bregopt.records import dataclass

if TYPE_CHECKING:
    from bregopt.routes.solution import Solution

__all__ = ["Units", "accuracy_of", "summary"]

_NO_PROGRAM = "the answer does not hold its problem"
_OTHER = "the problem was solved in terms of another matrix"


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
    if not any(program.divergences):
        from bregopt.rigorous.newton_kantorovich import newton_kantorovich  # only those who ask wait

        found = newton_kantorovich(program, X, u, y, [np.iscomplexobj(each) for each in given])
    else:
        found = accuracies(program, X, u, y, raw._S)
    if any(program.divergences) and not has_closed_form(program):
        found = _sharper(program, raw, X, found)
    return [_of_user(known, X if units is None else units, X) for known, X in zip(found, given, strict=False)]


def _sharper(
    program: Program, raw: Solution, X: list[Any], found: tuple[Accuracy, ...]
) -> tuple[Accuracy, ...]:
    """Return the accuracy by an answer that Newton's method refines, where it has one that tells more."""
    from bregopt.routes.derivatives.derivative import optimum_of  # only those of weighted distances wait

    try:
        at, _ = optimum_of(program, raw)
    except ValueError:
        return found
    S: list[Array | None] = []
    for b, (block, point) in enumerate(zip(program.blocks, at.points, strict=True)):
        weighted = block.nearness is not None and "weights" in block.nearness.parameters
        if not weighted or block.nearness is None or point.residual is None:
            S.append(None)
            continue
        gradient = block.nearness.mu * divergence_of(block.nearness).gradient(point.X)
        S.append(block.C - program.A.adjoint(at.y, b) + gradient - point.residual)
    finer = accuracies(program, X, at.u, at.y, S, at.X)
    return tuple(min(pair, key=lambda each: each.largest) for pair in zip(found, finer, strict=True))


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
