"""Completions of largest determinant and covariance selection: closed forms, optimality, statuses, labels."""

import warnings

import numpy as np
import peers
import pytest
import scipy.sparse as sp
from samples import turns

import bregopt as bo
from bregopt.certify import is_farkas, is_ray
from bregopt.presolve.cliques import chordal_tree
from bregopt.routes.projection import pattern_newton
from bregopt.routes.projection.pattern_newton import Pattern

CYCLE = [[0, 1], [1, 2], [2, 3], [0, 3]]


def graph(n, seed, band=0):
    """Return pairs of a band, or a spanning tree with random chords."""
    if band:
        return np.array([(i, j) for i in range(n) for j in range(i + 1, min(i + band + 1, n))])
    rng = np.random.default_rng(seed)
    tree = {(int(rng.integers(k)), k) for k in range(1, n)}
    chords = {tuple(sorted(map(int, rng.choice(n, 2, replace=False)))) for _ in range(n)}
    return np.array(sorted(tree | chords))


def covariance(n, seed, samples=None):
    A = np.random.default_rng(seed).normal(size=(samples or 3 * n, n))
    A += 0.5 * A[:, [0]]
    return A.T @ A / len(A)


def check(S, edges, X, tol=1e-6, zeros=None):
    """Assert that X has the given entries, and its inverse zeros elsewhere; both relative to the diagonal.

    `zeros` is the tolerance of the zeros if it is not `tol`.
    """
    s = np.sqrt(S.diagonal())
    pattern = np.eye(len(S), dtype=bool)
    pattern[edges[:, 0], edges[:, 1]] = pattern[edges[:, 1], edges[:, 0]] = True
    np.testing.assert_allclose((X / np.outer(s, s))[pattern], (S / np.outer(s, s))[pattern], atol=tol)
    K = np.linalg.inv(X / np.outer(s, s))
    assert np.abs(K[~pattern]).max(initial=0) <= (zeros or tol) * np.abs(K).max()


@pytest.mark.parametrize("band", [0, 3])
@pytest.mark.parametrize("n", [2, 5, 30, 80])
def test_optimality(n, band):
    S, edges = covariance(n, n), graph(n, n, band)
    completed, selected = (
        bo.max_det_completion(S, edges, tol=1e-10),
        bo.covariance_selection(S, edges, tol=1e-10),
    )
    assert completed.status == selected.status == "optimal"
    check(S, edges, completed.X, 1e-5)
    check(S, edges, np.linalg.inv(selected.X), 1e-5)
    assert completed.value == pytest.approx(np.linalg.slogdet(completed.X)[1])
    assert selected.value == pytest.approx(-completed.value - n, rel=1e-8)
    assert not selected.X[np.abs(np.linalg.inv(completed.X)) < 1e-9].any()
    duals = np.concatenate([completed.duals[0], completed.duals[1]])
    K = np.linalg.inv(completed.X)
    expected = np.concatenate([K.diagonal(), 2 * K[edges[:, 0], edges[:, 1]]])
    np.testing.assert_allclose(np.abs(duals), np.abs(expected), atol=1e-4)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_units(unit):
    S, edges = covariance(8, 1), graph(8, 1)
    d = unit ** np.random.default_rng(0).uniform(-0.5, 0.5, 8)
    scaled = unit * S * np.outer(d, d)
    plain, found = bo.max_det_completion(S, edges, tol=1e-9), bo.max_det_completion(scaled, edges, tol=1e-9)
    assert plain.status == found.status == "optimal"
    np.testing.assert_allclose(found.X / np.outer(d, d) / unit, plain.X, atol=1e-8)
    assert found.value == pytest.approx(plain.value + 8 * np.log(unit) + 2 * np.log(d).sum())
    selected = bo.covariance_selection(scaled, edges, tol=1e-9)
    assert selected.status == "optimal"
    np.testing.assert_allclose(selected.X * np.outer(d, d) * unit, np.linalg.inv(plain.X), atol=1e-4)


def test_beside_cvxpy():
    S, edges = covariance(6, 3), np.array([*CYCLE, [3, 4], [4, 5], [0, 5]])
    X = bo.PSD(6, name="X")
    i, j = edges.T
    problem = bo.Problem(bo.Maximize(bo.log_det(X)), [bo.diag(X) == S.diagonal(), X[i, j] == S[i, j]])
    peer = peers.ask(problem)
    peer.agrees(*(getattr(bo.max_det_completion(S, edges), name) for name in ("value", "error")))
    selected = bo.covariance_selection(S, edges)
    peer.agrees(-selected.value - 6, selected.error)


def test_newton_solves_its_system(monkeypatch):
    rng = np.random.default_rng(0)
    edges = graph(40, 2)
    pattern = Pattern.of(40, *edges.T)
    G = rng.normal(size=(40, 40))
    W, g = np.linalg.inv(G @ G.T + 40 * np.eye(40)), 1e-9 * rng.normal(size=len(pattern.i))
    for size in (10, len(g)):  # by conjugate gradients, and formed
        monkeypatch.setattr(pattern_newton, "_FORMED_ENTRIES", size)
        D = pattern.matrix(pattern_newton.newton_direction(pattern, W, g))
        np.testing.assert_allclose((W @ D @ W)[pattern.i, pattern.j], g, atol=1e-6 * np.abs(g).max())


