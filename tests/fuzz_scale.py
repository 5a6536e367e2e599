"""Targets of `fuzz.py`: graphs, many problems, rows in chunks, generated rows, learners and written files.

Answers are compared with enumeration, or with the problem written another way.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.sparse as sp
from fuzz_values import QUICK, hostile, optional, require, sensible, unmodified

import bregopt as bo

FORMATS = ("coo", "csr", "csc", "lil", "dok", "dia", "bsr")


def close(a, b, scale=1.0, digits=1e-6):
    """Whether two numbers agree, relative to their size or a scale."""
    return abs(a - b) <= digits * max(abs(a), abs(b), scale)


# --- Graphs -------------------------------------------------------------------------------------------


def weighted_graph(rng, signed=False):
    """Return the weights of a graph of 2 to 8 vertices: disconnected, complete, integer, huge or tiny."""
    n = int(rng.integers(2, 9))
    W = np.triu(rng.random((n, n)) < rng.choice([0.2, 0.5, 1.0]), 1).astype(float)
    if rng.random() < 0.6:
        W *= rng.random((n, n)) if rng.random() < 0.5 else rng.integers(1, 9, (n, n))
    if signed:
        W *= rng.choice([-1, 1], (n, n))
    W *= 10.0 ** rng.choice([0, 0, 0, -9, 9, -60, 60])
    return W + W.T


def as_graph(rng, W):
    """Return (graph, weights, names): the same graph in one of the forms that are read."""
    n = len(W)
    i, j = np.nonzero(np.triu(W))
    networkx, pandas = optional("networkx"), optional("pandas")
    names = [["a", ("b", 1), 2.5, "ä", "", frozenset([1]), -1, "z"][k] for k in range(n)]
    labels = [f"v{k}" for k in range(n)]

    def edges(kind):
        order = rng.permutation(len(i))
        ends = np.stack([i, j], axis=1)[order]
        ends = np.where(rng.random(len(ends))[:, None] < 0.5, ends, ends[:, ::-1])
        seen, weight = np.unique(ends), W[ends[:, 0], ends[:, 1]]
        if len(ends) and rng.random() < 0.3:  # parallel edges add up
            ends, weight = np.concatenate([ends, ends]), np.concatenate([weight / 4, 0.75 * weight])
        if kind == "strings":
            return [(labels[a], labels[b]) for a, b in ends], weight, [labels[k] for k in seen]
        if kind == "tuples":
            return [((0, int(a)), (0, int(b))) for a, b in ends], weight, [(0, int(k)) for k in seen]
        if kind == "pair":
            return (ends[:, 0], ends[:, 1]), weight, seen.tolist()
        return (ends if rng.random() < 0.5 else ends.tolist()), weight, seen.tolist()

    def of_networkx(multi):
        graph = networkx.MultiGraph() if multi else networkx.Graph()
        graph.add_nodes_from(names)
        for a, b in zip(i, j, strict=True):
            shares = [0.25, 0.75] if multi else [1.0]
            graph.add_edges_from((names[a], names[b], {"w": share * W[a, b]}) for share in shares)
        return graph, "w", names

    forms = [
        lambda: (W, None, list(range(n))),
        lambda: (getattr(sp, f"{rng.choice(FORMATS)}_array")(W), None, list(range(n))),
        lambda: (sp.coo_matrix(W), None, list(range(n))),
        lambda: edges(str(rng.choice(["numbers", "strings", "tuples", "pair"]))),
    ]
    forms += [lambda: of_networkx(bool(rng.integers(2)))] if networkx else []
    forms += [lambda: (pandas.DataFrame(W, index=labels, columns=labels), None, labels)] if pandas else []
    return forms[rng.integers(len(forms))]()


def present(W, names):
    """Return the weights without isolated vertices, if the names are those that occur in edges."""
    kept = np.flatnonzero(W.any(axis=1)) if len(names) < len(W) else range(len(W))
    return W[np.ix_(kept, kept)]


def weights_between(W, part):
    return float(W[part[:, None] != part].sum()) / 2


def assignments(n, k):
    """Return all assignments of `n` vertices to `k` parts."""
    return np.array(list(itertools.product(range(k), repeat=n)))


def checked_cut(W, names, found, allowed, largest, bounded):
    """Check that a cut has an allowed assignment, the weight of it, and a bound that holds for all cuts."""
    W = present(W, names)
    part = np.array([found.assignments[name] for name in names])
    scale = float(np.abs(W).sum()) / 2 or 1.0
    require(len(found.assignments) == len(names), "other vertices than those of the graph")
    require(close(found.cut, weights_between(W, part), scale, 1e-9), "the weight is not that of the parts")
    options = allowed(len(W))
    require((options == part).all(axis=1).any(), f"parts {part} of other sizes than asked")
    values = np.array([weights_between(W, option) for option in options])
    sign = -1.0 if largest else 1.0
    best = float((sign * values).min()) * sign
    require(sign * (found.cut - best) >= -1e-9 * scale, f"a cut {found.cut} better than all, {best}")
    if bounded:
        require(sign * (best - found.bound) >= -1e-9 * scale, f"bound {found.bound} of the best, {best}")
    require(not found.optimal or close(found.cut, best, scale, 1e-9), f"{found.cut} is optimal, not {best}")


def partitions(rng):
    """Cut a graph in parts, and compare with all partitions."""
    W = weighted_graph(rng)
    graph, weights, names = as_graph(rng, W)
    n = len(names)
    k = int(rng.integers(2, max(3, min(n, 5) + 1))) if n <= 6 else 2
    k = k if rng.random() < 0.9 else hostile(rng, n)
    sizes = None
    if rng.random() < 0.5 and isinstance(k, int) and 2 <= k <= n:
        ends = np.sort(rng.choice(np.arange(1, n), k - 1, replace=False))
        sizes = np.diff([0, *ends, n])
        sizes = [sizes, sizes.tolist(), tuple(sizes.tolist()), sizes.astype(np.int8)][rng.integers(4)]
    elif rng.random() < 0.1:
        sizes = hostile(rng, 3)
    bound = ["sdp", "sdp", "triangles", False][rng.integers(4)] if rng.random() < 0.9 else hostile(rng)
    seed = 0 if rng.random() < 0.8 else sensible(rng)
    with unmodified(graph, weights):
        found = bo.partition(graph, k, sizes, weights=weights, bound=bound, seed=seed, **QUICK)
    require(sorted(map(str, itertools.chain(*found.parts))) == sorted(map(str, names)), "not a partition")
    asked = [len(part) for part in found.parts]
    require(sizes is None or asked == [int(size) for size in sizes], f"sizes {asked} for {sizes}")
    require(len(asked) == k and (sizes is not None or max(asked) - min(asked) <= 1), f"sizes {asked}")

    def allowed(n):
        options = assignments(n, k)
        counts = np.stack([(options == p).sum(axis=1) for p in range(k)], axis=1)
        return options[(counts == asked).all(axis=1)]

    checked_cut(W, names, found, allowed, False, bound is not False)
    return found.status


def cuts(rng):
    """Cut a graph in two sides, and compare with all cuts."""
    largest = bool(rng.integers(2))
    W = weighted_graph(rng, signed=largest and rng.random() < 0.5)
    graph, weights, names = as_graph(rng, W)
    n = len(names)
    bound = ["sdp", "sdp", "triangles", False][rng.integers(4)] if rng.random() < 0.9 else hostile(rng)
    own = {}
    if not largest and rng.random() < 0.6:
        first = int(rng.integers(1, n)) if n > 1 else 1
        choices = [{"sizes": (first, n - first)}, {"imbalance": float(rng.random())}]
        choices += [{"imbalance": sensible(rng)}, {"sizes": hostile(rng)}]
        own = choices[rng.choice(4, p=[0.4, 0.4, 0.1, 0.1])]
    with unmodified(graph, weights):
        cut = bo.max_cut if largest else bo.min_balanced_cut
        found = cut(graph, weights, bound=bound, **own, **QUICK)

    def allowed(n):
        options = assignments(n, 2)
        if largest:
            return options
        difference = np.abs(2 * options.sum(axis=1) - n)
        if own.get("sizes") is not None:
            return options[(options == 0).sum(axis=1) == own["sizes"][0]]
        slack = max(n % 2, float(own.get("imbalance", 0.0)) * n + 1e-6)
        return options[(difference <= slack) & (difference < n)]

    checked_cut(W, names, found, allowed, largest, bound is not False)
    return found.status


def thetas(rng):
    """Compare Lovasz's number with the largest stable set, and with that of the complement."""
    n = int(rng.integers(2, 8))
    A = np.triu(rng.random((n, n)) < rng.choice([0.2, 0.5, 0.8]), 1)
    A = (A | A.T).astype(float)
    A = A * (1 if rng.random() < 0.7 else rng.uniform(0.1, 9, (n, n)))  # weights do not count
    A = np.maximum(A, A.T)
    graph, weights, names = as_graph(rng, A)
    del weights
    with unmodified(graph):
        found = bo.lovasz_theta(graph, **QUICK)
    A = present(A, names) > 0
    sets = [np.flatnonzero(row) for row in assignments(len(A), 2)]
    stable = max(len(s) for s in sets if not A[np.ix_(s, s)].any())
    clique = max(len(s) for s in sets if A[np.ix_(s, s)].sum() == len(s) * (len(s) - 1))
    says = f"theta {found.value} by {found.solver}, {found.status}"
    require(found.status == "optimal", f"{says} of a small graph")
    require(found.value >= stable - 1e-4, f"{says}, with {stable} vertices without an edge")
    require(found.dual_value >= stable - 1e-9, f"{says}: bound {found.dual_value} below {stable}")
    require(found.value <= len(A) - clique + 1 + 1e-4, f"{says}, with a clique of {clique}")
    other = bo.lovasz_theta(np.triu(~A, 1) + np.triu(~A, 1).T * 1.0, **QUICK)
    require(found.value * other.value >= len(A) * (1 - 1e-4), f"{says}, times that of the complement")
    return found.status
