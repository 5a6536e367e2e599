"""Rows in chunks: the answers of `Problem`, whatever the chunks, the executor and the interruptions."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from samples import first

import bregopt as bo
from bregopt.chunks.chunk import sums_of, triangular
from bregopt.divergences import DIVERGENCES as DIVERGENCE_CLASSES

DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


class Data(NamedTuple):
    """Points of five classes and pairs: near within a class, far between classes."""

    F: np.ndarray
    pairs: np.ndarray
    bound: np.ndarray
    sense: np.ndarray

    def rows(self, gamma=0.1, **options):
        return bo.RowChunks(self.pairs, self.bound, self.sense, gamma, **options)


def data(m=600, n=80, r=6, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 5, n)
    F = rng.normal(size=(n, r)) + rng.normal(size=(5, r))[label]
    i, j = rng.integers(0, n, m), rng.integers(1, n, m)
    pairs = np.stack([i, (i + j) % n], axis=1)
    d = np.sum((F[pairs[:, 0]] - F[pairs[:, 1]]) ** 2, axis=1)
    same = label[pairs[:, 0]] == label[pairs[:, 1]]
    low, high = np.percentile(d, [20, 80])
    return Data(F, pairs, np.where(same, low, high), np.where(same, -1, 1))


def by_problem(given, name, gamma=0.1, tol=1e-8):
    """The same problem, by `Problem`."""
    X = bo.PSD(len(given.F), name="X")
    d = bo.sq_distance(X, *given.pairs.T)
    near, far = given.sense < 0, given.sense > 0
    rows = [bo.soft(d[near] <= given.bound[near], gamma), bo.soft(d[far] >= given.bound[far], gamma)]
    return bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(given.F))), rows).solve(tol=tol)


def overlap(a, b):
    """Whether the intervals that two answers prove have a point in common."""
    slack = 1e-9 * abs(a.value)
    return a.dual_value <= b.value + slack and b.dual_value <= a.value + slack


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("gamma", [1e-3, 0.1, 3.0])
def test_the_value_and_the_matrix_are_those_of_problem(name, gamma):
    given = data()
    sol = given.rows(gamma, chunk=100).solve(bo.LowRank(given.F), name, tol=1e-8)
    other = by_problem(given, name, gamma)
    assert sol.status == other.status == "optimal"
    assert sol.gap <= 1e-8
    assert sol.history["gap"][-1] <= 1e-8
    assert len(sol.history["iteration"]) == sol.iterations
    assert overlap(sol, other)
    assert np.allclose(sol.X.dense(), other.X.dense(), atol=1e-3 * np.abs(other.X.dense()).max())


@pytest.mark.parametrize("name", DIVERGENCES)
def test_vectors_with_a_dense_start(name):
    rng = np.random.default_rng(1)
    Z, B = rng.normal(size=(150, 4)), rng.normal(size=(4, 6))
    X0, gamma = B @ B.T, rng.uniform(0.1, 1.0, 150)
    bound = np.einsum("ki,ij,kj->k", Z, X0, Z) * rng.uniform(0.5, 2.0, 150)
    sol = bo.RowChunks(Z, bound, "<=", gamma, chunk=40).solve(X0, name, tol=1e-8)
    X = bo.PSD(4, name="X")
    rows = [bo.soft(bo.quad_form(z, X) <= b, weight) for z, b, weight in zip(Z, bound, gamma, strict=True)]
    other = bo.Problem(bo.Minimize(DIVERGENCES[name](X, X0)), rows).solve(tol=1e-8)
    assert sol.status == "optimal"
    assert overlap(sol, other)
    assert np.allclose(sol.X, other.X, atol=1e-3 * np.abs(other.X).max())


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("rank", [3, 5])
def test_the_sums_of_a_pass_are_those_over_all_rows(name, rank):
    rng = np.random.default_rng(rank)
    Z, root = rng.normal(size=(40, 5)), rng.normal(size=(5, rank))
    bound, sense, gamma = rng.uniform(0.5, 9, 40), rng.choice([-1, 1], 40), rng.uniform(0.1, 2, 40)
    (chunk,) = bo.RowChunks(Z, bound, sense, gamma).chunks()
    found = sums_of(chunk, triangular(root), DIVERGENCE_CLASSES[name].penalty, curvature=True)
    a = np.sum((Z @ root) ** 2, axis=1)
    paid = sense * (bound - a) > 0
    if name == "logdet":
        value, first, second = a / bound - np.log(a / bound) - 1, 1 / bound - 1 / a, 1 / a**2
    else:
        value, first, second = a * np.log(a / bound) - a + bound, np.log(a / bound), 1 / a
    value, first, second = (np.where(paid, gamma * of, 0.0) for of in (value, first, second))
    assert 0 < paid.sum() < 40
    assert found.penalty == pytest.approx(value.sum())
    assert np.allclose(found.gradient, (Z.T * first) @ Z)
    assert np.allclose(found.curvature, (Z.T * second) @ Z)
    assert found.weight == pytest.approx(second.sum())


def test_closed_form_of_one_row():
    # The derivative of (x - log x - 1) + (x/2 - log(x/2) - 1) is 3/2 - 2/x.
    sol = bo.RowChunks([[1.0]], 2.0, ">=", 1.0).solve([[1.0]], tol=1e-12)
    assert sol.X[0, 0] == pytest.approx(4 / 3, rel=1e-6)


def test_rows_that_are_met_cost_nothing():
    sol = bo.RowChunks(np.eye(3), 2.0, "<=", 1.0).solve(np.eye(3))
    assert sol.status == "optimal"
    assert sol.value == 0
    assert sol.iterations == 1
    assert np.allclose(sol.X, np.eye(3))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_dependent_columns_of_the_factor(name):
    given = data()
    F = np.hstack([given.F, given.F[:, :2] @ [[1.0], [2.0]]])
    given = given._replace(F=F)
    sol = given.rows().solve(bo.LowRank(F), name, tol=1e-8)
    assert sol.rank == 6
    assert overlap(sol, by_problem(given, name))


def test_pairs_of_points_learn_a_metric():
    # LogDet from F F' is LogDet from the identity of the metric: F M F'.
    given = data()
    metric = given.rows(points=given.F).solve(np.eye(6), tol=1e-9)
    kernel = given.rows().solve(bo.LowRank(given.F), tol=1e-9)
    assert overlap(metric, kernel)
    assert np.allclose(given.F @ metric.X @ given.F.T, kernel.X.dense(), atol=1e-3)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_chunks_change_round_off_only(name):
    given = data()
    values = [given.rows(chunk=size).solve(bo.LowRank(given.F), name).value for size in (1_000, 77, 13)]
    assert np.allclose(values, values[0], rtol=1e-11)


def test_executors_have_the_same_digits(tmp_path, processes):
    given = data()
    names = ("pairs", "bound", "sense")
    for name in names:
        np.save(tmp_path / f"{name}.npy", getattr(given, name))
    np.save(tmp_path / "points.npy", given.F.astype(np.float32))
    paths = [f"{tmp_path}/{name}.npy" for name in names]
    rows = bo.RowChunks(*paths, 0.1, points=tmp_path / "points.npy", chunk=150)
    serial = rows.solve(np.eye(6), sample=200)
    with ThreadPoolExecutor(3) as threads:
        for executor in (processes, threads):
            other = rows.solve(np.eye(6), executor=executor, sample=200)
            assert (other.value, other.dual_value) == (serial.value, serial.dual_value)
            assert (other.X == serial.X).all()


def test_the_chunks_of_lost_workers_run_again():
    given = data()
    rows, start = given.rows(chunk=150), bo.LowRank(given.F)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(os._exit, 1)
        sol = rows.solve(start, executor=pool)
        again = rows.solve(start, executor=pool)
    assert sol.value == again.value == rows.solve(start).value


class Forwarding(Executor):
    """Pickles its tasks, as processes do, and stores the largest one."""

    largest = 0

    def submit(self, fn, /, *args, **kwargs):
        import pickle

        sent = pickle.dumps((fn, args, kwargs))
        self.largest = max(self.largest, len(sent))
        fn, args, kwargs = pickle.loads(sent)
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize("mapped", [False, True])
def test_files_are_sent_as_paths(tmp_path, mapped):
    Z = np.random.default_rng(0).normal(size=(5_000, 3))
    np.save(tmp_path / "rows.npy", Z)
    path = str(tmp_path / "rows.npy")
    executor = Forwarding()
    source = np.load(path, mmap_mode="r") if mapped else path
    sol = bo.RowChunks(source, 2.0, "<=", 0.1).solve(np.eye(3), executor=executor)
    assert executor.largest < 5_000
    assert sol.value == bo.RowChunks(Z, 2.0, "<=", 0.1).solve(np.eye(3)).value


def test_parts_of_memory_maps_are_the_rows_that_were_given(tmp_path):
    Z = np.random.default_rng(0).normal(size=(400, 3))
    np.save(tmp_path / "rows.npy", Z)
    part = np.load(tmp_path / "rows.npy", mmap_mode="r")[100:300]
    sol = bo.RowChunks(part, 2.0, "<=", 0.1).solve(np.eye(3))
    assert sol.value == bo.RowChunks(Z[100:300], 2.0, "<=", 0.1).solve(np.eye(3)).value


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_sample_gives_the_curvature_and_all_rows_the_answer(name):
    given = data(m=6_000, n=300)
    start = bo.LowRank(given.F)
    whole = given.rows(0.01, chunk=500).solve(start, name, tol=1e-8)
    sampled = given.rows(0.01, chunk=500).solve(start, name, sample=1_500, tol=1e-8)
    assert sampled.status == "optimal"
    assert overlap(whole, sampled)
    assert sampled.iterations < whole.iterations
    again = given.rows(0.01, chunk=500).solve(start, name, sample=1_500, seed=5, tol=1e-8)
    assert again.value != sampled.value
    assert overlap(again, sampled)


def test_sorted_rows_are_sampled_evenly():
    given = data(m=6_000, n=300)
    order = np.argsort(given.bound, kind="stable")
    pairs, bound, sense = given.pairs[order], given.bound[order], given.sense[order]
    sol = bo.RowChunks(pairs, bound, sense, 0.01, chunk=500).solve(bo.LowRank(given.F), sample=1_500)
    assert sol.status == "optimal"
    assert overlap(sol, given.rows(0.01).solve(bo.LowRank(given.F)))


class Interrupted(Executor):
    """Ends with the given task, like Ctrl-C."""

    def __init__(self, tasks):
        self.left = tasks

    def submit(self, fn, /, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize("sample", [None, 300])
def test_an_interrupted_solve_goes_on_from_its_checkpoint(tmp_path, sample):
    given, path = data(), tmp_path / "state.npz"
    rows, start = given.rows(chunk=200), bo.LowRank(given.F)
    tasks = 12 if sample is None else 9
    with pytest.raises(KeyboardInterrupt):
        rows.solve(start, executor=Interrupted(tasks), sample=sample, resume=path, tol=1e-9)
    resumed = rows.solve(start, sample=sample, resume=path, tol=1e-9)
    whole = rows.solve(start, sample=sample, tol=1e-9)
    assert resumed.status == "optimal"
    assert overlap(resumed, whole)
    before = tasks // 3 - (sample is not None)  # passes; the sample is drawn by one more
    assert (resumed.history["value"][:before] == whole.history["value"][:before]).all()
    again = rows.solve(start, sample=sample, resume=path, tol=1e-9)
    assert again.value == resumed.value
    assert again.iterations == resumed.iterations + 1
    with pytest.raises(ValueError, match="checkpoint of 600 rows, logdet, order 6; expected this problem's"):
        rows.solve(start, "von_neumann", resume=path)
    path.write_text("no checkpoint")
    with pytest.raises(ValueError, match="no checkpoint of bregopt"):
        rows.solve(start, resume=path)


SLOW = """
import sys, time
import numpy as np
import bregopt as bo
from bregopt.executors import Serial