def test_chordal_graphs_are_recognized():
    def neighbors(n, edges):
        found = [set() for _ in range(n)]
        for a, b in edges:
            found[a].add(int(b))
            found[b].add(int(a))
        return found

    for seed in range(20):
        n = 12
        edges = graph(n, seed, band=seed % 3)
        tree = chordal_tree(neighbors(n, edges.tolist()))
        nx = pytest.importorskip("networkx")
        G = nx.Graph(edges.tolist())
        assert (tree is not None) == nx.is_chordal(G)
        if tree is not None:
            cliques = {frozenset(map(int, v)) for v in tree.vertices}
            assert cliques == {frozenset(c) for c in nx.chordal_graph_cliques(G)}
    assert chordal_tree([set(), set()]) is not None


def test_a_chordal_completion_takes_no_step():
    S, edges = covariance(50, 0), graph(50, 0, band=4)
    assert bo.max_det_completion(S, edges, tol=1e-9).iterations == 0
    assert bo.covariance_selection(S, edges, tol=1e-9).iterations == 0


# --- No answer ----------------------------------------------------------------------------------------


def cycle(last):
    S = np.eye(4)
    for (i, j), value in zip(CYCLE, (0.9, 0.9, 0.9, last), strict=True):
        S[i, j] = S[j, i] = value
    return S


IMPOSSIBLE = {
    "a pair": (np.array([[1.0, 1.5], [1.5, 1.0]]), [[0, 1]]),
    "a clique": (np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]), [[0, 1], [1, 2], [0, 2]]),
    "a cycle": (cycle(-0.9), CYCLE),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_impossible(name, unit):
    S, edges = IMPOSSIBLE[name]
    found = bo.max_det_completion(unit * S, edges)
    assert found.status == "infeasible"
    program = found._raw._program
    assert is_farkas(program, found._raw.duals)
    ray = bo.covariance_selection(unit * S, edges)
    assert ray.status == "unbounded"
    D = ray.ray.X
    assert np.linalg.eigvalsh(D)[0] >= -1e-12 * np.trace(D)
    assert np.vdot(D, S) <= 0
    X = bo.PSD(len(S), name="X")
    assert is_ray(bo.Problem(bo.Maximize(bo.log_det(X) - bo.inner(unit * S, X))).program(), (D,), np.zeros(0))


def test_conflict():
    S, edges = IMPOSSIBLE["a clique"]
    conflict = bo.max_det_completion(S, edges).conflict()
    assert {row.name for row in conflict.rows} == {"diagonal", "edges"}


def test_samples_of_too_small_a_number():
    S = covariance(6, 0, samples=3)
    clique = np.array([(i, j) for i in range(4) for j in range(i)])
    with pytest.warns(bo.ConvergenceWarning):
        found = bo.max_det_completion(S, clique)
    assert found.status != "optimal" or np.linalg.eigvalsh(found.X)[0] > 0
    assert bo.covariance_selection(S, [[0, 1], [2, 3]]).status == "optimal"


@pytest.mark.parametrize(("angle", "times"), turns([np.pi / 3, 0.99999 * np.pi / 3], [2.9999, 3, 3.0000001]))
def test_an_answer_without_proof_is_psd_and_states_what_it_misses(angle, times):
    """In a cycle one angle is about the sum of the others: its completions are singular, if there are any."""
    S = np.eye(4)
    for k in range(3):
        S[k, k + 1] = S[k + 1, k] = np.cos(angle)
    S[0, 3] = S[3, 0] = np.cos(times * angle)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = bo.max_det_completion(S, CYCLE)
    assert found.status != "optimal"
    if found.status == "infeasible":
        assert times >= 3  # then no completion is definite
        return
    assert np.linalg.eigvalsh(found.X)[0] > 0
    off = max(abs(found.X[i, j] - S[i, j]) for i, j in [*CYCLE, *((k, k) for k in range(4))])
    assert off <= 10 * max(found.primal_residual, 1e-12)


def test_nearly_singular():
    S = cycle(np.cos(3 * np.arccos(0.9)))  # the angles of the cycle add up: every completion is singular
    with pytest.warns(bo.ConvergenceWarning):
        found = bo.max_det_completion(S, CYCLE)
    assert found.status == "inaccurate"  # it stalled, and no limit ended it
    assert "nearly singular" in found.stop_reason
    assert bo.max_det_completion(cycle(np.cos(3 * np.arccos(0.9)) + 1e-3), CYCLE).status == "optimal"


# --- Forms of input -----------------------------------------------------------------------------------


