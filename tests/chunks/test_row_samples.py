"""Samples of rows in chunks: stratified, checked by all rows, and solved with the same digits anywhere."""

import functools
import warnings
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from samples import first, turns
from test_row_chunks import DIVERGENCES, data, overlap

import bregopt as bo
from bregopt.chunks import solve
from bregopt.chunks.chunk import Chunk, ExecutorPasses, FasterPasses, sums_of
from bregopt.chunks.sources import source
from bregopt.executors import Crew
from bregopt.program import Penalty


def chunk_of(sense, gamma, d=3):
    rng = np.random.default_rng(0)
    m = len(sense)
    columns = (source(rng.uniform(1, 2, m)), source(np.asarray(sense)), source(np.asarray(gamma, float)))
    return Chunk(source(rng.normal(size=(m, d))), None, range(700, 700 + m), *columns)


# --- What is drawn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.001, 0.03, 0.6, 0.999])
def test_each_sense_keeps_its_weight_and_a_row_at_least(share, seed):
    rng = np.random.default_rng(seed)
    sense = np.where(np.arange(1_000) < 3, 1, -1)[rng.permutation(1_000)]
    gamma = rng.exponential(size=1_000)
    drawn = solve.drawn(chunk_of(sense, gamma), share, seed, Penalty.LOGDET)
    for sign, count in ((1, 3), (-1, 997)):
        own = drawn.sense.read() == sign
        assert 1 <= own.sum() <= max(1, round(share * count))
        assert np.isclose(drawn.gamma.read()[own].sum(), gamma[sense == sign].sum())
    whole = chunk_of(sense, gamma)
    places = drawn.numbers - 700
    assert (np.diff(places) > 0).all()
    assert (drawn.rows.read() == whole.rows.read()[places]).all()
    assert (drawn.bound.read() == whole.bound.read()[places]).all()


def test_rows_of_equal_weight_are_drawn_once_and_evenly():
    counts = np.zeros(400)
    for seed in range(400):
        drawn = solve.drawn(chunk_of(-np.ones(400), np.full(400, 0.3)), 0.1, seed, Penalty.LOGDET)
        assert len(drawn.numbers) == 40
        assert np.allclose(drawn.gamma.read(), 3.0)
        counts[drawn.numbers - 700] += 1
    assert abs(counts - 40).max() < 6 * np.sqrt(40 * 0.9)


def test_heavy_rows_are_not_missed():
    gamma = np.ones(1_000)
    gamma[[17, 400, 999]] = 1e4
    for seed in range(20):
        drawn = solve.drawn(chunk_of(-np.ones(1_000), gamma), 0.02, seed, Penalty.LOGDET)
        assert {717, 1100, 1699} <= set(drawn.numbers)
        assert np.isclose(drawn.gamma.read().sum(), gamma.sum())


@pytest.mark.parametrize(("value", "message"), [(np.nan, "vector of row 702 is nan"), (0.0, "drop the row")])
def test_bad_rows_of_a_sample_are_named_by_their_number(value, message):
    chunk = chunk_of([1, 1, 1], [1, 1, 1])
    chunk.rows.data[2] = value
    with pytest.raises(ValueError, match=f"{message}" if value else f"value of row 702 .*{message}"):
        solve.drawn(chunk, 0.999, 0, Penalty.LOGDET)


# --- Hard orders ------------------------------------------------------------------------------------


def hard(name):
    """Return rows whose chunks do not resemble each other."""
    given, rng = data(m=6_000, n=300), np.random.default_rng(0)
    gamma = np.full(6_000, 0.01)
    order = np.arange(6_000)
    if name == "sorted by bound":
        order = np.argsort(given.bound, kind="stable")
    elif name == "sorted by distance":
        order = np.argsort(np.sum((given.F[given.pairs[:, 0]] - given.F[given.pairs[:, 1]]) ** 2, axis=1))
    elif name == "period of the chunks":
        order = np.argsort(np.arange(6_000) % 500, kind="stable").reshape(500, 12).T.ravel()
    elif name == "one heavy chunk":
        gamma[1_000:1_500] = 5.0
    elif name == "few heavy rows":
        gamma[rng.choice(6_000, 12, replace=False)] = 50.0
    elif name == "a rare sense":
        far = np.flatnonzero(given.sense > 0)
        order = np.sort(np.concatenate([np.flatnonzero(given.sense < 0), far[:20]]))
        gamma[far] = 1.0
    pairs, bound, sense = (array[order] for array in (given.pairs, given.bound, given.sense))
    return bo.RowChunks(pairs, bound, sense, gamma[order], chunk=500), bo.LowRank(given.F)


