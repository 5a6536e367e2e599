"""Targets of `fuzz.py`: graphs, many problems, rows in chunks, generated rows, learners and written files.

Answers are compared with enumeration, or with the problem written another way.
"""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from fuzz_values import QUICK, hostile, optional, quiet, require, sensible, unmodified

import bregopt as bo

BAD_PROBLEM = (ValueError, TypeError, bo.SolverError, FileNotFoundError)
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


# --- Many problems and matrices -----------------------------------------------------------------------


def correlations(rng, count, n):
    """Return matrices with unit diagonal, indefinite as a rule."""
    A = rng.uniform(-1, 1, (count, n, n))
    A = (A + A.transpose(0, 2, 1)) / 2
    A[:, range(n), range(n)] = 1.0
    return A


def agree(found, alone, says, scale=0.0):
    """Check that two answers agree up to their errors, and to the round-off of a scale."""
    require(found.status == alone.status, f"{says}: {found.status}, alone {alone.status}")
    if alone.status == "optimal":
        error = found.error + alone.error + 1e-12 * (abs(found.value) + abs(alone.value) + scale)
        require(abs(found.value - alone.value) <= error, f"{says}: {found.value}, alone {alone.value}")


def many(rng):
    """Solve a list of problems, with good and bad elements, and compare each with the problem alone."""
    n, count = int(rng.integers(2, 5)), int(rng.integers(0, 6))
    A = correlations(rng, 3, n)
    X, floor, S = bo.PSD(n, name="X"), bo.Parameter(name="floor"), bo.Parameter((n, n), name="S")
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, S)), [bo.diag(X) == 1, X[0, n - 1] >= floor])
    fixed = bo.Problem(bo.Minimize(bo.inner(A[0], X)), [bo.diag(X) == 1])
    items, single = [], []
    for _ in range(count):
        kind = rng.integers(6)
        values = {floor: float(rng.choice([-2.0, 0.0, 0.5, 2.0])), S: A[rng.integers(3)]}
        if kind == 0:
            items.append(fixed)
        elif kind == 1:
            items.append((problem, {floor: sensible(rng, n), S: sensible(rng, n)}))
        elif kind == 2:
            items.append((problem, {p.name: value for p, value in values.items()}))
        elif kind == 3 and rng.random() < 0.3:
            items.append(hostile(rng, n))
        else:
            items.append((problem, values))
        single.append(values if isinstance(items[-1], tuple) and kind != 1 else None)
    if items and rng.random() < 0.3:  # the same element again
        items.append(items[0])
        single.append(single[0])
    good = rng.random() < 0.95
    items = [items, tuple(items), iter(items)][rng.integers(3)] if good else hostile(rng, n)
    own = {"chunk": sensible(rng)} if rng.random() < 0.2 else {}
    own |= {"warm_start": "chain"} if rng.random() < 0.3 else {}
    if rng.random() < 0.2:
        own[str(rng.choice(["executor", "warm_start", "solver", "tol", "max_iter", "no_such"]))] = sensible(
            rng
        )
    with ThreadPoolExecutor(2) if rng.random() < 0.3 else contextlib.nullcontext() as pool, unmodified(A):
        found = bo.solve_many(items, **{"executor": pool, "progress": False, **own, **QUICK})
    if not good:
        return "hostile"
    require(len(found) == len(single), f"{len(found)} answers of {len(single)} problems")
    require(problem.solution is None and floor.value is None, "a problem was changed")
    for answer, values in zip(found, single, strict=True):
        if isinstance(answer, Exception):
            require(isinstance(answer, BAD_PROBLEM) or "pickle" in str(answer), f"{answer!r}")
            require(values is None or own, f"{answer!r} of a good problem")
        elif values is not None and not own.keys() & {"tol", "max_iter", "solver"}:
            floor.value, S.value = values[floor], values[S]
            agree(answer, problem.solve(**QUICK), f"solve_many with {own}")
    return "solved"


