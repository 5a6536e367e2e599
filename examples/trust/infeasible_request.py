"""Learn why no correlation matrix fits
====================================

A stress test asks for entries that no correlation matrix has. bregopt names the
entries that contradict each other, and the nearest request that works.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bregopt as bo

# %%
# Three of the correlations of four asset classes are fixed (made-up numbers),
# and the others may be from 0 to 0.3.
names = ["equity", "credit", "bonds", "gold"]
A = pd.DataFrame(np.eye(4), names, names)
wanted = {
    ("equity", "credit"): 0.9,
    ("credit", "bonds"): 0.8,
    ("equity", "bonds"): -0.2,
}
for (a, b), value in wanted.items():
    A.loc[a, b] = A.loc[b, a] = value
request = {"fixed": list(wanted), "lower": 0.0, "upper": 0.3}

# %%
# The answer names the three entries that contradict each other, with a proof.
sol = bo.nearest_correlation(A, **request)
print(sol.status)
print(sol.stop_reason)

# %%
# With ``suggest=True`` it also gives the request nearest to this one that a
# correlation matrix meets.
sol = bo.nearest_correlation(A, **request, suggest=True)
print(sol.suggestion)

# %%
# With the third entry at -0.2, the first two have to lie in the ellipse.
_, ax = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
x, y = np.meshgrid(*2 * [np.linspace(-1, 1, 201)])
determinant = 1 + 2 * x * y * -0.2 - x**2 - y**2 - 0.2**2
ax.contourf(x, y, determinant, levels=[0, 10], colors=["#cfe3f2"])
ax.plot(0.9, 0.8, "x", label="asked")
pairs = sol.suggestion.to_frame()
ax.plot(*pairs["suggested"], "o", label="suggested")
ax.set_xticks([-1, -0.5, 0, 0.5, 1])
ax.set_xlabel("equity and credit")
ax.set_ylabel("credit and bonds")
ax.legend(loc="lower left", frameon=False)
