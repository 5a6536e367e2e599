"""Stress 2,000 correlation matrices at once
=========================================

Stress 2,000 correlation matrices at once, of ten price series that come with
matplotlib.

Each scenario sets the correlations of three pairs to new values. The rest no
longer fits: most matrices are indefinite. The nearest correlation matrices that
keep the three entries are found in one call, each with a proof that none is
nearer.
"""

import matplotlib.cbook
import numpy as np

import bregopt as bo

with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    table = np.genfromtxt(
        file,
        delimiter=",",
        skip_header=1,
        names=True,
        dtype=None,
        encoding="utf-8",
    )
names = list(table.dtype.names)[1:]
prices = np.log(np.column_stack([table[name] for name in names]))
returns = np.diff(prices[np.isfinite(prices).all(axis=1)], axis=0)
C = np.corrcoef(returns.T)

rng, scenarios, n = np.random.default_rng(0), 2_000, len(names)
pairs = np.argsort(rng.random((scenarios, n)), axis=1)[:, :6].reshape(
    scenarios, 3, 2
)  # disjoint pairs
values = rng.uniform(-0.5, 0.95, (scenarios, 3))

A, fixed = (
    np.tile(C, (scenarios, 1, 1)),
    np.zeros((scenarios, n, n), dtype=bool),
)
k, i, j = np.arange(scenarios)[:, None], pairs[:, :, 0], pairs[:, :, 1]
A[k, i, j] = A[k, j, i] = values
fixed[k, i, j] = fixed[k, j, i] = True
indefinite = np.linalg.eigvalsh(A)[:, 0] < 0
print(f"{indefinite.sum():,} of {scenarios:,} scenarios are indefinite")

sols = bo.nearest_correlation(A, fixed=fixed)
print(sols)
worst = int(sols.value.argmax())
shocks = [
    f"{names[a]} {names[b]} {v:.2f}"
    for (a, b), v in zip(pairs[worst], values[worst], strict=True)
]
print(
    f"hardest to meet: {', '.join(shocks)}; it moves the others by {np.sqrt(sols.value[worst]):.2f} in all"
)
