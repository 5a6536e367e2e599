"""Rows and matrices in units that differ by decades: the same answers as in units of size one."""

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.presolve.scaling import units
from bregopt.program import Answer, Start, StopReason

N = 4


def equalities(seed, decades):
    """Return equalities that a matrix of rank two meets; the last one is a combination of the others."""
    rng = np.random.default_rng(seed)
    X, u, G, of_u = bo.PSD(N), bo.Variable(3), rng.normal(size=(N, 2)), rng.normal(size=3)
    A, B = rng.normal(size=(2 * N, N, N)), rng.normal(size=(2 * N, 3))
    A, weights = A + A.transpose(0, 2, 1), rng.normal(size=2 * N - 1)
    A[-1], B[-1] = np.tensordot(weights, A[:-1], 1), weights @ B[:-1]
    scale = 10.0 ** rng.integers(-decades, decades + 1, size=2 * N)
    rows = [
        bo.inner(s * A_k, X) + s * B_k @ u == s * (np.vdot(A_k, G @ G.T) + B_k @ of_u)
        for s, A_k, B_k in zip(scale, A, B, strict=True)
    ]
    return bo.Problem(bo.Minimize(bo.inner(np.diag(np.arange(1.0, N + 1)), X)), rows)


def two_matrices(seed, sizes):
    """Return two matrices in units of their own, which share rows and an inequality of matrices."""
    rng = np.random.default_rng(seed)
    pair = [bo.PSD(N, name=name) for name in "XY"]
    X, Y = (M / size for M, size in zip(pair, sizes, strict=True))
    A, C, D = (S + S.T for S in rng.normal(size=(3, N, N)))
    u = bo.Variable(2)
    rows = [bo.trace(X) <= 2, bo.trace(Y) == 1.5, bo.abs(u) <= 3, X[0, 1] + Y[0, 1] + u[0] <= rng.normal()]
    rows += [bo.inner(A, X) == rng.normal() * u[1] + 0.1, 2 * np.eye(N) - X - Y >> 0]
    return bo.Problem(bo.Minimize(bo.inner(C, X) + bo.inner(D, Y) + rng.normal(size=2) @ u), rows)


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_equalities_in_other_units_have_the_same_optimum(seed):
    plain, other = (equalities(seed, decades).solve() for decades in (0, 6))
    assert other.status == "optimal"
    assert abs(other.value - plain.value) <= plain.error + other.error


@pytest.mark.parametrize(("seed", "sizes"), turns(range(4), [(1e-6, 1e6), (1e-6, 1.0), (1e6, 1.0)]))
def test_matrices_in_other_units_have_the_same_optimum(seed, sizes):
    plain, other = (two_matrices(seed, own).solve(tol=1e-7) for own in ((1.0, 1.0), sizes))
    assert other.status == "optimal"
    assert abs(other.value - plain.value) <= plain.error + other.error


def test_a_program_in_its_units_is_the_same_program():
    program = two_matrices(0, (1e-6, 1e6)).program()
    reduced = units(program, None)
    assert reduced is not None
    assert np.ptp(np.log10(reduced.program.row_sizes)) < 2
    rng = np.random.default_rng(1)
    X = tuple(M @ M.T for M in (rng.normal(size=(block.n, block.n)) for block in program.blocks))
    u, y = rng.normal(size=program.k), rng.normal(size=program.m)
    inside = reduced.shrink(Start(X, u, y))
    # Powers of two round nothing: rows, costs and slacks are those of the program, digit by digit.
    activity = reduced.program.activity(inside.X, inside.u)
    np.testing.assert_allclose(activity * reduced.rows, program.activity(X, u), rtol=1e-12)
    for b, size in enumerate(reduced.sizes):
        slack = program.blocks[b].C - program.A.adjoint(y, b)
        own = reduced.program.blocks[b].C - reduced.program.A.adjoint(inside.y, b)
        np.testing.assert_allclose(own, size * slack, rtol=1e-12, atol=1e-12 * size * np.abs(slack).max())
    back = reduced.restore(Answer(inside.X, inside.u, inside.y, StopReason.CONVERGED, 0))
    for found, given in zip((*back.X, back.u, back.y), (*X, u, y), strict=True):
        np.testing.assert_array_equal(found, given)


def test_coefficients_of_like_sizes_stay_as_they_are():
    assert units(equalities(0, 0).program(), None) is None
    assert units(two_matrices(0, (1.0, 1.0)).program(), None) is None
