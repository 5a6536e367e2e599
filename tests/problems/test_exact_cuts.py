"""Exact cuts against enumeration in fractions, and certificates against what a forger would change."""

import gzip
import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
import bregopt_check_cuts
from bregopt.cli import main
from bregopt.problems.cuts import cut as cut_module
from bregopt.problems.cuts import optimum
from bregopt.problems.cuts import partition as parts_module
from bregopt.problems.cuts.branch_and_bound import clique_inequalities, leaves, odd_cycles
from bregopt.problems.cuts.branch_and_bound.leaves import Cliques, Cycles, Form, Node
from bregopt.problems.cuts.branch_and_bound.reduction import reduced
from bregopt.problems.cuts.proof import partitions
from bregopt.rigorous.file import schema
from bregopt.rigorous.file.statement import text


def signs(n):
    """All vectors of signs whose first is 1, shape (2^(n-1), n)."""
    return np.array([(1, *rest) for rest in product((1, -1), repeat=n - 1)])


def exact_weights(W, S):
    """The exact weight of each cut of a symmetric matrix, as fractions."""
    i, j = np.nonzero(np.triu(W))
    w = [Fraction(float(x)) for x in W[i, j]]
    unit = max((x.denominator for x in w), default=1)
    whole = np.array([int(x * unit) for x in w], dtype=object)
    return [Fraction(int(k), unit) for k in ((S[:, i] != S[:, j]) * whole).sum(axis=1)]


def random_graph(rng, n=None):
    """A graph of few vertices: units, integers, decades of magnitude, signs, components."""
    n = int(rng.integers(5, 13)) if n is None else n
    kind, decade = rng.integers(5), 10.0 ** rng.choice([-6, 0, 6])
    w = [
        np.ones((n, n)),
        rng.integers(-5, 6, (n, n)).astype(float),
        rng.normal(size=(n, n)),
        rng.choice([-1, 1], (n, n)) * 10.0 ** rng.uniform(-6, 6, (n, n)),
        0.1 * rng.integers(1, 9, (n, n)),
    ][kind]
    W = np.triu(np.where(rng.random((n, n)) < rng.choice([0.15, 0.3, 0.5, 0.8, 1.0]), w, 0.0), 1)
    return decade * (W + W.T)


@pytest.fixture
def few_rounds(monkeypatch):
    """Nodes branch early."""
    monkeypatch.setattr(clique_inequalities, "_ROUNDS_ROOT", 3)


@pytest.fixture
def small_nodes(monkeypatch):
    """No graph is enumerated as a whole, and no node but those of three groups."""
    for module in (leaves, clique_inequalities, odd_cycles):
        monkeypatch.setattr(module, "ENUMERATED", 3)
    monkeypatch.setattr(cut_module, "_all_sides", lambda graph: None)


def check_largest(W, found, folder):
    best = max(exact_weights(W, signs(len(W))))
    own = found.certificate.task.weight(found.partition)
    assert Fraction(found.bound) >= best
    # Weights count as multiples of a unit if they are to within their rounding.
    missing = 2.0**-48 * np.abs(W).sum() if found.optimal else 2e-6 * abs(float(best))
    assert own >= best - Fraction(missing)
    assert (found.status, found.open) == ("optimal", 0)
    found.certificate.check()
    found.certificate.save(folder / "cut.npz")
    assert bregopt_check_cuts.main([folder / "cut.npz"]) == 0


@pytest.mark.parametrize(("seed", "sparse"), turns(range(20), [0.0, 100.0]))
def test_largest_cuts_equal_enumeration(seed, sparse, small_nodes, monkeypatch, tmp_path):
    monkeypatch.setattr(optimum, "_SPARSE", sparse)  # each method on every graph
    W = random_graph(np.random.default_rng(seed))
    check_largest(W, bo.max_cut(W, exact=True), tmp_path)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 7, 8, 10, 11])
