"""Prove the global minimum of a polynomial
========================================

The six-hump camel function has six local minima. A sum of squares proves that
no point has a smaller value than the best of them.
"""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import bregopt as bo

# %%
# The polynomial (Dixon and Szegö 1978), as coefficients by powers of x and y.
p = {(2, 0): 4, (4, 0): -2.1, (6, 0): 1 / 3, (1, 1): 1, (0, 2): -4, (0, 4): 4}


def value(point):
    """Return the polynomial at a point."""
    return sum(c * point[0] ** a * point[1] ** b for (a, b), c in p.items())


# %%
# If ``p - t = z'Qz`` with all monomials up to degree three in ``z`` and ``Q``
# positive semidefinite, then ``p`` is at least ``t`` everywhere. Each
# coefficient is one row.
z = [(a, b) for a, b in product(range(4), repeat=2) if a + b <= 3]
terms = {}
for i, j in product(range(len(z)), repeat=2):
    power = (z[i][0] + z[j][0], z[i][1] + z[j][1])
    terms.setdefault(power, np.zeros((len(z), len(z))))[i, j] = 1

Q, t = bo.PSD(len(z), name="Q"), bo.Variable(name="t")
rows = [
    bo.inner(A, Q) + (t if power == (0, 0) else 0) == p.get(power, 0)
    for power, A in terms.items()
]
sol = bo.Problem(bo.Maximize(t), rows).solve(tol=1e-8)
print(sol)

# %%
# A local search from the right side finds a point with this value.
best = minimize(value, [0.1, -0.7], tol=1e-12)
print(f"bound {sol.value:.7f}, value {best.fun:.7f} at {best.x.round(4)}")

# %%
x, y = np.meshgrid(np.linspace(-2, 2, 200), np.linspace(-1.1, 1.1, 200))
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.contour(x, y, value((x, y)), levels=np.linspace(-1, 4, 21), linewidths=0.8)
ax.plot(*np.stack([best.x, -best.x]).T, "x", color="tab:red", ms=10)
ax.set_title("both crosses are global minima")