ORDERS = ["sorted by bound", "sorted by distance", "period of the chunks"]
WEIGHTS = ["one heavy chunk", "few heavy rows", "a rare sense"]


@pytest.mark.parametrize(("name", "divergence"), turns([*ORDERS, *WEIGHTS], DIVERGENCES))
def test_hard_orders_have_the_answer_of_all_rows(name, divergence, watched):
    rows, start = hard(name)
    sol = rows.solve(start, divergence, sample=1_500)
    assert sol.status == "optimal"
    assert overlap(sol, rows.solve(start, divergence))


# --- Samples that represent nothing -------------------------------------------------------------------


def changed(chunk, **columns):
    return replace(chunk, **{name: source(array) for name, array in columns.items()})


MISLEADING = {
    "one row only": lambda c: changed(c, rows=np.repeat(c.rows.read()[:1], len(c.rows), axis=0)),
    "rows that are met": lambda c: changed(c, bound=np.where(c.sense.read() > 0, 1e-9, 1e9)),
    "the other sense": lambda c: changed(c, sense=-c.sense.read()),
    "short vectors": lambda c: changed(c, rows=1e-3 * c.rows.read()),
    "long vectors": lambda c: changed(c, rows=100 * c.rows.read()),
    "heavy rows": lambda c: changed(c, gamma=1e4 * c.gamma.read()),
    "light rows": lambda c: changed(c, gamma=1e-6 * c.gamma.read()),
}


@pytest.fixture
def watched(monkeypatch):
    """Check that each step decreases the objective."""
    steps = solve._steps

    def checked(objective, sample, point, first):
        least = point.value
        for new in steps(objective, sample, point, first):
            assert new.value <= least + 1e-12 * abs(least)
            least = new.value
            yield new

    monkeypatch.setattr(solve, "_steps", checked)


@functools.cache
def without_a_sample(gamma, divergence):
    given = data(m=3_000, n=300)
    return given.rows(gamma, chunk=250).solve(bo.LowRank(given.F), divergence)


