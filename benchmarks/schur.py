"""Costs of the Schur matrix's formulas on this machine: those of bregopt.routes.ipm.schur, measured.

    python benchmarks/schur.py [--rounds 20]

``product_cost``, ``sparse_cost``, ``flop_cost`` and ``gather_cost`` are nanoseconds of one operation,
``call_cost`` of the calls for a chunk of products ``P A_l Q``. A time is the least CPU time of the rounds,
with one BLAS thread. The second table has, for random rows of an order and a density, the time of the Schur
matrix with the rows split by these costs, and with every row by one formula. The split should take no more
than the faster one.
"""

import argparse
import time
from functools import partial
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from bregopt.program import LinearMap, Term
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.routes.ipm import schur
from bregopt.routes.ipm.block_rows import Gram

BY_COST = {"_CALL_COST": schur._CALL_COST}
ONLY_PLACES = {"_CALL_COST": 1e99}
ONLY_CONGRUENCES = {"_CALL_COST": 1e-9, "_PRODUCT_COST": 1e99}
CASES = (
    (20, 100, 0.02),
    (40, 200, 0.2),
    (60, 300, 0.05),
    (60, 300, 1.0),
    (100, 1000, 0.001),
    (200, 300, 0.01),
)
RNG = np.random.default_rng(0)


def least_time(call, rounds):
    """Return the least CPU seconds of a call."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def rows(n, m, density):
    """Return a map of `m` random rows of order `n` with a density of the triangle, at least two terms."""
    i, j = np.triu_indices(n)
    count = max(2, round(density * len(i)))
    place = np.concatenate([RNG.choice(len(i), size=count, replace=False) for _ in range(m)])
    terms = Coordinates(np.repeat(np.arange(m), count), i[place], j[place], RNG.normal(size=len(place)))
    return LinearMap(m, (n,), (Term(0, np.arange(m), SparseRows.of(m, n, terms)),))


def prepared(A, P, Q, constants):
    """Return the formulas of rows, which the first call chooses by the constants."""
    gram = Gram(A)
    with patch.multiple(schur, **constants):
        gram.assemble(P, Q)
    return gram


def definite(n):
    """Return a positive definite matrix."""
    G = RNG.normal(size=(n, n))
    return G @ G.T / n + np.eye(n)


def costs(rounds):
    """Return the costs in nanoseconds, by the name of their constant."""
    n, p, width = 100, 3000, 100
    S = sp.random_array((1000, p), density=0.05, format="csr", rng=RNG)
    columns = RNG.normal(size=(p, width))
    P, stack = definite(n), RNG.normal(size=(20, n, n))
    place = np.sort(RNG.choice(n * n, size=n * n // 2, replace=False))
    i, j = np.triu_indices(60)
    single = Coordinates(np.arange(len(i)), i, j, np.ones(len(i)))
    entries = LinearMap(len(i), (60,), (Term(0, np.arange(len(i)), SparseRows.of(len(i), 60, single)),))
    Q, K = definite(60), definite(10)
    places = prepared(entries, Q, Q, ONLY_PLACES)
    few = prepared(rows(10, 20, 0.2), K, K, {**ONLY_CONGRUENCES, "_CONGRUENCE_ENTRIES": 100})
    calls = {
        "product_cost": (lambda: places.assemble(Q, P[:60, :60]), len(i) ** 2 / 2),
        "sparse_cost": (lambda: S @ columns, S.nnz * width),
        "flop_cost": (lambda: P @ stack, 20 * n**3),
        "gather_cost": (lambda: stack.reshape(20, -1).take(place, axis=1), 20 * len(place)),
        "call_cost": (lambda: few.assemble(K, K), 20),
    }
    return {name: least_time(call, rounds) / count * 1e9 for name, (call, count) in calls.items()}


def main():
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with threadpool_limits(1):
        print("| constant | default | measured, ns |\n|---|--:|--:|")
        for name, cost in costs(rounds).items():
            print(f"| `{name}` | {getattr(schur, f'_{name.upper()}'):g} | {cost:.3g} |")
        print("\n| order | rows | density | split, ms | only places | only congruences |")
        print("|--:|--:|--:|--:|--:|--:|")
        for n, m, density in CASES:
            A, P, Q = rows(n, m, density), definite(n), definite(n)
            grams = [prepared(A, P, Q, costs) for costs in (BY_COST, ONLY_PLACES, ONLY_CONGRUENCES)]
            times = [least_time(partial(gram.assemble, P, Q), max(3, rounds // 4)) for gram in grams]
            print(f"| {n} | {m} | {density:g} | " + " | ".join(f"{t * 1e3:.2f}" for t in times) + " |")


if __name__ == "__main__":
    main()
