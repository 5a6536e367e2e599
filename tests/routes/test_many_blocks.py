"""Problems of known truth in many psd matrices: claims, values, scales, merged and permuted blocks."""

import warnings

import block_truth
import cvxpy as cp
import numpy as np
import pytest
import truth
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo
import bregopt.cvxpy

SEEDS = st.integers(0, 10**6)
SEED = 20261123
TOL = 1e-7


def drawn(seed, kind, orders="mixed", largest=12):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, largest + 1))
    return block_truth.many_blocks(rng, block_truth.orders_of(rng, count, orders), kind)


def solve(blocks, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return blocks.problem().solve(solver="path", **{"tol": TOL, **options})


def proven(blocks, solution):
    """Assert that an answer is optimal, and that the known value lies within its error."""
    assert solution.status == "optimal", solution
    size = blocks.unit + abs(blocks.value)
    assert abs(solution.value - blocks.value) <= solution.error + 1e-11 * size
    assert abs(solution.value - blocks.value) <= 100 * TOL * size


def agree(first, second):
    """Assert that the certified intervals of two answers to one problem overlap."""
    assert first.status == second.status
    room = first.error + second.error + 1e-12 * (abs(first.value) + abs(second.value))
    assert abs(first.value - second.value) <= room


# --- The test-bed itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", block_truth.REGULAR + block_truth.NO_INTERIOR)
def test_the_known_point_is_optimal(kind):
    """Any psd ``X`` that meets the rows has a value above ``b'y``, which Clarabel confirms."""
    blocks = drawn(3, kind, largest=4)
    problem = blocks.problem().to_cvxpy()
    value = problem.solve(solver="CLARABEL")
    assert value == pytest.approx(blocks.value, abs=1e-5 * (blocks.unit + abs(blocks.value)))


@pytest.mark.parametrize("kind", block_truth.WITHOUT_OPTIMUM)
def test_clarabel_finds_no_optimum_either(kind):
    problem = drawn(3, kind, largest=4).problem().to_cvxpy()
    problem.solve(solver="CLARABEL")
    assert problem.status.startswith(kind)


# --- Claims --------------------------------------------------------------------------------------------


@given(SEEDS, st.sampled_from(block_truth.ORDERS), st.sampled_from(block_truth.REGULAR))
@examples(20)
def test_the_known_value_is_within_the_certified_error(seed, orders, kind):
    blocks = drawn(seed, kind, orders)
    proven(blocks, solve(blocks))


@given(SEEDS, st.sampled_from(block_truth.ORDERS), st.sampled_from(block_truth.NO_INTERIOR))
@examples(10)
def test_claims_without_an_interior_are_true(seed, orders, kind):
    blocks = drawn(seed, kind, orders)
    verdict = truth.answer(blocks.case(kind, str(seed)), "path", TOL)
    assert verdict.true
    assert verdict.status.startswith("optimal")


@given(SEEDS, st.sampled_from(block_truth.ORDERS), st.sampled_from(block_truth.WITHOUT_OPTIMUM))
@examples(10)
def test_the_absence_of_an_optimum_is_proven(seed, orders, kind):
    assert solve(drawn(seed, kind, orders)).status == kind


@pytest.mark.parametrize(
    ("route", "every"), first(1, [("path", 4), ("path", 1), ("BREGOPT", 1), ("method", 1)])
)
def test_claims_through_every_entry_are_true(route, every):
    cases = list(block_truth.block_cases(np.random.default_rng(SEED), 1))
    tally = truth.Tally.of(route, 1e-6, cases[::every])
    assert not tally.wrong
    assert not tally.lost


@pytest.mark.slow
@pytest.mark.parametrize("tol", truth.TOLS)
@pytest.mark.parametrize("route", ["path", "BREGOPT", "method"])
def test_claims_about_many_are_true(route, tol):
    tally = truth.Tally.of(route, tol, list(block_truth.block_cases(np.random.default_rng(SEED + 1), 8)))
    assert not tally.wrong
    assert len(tally.lost) <= 0.03 * tally.well_posed, tally.lost


# --- Invariances ---------------------------------------------------------------------------------------


@given(
    SEEDS, st.sampled_from(block_truth.KINDS), st.sampled_from([1e-6, 1e6]), st.sampled_from([1e-6, 1.0, 1e6])
)
@examples(12)
def test_statuses_hold_at_every_scale(seed, kind, cost, bounds):
    blocks = drawn(seed, kind)
    scaled = blocks.scaled(cost, bounds)
    solution = solve(scaled)
    if kind in block_truth.REGULAR:
        proven(scaled, solution)
    elif kind in block_truth.WITHOUT_OPTIMUM:
        assert solution.status == kind
    else:
        assert truth.answer(scaled.case(kind, str(seed)), "path", TOL).true


@given(SEEDS, st.sampled_from(block_truth.ORDERS), st.sampled_from(block_truth.REGULAR))
@examples(6)
def test_the_order_of_the_blocks_does_not_matter(seed, orders, kind):
    blocks = drawn(seed, kind, orders)
    order = np.random.default_rng(seed).permutation(len(blocks.C))
    agree(solve(blocks), solve(blocks.permuted(order)))


@given(SEEDS, st.sampled_from(block_truth.ORDERS), st.sampled_from(block_truth.REGULAR))
@examples(5)
def test_blocks_of_one_matrix_are_as_good_as_matrices(seed, orders, kind):
    """The blocks are merged to one block-diagonal matrix, to two, and to pairs."""
    blocks = drawn(seed, kind, orders, largest=6)
    count = len(blocks.C)
    alone = solve(blocks)
    proven(blocks, alone)
    halves = [range(count // 2), range(count // 2, count)]
    pairs = [range(k, min(k + 2, count)) for k in range(0, count, 2)]
    for groups in ([range(count)], halves, pairs):
        merged = solve(blocks.merged(groups))
        proven(blocks, merged)
        agree(alone, merged)


@given(SEEDS, st.sampled_from(block_truth.WITHOUT_OPTIMUM))
@examples(5)
def test_merged_blocks_have_no_optimum_either(seed, kind):
    blocks = drawn(seed, kind, largest=6)
    assert solve(blocks.merged([range(len(blocks.C))])).status == kind


# --- A thousand blocks, linear matrix inequalities -----------------------------------------------------


@pytest.mark.parametrize("n", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4))])
def test_a_thousand_blocks(n, tmp_path):
    orders = [2, *[n] * 999]  # a file without a matrix is refused
    blocks = block_truth.many_blocks(np.random.default_rng(n), orders, "strict", rows=40, met=50)
    bo.write_sdpa(blocks.problem(), tmp_path / "a.dat-s")
    solution = bo.read_sdpa(tmp_path / "a.dat-s").solve(solver="path", tol=TOL)
    proven(blocks.scaled(-1.0, 1.0), solution)  # files maximize


