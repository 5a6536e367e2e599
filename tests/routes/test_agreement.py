"""Both methods on random instances with mixed rows, checked by CVXPY and by the optimality conditions."""

import numpy as np
import peers
import pytest
from instances import random_nearness
from samples import turns

# Clarabel's von Neumann cones grow with n^3, so that their orders are small.
CASES = [
    *(
        ("logdet", n, soft, seed)
        for seed, n in enumerate([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12], 60)
        for soft in (0, 1)
    ),
    *(
        ("von_neumann", n, soft, seed)
        for seed, n in enumerate([2, 4, 4, 5, 5, 6, 6, 5, 6, 4, 5, 6], 30)
        for soft in (0, 1)
    ),
    *(("frobenius", n, soft, seed) for seed, n in enumerate([2, 4, 6, 8, 10, 12]) for soft in (0, 1)),
]


@pytest.mark.parametrize(
    ("divergence", "n", "soft", "seed"),
    # Hard and soft rows take turns from order to order, two orders of six; the others are slow.
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[3] % 6 != case[2])) for case in CASES],
)
def test_both_methods_agree_with_cvxpy(divergence, n, soft, seed):
    problem, theirs, K = random_nearness(seed, divergence, n, bool(soft))
    peer = peers.ask(theirs)
    for method in ("newton", "cyclic"):
        sol = problem.solve(solver="bregman", method=method, tol=1e-8)
        assert sol.status == "optimal"
        peer.confirms(sol, {K: sol.X} if not soft else None)


def logarithm(X):
    w, Q = np.linalg.eigh(X)
    return (Q * np.log(w)) @ Q.T


GRADIENTS = {
    "logdet": lambda X, X0: np.linalg.inv(X0) - np.linalg.inv(X),
    "von_neumann": lambda X, X0: logarithm(X) - logarithm(X0),
}


@pytest.mark.parametrize(("method", "divergence", "n"), turns(["newton", "cyclic"], GRADIENTS, [8, 12]))
def test_larger_answers_meet_the_optimality_conditions(n, divergence, method):
    """The gradient of the divergence is in the cone of the active rows."""
    problem, _, _ = random_nearness(90 + n, divergence, n)
    sol = problem.solve(solver="bregman", method=method, tol=1e-10, tol_X=1e-10)
    assert sol.status == "optimal"
    program, y = problem.program(), sol._raw.duals
    gradient = GRADIENTS[divergence](sol.X, program.blocks[0].nearness.X0)
    np.testing.assert_allclose(gradient, program.A.adjoint(y), atol=1e-6 * np.abs(gradient).max())
    # A row with a positive multiplier is at its lower bound, one with a negative one at its upper bound.
    end = np.where(y > 0, program.bounds.lo, program.bounds.hi)
    missed = program.activity([sol.X], np.zeros(0)) - end
    np.testing.assert_allclose(missed[y != 0] * y[y != 0], 0, atol=1e-8)
