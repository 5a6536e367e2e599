"""Triplets in chunks: the answers of `soft_margin`, whatever the chunks, the executor and the sample."""

import os
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.learn import SoftMarginMetricLearner


def data(m=1_200, n=200, d=6, seed=0):
    """Points of four classes, and triplets of two points of one class and one of another."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 4
    points = rng.normal(size=(n, d)) * np.linspace(2, 0.3, d) + rng.normal(size=(4, d))[label]
    i, k = rng.integers(0, n, (2, 3 * m))
    j = (i + 4 * rng.integers(1, n // 4, 3 * m)) % n
    return points, np.stack([i, j, k], axis=1)[label[i] != label[k]][:m]


def differences(points, triplets):
    i, j, k = triplets.T
    return points[i] - points[k], points[i] - points[j]


def agree(a, b):
    """Whether the intervals that two answers of a maximization prove have a point in common."""
    slack = 1e-9 * max(abs(a.value), abs(b.value), 1e-3)
    return a.value <= b.dual_value + slack and b.value <= a.dual_value + slack


@pytest.mark.parametrize(("share", "ratio"), turns([None, 0.5], [1.5, 10.0, 100.0]))
def test_the_optimum_is_that_of_soft_margin(ratio, share):
    points, triplets = data()
    m = len(triplets)
    sample = None if share is None else int(share * m)
    sol = bo.TripletChunks(triplets, points, chunk=300).solve(ratio / m, sample=sample)
    other = bo.soft_margin(differences(points, triplets), ratio / m)
    assert sol.status == "optimal"
    assert agree(sol, other)
    assert sol.gap <= 1e-6
    assert sol.dual_value >= sol.value - 1e-12


def test_value_and_bound_are_those_of_the_definition():
    """The value is that of the answer; any multipliers of the problem bound it, as does the bound."""
    points, triplets = data(seed=1)
    C = 20 / len(triplets)
    sol = bo.TripletChunks(triplets, points, chunk=512).solve(C, sample=700)
    far, near = differences(points, triplets)
    margins = np.einsum("ki,ij,kj->k", far, sol.X, far) - np.einsum("ki,ij,kj->k", near, sol.X, near)
    value = sol.u["rho"] - C * np.maximum(sol.u["rho"] - margins, 0).sum()
    assert np.isclose(sol.value, value, rtol=1e-10)
    assert np.isclose(np.trace(sol.X), 1)
    assert np.linalg.eigvalsh(sol.X)[0] >= -1e-14
    tail = np.sort(margins)[: int(1 / C)]  # rho is best: the value is the mean of the smallest margins
    assert np.isclose(sol.value, tail.mean(), rtol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(20):  # Ky Fan's inequality for the dual: no multipliers are below the value
        y = rng.permutation(np.repeat([1.0, 0.0], [len(tail), len(margins) - len(tail)])) / len(tail)
        top = np.linalg.eigvalsh((far.T * y) @ far - (near.T * y) @ near)[-1]
        assert top >= sol.value
    assert sol.dual_value <= top


def test_equal_weights_have_a_closed_form():
    """At ``C = 1 / m`` all multipliers are equal, and the optimum is an eigenvalue."""
    points, triplets = data(m=400)
    far, near = differences(points, triplets)
    sol = bo.TripletChunks(triplets, points).solve(1 / len(triplets))
    top = np.linalg.eigvalsh(far.T @ far - near.T @ near)[-1] / len(triplets)
    assert sol.status == "optimal"
    assert np.isclose(sol.value, top, rtol=1e-6)


def test_multipliers_at_their_bound_may_miss_the_sum_one_by_round_off():
    """At ``C = 1 / 7`` all are ``C``, and their sum is below one in floating point. Here the optimum is 0."""
    points = np.array([[2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    triplets = np.array([[1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1], [0, 1, 2], [0, 2, 1], [2, 1, 0]])
    assert np.full(7, 1 / 7).sum() < 1
    sol = bo.TripletChunks(triplets, points).solve(1 / 7)
    assert sol.status == "optimal"
    assert abs(sol.value) < 1e-9


def test_separable_triplets_have_a_hard_margin():
    """With ``C >= 1`` the margin is hard: rho is the least margin."""
    rng = np.random.default_rng(0)
    label = np.arange(60) % 2
    points = np.column_stack([5.0 * label + rng.normal(size=60) * 0.3, rng.normal(size=(60, 3))])
    i, k = rng.integers(0, 60, (2, 800))
    j = (i + 2 * rng.integers(1, 30, 800)) % 60
    triplets = np.stack([i, j, k], axis=1)[label[i] != label[k]]
    sol = bo.TripletChunks(triplets, points, chunk=100).solve(2.0)
    far, near = differences(points, triplets)
    margins = np.einsum("ki,ij,kj->k", far, sol.X, far) - np.einsum("ki,ij,kj->k", near, sol.X, near)
    assert sol.status == "optimal"
    assert margins.min() > 0
    assert np.isclose(sol.value, margins.min(), rtol=1e-6)
    assert agree(sol, bo.soft_margin((far, near), 2.0))


@pytest.mark.parametrize("m", first(1, [240, 600]))
def test_the_answer_does_not_depend_on_chunks_order_origin_or_rotation(m):
    points, triplets = data(m=m)
    plain = bo.TripletChunks(triplets, points).solve()
    rng = np.random.default_rng(3)
    Q, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    others = [
        bo.TripletChunks(triplets, points, chunk=43).solve(),
        bo.TripletChunks(rng.permutation(triplets), points, chunk=2 * m // 3).solve(sample=4 * m // 5),
        bo.TripletChunks(triplets, points + 1e6).solve(),
        bo.TripletChunks(triplets, points @ Q, chunk=m - 1).solve(seed=5),
        bo.TripletChunks(triplets.astype(np.uint16), points.astype(np.float32)).solve(tol=1e-5),
    ]
    for other in others[:-1]:
        assert other.status == "optimal"
        assert agree(plain, other)
    assert np.isclose(others[-1].value, plain.value, rtol=1e-4)
    scaled = bo.TripletChunks(triplets, 1e3 * points).solve()
    assert np.isclose(scaled.value, 1e6 * plain.value, rtol=2e-6)


@pytest.mark.parametrize("m", first(1, [500, 1_000]))
def test_every_executor_gives_the_same_digits(m, tmp_path, processes):
    points, triplets = data(m=m)
    np.save(tmp_path / "points.npy", points)
    np.save(tmp_path / "triplets.npy", triplets)
    files = bo.TripletChunks(tmp_path / "triplets.npy", str(tmp_path / "points.npy"), chunk=2 * m // 5)
    alone = bo.TripletChunks(triplets, points, chunk=2 * m // 5).solve(sample=4 * m // 5)
    with ThreadPoolExecutor(2) as pool:
        threaded = files.solve(sample=4 * m // 5, executor=pool)
    parallel = files.solve(sample=4 * m // 5, executor=processes)
    for other in (threaded, parallel):
        assert (other.X == alone.X).all()
        assert other.dual_value == alone.dual_value
        assert other.iterations == alone.iterations


class Fragile(ProcessPoolExecutor):
    """Loses its worker at one task."""

    tasks = 0

    def submit(self, fn, /, *args, **kwargs) -> Future:
        self.tasks += 1
        return super().submit(os._exit, 1) if self.tasks == 5 else super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("m", first(1, [400, 800]))
def test_a_lost_worker_does_not_change_the_answer(m):
    points, triplets = data(m=m)
    chunks = bo.TripletChunks(triplets, points, chunk=5 * m // 16)
    with Fragile(1, mp_context=get_context("spawn")) as fragile:
        found = chunks.solve(executor=fragile)
    assert (found.X == chunks.solve().X).all()


def test_points_that_no_triplet_has_are_not_read():
    """A chunk reads only the points of its triplets if there are many more."""
    points, triplets = data(m=30)
    many = np.vstack([points, np.zeros((2_000, 6))])
    few, all_ = bo.TripletChunks(triplets, points), bo.TripletChunks(triplets, many, chunk=10)
    assert agree(few.solve(), all_.solve())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"triplets": [[0.5, 1, 2]]}, TypeError, "triplets has dtype float64; expected integers"),
        ({"triplets": [[0, 1]]}, ValueError, r"triplets has shape \(1, 2\); expected \(m, 3\)"),
        ({"points": np.ones(3)}, ValueError, r"points has shape \(3,\); expected \(n, d\)"),
        ({"points": np.ones((200, 6))}, ValueError, "all 200 points are equal"),
        ({"points": None}, TypeError, "triplets have no points"),
        ({"chunk": 0}, ValueError, "chunk is 0; expected an integer from 1"),
        ({"C": 1e-4}, ValueError, "C is 0.0001 for 900 triplets; expected at least 1/900"),
        ({"C": "1"}, TypeError, "C has dtype"),
        ({"sample": 0}, ValueError, "sample is 0; expected at least 1"),
        ({"max_passes": 1.5}, TypeError, "max_passes is 1.5; expected an integer"),
        ({"executor": 2}, TypeError, "executor is a int"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    points, triplets = data(m=900)
    given = {"triplets": triplets, "points": points, "chunk": 100} | change
    rows = {name: given.pop(name) for name in ("triplets", "points", "chunk")}
    with pytest.raises(error, match=message):
        bo.TripletChunks(rows["triplets"], rows["points"], chunk=rows["chunk"]).solve(**given)


@pytest.mark.parametrize(
    ("triplet", "message"),
    [
        ([0, 1, 200], r"triplet 777 is \[0, 1, 200\]; expected points 0 to 199"),
        ([-1, 1, 2], r"triplet 777 is \[-1, 1, 2\]; expected points 0 to 199"),
        ([3, 5, 5], r"triplet 777 is \[3, 5, 5\]; expected three different points"),
    ],
)
def test_a_bad_triplet_of_a_late_chunk_is_named(triplet, message):
    points, triplets = data(m=900)
    triplets[777] = triplet
    with pytest.raises(ValueError, match=message):
        bo.TripletChunks(triplets, points, chunk=100).solve()


def test_a_bad_point_is_named():
    points, triplets = data(m=900)
    points[150, 2] = np.nan
    with pytest.raises(ValueError, match=r"point 150 is \[.*nan.*\]; expected finite coordinates"):
        bo.TripletChunks(triplets, points).solve()


def test_a_limit_on_passes_ends_with_an_honest_status():
    points, triplets = data()
    with pytest.warns(bo.ConvergenceWarning, match="max_passes"):
        sol = bo.TripletChunks(triplets, points).solve(max_passes=2)
    assert sol.status != "optimal"
    assert sol.gap > 1e-6
    best = bo.soft_margin(differences(points, triplets))
    assert sol.value <= best.dual_value + 1e-9
    assert sol.dual_value >= best.value - 1e-9


# With a fourth of the triplets some models have no better maximizer, and samples grow.
@pytest.mark.parametrize(("m", "sample"), first(1, [(2_000, 500), (3_000, 750), (6_000, 1_500)]))
def test_an_interrupted_solve_goes_on_by_the_same_rounds(m, sample, tmp_path):
    points, triplets = data(m=m)
    chunks, path = bo.TripletChunks(triplets, points, chunk=m // 6), tmp_path / "state.npz"
    whole = chunks.solve(sample=sample)
    for passes in (5, whole.iterations - 2):
        path.unlink(missing_ok=True)
        with pytest.warns(bo.ConvergenceWarning, match="max_passes"):
            part = chunks.solve(sample=sample, max_passes=passes, resume=path)
        assert part.gap > 1e-6
        resumed = chunks.solve(sample=sample, resume=path)
        assert resumed.status == "optimal"
        assert agree(resumed, whole)
        assert resumed.iterations == whole.iterations + 1  # one to look at the stored matrix again
        values, done = resumed.history["value"].tolist(), len(part.history["value"]) - 1
        assert values.pop(done) == max(values[:done])  # the best one, from which the solve goes on
        assert values == whole.history["value"].tolist()
    again = chunks.solve(sample=sample, resume=path)
    assert again.status == "optimal"
    assert again.value >= resumed.value
    assert agree(again, whole)
    with pytest.raises(ValueError, match=f"checkpoint of {m} rows, soft margin, C = "):
        chunks.solve(1e-3, resume=path)
    with pytest.raises(TypeError, match="resume is 3; expected the path"):
        chunks.solve(resume=3)


@pytest.mark.filterwarnings("ignore:triplet chunks. user_limit:bregopt.ConvergenceWarning")
def test_each_round_is_told_and_may_be_the_last(capsys):
    points, triplets = data(m=4_000)
    chunks, steps = bo.TripletChunks(triplets, points, chunk=1_000), []
    sol = chunks.solve(sample=1_000, callback=steps.append, verbose=True, progress=False)
    values = [step.value for step in steps]
    assert values == sorted(values)  # the best so far, of a maximization
    assert (values[-1], steps[-1].bound, steps[-1].iteration) == (sol.value, sol.dual_value, sol.iterations)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bregopt triplet chunks: 4000 triplets, order 6"
    assert len(lines) == 3 + len(steps)
    ended = chunks.solve(sample=1_000, callback=lambda step: len(steps) > 0)
    assert (ended.status, ended.iterations) == ("user_limit", 1)
    assert ended.stop_reason.startswith("The callback ended the solve")
    assert ended.value == values[0] <= sol.dual_value
    with pytest.raises(ZeroDivisionError):
        chunks.solve(callback=lambda step: 1 / 0)
    with pytest.raises(ValueError, match="time_limit is 0"):
        chunks.solve(time_limit=0)


@pytest.mark.filterwarnings("ignore:triplet chunks. user_limit:bregopt.ConvergenceWarning")
@pytest.mark.parametrize("m", first(1, [3_000, 6_000]))
def test_a_time_limit_returns_the_best_matrix_so_far(m, tmp_path):
    points, triplets = data(m=m)
    chunks = bo.TripletChunks(triplets, points, chunk=m // 3)
    whole = chunks.solve(sample=m // 12)
    ended = chunks.solve(sample=m // 12, executor=Delayed(0.1), resume=tmp_path / "state.npz", time_limit=1)
    assert ended.stop_reason.startswith("time_limit was reached")
    assert 0 < ended.iterations < whole.iterations
    assert ended.value <= whole.dual_value + 1e-9
    assert np.isclose(np.trace(ended.X), 1)
    assert agree(chunks.solve(sample=m // 12, resume=tmp_path / "state.npz"), whole)
    none = chunks.solve(time_limit=1e-6)
    assert (none.status, none.iterations, none.gap) == ("user_limit", 0, np.inf)
    assert np.isnan(none.value)
    np.testing.assert_allclose(none.X, np.eye(6) / 6)


class Delayed(ThreadPoolExecutor):
    """An executor that takes some seconds for each chunk."""

    def __init__(self, seconds):
        super().__init__(1)
        self.seconds = seconds

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        time.sleep(self.seconds)
        future.set_result(fn(*args, **kwargs))
        return future


def test_the_learner_takes_triplets_in_chunks():
    points, triplets = data(m=800)
    inside = SoftMarginMetricLearner().fit(points, triplets=triplets)
    chunks = bo.TripletChunks(triplets, chunk=300)
    learner = SoftMarginMetricLearner(solver_options={"sample": 400}).fit(points, triplets=chunks)
    assert learner.converged_
    assert learner.gap_ <= 1e-6
    assert np.isclose(learner.margin_, inside.margin_, rtol=1e-2)
    assert np.isclose(learner.solution_.value, inside.solution_.value, rtol=1e-5)
    with pytest.raises(TypeError, match="points of their own"):
        SoftMarginMetricLearner().fit(points, triplets=bo.TripletChunks(triplets, points))
