"""Repair an invalid correlation matrix, of ten price series with gaps that come with matplotlib.

Pairwise correlations over different months give an indefinite matrix. The repaired matrix keeps the entries
from the most months, has no eigenvalue below 1e-3, and has a proof that no other such matrix is nearer.
"""

import matplotlib.cbook
import numpy as np

import bregopt as bo

with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    table = np.genfromtxt(file, delimiter=",", skip_header=1, names=True, dtype=None, encoding="utf-8")
names = list(table.dtype.names)[1:]
prices = np.log(np.column_stack([table[name] for name in names]))

n = len(names)
A, months = np.eye(n), np.zeros((n, n), dtype=int)
for i in range(n):
    for j in range(i):
        both = np.isfinite(prices[:, i]) & np.isfinite(prices[:, j])
        A[i, j] = A[j, i] = np.corrcoef(prices[both, i], prices[both, j])[0, 1]
        months[i, j] = both.sum()
print(f"smallest eigenvalue {np.linalg.eigvalsh(A)[0]:.3f}: not a correlation matrix")

longest = np.argwhere(months >= np.sort(months[months > 0])[-3])  # the three entries from the most months
sol = bo.nearest_correlation(A, fixed=longest, min_eigenvalue=1e-3)
print(sol)
i, j = np.unravel_index(np.abs(sol.X - A).argmax(), A.shape)
print(f"smallest eigenvalue {np.linalg.eigvalsh(sol.X)[0]:.3g}")
print(f"largest change {names[i]}, {names[j]}: {A[i, j]:.3f} -> {sol.X[i, j]:.3f}")