def stacks(rng):
    """Solve a stack of matrices of every form, with bad ones, and compare with single matrices."""
    n, count = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    A = correlations(rng, count, n) * 10.0 ** rng.choice([0, 0, 0, -9, 9])
    correlation = bool(rng.integers(2))
    name = str(rng.choice(["frobenius", "logdet", "von_neumann"]))
    if name != "frobenius":
        A = np.einsum("kij,klj->kil", A, A) + 1e-3 * np.abs(A).max() * np.eye(n)
    bad = rng.random(count) < 0.2
    A[bad] = rng.choice([np.nan, np.inf, -1e300])
    keys = list(range(count))
    pandas = optional("pandas")
    forms = [lambda: A, lambda: list(A), lambda: dict(zip("abcdef", A, strict=False))]
    forms += [lambda: [getattr(sp, f"{rng.choice(FORMATS)}_array")(M) for M in A]]
    forms += [lambda: dict(enumerate(map(sp.csr_array, A))), lambda: np.asfortranarray(A)]
    forms += [lambda: [sensible(rng, n) for _ in A], lambda: {k: sensible(rng, n) for k in keys}]
    if pandas is not None:
        forms += [
            lambda: pandas.concat({k: pandas.DataFrame(M) for k, M in enumerate(A)}),
            lambda: {k: pandas.DataFrame(M) for k, M in enumerate(A)},
        ]
    form = int(rng.integers(len(forms)))
    stack = forms[form]()
    own = {}
    if correlation and rng.random() < 0.5:
        each = rng.uniform(0, 0.3, count)
        own["min_eigenvalue"] = [each, 0.1, each.tolist(), dict(enumerate(each)), sensible(rng)][
            rng.integers(5)
        ]
    if correlation and rng.random() < 0.3:
        own[str(rng.choice(["lower", "upper", "weights", "fixed"]))] = sensible(rng, n)
    solve = bo.nearest_correlation if correlation else bo.nearest_psd
    with unmodified(A, *own.values()):
        found = solve(stack, divergence=name, **own, **QUICK)
    if not isinstance(found, bo.Solutions):
        return "single"
    require(len(found) == count, f"{len(found)} answers of {count} matrices")
    statuses = list(found.status)
    if own or form in (6, 7):
        return "stack"
    for k, key in enumerate(found.keys):
        try:
            alone = solve(A[k], divergence=name, **QUICK)
        except (ValueError, TypeError, bo.SolverError) as error:
            require(statuses[k] == "error", f"{statuses[k]} in the stack, alone {error!r}")
            continue
        agree(found[key], alone, f"matrix {k} of a stack of {name}", n * np.abs(A[k]).max())
    return "stack"


# --- Generated rows -----------------------------------------------------------------------------------


def generated_rows(rng):
    """Solve with rows that a function yields, and compare with all rows; hostile functions are refused."""
    n = int(rng.integers(2, 6))
    A = correlations(rng, 1, n)[0] * 10.0 ** rng.choice([0, 0, -6, 6])
    X = bo.PSD(n)
    i, j = np.triu_indices(n, 1)
    least = rng.uniform(-0.5, 0.1, len(i)) * np.abs(A).max()
    behavior = int(rng.integers(8))
    other, calls = bo.PSD(n), []

    def separate(value):
        calls.append(None)
        value = np.asarray(value)
        broken = np.flatnonzero(value[i, j] < least - 1e-9 * np.abs(A).max())
        if behavior == 0:
            return hostile(rng, n)
        if behavior == 1:
            return other[0, 0] >= 1
        if behavior == 2:
            raise ValueError("the function's own")
        if behavior == 3:
            return [bo.soft(X[0, 1] >= 0)] if len(calls) > 1 else X[i, j] >= least
        if behavior == 4:  # all rows at once, in several pieces, and twice
            return (row for row in [X[i, j] >= least, [X[i, j] >= least], X[j, i] >= least])
        if behavior == 5 and len(broken):
            return [X[int(i[k]), int(j[k])] >= least[k] for k in broken]
        return X[i[broken], j[broken]] >= least[broken] if len(broken) else None

    objective = bo.frobenius_div(X, A) if rng.random() < 0.5 else bo.inner(A, X)
    rows = [bo.diag(X) == np.abs(A).max()]
    problem = bo.Problem(bo.Minimize(objective), [*rows, bo.cut_rows(separate)])
    found = problem.solve(**QUICK)
    if behavior in (0, 1, 3):
        return found.status
    whole = bo.Problem(bo.Minimize(objective), [*rows, X[i, j] >= least]).solve(**QUICK)
    if whole.status != "optimal" or found.status != "optimal":
        claims = {"infeasible", "optimal", "unbounded"}
        require({whole.status, found.status} <= claims or not claims >= {found.status}, "claims")
        require(found.status not in claims or whole.status not in claims or found.status == whole.status,
                f"{found.status} by rounds, {whole.status} with all rows")  # fmt: skip
        return found.status
    size = n * np.abs(A).max() * (np.abs(A).max() if n else 1)
    off = found.error + whole.error + 1e-5 * size
    require(abs(found.value - whole.value) <= off, f"{found.value} by rounds, {whole.value} with all rows")
    return found.status