class Slow(Serial):
    def submit(self, fn, /, *args, **kwargs):
        time.sleep(0.02)
        return super().submit(fn, *args, **kwargs)

folder, sample = sys.argv[1], int(sys.argv[2]) or None
given = [np.load(f"{folder}/{name}.npy") for name in ("pairs", "bound", "sense")]
rows = bo.RowChunks(*given, 0.3, chunk=200)
F = np.load(f"{folder}/F.npy")
rows.solve(bo.LowRank(F), executor=Slow(), sample=sample, tol=1e-12, resume=f"{folder}/state.npz")
"""


@pytest.mark.parametrize("sample", first(1, [300, 0]))
def test_a_killed_solve_goes_on_from_its_last_pass(tmp_path, sample):
    given, path = data(), tmp_path / "state.npz"
    for name, array in given._asdict().items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, str(tmp_path / "slow.py"), str(tmp_path), str(sample)]
    root = os.pathsep.join([str(Path(bo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process, values, begin = (
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}),
        [],
        time.time(),
    )
    while len(values) < 3 and process.poll() is None and time.time() < begin + 60:
        time.sleep(0.003)
        if path.exists():
            with np.load(path) as state:  # whole at any time
                values = state["values"]
    process.kill()
    assert process.wait() == -signal.SIGKILL
    with np.load(path) as state:
        values = state["values"]
    sample = sample or None
    rows, start = given.rows(0.3, chunk=200), bo.LowRank(given.F)
    resumed = rows.solve(start, sample=sample, resume=path, tol=1e-9)
    whole = rows.solve(start, sample=sample, tol=1e-9)
    assert resumed.status == "optimal"
    assert overlap(resumed, whole)
    assert (resumed.history["value"][:3] == whole.history["value"][:3]).all()
    assert resumed.history["value"][len(values)] == min(values)  # the best one, once more


def test_each_pass_is_recorded_and_the_best_one_kept(tmp_path):
    given, path, roots = data(), tmp_path / "state.npz", []

    class Watching(Interrupted):
        def submit(self, fn, /, *args, **kwargs):
            if path.exists():
                with np.load(path) as state:
                    roots.append((len(state["values"]), min(state["values"]), state["root"]))
            return super().submit(fn, *args, **kwargs)

    rows, start = given.rows(3.0, chunk=600), bo.LowRank(given.F)
    sol = rows.solve(start, executor=Watching(10**6), resume=path, tol=1e-9)
    assert [count for count, _, _ in roots] == list(range(1, sol.iterations))
    for _, least, root in roots[::5]:
        with np.load(path) as state:
            facts = {name: state[name] for name in ("m", "problem", "M0", "data")}
        np.savez(path, root=root, values=[], numbers=[], **facts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            assert rows.solve(start, resume=path, max_passes=1).value == least


def test_a_checkpoint_proves_nothing_about_other_rows(tmp_path):
    given, path = data(), tmp_path / "state.npz"
    start = bo.LowRank(given.F)
    given.rows(1.0).solve(start, resume=path)
    less = given.rows(0.01).solve(start, resume=path)
    assert overlap(less, given.rows(0.01).solve(start))


def test_too_few_passes_are_said():
    given = data()
    with pytest.warns(bo.ConvergenceWarning, match=r"max_passes \(2\) was reached"):
        sol = given.rows(1.0).solve(bo.LowRank(given.F), max_passes=2)
    assert sol.status != "optimal"
    assert sol.gap > 1e-6
    assert "max_passes" in repr(sol)


def test_input_stays_as_it_is():
    given = data()
    copies = [array.copy() for array in given]
    given.rows().solve(bo.LowRank(given.F), sample=100)
    assert all((a == b).all() for a, b in zip(given, copies, strict=True))


PAIRS = np.array([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((np.ones(3), 1.0, "<=", 1.0), {}, ValueError, r"rows has shape \(3,\)"),
        ((np.ones((3, 3), int), 1.0, "<=", 1.0), {}, ValueError, r"expected \(m, 2\), pairs of points"),
        ((np.ones((0, 3)), 1.0, "<=", 1.0), {}, ValueError, "expected at least one row"),
        ((np.ones((3, 3), complex), 1.0, "<=", 1.0), {}, TypeError, "rows has dtype complex128"),
        (("missing.npy", 1.0, "<=", 1.0), {}, ValueError, "there is none"),
        ((np.eye(2), [1.0], "<=", 1.0), {}, ValueError, r"bound has shape \(1,\); expected \(2,\)"),
        ((np.eye(2), 1.0, "=", 1.0), {}, ValueError, "sense is '='; expected '<=', '>='"),
        ((np.eye(2), None, "<=", 1.0), {}, TypeError, "bound is None"),
        ((np.eye(2), [1.0, [1.0, 2.0]], "<=", 1.0), {}, ValueError, "bound is ragged"),
        ((np.eye(2), 1.0, "<=", 1.0), {"penalty": ["hinge"]}, ValueError, r"penalty is \['hinge'\]"),
        ((np.eye(2), 1.0, "<=", 1.0), {"points": np.eye(2)}, TypeError, "points is given, but rows"),
        ((PAIRS, 1.0, "<=", 1.0), {"points": np.ones(3)}, ValueError, r"points has shape \(3,\)"),
        ((np.eye(2), 1.0, "<=", 1.0), {"chunk": 0}, ValueError, "chunk is 0; expected an integer from 1"),
        ((np.eye(2), 1.0, "<=", 1.0), {"chunk": 1.5}, TypeError, "chunk is 1.5; expected an integer"),
    ],
)
def test_bad_rows_are_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        bo.RowChunks(*arguments, **options)


@pytest.mark.parametrize(
    ("rows", "bound", "sense", "gamma", "message"),
    [
        (np.eye(2), [1.0, -1.0], "<=", 1.0, "bound of row 1 is -1; expected a number above 0"),
        (np.eye(2), [np.nan, 1.0], "<=", 1.0, "bound of row 0 is nan"),
        (np.eye(2), 1.0, [1, 0], 1.0, r'sense of row 1 is 0; expected -1 \("<="\) or 1 \(">="\)'),
        (
            np.eye(2),
            1.0,
            "<=",
            [1.0, -np.inf],
            "gamma of row 1 is -inf; expected a number above 0, or np.inf",
        ),
        (np.array([[1.0, 0], [0, np.nan]]), 1.0, "<=", 1.0, "value of row 1 is nan; expected finite vectors"),
        (np.array([[1.0, 0], [0, 0]]), 1.0, ">=", 1.0, "value of row 1 is 0; .* drop the row"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2])
def test_bad_values_are_refused_with_the_number_of_their_row(rows, bound, sense, gamma, message, chunk):
    with pytest.raises(ValueError, match=message):
        bo.RowChunks(rows, bound, sense, gamma, chunk=chunk).solve(np.eye(2))


@pytest.mark.parametrize(
    ("X0", "options", "error", "message"),
    [
        (np.eye(3), {}, ValueError, "X0 is 3 x 3 and the rows have 2 coordinates"),
        (np.diag([1.0, 0.0]), {}, ValueError, "X0 is not positive definite"),
        (np.eye(2), {"divergence": "frobenius"}, ValueError, "expected 'logdet' or 'von_neumann'"),
        (np.eye(2), {"executor": 2}, TypeError, "executor is a int; expected a concurrent"),
        (np.eye(2), {"sample": 0}, ValueError, "sample is 0; expected at least 1"),
        (np.eye(2), {"seed": -1}, ValueError, "seed is -1; expected at least 0"),
        (np.eye(2), {"max_passes": 1.5}, TypeError, "max_passes is 1.5; expected an integer"),
        (np.eye(2), {"tol": 0}, ValueError, "tol is 0"),
        (np.eye(2), {"resume": 3}, TypeError, "resume is 3; expected the path"),
        (np.eye(2), {"resume": "no/such/folder/state.npz"}, ValueError, "expected a file in a folder"),
    ],
)
def test_bad_arguments_are_refused(X0, options, error, message):
    with pytest.raises(error, match=message):
        bo.RowChunks(np.eye(2), 1.0, "<=", 1.0).solve(X0, **options)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_zero_vectors_meet_upper_bounds_only(name):
    Z = [[1.0, 1.0], [0.0, 0.0]]
    sol = bo.RowChunks(Z, 1.0, "<=", 1.0).solve(np.eye(2), name)
    assert sol.value == bo.RowChunks(Z[:1], 1.0, "<=", 1.0).solve(np.eye(2), name).value
    with pytest.raises(ValueError, match=r"value of row 1 is 0; .* drop the row"):
        bo.RowChunks(Z, 1.0, ">=", 1.0).solve(np.eye(2), name)


@pytest.mark.parametrize(("name", "degree"), [("logdet", 0), ("von_neumann", 1)])
@pytest.mark.parametrize("size", [1e-4, 1e5])
def test_units_do_not_matter(name, degree, size):
    given = data()
    other = given._replace(F=given.F * size, bound=given.bound * size**2)
    sol, scaled = (d.rows().solve(bo.LowRank(d.F), name, tol=1e-9) for d in (given, other))
    assert scaled.status == "optimal"
    assert scaled.value == pytest.approx(sol.value * size ** (2 * degree), rel=1e-8)


def test_bad_pairs_are_refused():
    with pytest.raises(ValueError, match=r"row 1 is the pair \[1, 2\]; expected points 0 to 1"):
        bo.RowChunks(PAIRS, 1.0, "<=", 1.0, points=np.eye(2)).solve(np.eye(2))
    with pytest.raises(TypeError, match="pairs without points; give RowChunks"):
        bo.RowChunks(PAIRS, 1.0, "<=", 1.0).solve(np.eye(3))
    with pytest.raises(ValueError, match="X0 is zero"):
        bo.RowChunks(PAIRS, 1.0, "<=", 1.0).solve(bo.LowRank(np.zeros((3, 2))))


# --- Watched and ended ------------------------------------------------------------------------------


class Delayed(Executor):
    """An executor of which each task takes some time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        time.sleep(self.seconds)
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.filterwarnings("ignore:row chunks. user_limit:bregopt.ConvergenceWarning")
@pytest.mark.parametrize("hard", [False, True])
def test_a_time_limit_returns_the_best_matrix_so_far(hard):
    given = data(m=1_000)
    gamma = np.where(np.arange(1_000) < 3, np.inf, 0.1) if hard else 0.1
    rows, start = given.rows(gamma, chunk=100), bo.LowRank(given.F)
    whole = rows.solve(start, tol=1e-9)
    assert whole.iterations > 4
    begin = time.perf_counter()
    ended = rows.solve(start, executor=Delayed(0.01), time_limit=0.4, tol=1e-9)
    assert time.perf_counter() - begin < 1.5
    assert ended.status == "user_limit"
    assert ended.stop_reason.startswith("time_limit was reached")
    assert 0 < ended.iterations < whole.iterations
    assert ended.dual_value <= whole.value + 1e-9
    if not hard:
        assert ended.value >= whole.dual_value - 1e-9
    none = rows.solve(start, time_limit=1e-6)
    assert (none.status, none.iterations, none.gap) == ("user_limit", 0, np.inf)
    assert np.isnan(none.value)
    assert "value      nan" in repr(none)


