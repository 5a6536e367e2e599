"""Repair a correlation matrix of stocks
=====================================

Ten price series have gaps, so each correlation comes from other months.
Together the correlations have a negative eigenvalue. This example finds the
nearest correlation matrix, and keeps the three entries with the most months of
data.
"""

import matplotlib.cbook
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bregopt as bo

# %%
# The prices come with matplotlib (sample data ``Stocks.csv``; source:
# finance.yahoo.com).
with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    prices = np.log(pd.read_csv(file, comment="#", index_col="Date"))
A = prices.corr()
print(f"smallest eigenvalue {np.linalg.eigvalsh(A)[0]:.3f}")

# %%
# Three entries stay as they are, to within the tolerance, and no eigenvalue of
# the answer is below 1e-3. The certificate proves that no other such matrix is
# nearer than ``gap`` says.
known = prices.notna().astype(int)
months = np.triu(known.T @ known, 1)
longest = [
    tuple(A.columns[k] for k in np.unravel_index(at, A.shape))
    for at in months.ravel().argsort()[-3:]
]
sol = bo.nearest_correlation(A, fixed=longest, min_eigenvalue=1e-3)
print(sol)

# %%
# The report says what changed most, by name.
print(sol.report())

# %%
# The plot shows the matrix before and after, the change, and both spectra.
_, axes = plt.subplots(2, 2, figsize=(7, 6), layout="constrained")
sol.plot(axes)
