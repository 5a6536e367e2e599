"""Answers that a route spoils: perturbed, scaled, not psd, with wrong multipliers, or with words of no proof.

A spoiled route runs a route of bregopt and changes its answer. The driver has to find out what is left of it:
no status, value, bound or error may say more than is true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bregopt.program import Answer, LowRank, StopReason
from bregopt.routes.registry import resolve
from families.case import sym

Spoil = Callable[[np.random.Generator, float, Answer], dict[str, Any]]


def noisy(rng: np.random.Generator, size: float, M: Any) -> Any:
    """Return an array with noise relative to its norm; a matrix stays symmetric, and a factor one."""
    if isinstance(M, LowRank):
        return LowRank(noisy(rng, size, M.factor))
    noise = rng.normal(size=M.shape)
    square = M.ndim == 2 and M.shape[0] == M.shape[1]
    return M + size * np.linalg.norm(M) * (sym(noise) if square else noise)


def each(answer: Answer, change: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """Return the matrices, changed where they are dense."""
    return {"X": [X if isinstance(X, LowRank) else change(X) for X in answer.X]}


def shifted(X: np.ndarray, by: float) -> np.ndarray:
    """Return the matrix with eigenvalues shifted relative to its norm."""
    return X + by * np.linalg.norm(X) * np.eye(len(X))


def leading(X: np.ndarray) -> np.ndarray:
    """Return the projection on the eigenvector of the largest eigenvalue."""
    q = np.linalg.eigh(X)[1][:, -1]
    return np.outer(q, q)


def one_sign(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """Return multipliers, one of them with the other sign."""
    return np.where(np.arange(len(y)) == rng.integers(max(len(y), 1)), -y, y)


# Each returns the parts of an answer that it changes, by a random relative size.
SPOILS: dict[str, Spoil] = {
    "matrix perturbed": lambda rng, size, a: {"X": [noisy(rng, size, X) for X in a.X]},
    "matrix larger": lambda rng, size, a: each(a, lambda X: (1 + size) * X),
    "matrix smaller": lambda rng, size, a: each(a, lambda X: (1 - size) * X),
    "matrix not psd": lambda rng, size, a: each(a, lambda X: shifted(X, -size)),
    "matrix farther inside": lambda rng, size, a: each(a, lambda X: shifted(X, size)),
    "identity": lambda rng, size, a: each(a, lambda X: np.eye(len(X))),
    "multipliers perturbed": lambda rng, size, a: {"y": noisy(rng, size, a.y)},
    "multipliers larger": lambda rng, size, a: {"y": (1 + size) * a.y},
    "multipliers enormous": lambda rng, size, a: {"y": 1e6 * a.y},
    "other signs": lambda rng, size, a: {"y": -a.y},
    "one other sign": lambda rng, size, a: {"y": one_sign(rng, a.y)},
    "no multipliers": lambda rng, size, a: {"y": 0 * a.y},
    "variables perturbed": lambda rng, size, a: {"u": noisy(rng, size, a.u)},
    "cone's multipliers": lambda rng, size, a: {
        "S": a.S and [None if S is None else noisy(rng, size, S) for S in a.S]
    },
    "infeasible": lambda rng, size, a: {"stop": StopReason.INFEASIBLE},
    "infeasible by signs": lambda rng, size, a: {"stop": StopReason.INFEASIBLE, "y": -a.y},
    "infeasible by chance": lambda rng, size, a: {
        "stop": StopReason.INFEASIBLE,
        "y": rng.normal(size=a.y.shape),
    },
    "unbounded": lambda rng, size, a: {"stop": StopReason.UNBOUNDED},
    "unbounded by an eigenvector": lambda rng, size, a: {"stop": StopReason.UNBOUNDED, **each(a, leading)},
    "converged": lambda rng, size, a: {"stop": StopReason.CONVERGED},
}


def spoiled(route: str, kind: str, seed: int) -> type:
    """Return the class of a route whose answer is spoiled; one that stalled claims that it converged."""
    base = resolve(route)[1]

    class Spoiled(base):  # type: ignore[misc, valid-type]
        name: ClassVar[str] = "spoiled"

        def solve(self, program: Any, settings: Any, start: Any, progress: Any) -> Answer:
            answer = super().solve(program, settings, start, progress)
            if answer.stop is StopReason.STALLED:
                answer = replace(answer, stop=StopReason.CONVERGED)
            rng = np.random.default_rng(seed)
            return replace(answer, **SPOILS[kind](rng, float(10 ** rng.uniform(-10, 0)), answer))

    return Spoiled
