"""Chordal sparsity: clique submatrices, completion and sparse Schur matrices, against the whole matrix."""

import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo
from bregopt import presolve
from bregopt.presolve import Tolerances, chordal
from bregopt.presolve.chordal import (
    CliqueTerms,
    Pattern,
    _fronts,
    chordal_sparsity,
    completion,
    core,
    pattern_of,
    sizes_of,
    work,
)
from bregopt.presolve.cliques import clique_tree, merged
from bregopt.program import NO_CONES, Answer, Face, SecondOrderCones, Start, StopReason
from bregopt.program.rows import Coordinates
from bregopt.routes.ipm import many_blocks, path_route, row_system
from bregopt.routes.ipm import plan as plans
from bregopt.routes.ipm.cones import SecondOrderState
from bregopt.routes.ipm.many_blocks import SparseRowSystem, fill_of
from bregopt.routes.ipm.path_route import Path, PathSettings, memory_needed
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint
from bregopt.routes.ipm.row_system import RowSystem

KINDS = ("tree", "cycle", "random", "band", "arrow", "parts", "complete", "empty")


def always_sparse(monkeypatch):
    """Make the system of any rows sparse."""
    monkeypatch.setattr(row_system, "_LEAST_SPARSE", 1)
    for name in ("_SPARSE_SCHUR", "_SEARCH_SHARE", "_SPARSE_FACTOR"):
        monkeypatch.setattr(many_blocks, name, 1e9)


@pytest.fixture
def forced(monkeypatch):
    """Let the reduction apply to small matrices, with all vertices eliminated."""
    for module in (presolve, chordal):
        monkeypatch.setattr(module, "LEAST_CHORDAL_ORDER", 1)
    monkeypatch.setattr(chordal, "SEARCH_SHARE", 1e9)
    monkeypatch.setattr(chordal, "core", len)
    monkeypatch.setattr(chordal, "may_be_cheaper", lambda tree, pattern: True)
    monkeypatch.setattr(chordal, "is_cheaper", lambda cliques, pattern: True)
    monkeypatch.setattr("bregopt.presolve.chordal.LARGEST_PATTERN", 2.0)


