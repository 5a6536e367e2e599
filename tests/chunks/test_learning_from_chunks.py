"""`learn_kernel`, estimators and on-line learners from rows in chunks: the answers of pairs in memory."""

import numpy as np
import pandas as pd
import pytest
from samples import turns

import bregopt as bo
from bregopt.learn import KernelLearner, LogDetMetricLearner, VonNeumannMetricLearner
from bregopt.online import MatrixBurgGradient, OnlineLogDetMetric, PairWinnow

rng = np.random.default_rng(0)
F = rng.normal(size=(60, 4)) + 2 * rng.normal(size=(3, 4))[np.arange(60) % 3]
LEFT, RIGHT = np.triu_indices(60, 1)
PAIRS = np.stack([LEFT, RIGHT], axis=1)
ALIKE = LEFT % 3 == RIGHT % 3
SQUARED = np.sum((F[LEFT] - F[RIGHT]) ** 2, axis=1)
UPPER, LOWER = np.percentile(SQUARED, [20, 60])
BOUND, SENSE = np.where(ALIKE, UPPER, LOWER), np.where(ALIKE, -1, 1)


def chunks(gamma=0.1, **options):
    return bo.RowChunks(PAIRS, BOUND, SENSE, gamma, chunk=300, **options)


def agree(a, b):
    assert a.status == b.status == "optimal"
    assert abs(a.value - b.value) <= a.error + b.error + 1e-9 * abs(b.value)


@pytest.mark.parametrize(("divergence", "gamma"), turns(["logdet", "von_neumann"], [0.1, None]))
def test_learn_kernel(divergence, gamma):
    K0 = bo.LowRank(F)
    apart = ALIKE if gamma is None else np.ones(len(LEFT), dtype=bool)  # hard rows that can be met
    rows = bo.RowChunks(PAIRS[apart], BOUND[apart], SENSE[apart], gamma or np.inf, chunk=200)
    sol = bo.learn_kernel(K0, rows=rows, divergence=divergence, tol=1e-7)
    far = PAIRS[~ALIKE] if gamma else []
    bounds = {"upper": UPPER, "lower": LOWER if gamma else None}
    other = bo.learn_kernel(K0, PAIRS[ALIKE], far, **bounds, divergence=divergence, gamma=gamma, tol=1e-7)
    agree(sol, other)
    assert isinstance(sol.X, bo.LowRank)
    assert np.allclose(sol.X.dense(), other.X.dense(), atol=1e-3 * np.abs(other.X.dense()).max())


def test_a_dense_kernel_keeps_its_labels():
    points = rng.normal(size=(12, 12))
    names = list("abcdefghijkl")
    K0 = pd.DataFrame(points @ points.T, names, names)
    pairs = PAIRS[(LEFT < 12) & (RIGHT < 12)]
    sol = bo.learn_kernel(K0, rows=bo.RowChunks(pairs, 5.0, "<=", 0.1), tol=1e-8)
    other = bo.learn_kernel(K0, pairs, [], upper=5.0, gamma=0.1, tol=1e-8)
    agree(sol, other)
    assert list(sol.X.columns) == names
    found, expected = np.asarray(sol.X), np.asarray(other.X)
    assert np.allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("prior", ["identity", "covariance"])
def test_metrics_are_those_of_pairs_in_memory(prior):
    learner = LogDetMetricLearner(0.1, prior=prior, upper=UPPER, lower=LOWER, tol=1e-7)
    other = learner.fit(F, similar=PAIRS[ALIKE], dissimilar=PAIRS[~ALIKE]).solution_
    assert hasattr(learner, "n_pairs_")
    learner.fit(F, rows=chunks())
    agree(learner.solution_, other)
    assert not hasattr(learner, "n_pairs_")
    assert np.allclose(learner.get_mahalanobis_matrix(), other.X, atol=1e-3 * np.abs(other.X).max())
    assert learner.converged_


def test_metrics_in_the_von_neumann_divergence():
    learner = VonNeumannMetricLearner(0.1, upper=UPPER, lower=LOWER, tol=1e-7)
    other = learner.fit(F, similar=PAIRS[ALIKE], dissimilar=PAIRS[~ALIKE]).solution_
    agree(learner.fit(F, rows=chunks(0.1 / BOUND)).solution_, other)


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
def test_kernels_are_those_of_pairs_in_memory(divergence):
    gamma = 0.1 if divergence == "logdet" else 0.1 * np.sum(F**2) / 4 / BOUND
    learner = KernelLearner(0.1, divergence=divergence, tol=1e-7)
    K = bo.PSD(60)
    d, atom = bo.sq_distance(K, LEFT, RIGHT), {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}
    weight = np.broadcast_to(gamma, len(LEFT))
    rows = [bo.soft(d[ALIKE] <= UPPER, weight[ALIKE]), bo.soft(d[~ALIKE] >= LOWER, weight[~ALIKE])]
    other = bo.Problem(bo.Minimize(atom[divergence](K, bo.LowRank(F))), rows).solve(tol=1e-7)
    learner.fit(F, rows=chunks(gamma))
    agree(learner.solution_, other)
    mapped = learner.transform(F)
    assert np.allclose(mapped @ mapped.T, learner.solution_.X.dense())


