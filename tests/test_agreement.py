"""Both methods against CVXPY: value to 1e-5 and matrix to 1e-4 on random instances with mixed rows."""

import cvxpy as cp
import numpy as np
import pytest
from instances import random_nearness

# Clarabel's von Neumann cones grow with n^3: the large orders are few there.
CASES = [
    *(
        ("logdet", n, soft, seed)
        for seed, n in enumerate([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12])
        for soft in (0, 1)
    ),
    *(
        ("von_neumann", n, soft, seed)
        for seed, n in enumerate([2, 4, 4, 5, 5, 6, 6, 5, 6, 4, 5, 6], 30)
        for soft in (0, 1)
    ),
    *(("von_neumann", n, 0, 90 + n) for n in (8, 10, 12)),
    *(("frobenius", n, soft, seed) for seed, n in enumerate([2, 4, 6, 8, 10, 12]) for soft in (0, 1)),
]


@pytest.mark.parametrize(("divergence", "n", "soft", "seed"), CASES)
def test_both_methods_agree_with_cvxpy(divergence, n, soft, seed):
    problem, reference = random_nearness(seed, divergence, n, bool(soft))
    if divergence == "von_neumann" and n > 6:
        value, X = reference(solver=cp.SCS, eps=1e-7, max_iters=200_000)
    else:
        value, X = reference(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    for method in ("newton", "cyclic"):
        sol = problem.solve(solver="bregman", method=method, tol=1e-8)
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(value, abs=1e-5 * max(1, abs(value)))
        np.testing.assert_allclose(sol.X, X, atol=1e-4 * max(1, np.abs(X).max()))
