"""Answers that a route spoils: perturbed, scaled, not psd, with wrong multipliers, or with a word of no proof.

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

Spoil = Callable[[np.random.Generator, Answer], dict[str, Any]]


def _noise(rng: np.random.Generator, M: Any, size: float) -> Any:
    """Return an array with noise relative to its norm; a factor stays one."""
    if isinstance(M, LowRank):
        return LowRank(_noise(rng, M.factor, size))
    noise = rng.normal(size=M.shape)
    return M + size * np.linalg.norm(M) * (sym(noise) if M.ndim == 2 and len(M) == M.shape[1] else noise)


def _each(answer: Answer, change: Callable[[Any], Any]) -> dict[str, Any]:
    return {"X": [X if isinstance(X, LowRank) else change(X) for X in answer.X]}


def _size(rng: np.random.Generator) -> float:
    return float(10 ** rng.uniform(-10, 0))


def _shift(X: np.ndarray, by: float) -> np.ndarray:
    return X + by * np.linalg.norm(X) * np.eye(len(X))


def _leading(X: np.ndarray) -> np.ndarray:
    """Return the projection on the eigenvector of the largest eigenvalue."""
    q = np.linalg.eigh(X)[1][:, -1]
    return np.outer(q, q)


SPOILS: dict[str, Spoil] = {
    "matrix perturbed": lambda rng, a: {"X": [_noise(rng, X, _size(rng)) for X in a.X]},
    "matrix larger": lambda rng, a: _each(a, lambda X, s=_size(rng): (1 + s) * X),
    "matrix smaller": lambda rng, a: _each(a, lambda X, s=_size(rng): (1 - s) * X),
    "matrix not psd": lambda rng, a: _each(a, lambda X, s=_size(rng): _shift(X, -s)),
    "matrix shifted inside": lambda rng, a: _each(a, lambda X, s=_size(rng): _shift(X, s)),
    "identity": lambda rng, a: _each(a, lambda X: np.eye(len(X))),
    "multipliers perturbed": lambda rng, a: {"y": _noise(rng, a.y, _size(rng))},
    "multipliers larger": lambda rng, a: {"y": (1 + _size(rng)) * a.y},
    "multipliers enormous": lambda rng, a: {"y": 1e6 * a.y},
    "signs of multipliers": lambda rng, a: {"y": -a.y},
    "one sign": lambda rng, a: {
        "y": np.where(np.arange(len(a.y)) == rng.integers(max(len(a.y), 1)), -a.y, a.y)
    },
    "no multipliers": lambda rng, a: {"y": 0 * a.y},
    "variables perturbed": lambda rng, a: {"u": _noise(rng, a.u, _size(rng))},
    "cone's multipliers": lambda rng, a: {
        "S": None if a.S is None else [None if S is None else _noise(rng, S, _size(rng)) for S in a.S]
    },
    "infeasible": lambda rng, a: {"stop": StopReason.INFEASIBLE},
    "infeasible by signs": lambda rng, a: {"stop": StopReason.INFEASIBLE, "y": -a.y},
    "infeasible by chance": lambda rng, a: {"stop": StopReason.INFEASIBLE, "y": rng.normal(size=a.y.shape)},
    "unbounded": lambda rng, a: {"stop": StopReason.UNBOUNDED},
    "unbounded by an eigenvector": lambda rng, a: {"stop": StopReason.UNBOUNDED, **_each(a, _leading)},
    "converged": lambda rng, a: {"stop": StopReason.CONVERGED},
}


def spoiled(route: str, kind: str, seed: int) -> type:
    """Return the class of a route whose answer is spoiled, and which claims that it converged."""
    base = resolve(route)[1]

    class Spoiled(base):  # type: ignore[misc, valid-type]
        name: ClassVar[str] = "spoiled"

        def solve(self, program: Any, settings: Any, start: Any, progress: Any) -> Answer:
            answer = super().solve(program, settings, start, progress)
            if answer.stop is StopReason.STALLED:
                answer = replace(answer, stop=StopReason.CONVERGED)
            return replace(answer, **SPOILS[kind](np.random.default_rng(seed), answer))

    return Spoiled
