"""Reconstruct a state from noisy counts
=====================================

Each Pauli observable of three spins is measured a thousand times. The matrix
with the estimated expectations has negative eigenvalues, so it is no state.
This example finds the nearest state.
"""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# The true state is the GHZ state of three spins, with some noise.
pauli = [
    np.eye(2),
    np.array([[0, 1], [1, 0]]),
    np.array([[0, -1j], [1j, 0]]),
    np.diag([1, -1]),
]
n, order = 3, 8
ghz = np.zeros(order)
ghz[[0, -1]] = np.sqrt(0.5)
state = 0.95 * np.outer(ghz, ghz) + 0.05 * np.eye(order) / order

# %%
# A thousand measurements of each observable.
rng = np.random.default_rng(0)
estimate = np.eye(order, dtype=complex) / order
for factors in list(product(pauli, repeat=n))[1:]:
    A = np.kron(np.kron(factors[0], factors[1]), factors[2])
    mean = np.trace(A @ state).real
    counted = 2 * rng.binomial(1000, (1 + mean) / 2) / 1000 - 1
    estimate += counted * A / order
print(f"smallest eigenvalue {np.linalg.eigvalsh(estimate)[0]:.4f}")

# %%
# The nearest state in the Frobenius norm.
X = bo.PSD(order, hermitian=True, name="X")
problem = bo.Problem(
    bo.Minimize(bo.frobenius_div(X, estimate)), [bo.trace(X) == 1]
)
sol = problem.solve(tol=1e-10)
print(sol)
for name, A in (("estimate", estimate), ("nearest state", sol.X)):
    error = np.linalg.svd(A - state, compute_uv=False).sum() / 2
    print(f"{name}: trace distance {error:.3f} from the truth")

# %%
# Magnitudes of the entries.
_, axes = plt.subplots(1, 3, figsize=(6.6, 2.5), layout="constrained")
for ax, name, A in zip(
    axes,
    ("true state", "estimate", "nearest state"),
    (state, estimate, sol.X),
    strict=True,
):
    ax.imshow(np.abs(A), vmin=0, vmax=0.5, cmap="Blues")
    ax.set_title(name)
    ax.set_xticks([])
    ax.set_yticks([])
