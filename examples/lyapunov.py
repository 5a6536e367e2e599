"""Prove that a switched system is stable: one Lyapunov matrix for all modes, near the identity.

A system x' = A x is stable if A'P + PA is negative definite for a positive definite P. One P for all modes
proves stability under any switching. These are linear matrix inequalities, and the distance from the identity
is a second-order cone.
"""

import cvxpy as cp
import numpy as np

import bregopt.cvxpy  # noqa: F401 - it registers the method

order, rng = 6, np.random.default_rng(0)
damping = -np.eye(order) + 0.1 * rng.normal(size=(order, order))
modes = [damping + 0.3 * (S - S.T) for S in rng.normal(size=(20, order, order))]

P, decay = cp.Variable((order, order), symmetric=True), cp.Variable()
stable = [-(A.T @ P + P @ A) - decay * np.eye(order) >> 0 for A in modes]
distance = cp.norm(P - np.eye(order), "fro")
problem = cp.Problem(cp.Maximize(decay - 0.1 * distance), [P >> 0, cp.trace(P) == order, *stable])
problem.solve(method="bregopt")

answer = problem.solver_stats.extra_stats
print(f"{problem.status} by {answer.solver}, certified gap {answer.gap:.0e}")
print(f"decay rate {decay.value:.4f}, distance of P from the identity {distance.value:.4f}")

largest = max(np.linalg.eigvalsh(A.T @ P.value + P.value @ A)[-1] for A in modes)
print(f"largest eigenvalue of A'P + PA over {len(modes)} modes: {largest:.4f}")