@pytest.mark.parametrize(
    ("name", "gamma", "divergence"), turns(MISLEADING, first(1, [1.0, 0.02]), DIVERGENCES)
)
def test_a_sample_that_misleads_costs_passes_only(name, gamma, divergence, watched, monkeypatch):
    given = data(m=3_000, n=300)
    rows, start = given.rows(gamma, chunk=250), bo.LowRank(given.F)
    honest = solve.drawn
    monkeypatch.setattr(solve, "drawn", lambda *arguments: MISLEADING[name](honest(*arguments)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", bo.ConvergenceWarning)
        sol = rows.solve(start, divergence, sample=750)
    assert sol.status == "optimal"
    assert sol.iterations <= 60
    assert overlap(sol, without_a_sample(gamma, divergence))


def test_many_rows_are_sampled_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setattr(solve, "_MANY", 2_000)
    given = data(m=8_000, n=200, r=4)
    rows, start = given.rows(0.01, chunk=1_000), bo.LowRank(given.F)
    asked, usual, none = (rows.solve(start, sample=size, tol=1e-8) for size in (400, "auto", None))
    assert (usual.value, usual.iterations) == (asked.value, asked.iterations)  # a twentieth
    assert usual.iterations < none.iterations
    assert overlap(usual, none)
    few = data(m=1_990).rows(0.01)
    assert few.solve(bo.LowRank(data().F)).value == few.solve(bo.LowRank(data().F), sample=None).value
    hard = given.rows(np.where(np.arange(8_000) < 1, np.inf, 0.01), chunk=1_000)
    assert hard.solve(start).status == "optimal"
    with pytest.raises(TypeError, match="sample is 'all'; expected an integer, 'auto' or None"):
        rows.solve(start, sample="all")


def test_a_sample_whose_problem_is_too_hard_is_left(monkeypatch):
    """Each of its minimizations would take all of its steps, which are many passes."""
    monkeypatch.setattr(solve, "_STEPS", 1)
    given, seen = data(), []
    minimized = solve.minimized
    monkeypatch.setattr(solve, "minimized", lambda *given: seen.append(1) or minimized(*given))
    rows, start = given.rows(3.0, chunk=200), bo.LowRank(given.F)
    sampled = rows.solve(start, sample=300, tol=1e-9)
    assert len(seen) == 1
    assert sampled.status == "optimal"
    assert overlap(sampled, rows.solve(start, sample=None, tol=1e-9))


def test_a_sample_of_one_row():
    given = data(m=6_000, n=300)
    rows, start = given.rows(0.1, chunk=6_000), bo.LowRank(given.F)
    assert overlap(rows.solve(start, sample=1), rows.solve(start))


# --- Where it is solved -------------------------------------------------------------------------------


def in_files(given, folder, dtype=np.float64):
    for name in ("pairs", "bound", "sense"):
        np.save(folder / f"{name}.npy", getattr(given, name))
    np.save(folder / "points.npy", given.F.astype(dtype))
    paths = [folder / f"{name}.npy" for name in ("pairs", "bound", "sense")]
    return bo.RowChunks(*paths, 0.01, points=folder / "points.npy", chunk=500)


@pytest.mark.parametrize(("name", "dtype"), zip(DIVERGENCES, [np.float32, np.float64], strict=True))
def test_digits_do_not_depend_on_where_the_sample_is_solved(name, dtype, tmp_path, monkeypatch, processes):
    monkeypatch.setattr(solve, "_CHUNK", 400)
    rows = in_files(data(m=6_000, n=300), tmp_path, dtype)
    used, own = [], solve.sample_objective
    monkeypatch.setattr(solve, "sample_objective", lambda *a: used.append(own(*a)) or used[-1])
    serial = rows.solve(np.eye(6), name, sample=1_500)
    with ThreadPoolExecutor(2) as threads:
        for executor in (threads, processes):
            other = rows.solve(np.eye(6), name, sample=1_500, executor=executor)
            assert (other.value, other.dual_value, other.iterations) == (
                serial.value,
                serial.dual_value,
                serial.iterations,
            )
            assert (other.X == serial.X).all()
    kinds = [type(objective.rows) for objective in used]
    assert kinds == [ExecutorPasses, FasterPasses, FasterPasses]
    assert all(len(spent) == 2 for objective in used[1:] for spent in objective.rows._seconds)


def test_rows_of_a_sample_are_read_from_files(tmp_path, monkeypatch):
    monkeypatch.setattr(solve, "_CHUNK", 400)
    rows = in_files(data(m=6_000, n=300), tmp_path)
    with ProcessPoolExecutor(2) as idle:
        crew = Crew(idle)
        whole = tuple(rows.chunks())
        samples = [solve.drawn(chunk, 0.2, 0, Penalty.LOGDET) for chunk in whole]
        here, there = solve.passes_of_sample(crew, whole, samples)._kinds
        assert len(here.chunks) == len(there.chunks) == 3
        for a, b in zip(here.chunks, there.chunks, strict=True):
            assert b.rows.read().shape == (400, 2)
            assert b.rows.part(3, 7).read().tolist() == b.rows.read()[3:7].tolist()
            for one, other in zip(
                *(sums_of(c, np.eye(6), Penalty.LOGDET, True) for c in (a, b)), strict=True
            ):
                assert np.array_equal(one, other)
        in_memory = tuple(data().rows().chunks(data().F))
        samples = [solve.drawn(chunk, 0.9, 0, Penalty.LOGDET) for chunk in in_memory]
        assert isinstance(solve.passes_of_sample(crew, in_memory, samples), ExecutorPasses)


class Sleeping(Executor):
    """Takes time."""

    def __init__(self, seconds):
        self.seconds, self.tasks = seconds, 0

    def submit(self, fn, /, *args):
        import time

        time.sleep(self.seconds)
        self.tasks += 1
        future = Future()
        future.set_result(fn(*args))
        return future


@pytest.mark.parametrize("fast", [0, 1])
def test_the_faster_kind_of_passes_is_taken(fast):
    executors = [Sleeping(0.001 if k == fast else 0.02) for k in range(2)]
    chunk = chunk_of([1, 1, -1], [1, 1, 1])
    passes = FasterPasses(tuple(ExecutorPasses(Crew(e), (chunk,)) for e in executors))
    results = [list(passes.map(sums_of, np.eye(3), Penalty.LOGDET, False)) for _ in range(10)]
    assert [e.tasks for e in executors] == ([8, 2] if fast == 0 else [2, 8])
    assert all(result[0].penalty == results[0][0].penalty for result in results)