# --- Rows and triplets in chunks ----------------------------------------------------------------------


def one_option(rng, *names):
    """Return an option of any value, mostly none."""
    return {str(rng.choice(names)): sensible(rng)} if rng.random() < 0.15 else {}


def as_source(rng, array, name):
    """Return an array in one of the forms that chunks read: in memory, of a file, a memory map, or bad."""
    array = np.asarray(array)
    kind = rng.integers(12)
    path = Path(f"{name}.npy")
    if kind < 5:
        return array
    if kind == 5:
        return array.tolist()
    if kind == 6:
        np.save(path, array)
        return [str(path), path, np.load(path, mmap_mode="r")][rng.integers(3)]
    if kind == 7:
        return np.asfortranarray(array)
    if kind == 8 and array.dtype.kind == "f":
        return array.astype(rng.choice(["f4", ">f8", "g", "O"]))
    if kind == 8:
        return array.astype(rng.choice(["i4", ">i8", "u2", "f8"]))
    if kind == 9 and rng.random() < 0.5:  # a late chunk is bad
        array = array.astype(float if array.dtype.kind == "f" else int)
        array[-1] = rng.choice([np.nan, np.inf, 0.0]) if array.dtype.kind == "f" else rng.choice([-5, 10**9])
        return array
    if kind == 10 and rng.random() < 0.3:  # shorter or wider than the others
        bad = [array[:-1], array[:0], np.concatenate([array, array]), array[..., None]]
        return [*bad, [*array.tolist()[:-1], [1]]][rng.integers(5)]
    if kind == 11 and rng.random() < 0.3:
        return hostile(rng, 3)
    return array