def test_cuts_of_given_sizes_equal_enumeration(seed, small_nodes, tmp_path):
    rng = np.random.default_rng(100 + seed)
    W = np.abs(random_graph(rng))
    n = len(W)
    first = int(rng.integers(1, n // 2 + 1))
    found = bo.min_balanced_cut(W, sizes=(first, n - first), exact=True)
    S = signs(n)
    best = min(exact_weights(W, S[np.abs(S.sum(axis=1)) == n - 2 * first]))
    assert list(map(len, found.sides)) == [first, n - first]
    own = found.certificate.task.weight(found.partition)
    assert Fraction(found.bound) <= best
    assert own <= best + Fraction(2.0**-48 * W.sum() if found.optimal else 2e-6 * float(best))
    found.certificate.check()
    found.certificate.save(tmp_path / "cut.npz")
    assert bregopt_check_cuts.main([tmp_path / "cut.npz"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_graphs_equal_enumeration(part, tmp_path):
    for seed in range(1_000 * part, 1_000 * (part + 1)):
        W = random_graph(np.random.default_rng(10_000 + seed))
        check_largest(W, bo.max_cut(W, exact=True), tmp_path)


@pytest.mark.parametrize("seed", first(13, range(40)))
def test_reductions_keep_the_largest_cut(seed):
    rng = np.random.default_rng(seed)
    W = random_graph(rng)
    i, j = np.nonzero(np.triu(W))
    whole = reduced(len(W), i, j, W[i, j])
    best, sides = whole.total, []
    for piece in whole.pieces:
        S = signs(piece.n)
        values = [piece.cut(side) for side in S]
        best += max(values)
        sides.append(S[values.index(max(values))])
    found = whole.lifted(sides)
    side = np.array([found[v] for v in range(len(W))])
    assert best == max(exact_weights(W, signs(len(W)))) == exact_weights(W, side[None])[0]


def root(W, linear=False):
    """The form of a graph, and what work on its root finds for a target that no bound reaches."""
    i, j = np.nonzero(np.triu(W))
    (piece,) = reduced(len(W), i, j, W[i, j]).pieces
    form = Form.of(piece)
    rows = Cycles.none() if linear else Cliques.none(form.n)
    target = 0.95 * max(form.cut(side) for side in signs(form.n))
    return form, optimum.bounded(Node((), rows), form, target)


@pytest.mark.parametrize("linear", [False, True])
def test_all_cuts_satisfy_the_rows(linear, small_nodes):
    W = np.triu(np.random.default_rng(3).choice([-1.0, 1.0], (11, 11)), 1)
    form, found = root(W + W.T, linear)
    S = signs(form.n)
    rows = found.node.rows
    assert len(rows.z) > 5
    if linear:
        X = (S[:, form.i] != S[:, form.j]).astype(float)
        assert ((rows.matrix(len(form.i)) @ X.T).T <= rows.constants).all()
    else:
        assert set(np.abs(rows.sign).sum(axis=1)) <= {3, 5, 7}
        for support, sign in zip(rows.support, rows.sign, strict=True):
            assert (np.abs(S[:, support] @ sign) >= 1).all()
    assert found.bound >= max(form.cut(side) for side in S)


@pytest.mark.parametrize("linear", [False, True])
def test_a_child_begins_at_the_bound_of_its_parent(linear, small_nodes, few_rounds):
    W = np.triu(np.random.default_rng(5).choice([-1.0, 1.0], (12, 12)), 1)
    form, found = root(W + W.T, linear)
    for sign in (1, -1):
        path = ((0, 5, sign),)
        for more in ((2, 7, -1), (5, 9, 1)):  # the last folds two groups of two
            child = leaves.cut_bound(form, Node(path, found.node.rows))
            assert child <= found.bound + 1e-7
            inside = [s for s in signs(form.n) if all(s[a] * s[b] == c for a, b, c in path)]
            assert child >= max(map(form.cut, inside))
            path = (*path, more)


def test_clique_inequalities_close_what_triangles_leave():
    # The cut of K_5 is 6; triangles alone prove 20/3, and the row of five vertices proves 6.
    W = np.ones((5, 5)) - np.eye(5)
    i, j = np.nonzero(np.triu(W))
    form = Form(5, i, j, leaves.Ball.exact(W[i, j] / 2), 1)
    row = Cliques(
        np.array([[0, 1, 2, 3, 4, 0, 0]]), np.array([[1, 1, 1, 1, 1, 0, 0]]), np.array([0.25]), np.zeros(5)
    )
    bound = leaves._semidefinite(form, row, np.arange(5), np.ones(5, dtype=int))
    assert 2 * bound == pytest.approx(6.0, abs=1e-9)


@pytest.fixture
def few_labelings(monkeypatch):
    """No partition of a small graph is found by comparing all, and nodes of few groups branch."""
    monkeypatch.setattr(leaves, "_LABELINGS", 60)
    monkeypatch.setattr(bregopt_check_cuts, "LABELINGS", 60)
    monkeypatch.setattr(parts_module, "partitions", lambda sizes: None)


def least_partition(W, sizes):
    """The exact least weight between parts of these sizes, of all partitions."""
    every = partitions([sizes])
    i, j = np.nonzero(np.triu(W))
    unit = max((Fraction(float(x)).denominator for x in W[i, j]), default=1)
    whole = np.array([int(Fraction(float(x)) * unit) for x in W[i, j]], dtype=object)
    return min(Fraction(int(k), unit) for k in ((every[:, i] != every[:, j]) * whole).sum(axis=1))


@pytest.mark.parametrize(
    ("sizes", "kind"),
    first(
        3,
        [
            ((3, 3, 3), 0),
            ((4, 3, 2), 1),
            ((3, 2, 2), 2),
            ((4, 4, 1), 2),
            ((5, 2, 1), 0),
            ((2, 2, 2, 1, 1), 1),
            ((3, 2, 2, 2), 2),
        ],
    ),
)
def test_partitions_equal_enumeration(sizes, kind, few_labelings, few_rounds, tmp_path):
    n, rng = sum(sizes), np.random.default_rng([*sizes, kind])
    w = [np.ones((n, n)), 0.1 * rng.integers(1, 9, (n, n)), rng.random((n, n))][kind]
    W = np.triu(np.where(rng.random((n, n)) < 0.6, w, 0.0), 1)
    W += W.T
    found = bo.partition(W, len(sizes), sizes, exact=True)
    best, own = least_partition(W, sizes), found.certificate.task.weight(found.labels)
    assert Fraction(found.bound) <= best
    assert own <= best + Fraction(2e-6 * float(best))
    assert found.open == 0
    assert tuple(map(len, found.parts)) == sizes
    found.certificate.save(tmp_path / "parts.npz")
    again = bo.CutCertificate.load(tmp_path / "parts.npz")
    again.check()
    assert again.bounds() == found.certificate.bounds()
    assert bregopt_check_cuts.main([tmp_path / "parts.npz"]) == 0


@pytest.fixture(scope="module")
def three():
    """Three parts of 15 vertices, by a tree of several nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clique_inequalities, "_ROUNDS_ROOT", 1)
        patch.setattr(clique_inequalities, "AHEAD", 0)
        patch.setattr(parts_module, "partitions", lambda sizes: None)  # which would compare them all
        found = bo.partition(hard_graph(15, seed=2), 3, exact=True)
    assert found.optimal
    assert found.nodes > 2
    return found


def test_all_partitions_satisfy_the_rows(three):
    tree = three.certificate.trees[0]
    assert sum(len(leaf.rows.signs) for leaf in tree) > 50
    rng = np.random.default_rng(0)
    every = np.array([rng.permutation(np.repeat([0, 1, 2], 5)) for _ in range(100)])
    X = np.triu(np.where(every[:, :, None] == every[:, None, :], 1.0, -0.5)).reshape(100, -1).T
    for leaf in tree:
        slack = leaf.rows.matrix(np.arange(15)) @ X + leaf.rows.constants((5, 5, 5))[:, None]
        assert np.abs(slack[0]).max() < 1e-12
        assert slack[1:].min(initial=0.0) >= -1e-12


def _negative(arrays):
    rows = np.delete(np.arange(len(arrays["z0"])), arrays["row_start0"][:-1])  # without those of the sizes
    arrays["z0"][rows[np.flatnonzero(arrays["signs0"][:, 1])[0]]] = -1.0


def _wrong_row(arrays):
    at = np.flatnonzero(arrays["signs0"][:, 1])[0]
    arrays["signs0"][at] = (-1, 1, 1)


# Fractions refuse every leaf, in a second; those of a tree of cuts do in a fifth of one, below.
_HALF_OF_Y = (lambda arrays: arrays["y0"].__imul__(0.5), "the leaves prove the bound")
_HALF_OF_Z = (lambda arrays: arrays["z0"].__imul__(0.5), "the leaves prove the bound")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_negative, "a row has the multiplier -1.0"),
        (_wrong_row, "does not hold for all partitions"),
        pytest.param(*_HALF_OF_Y, marks=pytest.mark.slow),
        pytest.param(*_HALF_OF_Z, marks=pytest.mark.slow),
        (lambda arrays: arrays["path0"].__setitem__((0, 2), -arrays["path0"][0, 2]), "one side only|no tree"),
        (lambda arrays: arrays["side"].__setitem__(0, 1 - arrays["side"][0]), "the parts have|claims"),
        (lambda arrays: arrays["side"].__setitem__(0, 3), "side is"),
    ],
)
def test_tampered_parts_are_refused(change, message, three, tmp_path):
    rewritten(three, tmp_path / "parts.npz", change)
    with pytest.raises(ValueError, match=message):
        bo.CutCertificate.load(tmp_path / "parts.npz").check()
    assert bregopt_check_cuts.main([tmp_path / "parts.npz"]) in (1, 2)


def test_cuts_are_never_proven_to_weigh_less_than_nothing(tmp_path):
    found = bo.partition(hard_graph(24), 3, exact=True, time_limit=1e-6)
    assert found.bound == 0
    found.certificate.save(tmp_path / "cut.npz")
    bo.CutCertificate.load(tmp_path / "cut.npz").check()
    assert bregopt_check_cuts.main([tmp_path / "cut.npz"]) == 0


def test_parts_of_large_graphs_are_refused():
    with pytest.raises(ValueError, match="3 parts of 501 vertices; expected at most 500"):
        bo.partition([(k, k + 1) for k in range(500)], 3, exact=True)


# --- Certificates -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(7)
    W = np.triu(rng.choice([-1.0, 1.0], (36, 36)), 1)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_ROUNDS_ROOT", 1), ("_TRIANGLES", 10), ("_LARGER", 0)):  # so that it branches
            patch.setattr(clique_inequalities, name, value)
        found = bo.max_cut(W + W.T, exact=True)
    assert found.optimal
    assert found.nodes > 2
    return found


@pytest.fixture(scope="module")
def sparse():
    side = 8
    at = np.arange(side * side).reshape(side, side)
    edges = np.concatenate([np.stack([at, np.roll(at, 1, axis)], -1).reshape(-1, 2) for axis in (0, 1)])
    found = bo.max_cut(edges, weights=np.random.default_rng(1).normal(size=len(edges)), exact=True)
    assert found.gap < 1e-8
    return found


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_saved_certificates_are_proven_again(kind, tmp_path, request, capsys):
    found = request.getfixturevalue(kind)
    file = tmp_path / "cut.npz"
    found.certificate.save(file, name="a graph")
    again = bo.CutCertificate.load(file)
    again.check()
    assert again.bounds() == found.certificate.bounds()
    assert main(["verify", str(file)]) == 0
    assert capsys.readouterr().out.startswith("proven again: no cut weighs more than")
    with pytest.raises(ValueError, match="format is 'bregopt cut 1'; expected 'bregopt bounds 3'"):
        bo.BoundCertificate.load(file)


@pytest.mark.parametrize(
    "edges", [[(0, 1)], [(0, 1), (1, 2), (2, 0)], [(a, b) for a in range(6) for b in range(a)]]
)
def test_certificates_without_rows_are_saved_too(edges, tmp_path):
    found = bo.max_cut(edges, exact=True)
    found.certificate.save(tmp_path / "cut.npz")
    bo.CutCertificate.load(tmp_path / "cut.npz").check()


def rewritten(source, file, change):
    """Write a certificate with other arrays, and with the SHA-256 of these."""
    source.certificate.save(file)
    with np.load(file) as archive:
        arrays = {name: archive[name].copy() for name in archive.files if name != "digest"}
    del arrays["statement"]
    known = {*arrays} - {"facts"}
    change(arrays)
    facts = json.loads(bytes(arrays["facts"]))
    stated = {name: arrays[name].ravel().tolist() for name in known & {*arrays}}
    arrays["statement"] = text(facts | stated)
    np.savez(file, digest=schema._seal(arrays), **arrays)


def _set(name, index, value):
    def change(arrays):
        arrays[name].flat[index] = value

    return change


def _without_last_leaf(arrays):
    last = arrays["path_start0"][-2], arrays["row_start0"][-2]
    arrays["path0"], arrays["z0"] = arrays["path0"][: last[0]], arrays["z0"][: last[1]]
    for name in ("support0", "sign0"):
        arrays[name] = arrays[name][: last[1]]
    arrays["y0"] = arrays["y0"][:-1]
    arrays["path_start0"], arrays["row_start0"] = arrays["path_start0"][:-1], arrays["row_start0"][:-1]


def _turned_branch(arrays):
    arrays["path0"][0, 2] *= -1


def _scaled(name, factor):
    def change(arrays):
        arrays[name] = arrays[name] * factor

    return change


def _without_vertex(arrays):
    arrays["sign0"][0, np.flatnonzero(arrays["sign0"][0])[-1]] = 0


def _vertex_twice(arrays):
    arrays["support0"][0, 1] = arrays["support0"][0, 0]


def _optimistic(arrays):
    arrays["weights"] = arrays["weights"].copy()
    arrays["weights"][arrays["weights"] > 0] *= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("z0", 0, -1e-3), "z0 is"),
        (_without_vertex, "even number of vertices"),
        (_vertex_twice, "a vertex twice"),
        (_without_last_leaf, "on one side only|no tree"),
        (_turned_branch, "on one side only|no tree"),
        (_scaled("y0", 0.99), "the leaves prove the bound"),
        (_scaled("z0", 0.9), "the leaves prove the bound"),
        (_set("y0", 0, np.nan), "y0 is"),
        (_set("y0", 0, 1e308), "the leaves prove the bound|out of range"),
        (_set("y0", 0, -1e308), "the leaves prove the bound|out of range"),
        (_optimistic, "the leaves prove the bound|pieces"),
        (_set("side", 0, 0), "side is"),
        (_set("path0", 0, 99), "path0 is"),
        (_set("support0", 0, -1), "support0 is"),
        (lambda arrays: arrays.update(other=np.zeros(1)), "other is no array"),
        (lambda arrays: arrays.pop("z0"), "z0 is missing"),
        (lambda arrays: arrays.update(z0=arrays["z0"].astype(np.float32)), "z0 is '<f4'"),
    ],
)
def test_tampered_trees_are_refused(change, message, dense, tmp_path):
    file = tmp_path / "cut.npz"
    rewritten(dense, file, change)
    with pytest.raises(ValueError, match=message):
        bo.CutCertificate.load(file).check()
    if "other" not in message and "f4" not in message:  # it knows no other names, and numbers have no types
        assert bregopt_check_cuts.main([file]) in (1, 2)


def test_a_worse_partition_is_not_called_optimal(dense, tmp_path):
    file = tmp_path / "cut.npz"
    rewritten(dense, file, _set("side", 3, -dense.partition[3]))
    with pytest.raises(ValueError, match=r"file claims .*, so optimal"):
        bo.CutCertificate.load(file).check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("odd0", 0, None), "even set of edges"),
        (_set("edge0", 0, None), "no closed walk"),
        (_set("back0", 0, None), "no closed walk"),
        (_scaled("z0", 0.99), "the leaves prove the bound"),
    ],
)
def test_tampered_cycles_are_refused(change, message, sparse, tmp_path):
    file = tmp_path / "cut.npz"
    name = next(
        (cell.cell_contents for cell in change.__closure__ if isinstance(cell.cell_contents, str)), ""
    )

    def other(arrays):
        value = arrays[name].flat[0]
        (_set(name, 0, 1 - value if name != "edge0" else value + 1) if name != "z0" else change)(arrays)

    rewritten(sparse, file, other)
    with pytest.raises(ValueError, match=message):
        bo.CutCertificate.load(file).check()
    assert bregopt_check_cuts.main([file]) in (1, 2)


def test_a_certificate_is_compared_with_a_graph_of_ones_own(dense):
    assert dense.certificate.of_graph(dense.graph).bounds() == dense.certificate.bounds()
    other = bo.max_cut(2 * dense.graph.adjacency.toarray(), bound=False).graph
    with pytest.raises(ValueError, match="the leaves prove the bound"):
        dense.certificate.of_graph(other).check()


# --- Calls --------------------------------------------------------------------------------------------


def test_every_executor_finds_the_same(dense):
    W = dense.graph.adjacency
    alone = bo.max_cut(W, exact=True)
    with ThreadPoolExecutor(2) as pool:
        shared = bo.max_cut(W, exact=True, executor=pool)
    assert (alone.cut, alone.bound, alone.nodes) == (shared.cut, shared.bound, shared.nodes)
    assert (alone.partition == shared.partition).all()
    for own, other in zip(alone.certificate.trees[0], shared.certificate.trees[0], strict=True):
        assert own.path == other.path
        assert (own.rows.z == other.rows.z).all()


def hard_graph(n=90, seed=0):
    W = np.triu((np.random.default_rng(seed).random((n, n)) < 0.5).astype(float), 1)
    return W + W.T


@pytest.mark.parametrize("seconds", first(1, [1.0, 2.0]))
def test_a_time_limit_returns_what_is_proven(seconds):
    W = hard_graph()
    plain = bo.max_cut(W, bound=False)
    found = bo.max_cut(W, exact=True, time_limit=seconds)
    assert (found.status, found.optimal) == ("user_limit", False)
    assert found.open > 0
    assert 0.99 * plain.cut <= found.cut < found.bound < W.sum() / 2  # the search has a part of the time
    assert found.timings["call"] < 10.0  # on a machine that others share
    found.certificate.check()
    assert "stopped  time_limit" in repr(found)


def test_the_bound_only_improves_and_a_callback_ends_the_work(few_rounds):
    bounds = []

    def callback(step):
        bounds.append(step.bound)
        return len(bounds) == 3

    found = bo.max_cut(hard_graph(70), exact=True, callback=callback)
    assert len(bounds) == 3
    assert found.stop_reason == "callback asked for the end"
    assert (np.diff(bounds) <= 0).all()
    assert found.bound <= bounds[-1] + 1e-7
    assert (np.diff(found.history["bound"]) <= 0).all()


@pytest.mark.parametrize("seconds", first(1, [0.5, 1.0]))
def test_ctrl_c_returns_what_is_proven(seconds):
    timer = threading.Timer(seconds, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    found = bo.max_cut(hard_graph(), exact=True)
    assert found.stop_reason == "interrupted"
    assert found.cut < found.bound
    found.certificate.check()


@pytest.mark.parametrize("n", first(1, [12, 18]))
def test_no_weights_of_any_size_change_the_answer(n):
    W = random_graph(np.random.default_rng(12), n)
    cuts = [bo.max_cut(scale * W, exact=True) for scale in (1.0, 2.0**-20, 2.0**20)]
    assert len({tuple(cut.partition) for cut in cuts}) == 1
    for cut, scale in zip(cuts, (1.0, 2.0**-20, 2.0**20), strict=True):
        assert cut.bound == scale * cuts[0].bound


def test_explain_says_which_method_and_why(dense, sparse, capsys):
    dense.explain()
    assert "semidefinite bounds with clique inequalities, as it has over 3 edges" in capsys.readouterr().out
    sparse.explain()
    assert "linear bounds with odd cycles, as it has at most 3 edges" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no tree to explain; expected one of exact=True"):
        bo.max_cut(np.ones((3, 3)) - np.eye(3), bound=False).explain()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exact": 1}, TypeError, "exact is 1; expected True or False"),
        ({"executor": 3}, TypeError, "executor is 3"),
        ({"executor": ThreadPoolExecutor(1)}, TypeError, "without exact=True"),
        ({"exact": True, "time_limit": -1.0}, ValueError, "time_limit"),
        ({"exact": True, "tolerance": 1.0}, TypeError, "tolerance"),
    ],
)
def test_bad_arguments_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        bo.max_cut([(0, 1), (1, 2)], **options)


def test_imbalance_of_several_sizes_is_refused():
    with pytest.raises(ValueError, match="from 0 to 2, and exact=True takes one"):
        bo.min_balanced_cut(np.ones((8, 8)) - np.eye(8), imbalance=0.25, exact=True)


def test_two_parts_are_the_tree_of_halves_and_few_vertices_have_none(capsys):
    W = hard_graph(24)
    halves, two = bo.min_balanced_cut(W, exact=True), bo.partition(W, 2, exact=True)
    assert two.optimal
    assert two.cut == two.bound == halves.cut
    assert list(map(len, two.parts)) == [12, 12]
    two.certificate.check()
    two.explain()
    assert "exact penalty" in capsys.readouterr().out
    three = bo.partition(W[:9, :9], 3, exact=True)
    assert three.optimal
    assert three.certificate is None


# --- Binary numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", first(10, range(30)))
def test_binary_minima_equal_enumeration(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    Q = [rng.integers(-9, 10, (n, n)), rng.normal(size=(n, n)), 0.1 * rng.integers(-9, 10, (n, n))][seed % 3]
    found = bo.qubo(Q, exact=True)
    values = [
        sum((Fraction(float(Q[a, b])) for a in range(n) for b in range(n) if x[a] and x[b]), Fraction(0))
        for x in product((0, 1), repeat=n)
    ]
    best = min(values)
    assert Fraction(found.bound) <= best
    assert found.value == pytest.approx(float(best), abs=1e-9)
    assert found.optimal or seed % 3 == 1
    assert found.value == pytest.approx(float(found.x @ Q @ found.x), abs=1e-9)


def test_binary_minima_take_dicts():
    found = bo.qubo({("a", "a"): -1, ("b", "b"): -1, ("c", "c"): 2, ("a", "b"): 2}, exact=True)
    assert (found.value, found.optimal, found.sample["c"]) == (-1, True, 0)
    assert found.sample["a"] + found.sample["b"] == 1
    with pytest.raises(TypeError, match="Q has the key 'a'; expected pairs"):
        bo.qubo({"a": 1})
    with pytest.raises(ValueError, match=r"Q has shape \(2, 3\); expected a square matrix"):
        bo.qubo(np.zeros((2, 3)))


# --- Known instances ----------------------------------------------------------------------------------


def biqmac(data, name):
    """An instance of the BiqMac library and its optimum; the test is left out where the library is absent."""
    file = data / "biqmac" / f"{name}.gz"
    if not file.exists():
        pytest.skip("the BiqMac library is not there")
    words = gzip.decompress(file.read_bytes()).decode().split()
    edges = np.array(words[2:], dtype=float).reshape(-1, 3)
    optima = dict(
        line.split() for line in (data / "biqmac" / "optimal.txt").read_text().splitlines() if line.strip()
    )
    return edges[:, :2].astype(int), edges[:, 2], float(optima[name])


@pytest.mark.parametrize("name", ["t2g10_5555", "t3g5_6666", "pm1s_80.0"])
def test_known_optima_are_proven(data, name):
    edges, weights, best = biqmac(data, name)
    found = bo.max_cut(edges, weights=weights, exact=True)
    assert found.optimal
    assert found.cut == found.bound == best
    found.certificate.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["g05_60.2", "w01_100.1", "pm1s_100.2", "t3g6_5555", "pm1d_80.0", "g05_80.1"]
)
def test_known_optima_are_proven_in_longer_time(name):
    test_known_optima_are_proven(name)
