"""Shrink a correlation matrix to a target
=======================================

This example mixes a matrix that has a negative eigenvalue with a target that is
a correlation matrix. It finds the least share of the target that repairs the
matrix, and proves that no smaller share does.
"""

import matplotlib.cbook
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bregopt as bo

# %%
# Pairwise correlations of ten price series with gaps.
with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    prices = np.log(pd.read_csv(file, comment="#", index_col="Date"))
A = prices.corr()
print(f"smallest eigenvalue {np.linalg.eigvalsh(A)[0]:.3f}")

# %%
# The target has equal correlations.
n = len(A)
mean = A.to_numpy()[np.triu_indices(n, 1)].mean()
target = np.full((n, n), mean) + (1 - mean) * np.eye(n)
sol = bo.shrink_correlation(A, target)
print(sol)

# %%
# Share by share of the target: the smallest eigenvalue crosses zero at the
# answer.
shares = np.linspace(0, 1, 101)
mixed = (1 - shares)[:, None, None] * A.to_numpy()
mixed = mixed + shares[:, None, None] * target
_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.plot(shares, np.linalg.eigvalsh(mixed)[:, 0])
ax.axhline(0, color="0.7", lw=1)
ax.axvline(sol.value, color="tab:orange", lw=1, label="the least share")
ax.set_xlabel("share of the target")
ax.set_ylabel("smallest eigenvalue")
ax.legend(frameon=False)
