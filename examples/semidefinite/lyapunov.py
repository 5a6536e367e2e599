"""Prove that a switched system is stable
======================================

A pendulum switches between two springs in any order. One Lyapunov function
``x'Px`` for both modes proves that it comes to rest in any case. The search for
``P`` is a semidefinite program, declared in CVXPY and solved by bregopt.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import bregopt.cvxpy  # noqa: F401 - it registers the method

# %%
# The state is the angle and its speed. Each mode ``x' = Ax`` has its own
# stiffness.
modes = [np.array([[0.0, 1.0], [-stiffness, -0.8]]) for stiffness in (1.0, 1.6)]

P, rate = cp.Variable((2, 2), symmetric=True), cp.Variable()
decays = [A.T @ P + P @ A + rate * np.eye(2) << 0 for A in modes]
problem = cp.Problem(cp.Maximize(rate), [P >> 0, cp.trace(P) == 2, *decays])
problem.solve(method="bregopt")
answer = problem.solver_stats.extra_stats
print(f"{problem.status} by {answer.solver}: rate {rate.value:.6f}")
print(f"certified gap {answer.gap:.0e}")

# %%
# CVXPY's own solver agrees.
problem.solve(solver=cp.CLARABEL)
print(f"{problem.status} by Clarabel: rate {rate.value:.6f}")

# %%
# The function decreases along every path, at random switches too.
figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
grid = np.linspace(-1.6, 1.6, 200)
points = np.stack(np.meshgrid(grid, grid), axis=-1)
ax.contour(
    grid,
    grid,
    np.einsum("...i,ij,...j", points, P.value, points),
    levels=8,
    colors="0.8",
)
rng, step = np.random.default_rng(0), 0.01
for start in ((1.2, 0.4), (-0.9, 1.0), (0.3, -1.3), (-1.2, -0.2)):
    path, A = [np.array(start)], modes[0]
    for t in range(1500):
        if t % 50 == 0:
            A = modes[rng.integers(2)]
        path.append(path[-1] + step * A @ path[-1])
    x = np.array(path)
    ax.plot(*x.T, lw=1.5)
    value = np.einsum("ti,ij,tj->t", x, P.value, x)
    assert (np.diff(value) < 1e-3 * value[:-1]).all()
ax.set_xlabel("angle")
ax.set_ylabel("speed")
ax.set_title("random switches, and level sets of x'Px")