def test_options_of_chunks_pass_through():
    with pytest.warns(bo.ConvergenceWarning, match=r"max_passes \(2\)"):
        learner = LogDetMetricLearner(tol=1e-9, max_iter=2).fit(F, rows=chunks(1.0))
    assert not learner.converged_
    sampled = LogDetMetricLearner(solver_options={"sample": 800}).fit(F, rows=chunks())
    assert sampled.converged_
    with pytest.raises(TypeError, match="unexpected keyword argument 'time_limits'"):
        LogDetMetricLearner(solver_options={"time_limits": 1}).fit(F, rows=chunks())


def test_hard_rows_that_contradict_each_other_are_said():
    rows = bo.RowChunks([[0, 1], [0, 1]], [1.0, 2.0], [-1, 1], np.inf)
    for learner in (LogDetMetricLearner(), KernelLearner()):
        with pytest.raises(ValueError, match=r"infeasible\. .* contradict each other: .* finite gamma"):
            learner.fit(F, rows=rows)
    assert bo.learn_kernel(bo.LowRank(F), rows=rows).status == "infeasible"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rows": PAIRS}, TypeError, "rows is a ndarray; expected a RowChunks"),
        ({"rows": chunks(), "similar": [[0, 1]]}, TypeError, "similar is given beside rows|beside rows="),
        ({"rows": chunks(points=F)}, ValueError, "rows have points of their own; expected pairs"),
        ({"rows": bo.RowChunks(F, 1.0, "<=", 1.0)}, ValueError, "rows have vectors; expected pairs"),
        ({"rows": bo.RowChunks([[0, 60]], 1.0, "<=", 1.0)}, ValueError, r"row 0 is the pair \[0, 60\]"),
    ],
)
def test_bad_rows_are_refused(arguments, error, message):
    fits = LogDetMetricLearner().fit, KernelLearner().fit, bo.learn_kernel
    for fit, data in zip(fits, (F, F, bo.LowRank(F)), strict=True):
        with pytest.raises(error, match=message):
            fit(data, **arguments)


def test_learn_kernel_needs_pairs():
    with pytest.raises(ValueError, match="similar and dissimilar are both empty"):
        bo.learn_kernel(np.eye(3))
    for name in ("gamma", "shrink"):
        with pytest.raises(TypeError, match=f"{name} is given beside rows"):
            bo.learn_kernel(bo.LowRank(F), rows=chunks(), **{name: 0.5})
    with pytest.raises(ValueError, match="K0 is not positive definite"):
        bo.learn_kernel(np.diag([1.0, 0.0]), rows=bo.RowChunks([[0, 1]], 1.0, "<=", 1.0))


def test_batches_are_the_rows(tmp_path):
    np.save(tmp_path / "points.npy", F.astype(np.float32))
    gamma = np.where(ALIKE, np.inf, 0.5)
    rows = bo.RowChunks(PAIRS, BOUND, SENSE, gamma, points=tmp_path / "points.npy", chunk=500)
    batches = list(rows.batches())
    assert [len(batch.bound) for batch in batches] == [500, 500, 500, 270]
    stacked = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    expected = (F[LEFT] - F[RIGHT], BOUND, SENSE, gamma)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(stacked, expected, strict=True))
    assert batches[0].pairs.shape == (500, 2, 4)
    with pytest.raises(TypeError, match="pairs without points"):
        chunks().batches()
    with pytest.raises(ValueError, match="the vector of row 1 is nan"):
        list(bo.RowChunks([[1.0], [np.nan]], 1.0, "<=", 1.0).batches())


def test_on_line_learners_read_the_same_chunks():
    rows = chunks(points=F)
    one, other = (OnlineLogDetMetric().fit(F[PAIRS[:1]], BOUND[:1]) for _ in range(2))
    one.partial_fit(F[PAIRS], BOUND)
    for batch in rows.batches():
        other.partial_fit(batch.pairs, batch.bound)
    assert np.allclose(one.W_, other.W_)
    assert one.steps_ == other.steps_ == len(PAIRS) + 1
    burg, winnow = MatrixBurgGradient(), PairWinnow(radius=3.0)
    for batch in rows.batches():
        burg.partial_fit(batch.vectors, batch.bound)
        winnow.partial_fit(batch.pairs, -batch.sense)
    whole = PairWinnow(radius=3.0).fit(F[PAIRS], -SENSE)
    assert np.allclose(winnow.W_, whole.W_)
    assert burg.steps_ == len(PAIRS)