def row_chunks(rng):
    """Solve with rows in chunks, and compare with the same problem in memory."""
    d, m = int(rng.integers(1, 5)), int(rng.integers(1, 30))
    divergence = str(rng.choice(["logdet", "von_neumann"]))
    scale = 10.0 ** rng.choice([0, 0, 0, -6, 6])
    Z = rng.normal(size=(m, d))
    points = rng.normal(size=(8, d))
    pairs = rng.random() < 0.5
    rows = np.sort(rng.integers(0, 8, (m, 2)), axis=1) if pairs else Z
    rows = rows + np.array([0, 1]) * (rows[:, :1] == rows[:, 1:]) if pairs else rows
    rows = np.where(rows > 7, 0, rows) if pairs else rows
    bound = rng.uniform(0.5, 3, m) * scale
    sense = rng.choice([-1, 1], m)
    gamma = rng.choice([0.01, 0.1, 1.0], m) if rng.random() < 0.7 else np.full(m, 0.1)
    hard = rng.random() < 0.3
    gamma = np.where((sense < 0) & hard & (rng.random(m) < 0.5), np.inf, gamma)
    penalty = str(rng.choice(["divergence", "hinge"]))
    exact = {"rows": rows, "bound": bound, "sense": sense, "gamma": gamma, "points": points}
    given = [as_source(rng, value, name) for name, value in exact.items()]
    changed = [not _same(a, b) for a, b in zip(given, exact.values(), strict=True)]
    X0 = np.eye(d) * scale
    own = {"chunk": int(rng.integers(1, m + 2)) if rng.random() < 0.9 else sensible(rng)}
    more = one_option(rng, "sample", "seed", "tol", "max_passes")
    with unmodified(X0, *given):
        chunks = bo.RowChunks(*given[:4], points=given[4] if pairs else None, penalty=penalty, **own)
        found = chunks.solve(X0, divergence, **{"max_passes": 60, **more})
    if any(changed) or more:
        return "changed"
    V = points[rows[:, 0]] - points[rows[:, 1]] if pairs else Z
    X = bo.PSD(d)
    body = bo.quad_form(V, X)
    atom = bo.logdet_div if divergence == "logdet" else bo.von_neumann_div
    stated = []
    for sign, soft in itertools.product((-1, 1), (False, True)):
        k = np.flatnonzero((sense == sign) & (np.isfinite(gamma) == soft))
        if len(k):
            c = body[k] <= bound[k] if sign < 0 else body[k] >= bound[k]
            own_penalty = {"penalty": "hinge"} if penalty == "hinge" else {}
            stated.append(bo.soft(c, gamma=gamma[k], **own_penalty) if soft else c)
    whole = bo.Problem(bo.Minimize(atom(X, X0)), stated).solve(**QUICK)
    says = f"{found.value} +- {found.error} in chunks, {whole.value} +- {whole.error} in memory"
    claims = ("optimal", "infeasible", "unbounded")
    if found.status not in claims or whole.status not in claims:
        return found.status
    require(found.status == whole.status, f"{found.status} in chunks, {whole.status} in memory")
    if found.status == "optimal":
        off = found.error + whole.error + 1e-5 * (abs(whole.value) + (scale if divergence != "logdet" else 1))
        require(abs(found.value - whole.value) <= off, says)
    return found.status


def _same(a, b):
    """Whether a form of an array holds its numbers."""
    try:
        a = np.load(a) if str(a).endswith(".npy") else np.asarray(a, dtype=float)
        return a.shape == b.shape and bool((a == b).all())
    except (ValueError, TypeError, OverflowError):
        return False


def triplet_chunks(rng):
    """Learn from triplets in chunks, and compare with the soft margin in memory."""
    d, m, n = int(rng.integers(1, 4)), int(rng.integers(1, 20)), int(rng.integers(3, 9))
    points = rng.normal(size=(n, d)) * 10.0 ** rng.choice([0, 0, 0, -6, 6])
    triplets = np.array([rng.choice(n, 3, replace=False) for _ in range(m)])
    given = [as_source(rng, triplets, "triplets"), as_source(rng, points, "points")]
    changed = not (_same(given[0], triplets) and _same(given[1], points))
    own = {"chunk": int(rng.integers(1, m + 2)) if rng.random() < 0.9 else sensible(rng)}
    C = None if rng.random() < 0.5 else float(rng.uniform(1, 10) / m)
    more = one_option(rng, "sample", "seed", "tol", "max_passes")
    with unmodified(*given):
        found = bo.TripletChunks(*given, **own).solve(**{"C": C, "max_passes": 60, **more})
    if changed or more:
        return "changed"
    far, near = (
        points[triplets[:, 0]] - points[triplets[:, 2]],
        points[triplets[:, 0]] - points[triplets[:, 1]],
    )
    whole = bo.soft_margin((far, near), C=10 / m if C is None else C, **QUICK)
    if "optimal" != found.status or "optimal" != whole.status:
        return found.status
    off = found.error + whole.error + 1e-9 * (np.abs(points).max() ** 2)
    says = f"{found.value} +- {found.error} in chunks, {whole.value} +- {whole.error} in memory"
    require(abs(found.value - whole.value) <= off, says)
    return found.status


# --- Learners -----------------------------------------------------------------------------------------


