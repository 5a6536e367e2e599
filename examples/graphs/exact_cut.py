"""Find a maximum cut, exactly
===========================

A graph of ten vertices has 512 cuts. Branch and bound with proven bounds finds
a largest one. Rounding errors cannot make it miss a larger one.
"""

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# Petersen's graph, with random weights (seed 1).
ring = [(k, (k + 1) % 5) for k in range(5)]
spokes = [(k, k + 5) for k in range(5)]
star = [(5 + k, 5 + (k + 2) % 5) for k in range(5)]
rng = np.random.default_rng(1)
W = np.zeros((10, 10))
for a, b in ring + spokes + star:
    W[a, b] = W[b, a] = rng.integers(5, 16)

# %%
# For signs x of the two sides, X = x x' has ones on the diagonal, and its other
# entries are 1 or -1: the same side, or a cut. The relaxation lets them lie
# between; ``products`` are the rows that a node of the search fixes.
n = len(W)
i, j = np.triu_indices(n, 1)
X = bo.PSD(n, name="X")
products = bo.between(X[i, j], -1, 1)
weight = bo.inner(-W / 4, X) + W.sum() / 4
prob = bo.Problem(bo.Maximize(weight), [bo.diag(X) == 1, products])


# %%
# A node is a dict from products to signs.
def closed(fixed):
    """Add what follows: x_i x_k is x_i x_j times x_j x_k."""
    sign = np.zeros((n, n))
    for k, s in fixed.items():
        sign[i[k], j[k]] = sign[j[k], i[k]] = s
    for _ in range(n):
        sign = np.where(sign == 0, np.sign(sign @ sign), sign)
    return {k: sign[i[k], j[k]] for k in np.flatnonzero(sign[i, j])}


def rounded(X):
    """Round to a cut by random hyperplanes, and move single vertices."""
    d, Q = np.linalg.eigh(X)
    F = Q * np.sqrt(np.maximum(d, 0))
    cuts = []
    for _ in range(20):
        x = np.where(F @ rng.normal(size=n) >= 0, 1.0, -1.0)
        while (gain := x * (W @ x)).max() > 0:
            x[np.argmax(gain)] *= -1
        cuts.append(((W.sum() - x @ W @ x) / 4, tuple(x)))
    return max(cuts)


# %%
# ``prob.bound`` proves an upper bound of all cuts of a node. Weights are
# integers, so a node ends when its bound is below the best cut plus one.
best, signs, count = 0, None, 0
nodes = [(np.inf, {})]
while nodes:
    nodes.sort(key=lambda node: node[0])
    above, fixed = nodes.pop()
    if above < best + 1:
        continue
    value = np.full(len(i), np.nan)
    value[list(fixed)] = list(fixed.values())
    found, count = prob.bound({products: value}), count + 1
    if found.X is None or found.value < best + 1:
        continue
    best, signs = max((best, signs), rounded(found.X), key=lambda cut: cut[0])
    entries = np.abs(found.X[i, j])
    entries[list(fixed)] = np.inf
    branch = np.argmin(entries)  # the most undecided entry
    for s in (-1.0, 1.0):
        nodes.append((found.value, closed({**fixed, branch: s})))
print(f"maximum cut {best:.0f}, proven with {count} nodes")

# %%
_, ax = plt.subplots(figsize=(4, 4), layout="constrained")
angle = np.pi / 2 + 2 * np.pi * np.arange(n) / 5
radius = np.where(np.arange(n) < 5, 2.0, 1.0)
x, y = radius * np.cos(angle), radius * np.sin(angle)
for a, b in ring + spokes + star:
    cut = signs[a] != signs[b]
    line = {"color": "tab:orange" if cut else "0.8", "lw": W[a, b] / 4}
    ax.plot(x[[a, b]], y[[a, b]], zorder=0, **line)
ax.scatter(x, y, c=signs, cmap="coolwarm", s=120)
ax.set_axis_off()
ax.set_aspect("equal")
plt.show()
