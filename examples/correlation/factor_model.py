"""Fit a factor model to correlations
==================================

This example finds the nearest correlation matrix with two common factors and an
own variance for each stock. A bound says how near any such matrix could come.
"""

import matplotlib.cbook
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bregopt as bo

# %%
# Correlations of the monthly returns of ten stocks and indices, where all have
# prices.
with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    prices = np.log(pd.read_csv(file, comment="#", index_col="Date")).dropna()
A = prices.diff().corr()

# %%
# The problem is not convex: the fit is a local optimum, and the bound is of a
# convex relaxation.
model = bo.factor_correlation(A, 2)
print(model)

# %%
# Both factors, stock by stock. The length of an arrow is the share of variance
# that the factors explain.
_, ax = plt.subplots(figsize=(5, 5), layout="constrained")
loadings = np.asarray(model.loadings)
for x, y in loadings:
    ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->"})
# Names stand in a column, in the order of the arrows' ends.
order, line = np.argsort(loadings[:, 1]), {"arrowstyle": "-", "color": "0.8"}
for k, height in zip(order, np.linspace(-0.6, 0.6, len(order)), strict=True):
    ax.annotate(
        A.columns[k], loadings[k], (1.15, height), va="center", arrowprops=line
    )
ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
ax.set_xlim(-1.1, 1.1)
ax.set_ylim(-1.1, 1.1)
ax.set_xlabel("first factor")
ax.set_ylabel("second factor")
