"""Problems in many psd matrices whose optimum, or its absence, is known by construction.

Blocks ``X_k``, ``Z_k`` with ``X_k Z_k = 0`` and multipliers give the value, as in :mod:`truth`. The rows are
tilted such that a positive definite point meets them too, and one row fixes the trace: both sides have an
interior, whatever the ranks. Other kinds take one interior away, or every feasible point, or the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la
from truth import Case, rotation, sym

import bregopt as bo

ORDERS = ("equal", "mixed", "ones")
REGULAR = ("strict", "not strict", "variables", "redundant")
NO_INTERIOR = ("face", "dual face")
WITHOUT_OPTIMUM = ("infeasible", "unbounded")
KINDS = REGULAR + NO_INTERIOR + WITHOUT_OPTIMUM


@dataclass(frozen=True, eq=False)
class Blocks:
    """``min sum_k <C_k, X_k> + c'u`` under ``sum_k A_k(X_k) + B u = b`` for psd ``X_k``, and its value.

    Parameters
    ----------
    C : sequence of arrays of shape (n_k, n_k)
    A : sequence of arrays of shape (m, n_k, n_k)
    b : array of shape (m,)
    B : array of shape (m, p)
    c : array of shape (p,)
    value, unit : float
        The optimal value, and the scale of the objective.
    """

    C: Sequence[np.ndarray]
    A: Sequence[np.ndarray]
    b: np.ndarray
    B: np.ndarray
    c: np.ndarray
    value: float
    unit: float

    def problem(self) -> bo.Problem:
        """Return the problem in bregopt's language."""
        X = [bo.PSD(len(C), name=f"X{k}") for k, C in enumerate(self.C)]
        met = [k for k, A in enumerate(self.A) if A.any()] or [0]
        body = sum((bo.inner(self.A[k], X[k]) for k in met[1:]), bo.inner(self.A[met[0]], X[met[0]]))
        objective = sum(
            (bo.inner(C, X_k) for C, X_k in zip(self.C[1:], X[1:], strict=True)), bo.inner(self.C[0], X[0])
        )
        if len(self.c):
            u = bo.Variable(len(self.c))
            body, objective = body + self.B @ u, objective + self.c @ u
        return bo.Problem(bo.Minimize(objective), [body == self.b])

    def permuted(self, order: Sequence[int]) -> Blocks:
        """Return the same problem with its blocks in another order."""
        return replace(self, C=[self.C[k] for k in order], A=[self.A[k] for k in order])

    def merged(self, groups: Sequence[Sequence[int]]) -> Blocks:
        """Return the problem with one block-diagonal matrix for each group of blocks."""
        C = [la.block_diag(*(self.C[k] for k in group)) for group in groups]
        A = [
            np.array([la.block_diag(*(self.A[k][i] for k in group)) for i in range(len(self.b))])
            for group in groups
        ]
        return replace(self, C=C, A=A)

    def scaled(self, cost: float, bounds: float) -> Blocks:
        """Return the problem with all costs and all bounds multiplied.

        Bounds that are all zero state no size of ``X``, so no factor changes it.
        """
        size = bounds if self.b.any() else 1.0
        return replace(
            self,
            C=[cost * C for C in self.C],
            c=cost * self.c,
            b=bounds * self.b,
            value=cost * bounds * self.value,
            unit=abs(cost * size) * self.unit,
        )

    def case(self, kind: str, name: str) -> Case:
        """Return the problem for :func:`truth.answer`, which judges claims about it.

        Errors are judged for regular problems only: without an interior they are first-order bounds.
        """
        regular = kind in REGULAR
        family = "complementary" if regular else kind
        return Case(family, name, self.problem, self.value, self.unit, regular, regular)