def edges(kind, n, rng):
    """Return the edges of a graph, shape (e, 2)."""
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    found = {
        "tree": lambda: [(int(rng.integers(k)), k) for k in range(1, n)],
        "cycle": lambda: [(k, (k + 1) % n) for k in range(n)] if n > 2 else [],
        "random": lambda: [p for p in pairs if rng.random() < 2 / n],
        "band": lambda: [p for p in pairs if p[1] - p[0] <= 3],
        "arrow": lambda: [p for p in pairs if p[0] < 2],
        "parts": lambda: [p for p in pairs if p[0] // 4 == p[1] // 4],
        "complete": lambda: pairs,
        "empty": list,
    }[kind]()
    return np.array(found, dtype=int).reshape(-1, 2)


def graph(kind, n, seed):
    """Return a pattern with randomly numbered vertices, and its edges."""
    rng = np.random.default_rng(seed)
    e = rng.permutation(n)[edges(kind, n, rng)]
    S = np.eye(n)
    S[e[:, 0], e[:, 1]] = S[e[:, 1], e[:, 0]] = 1
    return S, e


def tree_of(S, merge=True):
    """Return the clique tree of max-cut with this cost, and the pattern."""
    X = bo.PSD(len(S))
    program = bo.Problem(bo.Minimize(bo.inner(S, X)), [bo.diag(X) == 1]).program()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bregopt.presolve.chordal.LARGEST_PATTERN", 2.0)
        pattern = pattern_of(program, 0)
    tree = clique_tree(pattern.matrix, np.inf, len)
    return merged(tree, sizes_of(tree, pattern), work if merge else (lambda clique: 0.0)), pattern


def laplacian(n, width, seed=0):
    """Return the Laplacian of a band graph with random weights."""
    rng = np.random.default_rng(seed)
    W = sum(sp.diags_array(rng.random(n - d), offsets=d, shape=(n, n)) for d in range(1, width + 1))
    W = W + W.T
    return sp.csr_array(sp.diags_array(W.sum(axis=1)) - W)


def max_cut(L):
    X = bo.PSD(L.shape[0], name="X")
    return bo.Problem(bo.Maximize(bo.inner(L / 4, X)), [bo.diag(X) == 1])


# Cliques


@examples(30)
@given(st.sampled_from(KINDS), st.integers(1, 25), st.integers(0, 10**6), st.booleans())
def test_cliques_cover_the_pattern_and_form_a_tree(kind, n, seed, merge):
    S, _ = graph(kind, n, seed)
    tree, pattern = tree_of(S, merge)
    covered = np.zeros((n, n), dtype=bool)
    for v in tree.vertices:
        covered[np.ix_(v, v)] = True
    assert covered[S != 0].all()
    assert (tree.parent < np.arange(len(tree.parent))).all()
    for c, (own, separator, residual) in enumerate(
        zip(tree.vertices, tree.separators, tree.residuals, strict=True)
    ):
        assert len(residual)
        above = set() if tree.parent[c] < 0 else set(tree.vertices[tree.parent[c]])
        assert set(separator) == set(own) & above  # what is shared with all of the tree above
        earlier = set().union(*(tree.vertices[k] for k in range(c)))
        assert set(own) & earlier == set(separator)  # the running intersection
    # The equalities link all copies of an entry.
    cliques = CliqueTerms.of(pattern, tree)
    copies = sum(len(v) * (len(v) + 1) // 2 for v in tree.vertices)
    assert cliques.equalities == copies - len(np.argwhere(np.triu(covered)))


def test_fronts_are_those_of_an_elimination_of_the_schur_matrix():
    rng = np.random.default_rng(5)
    for kind in ("tree", "random", "band", "arrow"):
        tree, pattern = tree_of(graph(kind, 30, int(rng.integers(1000)))[0], merge=False)
        cliques = CliqueTerms.of(pattern, tree)
        own = cliques.terms.row >= 0
        meets = [set(cliques.terms.row[own & (cliques.clique == c)]) for c in range(len(tree.vertices))]
        eliminated, front = _fronts(cliques)
        for c in range(len(tree.vertices)):
            children = [d for d in range(len(meets)) if tree.parent[d] == c]
            passed = set()
            for d in children:
                lower = [k for k in range(len(meets)) if d in _ancestors(tree.parent, k)]
                outside = set().union(*(meets[k] for k in range(len(meets)) if k not in lower))
                passed |= set().union(*(meets[k] for k in lower)) & outside
            assert front[c] == len(meets[c] | passed)
        assert eliminated.sum() == len(set().union(*meets))


def _ancestors(parent, c):
    found = []
    while c >= 0:
        found.append(c)
        c = parent[c]
    return found


def test_a_dense_core_is_one_clique():
    rng = np.random.default_rng(0)
    n = 300
    S = np.eye(n)
    dense = rng.random((100, 100)) < 0.3
    S[:100, :100] += dense + dense.T
    ends = rng.integers(0, 100, 200)
    S[np.arange(100, n), ends] = S[ends, np.arange(100, n)] = 1
    X = bo.PSD(n, name="X")
    program = bo.Problem(bo.Minimize(bo.inner(S, X)), [bo.diag(X) == 1]).program()
    tree = clique_tree(pattern_of(program, 0).matrix, np.inf, core)
    assert 50 <= tree.width <= 120
    assert len(tree.vertices) > 150
    cut_short = clique_tree(pattern_of(program, 0).matrix, 1000.0, core)
    assert cut_short.width >= 100
    assert (np.bincount(np.concatenate(cut_short.vertices), minlength=n) > 0).all()


# Completion


@examples(30)
@given(st.sampled_from(KINDS[:6]), st.integers(2, 25), st.integers(0, 10**6), st.integers(1, 25))
def test_completion_is_psd_and_has_the_given_entries(kind, n, seed, rank):
    tree, _ = tree_of(graph(kind, n, seed)[0])
    F = np.random.default_rng(seed).normal(size=(n, rank))
    X = F @ F.T
    R = completion(tree, [X[np.ix_(v, v)] for v in tree.vertices])
    assert R.shape == (n, tree.width)
    size = np.abs(X).max()
    for v in tree.vertices:
        # Singular submatrices lose half of the digits where the rank is that of a separator.
        assert np.abs((R @ R.T - X)[np.ix_(v, v)]).max() <= 1e-6 * size


def test_completion_of_positive_definite_submatrices_is_accurate():
    n = 200
    tree, _ = tree_of(np.asarray(laplacian(n, 4).toarray() != 0, dtype=float), merge=False)
    G = np.random.default_rng(0).normal(size=(n, 3))
    X = G @ G.T + 1e-8 * np.eye(n)  # as at the end of the central path
    R = completion(tree, [X[np.ix_(v, v)] for v in tree.vertices])
    error = max(float(np.abs((R @ R.T - X)[np.ix_(v, v)]).max()) for v in tree.vertices)
    assert error <= 1e-10 * np.abs(X).max()


def test_completion_of_zero_is_zero():
    tree, _ = tree_of(graph("tree", 12, 0)[0])
    assert not completion(tree, [np.zeros((len(v), len(v))) for v in tree.vertices]).any()
    with pytest.raises(np.linalg.LinAlgError):
        completion(tree, [np.full((len(v), len(v)), np.nan) for v in tree.vertices])


# The reduction


def known_problem(seed, kind, n, scale, variables=True):
    """Return a feasible and bounded problem with a sparse pattern."""
    S, e = graph(kind, n, seed)
    rng = np.random.default_rng(seed + 1)
    C = S * rng.normal(size=(n, n))
    X, u = bo.PSD(n, name="X"), bo.Variable(2, name="u")
    F = rng.normal(size=(n, 3))
    X0 = scale * (F @ F.T / 3 + 0.1 * np.eye(n))
    rows = [bo.diag(X) <= 1.5 * X0.diagonal() if seed % 2 else bo.diag(X) == X0.diagonal()]
    for i, j in rng.permutation(e)[: n // 3]:
        A = np.zeros((n, n))
        A[i, j] = A[j, i] = rng.normal()
        A[i, i], A[j, j] = rng.normal(size=2)
        value = float(np.vdot(A, X0))
        row = bo.inner(A, X)
        kinds = [row == value, row <= value + 0.1 * abs(value), bo.soft(row <= value - scale, gamma=2.0)]
        rows.append(kinds[rng.integers(3)])
    objective = bo.inner(C + C.T, X)
    if variables:
        rows += [X[0, 0] + u[0] - u[1] == X0[0, 0], bo.between(u, -scale, 2 * scale)]
        objective = objective + rng.normal(size=2) @ u
    return bo.Problem(bo.Minimize(objective), rows)


@pytest.mark.parametrize(("kind", "scale"), turns(KINDS, first(1, [1.0, 1e-6, 1e6])))
def test_cliques_and_the_whole_matrix_have_the_same_value(kind, scale, monkeypatch, request):
    for seed in range(3):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        problem = known_problem(seed, kind, int(rng.integers(4, 20)), scale, variables=seed > 0)
        whole = problem.solve(solver="path", tol=1e-7)
        with monkeypatch.context() as context:
            request.getfixturevalue("forced")
            if seed:
                always_sparse(context)
            sol = problem.solve(solver="path", tol=1e-7)
        assert whole.status == sol.status == "optimal"
        assert abs(whole.value - sol.value) <= whole.error + sol.error
        assert np.linalg.eigvalsh(sol.X)[0] >= -1e-9 * np.trace(sol.X)


def test_infeasible_and_unbounded_problems(forced):
    n = 12
    for scale in (1e-6, 1.0, 1e6):
        X = bo.PSD(n, name="X")
        C = laplacian(n, 2).toarray()
        triple = [X[4 + a, 4 + b] <= -0.7 * scale for a, b in ((0, 1), (1, 2), (0, 2))]
        impossible = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == scale, *triple])
        assert impossible.solve(solver="path").status == "infeasible"
        endless = bo.Problem(bo.Minimize(bo.inner(C - np.eye(n), X)), [X[3, 3] <= scale])
        assert chordal_sparsity(endless.program(), Tolerances(1e-6, 1e-10)) is not None
        assert endless.solve(solver="path").status == "unbounded"


def test_two_matrices_and_vertices_without_entries(forced):
    X, Y, t = bo.PSD(10, name="X"), bo.PSD(6, name="Y"), bo.Variable(name="t")
    L = laplacian(8, 1).toarray()
    C = np.pad(L, (0, 2))  # X[8, 8] and X[9, 9] are nowhere
    rows = [X[k, k] == 1 for k in range(8)] + [bo.diag(Y) == 1, Y[0, 1] + X[0, 1] == t, t >= -1]
    problem = bo.Problem(bo.Maximize(bo.inner(C, X) - bo.inner(laplacian(6, 2).toarray(), Y) - t), rows)
    reduced = chordal_sparsity(problem.program(), Tolerances(1e-6, 1e-10))
    assert [tree is not None for tree in reduced.trees] == [True, True]
    sol = problem.solve(solver="path", tol=1e-8)
    assert sol.status == "optimal"
    peers.ask(_in_cvxpy(C, laplacian(6, 2).toarray())).agrees(sol.value, sol.error)
    assert not sol.X[0][8:].any()


def _in_cvxpy(C, D):
    import cvxpy as cp

    X, Y, t = cp.Variable((10, 10), PSD=True), cp.Variable((6, 6), PSD=True), cp.Variable()
    rows = [X[k, k] == 1 for k in range(10)]
    rows += [cp.diag(Y) == 1, Y[0, 1] + X[0, 1] == t, t >= -1]
    return cp.Problem(cp.Maximize(cp.trace(C @ X) - cp.trace(D @ Y) - t), rows)


def test_restored_answers_are_those_of_the_whole_program(forced):
    program = max_cut(laplacian(15, 2)).program()
    reduced = chordal_sparsity(program, Tolerances(1e-6, 1e-10))
    F = np.random.default_rng(0).normal(size=(15, 4))
    start = reduced.shrink(Start((F @ F.T,), np.zeros(0), np.arange(15.0)))
    inside = reduced.program
    assert np.allclose(inside.A.apply(start.X)[15:], 0)  # the cliques agree
    assert np.allclose(inside.A.apply(start.X)[:15], program.A.apply((F @ F.T,)))
    own = sum(block.cost_value(X) for block, X in zip(inside.blocks, start.X, strict=True))
    assert np.isclose(own, program.blocks[0].cost_value(F @ F.T))
    answer = Answer(start.X, start.u, start.y, StopReason.CONVERGED, 3)
    whole = reduced.restore(answer)
    assert np.allclose(whole.X[0][program.blocks[0].C != 0], (F @ F.T)[program.blocks[0].C != 0])
    assert np.array_equal(whole.y, np.arange(15.0))
    farkas = reduced.restore(Answer.without_point(inside, start.y, StopReason.INFEASIBLE))
    assert farkas.X[0].shape == (15, 15)
    assert not farkas.X[0].any()


# Where it pays


def test_a_band_is_decomposed_and_a_full_matrix_is_not():
    band, rng = max_cut(laplacian(600, 4)), np.random.default_rng(0)
    program = band.program()
    assert "cliques of order" in chordal_sparsity(program, Tolerances(1e-6, 1e-10)).summary
    full = rng.normal(size=(300, 300))
    assert chordal_sparsity(max_cut(full + full.T).program(), Tolerances(1e-6, 1e-10)) is None
    expander = sp.csr_array(np.where(rng.random((400, 400)) < 0.02, rng.random((400, 400)), 0.0))
    assert chordal_sparsity(max_cut(expander + expander.T).program(), Tolerances(1e-6, 1e-10)) is None
    assert chordal_sparsity(max_cut(laplacian(60, 2)).program(), Tolerances(1e-6, 1e-10)) is None
    # Vertices that only the diagonal has leave a core.
    partly = sp.block_diag([expander + expander.T, sp.csr_array((400, 400))])
    reduced = chordal_sparsity(max_cut(sp.csr_array(partly)).program(), Tolerances(1e-6, 1e-10))
    assert reduced.trees[0].width <= 400


def test_explain_names_the_cliques(capsys):
    max_cut(laplacian(600, 4)).explain(solver="path")
    assert "X of order 600 as " in capsys.readouterr().out


def test_a_large_band_is_solved_and_certified():
    L = laplacian(1200, 4)
    sol = max_cut(L).solve(solver="path", tol=1e-7)
    assert sol.status == "optimal"
    assert isinstance(sol.X, bo.LowRank)
    assert np.allclose(sol.X.diag(), 1, atol=1e-7)
    # Weak duality, with eigenvalues of our own: y is feasible after a shift of its least eigenvalue.
    y = np.abs(sol.duals[0])
    least = float(np.linalg.eigvalsh(np.diag(y) - L.toarray() / 4)[0])
    bound = float(y.sum()) - 1200 * min(least, 0.0)
    assert sol.value <= bound * (1 + 1e-9)
    assert bound - sol.value <= 1e-6 * bound


def test_a_warm_start_takes_fewer_steps():
    problem = max_cut(laplacian(300, 4))
    first = problem.solve(solver="path")
    again = problem.solve(solver="path", warm_start=first)
    assert again.status == "optimal"
    assert again.iterations < first.iterations


# The sparse system


def test_the_fill_is_known_before_the_system_is_formed():
    X = [bo.PSD(3, name=f"X{b}") for b in range(5)]
    alone = [X_b[0, j] == 0 for X_b in X for j in range(3)]
    linked = [X[b][2, 2] == X[b + 1][2, 2] for b in range(4)]
    u = bo.Variable(name="u")
    kinds = [
        (alone, 5 * 6 + 1),  # five dense blocks of three rows, and a variable
        (alone + linked, 5 * 6 + 1 + 4 + 4 * 6 + 3),  # each link meets six rows and the next link
        ([*alone, u == X[0][0, 0]], 5 * 6 + 1 + 3 + 2),
        ([sum(map(bo.trace, X)) == 1, *alone], 5 * 6 + 1 + 1 + 15),
    ]
    for rows, fill in kinds:
        program = bo.Problem(bo.Minimize(sum(map(bo.trace, X)) + 0 * u), rows).program()
        assert fill_of(program.A, program.B, np.inf) == fill
        assert fill_of(program.A, program.B, 1.0) == np.inf


def test_memory_is_that_of_the_sparse_system_where_a_dense_one_does_not_fit(monkeypatch):
    X = [bo.PSD(3, name=f"X{b}") for b in range(300)]
    cost = sum(map(bo.trace, X)) + 0
    links = [X[b][2, 2] - X[b + 1][0, 0] + X[b][0, 1] == 0 for b in range(299)]
    chain = bo.Problem(bo.Minimize(cost), [*links, *(bo.inner(np.ones((3, 3)), X_b) >= 1 for X_b in X)])
    dense = memory_needed(chain.program())
    for share, accepted in ((2.0, True), (0.1, True), (1e-3, False)):
        monkeypatch.setattr(path_route, "shortage", lambda b, most=share * dense: "no" if b > most else None)
        assert (Path().refusal(chain.program(), PathSettings()) is None) == accepted
    assert all(len(term.at) <= 3 for term in chain.program().A._factors)  # no table has rows of other blocks


@pytest.mark.parametrize("seed", range(6))
def test_the_sparse_system_has_the_steps_of_the_dense_one(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    orders = [3] * 6 + [2] * 4 + [5, 7]
    blocks = [bo.PSD(n, name=f"X{b}") for b, n in enumerate(orders)]
    u = bo.Variable(4, name="u")
    cones = SecondOrderCones.of([np.array([3, 1]), np.array([2])]) if seed > 3 else NO_CONES
    rows = []
    for b in range(len(orders) - 1):
        for _ in range(3):
            S, T = (rng.normal(size=(n, n)) for n in orders[b : b + 2])
            row = bo.inner(S + S.T, blocks[b]) + bo.inner(T + T.T, blocks[b + 1])
            rows.append(row + (u[b % 4] if seed % 2 else 0) == float(rng.normal()))
    rows.append(bo.trace(blocks[0]) + u[0] - u[1] <= 3)
    program = bo.Problem(bo.Minimize(sum(map(bo.trace, blocks)) + bo.sum(u)), rows).program()
    always_sparse(monkeypatch)
    faces = [Face.whole(n) for n in orders]
    plan = Plan.of(program.A, faces, stacked=seed < 4)
    sparse = SparseRowSystem.of(plan, program.B, cones)
    dense = RowSystem(plan, program.B, direct=True)
    X, K, R = np.empty(plan.size), np.empty(plan.size), []
    for group in plan.groups:
        G, H, E = (rng.normal(size=group.shape) for _ in range(3))
        group.of(X)[...] = G @ np.swapaxes(G, -1, -2) + np.eye(G.shape[-1])
        group.of(K)[...] = H @ np.swapaxes(H, -1, -2) + np.eye(G.shape[-1])
        R.append(E + np.swapaxes(E, -1, -2))
    roots = plan.roots(plan.views(X))
    D = np.where(program.bounds.equal, 0.0, 0.5)
    D[-1] = 0.5 if seed != 3 else np.inf
    D_u = np.array([np.inf, 2.0, 1e-3, 1e3])
    p = None
    if cones.count:
        x, z = (rng.normal(size=3) + np.array([9.0, 0.0, 9.0]) for _ in range(2))
        D_u[cones.index], p = SecondOrderState(cones, x, z).metric()
    at = ScalingPoint(plan, X, roots, (), D, D_u, cones, p, K)
    rhs = RightHandSide(0.3, R, *(rng.normal(size=k) for k in (program.m, 4)), rng.normal(size=4))
    rhs = rhs._replace(r_u=np.where(np.isinf(D_u), 0.0, rhs.r_u))
    one, other = sparse.factor(at)(rhs), dense.factor(at)(rhs)
    assert np.allclose(one.y, other.y, rtol=1e-8, atol=1e-9 * np.abs(other.y).max())
    assert np.allclose(one.u, other.u, rtol=1e-8, atol=1e-9 * np.abs(other.u).max())


def test_dependent_rows_are_no_obstacle_to_the_sparse_system(monkeypatch):
    L = laplacian(12, 2).toarray()
    X = [bo.PSD(3, name=f"X{b}") for b in range(8)]
    rows = [bo.trace(X_b) == 1 for X_b in X] + [X[b][0, 0] == X[b + 1][1, 1] for b in range(7)]
    rows += [X[0][0, 0] - X[2][1, 1] - X[1][0, 0] + X[1][1, 1] == 0]  # follows from two of them
    objective = sum(bo.inner(L[b : b + 3, b : b + 3], X_b) for b, X_b in enumerate(X))
    problem = bo.Problem(bo.Minimize(objective), rows)
    dense = problem.solve(solver="path")
    always_sparse(monkeypatch)
    sparse = problem.solve(solver="path")
    assert dense.status == sparse.status == "optimal"
    assert abs(dense.value - sparse.value) <= dense.error + sparse.error


def test_cliques_are_priced_for_the_stacks_of_the_method():
    """Presolve may not import the method, so the order up to which blocks are stacked stands there twice."""
    assert chordal.LARGEST_STACKED == plans._STACK_ORDER


@pytest.mark.parametrize(
    ("edges", "bandwidth"), [([], 0), ([(7, 7)], 0), ([(0, 999), (999, 5), (5, 400)], 1)]
)
def test_the_bandwidth_is_of_the_vertices_with_entries(edges, bandwidth):
    i, j = np.array(edges, dtype=np.intp).reshape(-1, 2).T
    terms = Coordinates(np.zeros(len(i), dtype=np.intp), i, j, np.ones(len(i)))
    for n in (1_000, 10**9):  # arrays of the second order would not fit in memory
        assert Pattern(n, 1, terms).bandwidth == bandwidth
