"""The maximum cut of a graph, exactly: branch and bound with proven bounds.

Each node fixes some products ``x_i x_j`` of the signs, entries of ``X = x x'``, to 1 (one side) or -1 (cut).
``prob.bound`` proves an upper bound of all cuts below the node. Weights are integers, so a node is cut off as
soon as its bound is below the best cut plus one, and no rounding can make that wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import bregopt as bo


def maximum_cut(W: np.ndarray, seed: int = 0) -> tuple[int, np.ndarray, int]:
    """Return the weight of a maximum cut of integer weights, its signs, and the number of nodes.

    Parameters
    ----------
    W : int array of shape (n, n)
        Symmetric, with zeros on the diagonal.
    seed : int
        Of the random hyperplanes that round answers to cuts (Goemans and Williamson 1995).
    """
    n, rng = len(W), np.random.default_rng(seed)
    i, j = np.triu_indices(n, 1)
    X = bo.PSD(n, name="X")
    products = bo.between(X[i, j], -1, 1)
    weight = bo.inner(-W / 4, X) + float(W.sum()) / 4
    prob = bo.Problem(bo.Maximize(weight), [bo.diag(X) == 1, products])
    best, signs = 0, np.ones(n)
    nodes: list[tuple[float, int, dict[int, float]]] = [(math.inf, 0, {})]
    for count in itertools.count(1):
        live = [node for node in nodes if node[0] >= best + 1]
        if not live:
            return best, signs, count - 1
        node = max(live, key=lambda node: node[0])
        nodes = [other for other in live if other is not node]
        value = np.full(len(i), np.nan)
        value[list(node[2])] = list(node[2].values())
        found = prob.bound({products: value}, tol=1e-7)
        if found.X is None or found.value < best + 1:
            continue
        cut, x = rounded(W, found.X, rng)
        if cut > best:
            best, signs = cut, x
        entries = np.abs(np.asarray(found.X)[i, j])
        entries[list(node[2])] = np.inf
        branch = int(np.argmin(entries))  # the most undecided product
        nodes += [(found.value, count, closed({**node[2], branch: s}, n, i, j)) for s in (-1.0, 1.0)]
    raise AssertionError


def closed(fixed: Mapping[int, float], n: int, i: np.ndarray, j: np.ndarray) -> dict[int, float]:
    """Return the products that follow from fixed ones: ``x_i x_k = x_i x_j x_j x_k``."""
    sign = np.zeros((n, n))
    for k, s in fixed.items():
        sign[i[k], j[k]] = sign[j[k], i[k]] = s
    for _ in range(n):
        implied = np.sign(sign @ sign)
        sign = np.where(sign == 0, implied, sign)
    return {int(k): float(sign[i[k], j[k]]) for k in np.flatnonzero(sign[i, j])}


def rounded(W: np.ndarray, X: Any, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Return the best of some random roundings of an answer, improved by single moves."""
    d, Q = np.linalg.eigh(np.asarray(X))
    F = Q * np.sqrt(np.maximum(d, 0))
    best, signs = -1, np.ones(len(W))
    for _ in range(20):
        x = np.where(F @ rng.normal(size=len(W)) >= 0, 1.0, -1.0)
        while ((gain := x * (W @ x)) > 0).any():
            k = int(np.argmax(gain))
            x[k] = -x[k]
        cut = round((W.sum() - x @ W @ x) / 4)
        if cut > best:
            best, signs = cut, x
    return best, signs


if __name__ == "__main__":
    outer = [(k, (k + 1) % 5) for k in range(5)]
    spokes = [(k, k + 5) for k in range(5)]
    inner = [(5 + k, 5 + (k + 2) % 5) for k in range(5)]
    rng = np.random.default_rng(1)
    W = np.zeros((10, 10), dtype=int)
    for a, b in outer + spokes + inner:  # Petersen's graph
        W[a, b] = W[b, a] = rng.integers(5, 16)
    value, signs, nodes = maximum_cut(W)
    print(f"maximum cut {value}, proven with {nodes} nodes: {signs.astype(int)}")
