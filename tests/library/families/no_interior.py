"""Problems without an interior, and nearly dependent rows.

An optimum that one side does not attain, a duality gap, or no optimum. The classical examples are posed
alone, rotated, and joined to a well-posed problem such that no single row reveals them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from families.case import Case, Data, of_norm_one, sym
from families.linear import complementary


def hard_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield problems with an attained optimum that are nearly degenerate or whose solutions are on a face."""
    for k in range(count):
        data, value, unit = complementary(rng, "plain")
        A = np.concatenate([data.A, data.A[:1] + 1e-6 * of_norm_one(rng, 1, len(data.C))])
        b = np.append(data.b, float(np.vdot(A[-1], data.X)))
        near = Data(data.C, A, b)
        yield Case("nearly redundant", f"{k}", near.problem, value, unit, well_posed=False)
    for k in range(count):
        data, value, unit = complementary(rng, "plain")
        n = len(data.C)
        joined = join(data, Data(np.eye(2), np.eye(2)[None], np.zeros(1)), rng, n)
        yield Case("face", f"{k}", joined.problem, value, unit, well_posed=False)


def unit_entry(n: int, i: int, j: int) -> np.ndarray:
    """Return the symmetric matrix with ``<A, X> = X_ij``."""
    return sym(np.outer(np.eye(n)[i], np.eye(n)[j]))


def ill_posed() -> dict[str, tuple[Data, float]]:
    """Return the classical examples of orders two and three, and their optimal values."""
    e = unit_entry
    return {
        # X_22 = 0 forces X_12 = 0, with no finite multiplier.
        "dual not attained": (
            Data(2 * e(2, 0, 1), np.array([e(2, 1, 1), e(2, 0, 0)]), np.array([0.0, 1.0])),
            0.0,
        ),
        # X_12 = 1 with X_11 arbitrarily small.
        "primal not attained": (Data(e(2, 0, 0), np.array([e(2, 0, 1)]), np.array([1.0])), 0.0),
        # X_22 = 0 forces X_23 = 0 and X_11 = 1; the dual value is 0.
        "duality gap": (
            Data(e(3, 0, 0), np.array([e(3, 1, 1), e(3, 0, 0) + 2 * e(3, 1, 2)]), np.array([0.0, 1.0])),
            1.0,
        ),
        # X_11 = 0 and X_12 = 1 contradict each other, with no multipliers that prove it.
        "weakly infeasible": (
            Data(e(2, 1, 1), np.array([e(2, 0, 0), e(2, 0, 1)]), np.array([0.0, 1.0])),
            np.inf,
        ),
        # X_12 = -sqrt(X_11) is unbounded below, but along no ray.
        "weakly unbounded": (Data(2 * e(2, 0, 1), np.array([e(2, 1, 1)]), np.array([1.0])), -np.inf),
        "infeasible": (
            Data(e(2, 1, 1), np.array([e(2, 0, 0), e(2, 0, 1)]), np.array([-1.0, 1.0])),
            np.inf,
        ),
        "unbounded": (Data(-e(2, 0, 0), np.array([e(2, 0, 1)]), np.array([1.0])), -np.inf),
    }


def join(first: Data, second: Data, rng: np.random.Generator, n: int) -> Data:
    """Return two problems in one matrix, in rotated coordinates and with their rows combined."""
    order = n + len(second.C)

    def placed(S: np.ndarray, at: int) -> np.ndarray:
        whole = np.zeros((*S.shape[:-2], order, order))
        whole[..., at : at + S.shape[-1], at : at + S.shape[-1]] = S
        return whole

    A = np.concatenate([placed(first.A, 0), placed(second.A, n)])
    C = placed(first.C, 0) + placed(second.C, n)
    return Data(C, A, np.concatenate([first.b, second.b])).mixed(rng)


def ill_posed_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield each example alone, rotated, and joined to a complementary pair."""
    for name, (data, value) in ill_posed().items():
        for scale in 10.0 ** rng.integers(-3, 4, count):
            scaled = Data(data.C, data.A, scale * data.b)
            yield Case(name, f"alone {scale:g}", scaled.problem, scale * value, scale, False, False)
        for k in range(count):
            yield Case(name, f"turned {k}", data.mixed(rng).problem, value, 1.0, False, False)
        for k in range(count):
            own, known, unit = complementary(rng, "plain")
            both = join(own, data, rng, len(own.C))
            yield Case(name, f"joined {k}", both.problem, known + value, unit + 1.0, False, False)
