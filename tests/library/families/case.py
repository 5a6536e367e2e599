"""A problem and its truth: how a case states its optimum, and the draws that its chapters share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import bregopt as bo

ROUND_OFF = 1e-11  # of a truth that is computed in floating point, relative to the terms of the objective
EXACT = 1e-12  # of an exact truth: the evaluation of the objective at an answer rounds, too


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and its truth.

    Parameters
    ----------
    family, name : str
    make : callable
        Returns a new ``bo.Problem``.
    value : float
        The optimal value; ``inf`` if the problem is infeasible, ``-inf`` if it is unbounded, whatever its
        sense.
    unit : float
        The largest sum of magnitudes of the terms that value or bound consist of at the optimum, but no more
        than the scale of the objective that the data state.
    attained : bool
        Whether primal and dual optima exist and agree, so that error and bound have to hold.
    well_posed : bool
        Whether an answer that is not optimal is a loss.
    precision : float
        The round-off of `value`, relative to value and `unit`.
    scale : float
        The terms of the objective's evaluation where they exceed `unit`: it rounds relative to them.
    distance : float
        The relative change of bounds or costs that takes the optimum or the interior away, or gives a problem
        without an optimum one. Tolerances beyond it blur the difference.
    nearest : dict, optional
        The arguments of ``bo.nearest_correlation``, of the same problem.
    X : array of shape (n, n), optional
        The optimal matrix where it is unique and known; `nearest` may add to its diagonal.
    """

    family: str
    name: str
    make: Callable[[], bo.Problem]
    value: float
    unit: float = 1.0
    attained: bool = True
    well_posed: bool = True
    precision: float = ROUND_OFF
    scale: float = 0.0
    distance: float = np.inf
    nearest: Mapping[str, Any] | None = None
    X: np.ndarray | None = None

    @property
    def exact(self) -> bool:
        """Whether the truth is that of the data as they are stored."""
        return self.precision == EXACT

    @property
    def round_off(self) -> float:
        """How much the truth, and the evaluation of the objective at an answer, may be off."""
        terms, value = max(self.unit, self.scale), abs(self.value) if np.isfinite(self.value) else 0.0
        return EXACT * value + 2**-48 * terms if self.exact else self.precision * (terms + value)

    def cancels(self, value: float) -> bool:
        """Whether the optimum is cancellation of its terms: gaps are then relative to a hundredth of them.

        Where there is no optimum, within the tolerance, it is the `value` of an answer.
        """
        return abs(self.value if np.isfinite(self.value) else value) <= self.unit / 100


@dataclass(frozen=True, eq=False)
class Data:
    """``min <C, X> + c'u`` under ``A(X) + B u = b``, >= where `loose`, for ``X`` psd; `X` is an answer."""

    C: np.ndarray
    A: np.ndarray
    b: np.ndarray
    B: np.ndarray | None = None
    c: np.ndarray | None = None
    loose: np.ndarray | None = None
    X: np.ndarray | None = None

    def problem(self) -> bo.Problem:
        """Return the problem in bregopt's language."""
        X = bo.PSD(len(self.C))
        body, objective = bo.inner(self.A, X), bo.inner(self.C, X)
        if self.B is not None:
            u = bo.Variable(self.B.shape[1])
            body, objective = body + self.B @ u, objective + self.c @ u
        loose = np.zeros(len(self.b), dtype=bool) if self.loose is None else self.loose
        equal = np.flatnonzero(~loose)
        rows = [body[equal] == self.b[equal]] if len(equal) else []
        rows += [body[loose.nonzero()[0]] >= self.b[loose]] if loose.any() else []
        return bo.Problem(bo.Minimize(objective), rows)

    def mixed(self, rng: np.random.Generator) -> Data:
        """Return the same problem in rotated coordinates, with combined rows."""
        n, m = len(self.C), len(self.b)
        Q, T = rotation(rng, n), rng.normal(size=(m, m)) + 2 * np.eye(m)
        A = np.einsum("kl,lij->kij", T, self.A)
        return Data(sym(Q @ self.C @ Q.T), sym(Q @ A @ Q.T), T @ self.b)


def sym(A: np.ndarray) -> np.ndarray:
    """Return the symmetric part of one matrix or of each of a stack."""
    return (A + np.swapaxes(A, -1, -2)) / 2


def rotation(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return an orthogonal matrix."""
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def of_norm_one(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    """Return a stack of random symmetric matrices of Frobenius norm one."""
    A = sym(rng.normal(size=(m, n, n)))
    return A / np.linalg.norm(A, axis=(1, 2))[:, None, None]


def pair(
    rng: np.random.Generator, n: int, rank: int, conditioning: float = 10.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return psd matrices with ``X Z = 0``, ranks that add up to `n`, and largest eigenvalue one."""
    Q = rotation(rng, n)
    x, z = (np.geomspace(1, 1 / conditioning, r) for r in (rank, n - rank))
    return (Q[:, :rank] * x) @ Q[:, :rank].T, (Q[:, rank:] * z) @ Q[:, rank:].T


def regular_size(rng: np.random.Generator, n: int, rank: int) -> int:
    """Return a number of rows with which a random pair is nondegenerate on both sides."""
    return int(rng.integers(rank * (rank + 1) // 2, rank * n - rank * (rank - 1) // 2 + 1))