def learned(rng):
    """Fit every learner on data that it takes; what it learned is finite and repeats."""
    if optional("sklearn") is None:
        return "skipped"
    from bregopt import learn, online

    T, n = int(rng.integers(4, 16)), int(rng.integers(1, 4))
    scale = 10.0 ** rng.choice([0, 0, -6, 6])
    X = rng.normal(size=(T, n)) * scale
    V = rng.normal(size=(T, n, n))
    V /= np.linalg.norm(V, axis=(1, 2))[:, None, None]  # singular values in [0, 1]
    S = (V + V.transpose(0, 2, 1)) / 4  # eigenvalues of range 1 at most
    D = np.einsum("kij,klj->kil", V, V)  # psd, of trace one
    P = np.einsum("kji,kjl->kil", V, V)
    labels, signs, numbers = rng.integers(0, 2, T), rng.choice([-1, 1], T), rng.random(T)
    loss = str(rng.choice(["square", "huber", "absolute", "hinge"]))
    pairs = rng.normal(size=(T, 2, n))
    made = [
        lambda: (online.MEG(loss=loss), S, numbers),
        lambda: (online.BurgGradient(), (np.abs(X) + scale) / np.abs(X).sum(), numbers),
        lambda: (online.MatrixBurgGradient(), D, numbers),
        lambda: (online.GeneralMatrixWinnow(), V, signs),
        lambda: (online.MatrixWinnow(), P, signs),
        lambda: (online.KernelWinnow(), X, signs),
        lambda: (online.PairWinnow(), V[:, :, :1], signs),
        lambda: (online.OnlineLogDetMetric(), pairs, numbers),
        lambda: (online.OnlinePCA(n_components=1), X / np.linalg.norm(X, axis=1)[:, None], None),
        lambda: (online.OnlineToBatch(online.MatrixWinnow()), P, signs),
        lambda: (learn.LogDetMetricLearner(), X, labels),
        lambda: (learn.VonNeumannMetricLearner(), X, labels),
        lambda: (learn.SoftMarginMetricLearner(), X, labels),
        lambda: (learn.KernelLearner(), X, labels),
        lambda: (learn.NearestCorrelation(), X, None),
        lambda: (learn.GraphicalLasso(alpha=float(rng.choice([0.1, 1.0])) * scale**2), X, None),
        lambda: (learn.GraphicalLassoCV(cv=2), X, None),
        lambda: (learn.PairDefiniteBoost(), pairs, numbers),
    ]
    model, X, y = made[rng.integers(len(made))]()
    if rng.random() < 0.4:
        names = list(model.get_params(deep=False))
        name = str(rng.choice(names)) if names else None
        if name not in (None, "learner"):
            model.set_params(**{name: sensible(rng)})
    with unmodified(X, y):
        try:
            model.fit(X, y)
        except RuntimeError as error:  # scikit-learn's clone of a parameter that copies itself
            require("clone" in str(error), repr(error))
            return "not cloned"
    facts = {name: value for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"}
    require(facts, f"{model} has learned nothing")
    for name, value in facts.items():
        array = np.asarray(value) if isinstance(value, np.ndarray | float | np.floating) else np.zeros(0)
        finite = array.dtype.kind != "f" or not np.isnan(array).any()
        require(finite, f"{name} of {model} has NaN")
    for method in ("predict", "transform", "score_samples", "decision_function"):
        if hasattr(model, method):
            answer = np.asarray(getattr(model, method)(X))
            require(answer.dtype.kind != "f" or np.isfinite(answer).all(), f"{method} of {model}")
    return type(model).__name__


# --- Files --------------------------------------------------------------------------------------------


def linear_problem(rng):
    """Return a linear problem in several matrices and vectors, with rows of all kinds, of any scale."""
    orders = rng.integers(1, 4, rng.integers(1, 4))
    X = [bo.PSD(int(n), name=f"X{k}") for k, n in enumerate(orders)]
    lower, upper = (None, 0.0, -1.0)[rng.integers(3)], (None, 2.0)[rng.integers(2)]
    u = bo.Variable(2, lower=lower, upper=upper)
    size = 10.0 ** rng.choice([0, 0, -9, 9, -30, 30])

    def body(m=None):
        return sum(
            bo.inner(np.round(_symmetric(rng, M.shape[0], m), 3), M) for M in X if rng.random() < 0.8
        ) + (rng.normal(size=2) @ u if m is None else rng.normal(size=(m, 2)) @ u)

    rows = [sum(bo.trace(M) for M in X) <= size]
    for _ in range(rng.integers(0, 4)):
        m = int(rng.integers(1, 4))
        b, e = rng.normal(size=m) * size, body(m)
        rows.append([e <= b, e >= b, e == b, bo.between(e, -np.abs(b), np.abs(b))][rng.integers(4)])
    if rng.random() < 0.3:
        rows.append(bo.norm2(u) <= 3 * size)
    if rng.random() < 0.3:
        rows.append(u <= size)
    objective = (bo.Minimize if rng.random() < 0.5 else bo.Maximize)(body() + 1.5 * (size == 1))
    return bo.Problem(objective, rows)


def _symmetric(rng, n, m=None):
    A = rng.normal(size=(n, n) if m is None else (m, n, n))
    A *= rng.random(A.shape) < 0.7
    return A + np.swapaxes(A, -1, -2)


def round_trips(rng):
    """Write a problem to a file and read it: both have the same value and the same status."""
    problem = linear_problem(rng)
    name = str(rng.choice(["a.dat-s", "a.dat-s.gz", "a.cbf", "a.cbf.gz", "a.toml"]))
    path = Path(name) if rng.random() < 0.9 else hostile(rng)
    path = "a.cbf" if isinstance(path, int) else path  # a number is a descriptor of an open file
    if name.endswith("toml"):
        problem.to_spec(path)
        again = bo.load_spec(path).problem
    else:
        write, read = (bo.write_cbf, bo.read_cbf) if "cbf" in name else (bo.write_sdpa, bo.read_sdpa)
        write(problem, path)
        again = read(path)
    if name == "a.toml":  # the others write a row of two bounds as two
        require(again.program().m == problem.program().m, f"{again.program().m} rows, {problem.program().m}")
        bounds, others = problem.program().bounds, again.program().bounds
        require(np.array_equal(bounds.lo, others.lo) and np.array_equal(bounds.hi, others.hi), "other bounds")
    found, alone = again.solve(**QUICK), problem.solve(**QUICK)
    claims = ("optimal", "infeasible", "unbounded")
    if found.status not in claims or alone.status not in claims:
        return "inaccurate"
    require(found.status == alone.status, f"{found.status} from the file, {alone.status} before")
    if found.status == "optimal":
        maximize = isinstance(problem.objective, bo.Maximize)
        flipped = maximize != isinstance(again.objective, bo.Maximize)
        value = -found.value if flipped else found.value
        off = found.error + alone.error + 1e-9 * abs(value)
        says = f"{value} +- {found.error} from {name}, {alone.value} +- {alone.error} before"
        require(abs(value - alone.value) <= off, says)
    return found.status


def cross_checks(rng):
    """Compare routes on a random problem with any options; none contradicts another."""
    n = int(rng.integers(1, 5))
    A = correlations(rng, 1, n)[0] * 10.0 ** rng.choice([0, 0, -6, 6])
    X = bo.PSD(n)
    objective = [bo.inner(A, X), bo.frobenius_div(X, A), bo.logdet_div(X, A @ A + 0.1 * np.eye(n))][
        rng.integers(3)
    ]
    rows = [bo.trace(X) == 1, bo.diag(X) <= rng.choice([0.1, 0.5, 1.0])]
    problem = bo.Problem(bo.Minimize(objective), rows)
    solvers = None
    if rng.random() < 0.5:
        names = ["path", "bregman", "psdboost", "lowrank", "cvxpy", "CLARABEL", "SCS", "x", "auto"]
        solvers = tuple(str(name) for name in rng.choice(names, rng.integers(1, 4)))
    elif rng.random() < 0.2:
        solvers = hostile(rng)
    own = dict(QUICK)
    if rng.random() < 0.3:
        names = ["tol", "max_iter", "seed", "rank_tol", "verbose", "backend", "progress", "method", "no_such"]
        own[str(rng.choice(names))] = sensible(rng)
    with unmodified(A):
        found = quiet(lambda: bo.cross_check(problem, solvers, **own))
    str(found)
    require(found.verdict != "disagree" or own.keys() - QUICK.keys(), str(found))
    return str(found.verdict)