@pytest.mark.filterwarnings("ignore:row chunks. user_limit:bregopt.ConvergenceWarning")
@pytest.mark.parametrize("sample", [None, 300])
def test_each_pass_is_told_and_may_be_the_last(capsys, sample):
    given, steps = data(), []
    rows, start = given.rows(chunk=200), bo.LowRank(given.F)
    sol = rows.solve(start, sample=sample, callback=steps.append, verbose=True, progress=False)
    assert [step.iteration for step in steps] == list(range(1, sol.iterations + 1))
    np.testing.assert_array_equal([step.value for step in steps], sol.history["value"])
    np.testing.assert_array_equal([step.bound for step in steps], sol.history["bound"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bregopt row chunks: 600 rows, order 6"
    assert len(lines) == 3 + sol.iterations
    ended = rows.solve(start, sample=sample, callback=lambda step: step.iteration == 2)
    assert (ended.iterations, ended.status) == (2, "user_limit")
    assert ended.stop_reason.startswith("The callback ended the solve")
    with pytest.raises(ZeroDivisionError):
        rows.solve(start, sample=sample, callback=lambda step: 1 / 0)


def test_passes_over_hard_rows_are_told():
    given, steps = data(), []
    gamma = np.where(np.arange(600) < 3, np.inf, 0.1)
    sol = given.rows(gamma, chunk=200).solve(bo.LowRank(given.F), callback=steps.append)
    assert len(steps) == sol.iterations
    assert max(steps[-1].gap, steps[-1].primal_residual) <= 1e-6


@pytest.mark.filterwarnings("ignore:row chunks. user_limit:bregopt.ConvergenceWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_returns_the_best_matrix_so_far(tmp_path, number):
    given, before = data(m=1_000), signal.getsignal(number)
    rows, start = given.rows(chunk=100), bo.LowRank(given.F)
    threading.Timer(0.35, os.kill, (os.getpid(), number)).start()
    ended = rows.solve(start, executor=Delayed(0.01), tol=1e-9, resume=tmp_path / "state.npz")
    assert signal.getsignal(number) is before
    assert ended.status == "user_limit"
    assert ended.stop_reason.startswith("Interrupted")
    assert ended.iterations > 0
    resumed = rows.solve(start, tol=1e-9, resume=tmp_path / "state.npz")
    assert overlap(resumed, rows.solve(start, tol=1e-9))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"time_limit": 0}, ValueError, "time_limit is 0; expected a number above 0"),
        ({"verbose": 1}, TypeError, "verbose is 1"),
        ({"progress": "yes"}, TypeError, "progress is 'yes'"),
        ({"callback": 3}, TypeError, "callback is 3; expected a function"),
    ],
)
def test_options_of_a_solve_are_checked(options, error, message):
    given = data()
    with pytest.raises(error, match=message):
        given.rows().solve(bo.LowRank(given.F), **options)
