"""Stacks of blocks of equal order against the same blocks one by one, and against dense definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import bregopt as bo
from bregopt.program import Face, LinearMap, Term
from bregopt.program.rows import Coordinates, DenseRows, SparseRows
from bregopt.routes.ipm import many_blocks
from bregopt.routes.ipm import plan as plans
from bregopt.routes.ipm.cones import FaceCone, StackCone
from bregopt.routes.ipm.many_blocks import ProductSchur, StackTerms, TermSchur
from bregopt.routes.ipm.plan import Plan


def random_map(rng, count, n, m, density):
    """Rows over `count` blocks of order `n`: sparse terms, dense matrices, rows that miss a block."""
    terms = []
    for b in range(count):
        meets = np.flatnonzero(rng.random(m) < density)
        if len(meets) == 0:
            continue
        split_at = int(rng.integers(0, len(meets) + 1))
        dense, sparse = meets[:split_at], meets[split_at:]
        if len(dense):
            A = rng.normal(size=(len(dense), n, n))
            terms.append(Term(b, dense, DenseRows((A + A.transpose(0, 2, 1)) / 2)))
        if len(sparse):
            row = np.sort(rng.integers(0, len(sparse), size=2 * len(sparse)))
            i, j = rng.integers(0, n, size=(2, len(row)))
            own = SparseRows(len(sparse), n, Coordinates(row, i, j, rng.normal(size=len(row))))
            terms.append(Term(b, sparse, own))
    return LinearMap(m, (n,) * count, tuple(terms))


def random_stack(rng, count, n):
    G = rng.normal(size=(count, n, n))
    return G @ G.transpose(0, 2, 1) + 0.1 * np.eye(n)


CASES = [(1, 1, 3, 1.0), (2, 1, 5, 0.7), (3, 2, 4, 1.0), (5, 4, 9, 0.4), (7, 3, 6, 0.1), (4, 6, 25, 1.0)]


@pytest.mark.parametrize(("count", "n", "m", "density"), CASES)
@pytest.mark.parametrize("form", ["one matrix", "stack", "alone"])
def test_rows_of_a_plan_are_those_of_its_blocks(count, n, m, density, form, monkeypatch):
    rng = np.random.default_rng(count + n)
    A = random_map(rng, count, n, m, density)
    monkeypatch.setattr(plans, "_JOINT_ORDER", 30 if form == "one matrix" else 0)
    monkeypatch.setattr(plans, "_JOINT_WORK", 1e6)
    plan = Plan.of(A, stacked=form != "alone")
    assert len(plan.groups) == (count if form == "alone" else 1)
    assert [len(group.corners) for group in plan.groups if group.corners] == (
        [count] if form == "one matrix" and count > 1 else []
    )
    X, K, y = random_stack(rng, count, n), random_stack(rng, count, n), rng.normal(size=m)
    R = rng.normal(size=X.shape)
    flat, of_K, of_R = (plan.joined(S) for S in (X, K, R))
    np.testing.assert_allclose(plan.matrices(flat), X)
    adjoint = plan.matrices(plan.adjoint(y))
    np.testing.assert_allclose(adjoint, [A.adjoint(y, b) for b in range(count)], atol=1e-12)
    np.testing.assert_allclose(plan.apply(flat), A.apply(X), atol=1e-10)
    for weight, own in ((0.0, None), (2.0, None), (0.0, R), (3.0, R)):
        total = weight * K - X + (0 if own is None else K @ own)
        expected = A.apply((total + total.transpose(0, 2, 1)) / 2)
        given = None if own is None else plan.views(of_R)
        np.testing.assert_allclose(plan.apply_sum(weight, flat, of_K, given), expected, atol=1e-9)
    s = np.sqrt(X.diagonal(axis1=1, axis2=2))
    matrices = np.array([[A.adjoint(unit, b) for b in range(count)] for unit in np.eye(m)])
    largest = np.einsum("kbij,bi,bj->kb", np.abs(matrices), s, s).max(axis=1)
    np.testing.assert_allclose(plan.magnitudes(flat), largest, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(plan.traces(flat), np.trace(X, axis1=1, axis2=2))
    np.testing.assert_allclose(plan.diagonals(flat), X.diagonal(axis1=1, axis2=2).ravel())
    expected = np.einsum("kbij,bjp,lbpq,bqi->kl", matrices, X, matrices, K)
    parts = plan.views(flat), plan.views(of_K)
    H = plan.schur(*parts, np.arange(m), [None] * len(plan.groups))
    np.testing.assert_allclose(H, (expected + expected.T) / 2, atol=1e-10 * np.abs(expected).max(initial=1))
    kept = np.arange(count) % 2 == 0
    scaled = [group.each(kept[list(group.blocks)]) * group.of(flat) for group in plan.groups]
    scaled = plan.matrices(np.concatenate([own.ravel() for own in scaled]))
    np.testing.assert_array_equal(scaled, kept[:, None, None] * X)


@pytest.mark.parametrize(("count", "n", "m", "density"), CASES)
@pytest.mark.parametrize("formula", [TermSchur, ProductSchur])
def test_schur_matrix_of_a_stack_is_its_definition(formula, count, n, m, density, monkeypatch):
    rng = np.random.default_rng(count * n)
    A = random_map(rng, count, n, m, density)
    X, K = random_stack(rng, count, n), random_stack(rng, count, n)
    matrices = np.array([[A.adjoint(unit, b) for b in range(count)] for unit in np.eye(m)])
    expected = np.einsum("kbij,bjp,lbpq,bqi->kl", matrices, X, matrices, K)
    monkeypatch.setattr(many_blocks, "_STACK_CHUNK", 1)
    H = formula(StackTerms.of(A, range(count))).assemble(X, K)
    np.testing.assert_allclose(H, (expected + expected.T) / 2, atol=1e-10 * np.abs(expected).max(initial=1))


def test_a_stack_is_the_product_of_its_cones():
    rng = np.random.default_rng(0)
    X, step = random_stack(rng, 6, 4), rng.normal(size=(6, 4, 4))
    step = step + step.transpose(0, 2, 1)
    stack, single = StackCone(6, 4), FaceCone(Face.whole(4))
    root = stack.root(X)
    roots = [single.root(X_b) for X_b in X]
    np.testing.assert_allclose(stack.inverse(root), [single.inverse(r) for r in roots], atol=1e-9)
    lengths, halves = (single.lengths(X, roots, own, 0.0) for own in (step, step / 2))
    assert halves == pytest.approx([2 * length for length in lengths])
    both = stack.lengths((X, X), (root, root), (step, step / 2), 0.0)
    assert both == pytest.approx([min(lengths), min(halves)])
    assert stack.order == 24
    X[3, 2, 2] = -1.0
    assert stack.root(X) is None
    X[3, 2, 2] = np.nan
    assert stack.root(X) is None


def test_groups_join_blocks_of_equal_order_and_split_them_again():
    rng = np.random.default_rng(1)
    orders = (3, 2, 3, 50, 50, 2, 5)
    A = LinearMap(0, orders, ())
    C = [random_stack(rng, 1, n)[0] for n in orders]
    plan = Plan.of(A)
    assert sorted(group.blocks for group in plan.groups) == [(0, 2), (1, 5), (3,), (4,), (6,)]
    for own, given in zip(plan.matrices(plan.joined(C)), C, strict=True):
        np.testing.assert_array_equal(own, given)
    assert len(Plan.of(A, stacked=False).groups) == len(orders)


def test_few_small_blocks_of_any_orders_are_one_matrix():
    rng = np.random.default_rng(5)
    orders = (3, 1, 2, 3)
    A = LinearMap(
        2,
        orders,
        tuple(Term(b, np.arange(2), DenseRows(random_stack(rng, 2, n))) for b, n in enumerate(orders)),
    )
    plan = Plan.of(A)
    (group,) = plan.groups
    assert group.blocks == (0, 1, 2, 3)
    assert group.shape == (9, 9)
    assert plan.order == 9
    C = [random_stack(rng, 1, n)[0] for n in orders]
    whole = group.of(plan.joined(C))
    np.testing.assert_array_equal(whole, sp.block_diag(C).toarray())
    for own, given in zip(plan.matrices(plan.joined(C)), C, strict=True):
        np.testing.assert_array_equal(own, given)
    y = rng.normal(size=2)
    for b, own in enumerate(plan.matrices(plan.adjoint(y))):
        np.testing.assert_allclose(own, A.adjoint(y, b))
    np.testing.assert_allclose(plan.apply(plan.joined(C)), A.apply(C))
    assert len(Plan.of(A, weights=[1.0] * 4).groups) == 3
    assert len(Plan.of(A, [Face(np.eye(3)[:, :1])] + [Face.whole(n) for n in orders[1:]]).groups) == 2


def program_with_known_solution(rng, orders, m, ranks):
    """A program with complementary ``X`` and ``Z`` and interior points on both sides, and its optimum.

    The first row is the trace. All rows are orthogonal to a ``D`` with trace zero that is positive definite
    where ``X`` vanishes.
    """
    X, Z, D = [], [], []
    rank, rest = sum(ranks), sum(orders) - sum(ranks)
    for n, r in zip(orders, ranks, strict=True):
        Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
        X.append(Q[:, :r] * rng.uniform(0.5, 2, r) @ Q[:, :r].T)
        Z.append(Q[:, r:] * rng.uniform(0.5, 2, n - r) @ Q[:, r:].T)
        D.append(Q * np.where(np.arange(n) < r, -1 / rank, 1 / rest) @ Q.T)
    rows = [rng.normal(size=(m, n, n)) for n in orders]
    rows = [M + M.transpose(0, 2, 1) for M in rows]
    along = sum(np.einsum("kij,ij->k", M, D_b) for M, D_b in zip(rows, D, strict=True))
    along /= sum(float(np.vdot(D_b, D_b)) for D_b in D)
    terms = []
    for b, (n, M) in enumerate(zip(orders, rows, strict=True)):
        M = M - along[:, None, None] * D[b]
        M[0] = np.eye(n)
        terms.append(Term(b, np.arange(m), DenseRows(M)))
    A = LinearMap(m, orders, tuple(terms))
    y = rng.normal(size=m)
    C = [Z_b + A.adjoint(y, b) for b, Z_b in enumerate(Z)]
    value = sum(float(np.vdot(C_b, X_b)) for C_b, X_b in zip(C, X, strict=True))
    return A, A.apply(X), C, value


@pytest.mark.parametrize("seed", range(6))
def test_stacked_blocks_reach_the_known_optimum_as_blocks_alone_do(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    orders = tuple(rng.choice([1, 2, 3, 4], size=12).tolist())
    ranks = [int(rng.integers(0, n + 1)) for n in orders[:-2]] + [0, orders[-1]]
    A, b, C, value = program_with_known_solution(rng, orders, 8, ranks)
    matrices = [bo.PSD(n) for n in orders]
    rows = [
        sum(bo.inner(A.adjoint(unit, k), X) for k, X in enumerate(matrices)) == right
        for unit, right in zip(np.eye(8), b, strict=True)
    ]
    objective = sum(bo.inner(C_b, X) for C_b, X in zip(C, matrices, strict=True))
    found = []
    monkeypatch.setattr(plans, "_JOINT_WORK", 1e6)
    for numbers, order in ((5e7, 0), (1e-3, 0), (5e7, 48)):  # stacks, blocks alone, and one matrix
        monkeypatch.setattr(many_blocks, "_STACK_NUMBERS", numbers)
        monkeypatch.setattr(plans, "_JOINT_ORDER", order)
        solution = bo.Problem(bo.Minimize(objective), rows).solve(solver="path", tol=1e-8)
        assert solution.status == "optimal"
        assert abs(solution.value - value) <= solution.error + 1e-7 * max(1.0, abs(value))
        found.append(solution.value)
    assert found[1:] == pytest.approx(found[:1] * 2, abs=1e-6 * max(1.0, abs(value)))


def test_a_thousand_blocks_are_a_few_groups():
    rng = np.random.default_rng(3)
    A = random_map(rng, 1000, 2, 40, 0.05)
    groups = Plan.of(A).groups
    assert len(groups) == 1
    X = random_stack(rng, 1000, 2)
    H = groups[0].rows.schur(X, X)
    assert H.shape == (40, 40)
    assert np.linalg.eigvalsh(H).min() > -1e-9 * np.abs(H).max()


def test_stacks_that_would_not_fit_stay_blocks(monkeypatch):
    rng = np.random.default_rng(4)
    A = random_map(rng, 3, 3, 5, 1.0)
    faces = [Face.whole(3)] * 3
    monkeypatch.setattr(plans, "_JOINT_ORDER", 0)
    for module, name in ((many_blocks, "_STACK_NUMBERS"), (plans, "_STACK_TERMS")):
        with monkeypatch.context() as small:
            small.setattr(module, name, 1e-3)
            assert len(Plan.of(A, faces).groups) == 3


def test_a_block_on_a_face_is_not_stacked():
    A = LinearMap(0, (2, 2, 2), ())
    faces = [Face.whole(2), Face(np.ones((2, 1))), Face.whole(2)]
    groups = Plan.of(A, faces).groups
    assert sorted(group.blocks for group in groups) == [(0, 2), (1,)]
