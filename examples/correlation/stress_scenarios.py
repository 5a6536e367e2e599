"""Stress 2,000 correlation matrices at once
=========================================

A stress scenario sets some correlations to new values. The matrix is then often
indefinite. One call finds the nearest correlation matrices that keep the
stressed entries.
"""

import matplotlib.cbook
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bregopt as bo

# %%
# Correlations of ten price series that come with matplotlib.
with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    prices = np.log(pd.read_csv(file, comment="#", index_col="Date")).dropna()
names, C = list(prices), np.corrcoef(prices.diff().dropna().T)

# %%
# Each scenario sets the correlations of three disjoint pairs.
rng, count, n = np.random.default_rng(0), 2_000, len(names)
pairs = np.argsort(rng.random((count, n)), axis=1)[:, :6].reshape(count, 3, 2)
values = rng.uniform(-0.5, 0.95, (count, 3))
A, fixed = np.tile(C, (count, 1, 1)), np.zeros((count, n, n), dtype=bool)
k, i, j = np.arange(count)[:, None], pairs[:, :, 0], pairs[:, :, 1]
A[k, i, j] = A[k, j, i] = values
fixed[k, i, j] = fixed[k, j, i] = True
least = np.linalg.eigvalsh(A)[:, 0]
print(f"{(least < 0).sum():,} of {count:,} scenarios are indefinite")

# %%
# Each matrix of the stack gets its own certificate.
sols = bo.nearest_correlation(A, fixed=fixed)
print(sols)

# %%
# The scenario that moves the other correlations most.
worst = int(sols.value.argmax())
for (a, b), value in zip(pairs[worst], values[worst], strict=True):
    print(f"{names[a]} and {names[b]}: {value:.2f}")

# %%
# The more negative the smallest eigenvalue, the more the others have to move.
_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.scatter(least, np.sqrt(sols.value), s=4)
ax.axvline(0, color="0.7", lw=1)
ax.set_xlabel("smallest eigenvalue of the scenario")
ax.set_ylabel("distance moved (Frobenius)")
ax.spines[["top", "right"]].set_visible(False)