def test_forms_of_edges():
    S = covariance(4, 0)
    expected = bo.max_det_completion(S, CYCLE).X
    mask = np.zeros((4, 4), dtype=bool)
    i, j = np.array(CYCLE).T
    mask[i, j] = mask[j, i] = True
    partial = np.where(mask | np.eye(4, dtype=bool), S, np.nan)
    for found in (
        bo.max_det_completion(S, mask),
        bo.max_det_completion(S, sp.csr_array(mask)),
        bo.max_det_completion(S, np.array([[1, 0], [0, 1], *CYCLE[1:], [2, 2]])),
        bo.max_det_completion(partial),
        bo.max_det_completion(partial, mask),
    ):
        np.testing.assert_array_equal(found.X, expected)
    for name in ("networkx", "igraph"):
        library = pytest.importorskip(name)
        own = library.Graph(CYCLE) if name == "igraph" else library.cycle_graph(4)
        np.testing.assert_array_equal(bo.max_det_completion(S, own).X, expected)
    assert np.isnan(partial).any()  # the argument stays as it is


def test_labels():
    pandas, networkx = pytest.importorskip("pandas"), pytest.importorskip("networkx")
    names = list("abcd")
    S = pandas.DataFrame(covariance(4, 0), index=names, columns=names)
    edges = [["a", "b"], ["b", "c"], ["c", "d"]]
    found = bo.max_det_completion(S, edges)
    assert list(found.X.columns) == names
    assert found.duals_by_name["edges"].index.tolist() == [tuple(edge) for edge in edges]
    same = bo.covariance_selection(S, networkx.Graph(edges))
    np.testing.assert_allclose(np.linalg.inv(same.X), found.X, atol=1e-6)
    with pytest.raises(ValueError, match=r"'e'.*expected labels of the matrix"):
        bo.covariance_selection(S, networkx.Graph([("a", "e")]))


def test_single_and_empty():
    assert bo.max_det_completion([[2.0]]).X.tolist() == [[2.0]]
    assert bo.covariance_selection([[2.0]], []).X[0, 0] == pytest.approx(0.5, rel=1e-12)
    diagonal = np.diag([1.0, 2.0, 4.0])
    full = diagonal + 0.1
    np.testing.assert_allclose(bo.max_det_completion(full, []).X, np.diag(full.diagonal()))
    np.testing.assert_allclose(bo.covariance_selection(full, []).X, np.diag(1 / full.diagonal()), atol=1e-12)
    np.testing.assert_allclose(bo.max_det_completion(full).X, full)
    every = np.ones((3, 3), dtype=bool)
    np.testing.assert_allclose(bo.covariance_selection(full, every).X, np.linalg.inv(full), atol=1e-9)


NAN = np.array([[1, np.nan], [np.nan, 1]])


@pytest.mark.parametrize(
    ("S", "edges", "error", "message"),
    [
        (np.eye(3), [[0, 5]], ValueError, "edges has index 5"),
        (np.eye(3), [[0, 1, 2]], ValueError, "edges holds integers"),
        (np.eye(3), np.eye(3), TypeError, "edges has dtype float64"),
        (np.eye(3), np.ones((2, 2), dtype=bool), ValueError, "edges has shape"),
        (np.eye(3), "ab", TypeError, "edges has dtype"),
        (np.zeros((2, 2)), [[0, 1]], ValueError, "S has 0 on the diagonal, at 0"),
        (-np.eye(2), [[0, 1]], ValueError, "S has -1 on the diagonal"),
        (NAN, [[0, 1]], ValueError, "edges keeps entry"),
        (np.diag([np.nan, 1.0]), [[0, 1]], ValueError, "S is NaN on the diagonal, at 0"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), [[0, 1]], ValueError, "symmetric"),
        (np.ones((2, 3)), [[0, 1]], ValueError, "S has shape"),
        (bo.LowRank(np.ones((3, 1))), [[0, 1]], TypeError, "S is LowRank"),
    ],
)
def test_bad_input(S, edges, error, message):
    with pytest.raises(error, match=message):
        bo.max_det_completion(S, edges)


def test_bad_options_and_graphs():
    networkx = pytest.importorskip("networkx")
    with pytest.raises(TypeError, match="directed"):
        bo.max_det_completion(np.eye(2), networkx.DiGraph([(0, 1)]))
    with pytest.raises(ValueError, match="vertex 2; expected integers from 0 to 1"):
        bo.max_det_completion(np.eye(2), networkx.path_graph(3))
    with pytest.raises(TypeError, match="no option 'tolerance'"):
        bo.covariance_selection(np.eye(2), [], tolerance=1)
    with pytest.raises(ValueError):
        bo.covariance_selection(NAN, [])
    with pytest.raises(ValueError, match="derivatives of completions"):
        bo.max_det_completion(np.eye(2), []).vjp(np.eye(2))


@pytest.mark.slow
@pytest.mark.parametrize("band", [0, 5])
def test_order_1000(band):
    S, edges = covariance(1000, 0), graph(1000, 0, band)
    found = bo.max_det_completion(S, edges, tol=1e-8)
    assert found.status == "optimal"
    # Near the optimum a value within e of it proves the inverse to sqrt(2 e), relative to its diagonal.
    check(S, edges, found.X, zeros=2 * np.sqrt(found.error))