def orders_of(rng: np.random.Generator, count: int, kind: str) -> list[int]:
    """Return the orders of `count` blocks: all equal, mixed, or mixed with half of them one."""
    if kind == "equal":
        return [int(rng.integers(2, 6))] * count
    orders = rng.integers(1, 6, count)
    if kind == "ones":
        orders[rng.permutation(count)[: (count + 1) // 2]] = 1
    return orders.tolist()


def many_blocks(
    rng: np.random.Generator,
    orders: Sequence[int],
    kind: str,
    rows: int | None = None,
    met: int | None = None,
) -> Blocks:
    """Return a random problem.

    Parameters
    ----------
    rng : Generator
    orders : sequence of int
    kind : str
        One of `KINDS`. Optima are strictly complementary where the kind is "strict" and random elsewhere.
    rows, met : int, optional
        The number of rows beside that of the trace, and of blocks that each meets; random by default.
    """
    count = len(orders)
    rows = int(rng.integers(1, 2 * count + 4)) if rows is None else rows
    met = int(rng.integers(1, count + 1)) if met is None else met
    X, Z = zip(*(_pair(rng, n, strict=kind == "strict") for n in orders), strict=True)
    if not any(X_k.any() for X_k in X):  # the trace would be zero
        X, Z = ((np.eye(orders[0]), *X[1:]), (np.zeros((orders[0], orders[0])), *Z[1:]))
    weight = sum(map(np.trace, X)) / sum(orders)
    inside = [weight * (0.5 * np.eye(n) + 0.5 * _of_trace_n(rng, n)) for n in orders]
    step = [I_k - X_k for I_k, X_k in zip(inside, X, strict=True)]

    meets = np.zeros((rows, count), dtype=bool)
    for row in meets:
        row[rng.choice(count, met, replace=False)] = True
    A = [
        np.where(meets[:, k, None, None], sym(rng.normal(size=(rows, n, n))), 0) for k, n in enumerate(orders)
    ]
    if kind == "dual face":
        A = _without(A, _ray(rng, X, Z))
    elif kind == "unbounded":
        ray = _ray(rng, [np.eye(n) for n in orders], [np.zeros((n, n)) for n in orders])
        A = _without(A, ray)
    p = int(rng.integers(1, 4)) if kind == "variables" else 0
    B, u, v = rng.normal(size=(rows, p)), rng.normal(size=p), rng.normal(size=p)
    # The tilted rows have the same value at the optimum and at the interior point, whose u is v.
    if kind not in ("dual face", "unbounded"):
        A = _tilted(A, step, meets, B @ (v - u))
        A = [np.concatenate([A_k, np.eye(n)[None]]) for A_k, n in zip(A, orders, strict=True)]
        B = np.concatenate([B, np.zeros((1, p))])
    if kind == "face":
        A = _with_exposing_row(rng, A, X)
        B = np.concatenate([B, np.zeros((len(A[0]) - len(B), p))])
    if kind == "redundant":
        T = rng.normal(size=(2, len(B)))
        A = [np.concatenate([A_k, np.einsum("kl,lij->kij", T, A_k)]) for A_k in A]
        B = np.concatenate([B, T @ B])

    b, y = _applied(A, X) + B @ u, rng.normal(size=len(B))
    if kind == "face":
        b[-1] = 0.0  # not a negative round-off error, which no X meets
    C = [Z_k + np.einsum("r,rij->ij", y, A_k) for A_k, Z_k in zip(A, Z, strict=True)]
    c = B.T @ y
    value = float(b @ y)
    if kind == "infeasible":  # the last two rows add up to  <P, X> = -1  for psd P
        P = [np.diag(rng.uniform(0, 1, n)) for n in orders]
        A = [np.concatenate([A_k, (P_k - A_k[-1])[None]]) for A_k, P_k in zip(A, P, strict=True)]
        b, B, value = np.append(b, -1 - b[-1]), np.concatenate([B, -B[-1:]]), np.inf
    elif kind == "unbounded":
        rate = 1 + sum(np.vdot(*both) for both in zip(Z, ray, strict=True))  # the value falls by 1 along it
        C = [C_k - rate * D for C_k, D in zip(C, ray, strict=True)]
        value = -np.inf
    unit = np.sqrt(sum((C_k**2).sum() for C_k in C) * sum((X_k**2).sum() for X_k in X))
    return Blocks(C, A, b, B, c, value, float(unit))


def block_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield problems of every kind and every choice of orders, for :class:`truth.Tally`."""
    for kind in KINDS:
        for orders in ORDERS:
            for k in range(count):
                blocks = many_blocks(rng, orders_of(rng, int(rng.integers(2, 13)), orders), kind)
                yield blocks.case(kind, f"{kind}, {orders} {k}")


def _pair(rng: np.random.Generator, n: int, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return psd matrices with ``X Z = 0``, whose ranks add up to `n`, or to less if not `strict`."""
    r = int(rng.integers(0, n + 1))
    s = n - r if strict else int(rng.integers(0, n - r + 1))
    Q, size = rotation(rng, n), rng.uniform(0.3, 3, n)
    return (Q[:, :r] * size[:r]) @ Q[:, :r].T, (Q[:, n - s :] * size[n - s :]) @ Q[:, n - s :].T


def _of_trace_n(rng: np.random.Generator, n: int) -> np.ndarray:
    G = rng.normal(size=(n, n))
    return n * (G @ G.T) / np.vdot(G, G)


def _applied(A: Sequence[np.ndarray], X: Sequence[np.ndarray]) -> np.ndarray:
    return sum(np.einsum("rij,ij->r", A_k, X_k) for A_k, X_k in zip(A, X, strict=True))


def _tilted(
    A: Sequence[np.ndarray], step: Sequence[np.ndarray], meets: np.ndarray, change: np.ndarray
) -> list[np.ndarray]:
    """Return rows, changed in the blocks that they meet, whose value changes by ``-change`` along a step."""
    length = meets @ np.array([np.vdot(d, d) for d in step])
    t = (_applied(A, step) + change) / np.where(length > 0, length, 1.0)
    return [
        A_k - (t * meets[:, k])[:, None, None] * d for k, (A_k, d) in enumerate(zip(A, step, strict=True))
    ]


def _ray(rng: np.random.Generator, X: Sequence[np.ndarray], Z: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a psd matrix of rank one in the range of one ``X_k``, and zeros; ``<Z_k, D>`` is zero."""
    D = [np.zeros_like(Z_k) for Z_k in Z]
    k = int(rng.choice([k for k, X_k in enumerate(X) if X_k.any()]))
    d = X[k] @ rng.normal(size=len(X[k]))
    D[k] = np.outer(d, d) / (d @ d)
    return D


def _without(A: Sequence[np.ndarray], D: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return rows that vanish at `D`, of norm one."""
    t = _applied(A, D)
    return [A_k - t[:, None, None] * D_k for A_k, D_k in zip(A, D, strict=True)]


def _with_exposing_row(
    rng: np.random.Generator, A: Sequence[np.ndarray], X: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return rows with one more, of value zero, that holds a block on a face which contains ``X_k``."""
    singular = [k for k, X_k in enumerate(X) if np.linalg.matrix_rank(X_k) < len(X_k)]
    exposing = [np.zeros_like(X_k) for X_k in X]
    if singular:
        k = int(rng.choice(singular))
        w, Q = np.linalg.eigh(X[k])
        null = Q[:, w < 1e-9]
        v = null @ rng.normal(size=null.shape[1])
        exposing[k] = np.outer(v, v)
    return [np.concatenate([A_k, E[None]]) for A_k, E in zip(A, exposing, strict=True)]