def inequalities(blocks, spelling):
    """Return the dual of a problem without ordinary variables in CVXPY:  max b'y,  C - sum_r y_r A_r psd."""
    y = cp.Variable(len(blocks.b))
    rows = []
    for C, A in zip(blocks.C, blocks.A, strict=True):
        if spelling == "sum":
            S = C - sum(y[r] * A_r for r, A_r in enumerate(A))
        else:
            S = C - cp.reshape(A.reshape(len(A), -1).T @ y, C.shape, order="C")
        rows.append(S >> 0)
    return cp.Problem(cp.Maximize(blocks.b @ y), rows)


@pytest.mark.parametrize(
    ("how", "spelling"), turns([{"method": "bregopt"}, {"solver": bregopt.cvxpy.BREGOPT}], ["sum", "product"])
)
@pytest.mark.parametrize(("count", "n", "rows"), [(20, 4, 5), (6, 10, 8), (1, 30, 12), (12, 1, 3)])
def test_linear_matrix_inequalities(count, n, rows, spelling, how):
    rng = np.random.default_rng(count)
    blocks = block_truth.many_blocks(rng, [n] * count, "strict", rows=rows, met=count)
    problem = inequalities(blocks, spelling)
    problem.solve(tol=TOL, **how)
    size = blocks.unit + abs(blocks.value)
    assert problem.status == "optimal"
    assert abs(problem.value - blocks.value) <= 100 * TOL * size
    # The multipliers are an optimal X: psd, they meet the rows, and their cost is the value.
    X = [(row.dual_value + row.dual_value.T) / 2 for row in problem.constraints]
    largest = max(np.abs(X_k).max() for X_k in X)
    assert min(np.linalg.eigvalsh(X_k)[0] for X_k in X) >= -1e-6 * largest
    activity = sum(np.einsum("rij,ij->r", A_k, X_k) for A_k, X_k in zip(blocks.A, X, strict=True))
    np.testing.assert_allclose(activity, blocks.b, atol=1e-5 * (1 + np.abs(blocks.b).max()))
    cost = sum(np.vdot(C_k, X_k) for C_k, X_k in zip(blocks.C, X, strict=True))
    assert abs(cost - blocks.value) <= 100 * TOL * size
