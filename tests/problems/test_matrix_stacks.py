"""Stacks of matrices: every answer is that of the single solve, whatever else is in the stack."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.certify.stacks import certify_stack
from bregopt.divergences import DIVERGENCES
from bregopt.problems import nearest_stacks, stacks
from bregopt.program.stacks import STACKED, EntryStack, StackedSpectral
from bregopt.routes.projection import route

DIVERGENCE = pytest.mark.parametrize("divergence", sorted(STACKED))


def symmetric(count, n, seed=0):
    """Return random matrices with unit diagonal, most of them indefinite."""
    A = np.random.default_rng(seed).uniform(-1, 1, (count, n, n))
    A = (A + A.transpose(0, 2, 1)) / 2
    A[:, range(n), range(n)] = 1
    return A


def definite(count, n, seed=0):
    """Return random positive definite matrices with a diagonal near one."""
    F = np.random.default_rng(seed).normal(size=(count, n, 2 * n))
    return F @ F.transpose(0, 2, 1) / (2 * n)


def data(divergence, count, n, seed=0):
    return symmetric(count, n, seed) if divergence == "frobenius" else definite(count, n, seed)


def of_each(argument, k):
    """Return the argument of one matrix: lists hold one for each."""
    return argument[k] if isinstance(argument, list | dict) else argument


def check_equal(together, one, unit=1.0):
    """Compare an answer of a stack with that of a single solve, within what both certify."""
    noise = 1e-12 * max(unit, abs(one.value))
    assert together.status == one.status
    if one.X is None:
        return
    assert abs(together.value - one.value) <= together.error + one.error + noise
    assert together.dual_value <= one.value + one.error + noise
    assert max(together.gap, together.primal_residual, together.dual_residual) <= 1e-6
    assert len(together.duals) == len(one.duals)
    for mine, other in zip(together.duals, one.duals, strict=True):
        assert np.shape(mine) == np.shape(other)


@DIVERGENCE
@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_answers_are_those_of_single_solves(divergence, n):
    A = data(divergence, 12, n)
    together = bo.nearest_correlation(A, divergence)
    assert (together.status == "optimal").all()
    assert together.X.shape == A.shape
    for k, answer in enumerate(together):
        one = bo.nearest_correlation(A[k], divergence)
        check_equal(answer, one)
        assert (answer.X.diagonal() == 1).all()
        assert np.linalg.eigvalsh(answer.X)[0] >= -1e-12
        assert np.array_equal(together.X[k], answer.X)


ARGUMENTS = [
    {"min_eigenvalue": 0.1},
    {"min_eigenvalue": [0.0, 0.05, 0.1, 0.2, 0.0]},
    {"fixed": np.array([[0, 1], [2, 3]])},
    {"fixed": [np.eye(6, k=1, dtype=bool) | np.eye(6, k=-1, dtype=bool)] + [np.zeros((6, 6), bool)] * 4},
    {"lower": -0.2, "upper": 0.3},
    {"lower": [-0.2, -0.1, -1, 0.0, -0.3]},
    {"upper": [np.full((6, 6), c) for c in (0.2, 0.4, 1.0, 0.3, 2.0)]},
    {"weights": np.arange(1.0, 7)},
    {"weights": np.abs(symmetric(1, 6, seed=3))[0]},
    {
        "weights": {k: np.arange(1.0, 7) + k for k in range(5)},
        "fixed": np.array([[0, 1]]),
        "min_eigenvalue": 0.05,
    },
    {"fixed": {k: [[0, k + 1]] for k in range(5)}, "lower": -0.1, "weights": np.full(6, 1e-3)},
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_are_shared_or_of_each_matrix(arguments):
    A = symmetric(5, 6) * 0.9 + 0.1 * np.eye(6)
    together = bo.nearest_correlation(A, **arguments)
    for k in range(5):
        one = bo.nearest_correlation(A[k], **{name: of_each(value, k) for name, value in arguments.items()})
        check_equal(together[k], one)
        assert np.allclose(together.X[k], one.X, atol=3e-3)


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
def test_bounds_and_fixed_entries_go_with_every_divergence(divergence):
    A = definite(4, 6)
    together = bo.nearest_correlation(A, divergence, fixed=[[0, 1]], upper=0.1)
    for k in range(4):
        check_equal(together[k], bo.nearest_correlation(A[k], divergence, fixed=[[0, 1]], upper=0.1))
        assert together.X[k][0, 1] == pytest.approx(A[k][0, 1], abs=1e-6)


@DIVERGENCE
def test_certificates_are_those_of_the_general_certificate(divergence):
    A, rng, n = data(divergence, 4, 5), np.random.default_rng(1), 5
    i, j = np.append(range(n), [0, 1, 2]), np.append(range(n), [1, 3, 4])
    lo = np.concatenate([np.ones((4, n)), np.tile([0.1, -0.2, -np.inf], (4, 1))], axis=1)
    hi = np.concatenate([np.ones((4, n)), np.tile([0.1, np.inf, 0.3], (4, 1))], axis=1)
    X, y = np.eye(n) + 0.02 * symmetric(4, n, seed=2), 0.1 * rng.normal(size=(4, n + 3))
    X[:, range(n), range(n)], X[:, 0, 1], X[:, 1, 0] = 1.0, 0.1, 0.1
    found = certify_stack(EntryStack(STACKED[divergence](A), i, j, lo, hi), X, y)
    for k in range(4):
        V = bo.PSD(n, name="X")
        rows = [bo.diag(V) == 1, V[0, 1] == 0.1, V[1, 3] >= -0.2, V[2, 4] <= 0.3]
        program = bo.Problem(bo.Minimize(bo.bregman_div(V, A[k], divergence)), rows).program()
        expected = certify(PrimalDualPoint(program, (X[k],), np.zeros(0), y[k]))
        own = found.of(k)
        for name in ("primal", "dual", "gap", "primal_residual", "error"):
            value = getattr(own, name)
            assert value == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12), name


@DIVERGENCE
def test_divergences_are_those_of_single_matrices(divergence):
    X0, X, S = definite(3, 4), definite(3, 4, seed=1), 0.3 * symmetric(3, 4, seed=2)
    stacked = STACKED[divergence](X0)
    for k in range(3):
        one = DIVERGENCES[divergence](X0[k])
        assert stacked.unit[k] == pytest.approx(one.unit)
        assert stacked.value(X)[k] == pytest.approx(one.value(X[k]))
        assert stacked.dual_term(S)[k] == pytest.approx(one.dual_term(-S[k], 1.0, X[k]))

    if isinstance(stacked, StackedSpectral):
        theta, V = stacked.spectrum(S)
        minimizer = (V * stacked.eigenvalues(theta)[:, None, :]) @ V.transpose(0, 2, 1)
        assert np.allclose(stacked.term(theta), stacked.dual_term(S))
        assert np.allclose(minimizer[0], DIVERGENCES[divergence](X0[0]).minimizer(-S[0], 1.0))


def test_values_outside_the_domain_are_infinite():
    X0, indefinite = definite(2, 3), np.stack([np.diag([1.0, -1, 1]), np.eye(3)])
    for divergence in ("logdet", "von_neumann"):
        assert np.isinf(STACKED[divergence](X0).value(indefinite)).tolist() == [True, False]
    assert STACKED["logdet"](X0).dual_term(100 * X0)[0] == -np.inf
    with pytest.raises(np.linalg.LinAlgError):
        STACKED["von_neumann"](indefinite)


@examples(15)
@given(
    divergence=st.sampled_from(sorted(STACKED)),
    order=st.permutations(range(7)),
    width=st.integers(1, 9),
    n=st.integers(2, 6),
    power=st.sampled_from([-6, 0, 6]),
    seed=st.integers(0, 2**16),
)
def test_order_slices_and_scale_do_not_matter(divergence, order, width, n, power, seed):
    scale = 10.0**power if divergence == "frobenius" else 1.0
    A, weights = data(divergence, 7, n, seed), None if scale == 1 else np.full(n, scale)
    usual = bo.nearest_correlation(A, divergence)
    before = stacks._SLICE
    stacks._SLICE = width * n**2
    try:
        other = bo.nearest_correlation(A[list(order)], divergence, weights=weights)
    finally:
        stacks._SLICE = before
    assert (usual.status == "optimal").all()
    assert (other.status == "optimal").all()
    assert (np.abs(other.value / scale**2 - usual.value[list(order)]) <= 1e-6 * (1 + usual.value.max())).all()
    assert np.allclose(other.X, usual.X[list(order)], atol=5e-3)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@DIVERGENCE
def test_psd_matrices_of_any_scale(divergence, scale):
    A = scale * data(divergence, 5, 6)
    together = bo.nearest_psd(A, divergence=divergence)
    for k in range(5):
        one = bo.nearest_psd(A[k], divergence=divergence)
        check_equal(together[k], one, scale)
        assert np.allclose(together.X[k], one.X, atol=1e-9 * scale)
        assert together[k].duals == one.duals == ()


def test_constraints_are_shared():
    A = symmetric(4, 5)
    rows = [lambda X: bo.trace(X) == 3, lambda X: X[0, 1] >= 0]
    together = bo.nearest_psd(A, rows)
    for k in range(4):
        check_equal(together[k], bo.nearest_psd(A[k], rows))
    with pytest.raises(TypeError, match="constraints is 'x'"):
        bo.nearest_psd(A, "x")


def test_one_that_fails_does_not_change_the_others():
    good = symmetric(9, 5)
    A = good.copy()
    A[1, 2, 3] = np.nan
    A[3, 0, 1] += 0.1
    A[5] = np.inf
    A[7] = 1.0
    A[7, [0, 1, 0, 2, 1, 2], [1, 0, 2, 0, 2, 1]] = [0.9, 0.9, 0.9, 0.9, -0.9, -0.9]
    fixed = [[0, 1], [0, 2], [1, 2]]
    pairs = {k: fixed if k == 7 else [] for k in range(9)}
    with pytest.warns(
        bo.DataWarning, match="3 of 9 matrices have an error, the first is matrix 1: ValueError: A has 1 NaN"
    ):
        together = bo.nearest_correlation(A, fixed=pairs)
    assert together.status.tolist() == [
        *("optimal", "error", "optimal", "error", "optimal", "error", "optimal", "infeasible", "optimal")
    ]
    for k in (0, 2, 4, 6, 8):
        check_equal(together[k], bo.nearest_correlation(good[k]))
    assert list(together.errors) == [1, 3, 5]
    assert "NaN" in str(together.errors[1])
    assert "not symmetric" in str(together.errors[3])
    assert np.isnan(together.X[[1, 3, 5, 7]]).all()
    assert together[1].X is None
    assert together[1].status == "error"
    assert "NaN" in together[1].stop_reason
    assert together.value[7] == np.inf
    assert "eigenvalue" in together[7].stop_reason
    assert together[7].duals is not None
    assert "3 error" in repr(together)


def test_unfinished_answers_are_told():
    A = symmetric(6, 12)
    with pytest.warns(bo.ConvergenceWarning, match="6 of 6 matrices have a warning"):
        together = bo.nearest_correlation(A, tol=1e-12, max_iter=1)
    assert set(together.status) <= {"user_limit", "optimal_inaccurate", "optimal"}
    assert (together.gap[together.status == "optimal"] <= 1e-12).all()


def test_a_time_limit_is_of_the_whole_stack():
    with pytest.warns(
        bo.ConvergenceWarning, match=r"of 2000 matrices have a warning.* it has no answer. time_limit"
    ):
        together = bo.nearest_correlation(symmetric(2_000, 20), time_limit=0.02)
    assert len(together) == 2_000
    left = together.status == "user_limit"
    assert left.any()
    assert np.isnan(together.X[left]).all()
    assert "time_limit" in together[int(np.flatnonzero(left)[-1])].stop_reason


def test_dicts_keep_their_keys_orders_and_labels():
    pd = pytest.importorskip("pandas")
    small, large, labels = symmetric(1, 3)[0], symmetric(1, 5)[0], list("abc")
    A = {"small": small, "large": large.tolist(), "frame": pd.DataFrame(small, labels, labels)}
    together = bo.nearest_correlation(A)
    assert list(together.X) == list(together.keys) == list(A)
    assert list(together.X["frame"].columns) == list(together["frame"].X.index) == labels
    assert together.X["large"].shape == (5, 5)
    assert np.array_equal(together.X["frame"], together.X["small"])
    for key in A:
        check_equal(together[key], bo.nearest_correlation(A[key]))
    with pytest.raises(KeyError, match="none of the 3 keys"):
        together["other"]


def test_a_dict_may_hold_low_rank_matrices():
    factors = {key: np.random.default_rng(key).normal(size=(6, 2)) for key in range(2)}
    together = bo.nearest_psd({key: bo.LowRank(F) for key, F in factors.items()}, divergence="logdet")
    assert all(isinstance(together.X[key], bo.LowRank) for key in factors)
    assert (together.status == "optimal").all()


def test_a_bad_matrix_of_a_dict_is_a_value():
    A = {"a": symmetric(1, 3)[0], "b": "text", "c": [[1, 2], [3]], "d": np.eye(3)[:2], "e": np.eye(2) * 1j}
    with pytest.warns(bo.DataWarning, match="matrix 'b'"):
        together = bo.nearest_correlation(A)
    assert together.status.tolist() == ["optimal"] + ["error"] * 4
    assert together.X["b"] is None
    assert isinstance(together.errors["e"], TypeError)


def test_frames_keep_both_levels():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    returns = pd.DataFrame(rng.normal(size=(12, 4)), pd.date_range("2024-01-01", periods=12), list("abcd"))
    A = returns.rolling(3).corr()
    with pytest.warns(bo.DataWarning, match="2 of 12 matrices have an error"):
        together = bo.nearest_correlation(A, lower=-0.9)
    assert together.X.index.equals(A.index)
    assert together.X.columns.equals(A.columns)
    assert together.status.tolist() == ["error"] * 2 + ["optimal"] * 10
    day = returns.index[5]
    assert together.X.loc[day].equals(together[day].X)
    one = bo.nearest_correlation(A.loc[day], lower=-0.9)
    check_equal(together[day], one)
    shuffled = A.iloc[rng.permutation(len(A))].sort_index(level=1)
    again = bo.nearest_correlation(shuffled.dropna(), lower=-0.9).X
    assert np.allclose(again.reindex(together.X.dropna().index), together.X.dropna(), atol=1e-9)


@pytest.mark.parametrize("solve", [bo.nearest_psd, bo.nearest_correlation, bo.nearest_covariance])
def test_a_stack_of_bad_matrices_alone_has_errors_alone(solve):
    with pytest.warns(bo.DataWarning, match="2 of 2 matrices have an error"):
        found = solve([np.full((2, 2), np.inf)] * 2)
    assert list(found.status) == ["error", "error"]
    assert found.X is None or not len(found.X) or np.isnan(np.asarray(found.X)).all()


def test_arguments_with_labels_are_aligned_or_refused():
    pd = pytest.importorskip("pandas")
    labels, A = list("abc"), symmetric(2, 3)
    index = pd.MultiIndex.from_product([["x", "y"], labels])
    frame = pd.DataFrame(A.reshape(6, 3), index, labels)
    least = pd.Series([0.2, 0.0], ["y", "x"])
    together = bo.nearest_correlation(frame, min_eigenvalue=least, upper=frame * 0 + 0.5)
    assert np.linalg.eigvalsh(together["y"].X)[0] >= 0.2 - 1e-9
    assert together["x"].X.to_numpy()[np.triu_indices(3, 1)].max() <= 0.5 + 1e-6
    other = pd.DataFrame(np.full((3, 3), 0.5), list("bac"), list("bac"))
    with pytest.warns(bo.DataWarning, match="other labels"):
        assert (bo.nearest_correlation(frame, upper=other).status == "error").all()
    missing = frame.drop(index=("y", "b"))
    with pytest.warns(bo.DataWarning, match="index and columns differ"):
        assert bo.nearest_correlation(missing).status.tolist() == ["optimal", "error"]


@pytest.mark.parametrize(
    ("A", "arguments", "message"),
    [
        (symmetric(2, 3), {"fixed": np.ones((2, 2), bool)}, "fixed has shape"),
        (symmetric(2, 3), {"min_eigenvalue": [0.1, 0.1, 0.1]}, "min_eigenvalue has values for 3"),
        (symmetric(2, 3), {"lower": {0: 0.1, 2: 0.1}}, "it lacks 1"),
        (symmetric(2, 3), {"lower": 2.0}, "lower is 2 but upper is 1"),
        (symmetric(2, 3), {"lower": 0.5, "upper": 0.2}, "lower is 0.5 but upper is 0.2"),
        (symmetric(2, 3), {"weights": [1.0, 2.0]}, "weights has shape"),
        (symmetric(2, 3), {"divergence": "kl"}, "divergence is 'kl'"),
        (symmetric(2, 3), {"tol": 2.0}, "tol is 2.0"),
        (np.zeros((2, 3, 4)), {}, r"shape \(2, 3, 4\)"),
        (np.zeros((0, 3, 3)), {}, "holds no matrix"),
        ({}, {}, "holds no matrix"),
    ],
)
def test_bad_arguments_of_all_matrices_are_refused(A, arguments, message):
    with pytest.raises(ValueError, match=message):
        bo.nearest_correlation(A, **arguments)


def test_options_and_types_are_refused():
    A = symmetric(2, 3)
    with pytest.warns(bo.DataWarning, match="matrix 'b': TypeError: A is of type type"):
        assert bo.nearest_correlation({"a": np.eye(3), "b": bo.PSD}).status.tolist() == ["optimal", "error"]
    with pytest.raises(ValueError, match="warm_start"):
        bo.nearest_correlation(A, warm_start=True)
    with pytest.raises(TypeError, match="no option 'tolerance'"):
        bo.nearest_correlation(A, tolerance=1e-3)
    with pytest.raises(TypeError, match="complex"):
        bo.nearest_correlation(A * 1j)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"missing": "ignore"}, ValueError, "missing is 'ignore'"),
        ({"missing": None}, ValueError, "missing is None"),
        ({"divergence": np.eye(2)}, ValueError, "divergence is array"),
        ({"lower": [0.0, [0.0, 1.0]]}, ValueError, "lower is ragged"),
        ({"max_condition": 0.5}, ValueError, "max_condition is 0.5"),
        ({"max_condition": 10, "min_eigenvalue": 2}, ValueError, "min_eigenvalue is 2"),
        ({"max_rank": 0}, ValueError, "max_rank is 0"),
        ({"max_rank": 1.5}, TypeError, "max_rank is 1.5"),
        ({"divergence": "spectrl"}, ValueError, "did you mean 'spectral'.*, largest_entry, logdet"),
        ({"n_jobs": 2}, TypeError, "did you mean 'executor'"),
        ({"eps": 1e-3}, TypeError, "did you mean 'tol'"),
    ],
)
def test_bad_shared_arguments_are_refused_before_the_loop(arguments, error, message):
    with pytest.raises(error, match=message):
        bo.nearest_correlation(np.stack([np.eye(3), np.full((3, 3), np.nan)]), **arguments)


def test_errors_and_warnings_are_counted_apart(caplog):
    A = symmetric(6, 4)
    A[1, 2, 3], A[2, 0, 0], A[3, 0, 1] = np.nan, np.inf, 7.0
    A[4] = 4 * A[4]
    A[5, 0, 1] += 1e-8
    with caplog.at_level("INFO", logger="bregopt"), pytest.warns(bo.DataWarning) as caught:
        sols = bo.nearest_correlation(A)
    texts = [str(warning.message) for warning in caught]
    assert "3 of 6 matrices have an error, the first is matrix 1: ValueError: A has 1 NaN" in texts[0]
    assert "2 of 6 matrices have a warning, the first is matrix 4: A has 4" in texts[1]
    assert len(texts) == 2
    assert {key: len(messages) for key, messages in sols.warnings.items()} == {4: 1, 5: 1}
    assert "A is symmetric to 1e-08" in sols.warnings[5][0]
    own = [record for record in caplog.records if record.name == "bregopt.problems.stacks"]
    assert [record.levelname for record in own] == ["WARNING"] * 3 + ["INFO"]
    assert "matrix 1 has an error: ValueError: A has 1 NaN" in own[0].getMessage()
    assert "stack of 6 matrices: 3 optimal, 3 error after" in own[-1].getMessage()


def test_bad_arguments_of_one_matrix_are_values():
    A = symmetric(3, 3)
    with pytest.warns(bo.DataWarning, match="1 of 3 matrices has an error, matrix 1: ValueError: min_eig"):
        together = bo.nearest_correlation(A, min_eigenvalue=[0.0, 2.0, 0.1])
    assert together.status.tolist() == ["optimal", "error", "optimal"]
    with pytest.warns(bo.DataWarning, match="not positive definite"):
        assert bo.nearest_correlation(np.stack([np.eye(3), A[0] - np.eye(3)]), "logdet").status[1] == "error"


def test_covariances_are_warned_about_once():
    with pytest.warns(
        bo.DataWarning, match="3 of 3 matrices have a warning, the first is matrix 0: A has 9 on"
    ) as caught:
        bo.nearest_correlation(np.stack([9.0 * np.eye(3)] * 3))
    assert len(caught) == 1


@pytest.mark.parametrize("solver", ["bregman", "cvxpy"])
def test_other_solvers_and_options_solve_one_by_one(solver):
    A = symmetric(3, 4)
    together = bo.nearest_correlation(A, solver=solver)
    assert {answer.solver for answer in together} == {solver}
    assert np.allclose(together.value, bo.nearest_correlation(A).value, rtol=1e-5)


@DIVERGENCE
def test_large_orders_are_solved_one_by_one(divergence, monkeypatch):
    A = data(divergence, 3, 8)
    usual = bo.nearest_correlation(A, divergence)
    monkeypatch.setattr(STACKED[divergence], "largest_order", 7)
    for together, other in zip(bo.nearest_correlation(A, divergence), usual, strict=True):
        check_equal(other, together)


def correlated(count, n, seed=0):
    """Return ill-conditioned matrices of three common factors, with a diagonal away from one."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(count, n, 3)) @ rng.normal(size=(count, 3, 2 * n))
    F += 0.1 * rng.normal(size=F.shape)
    A = F @ F.transpose(0, 2, 1)
    root = np.sqrt(A.diagonal(axis1=1, axis2=2)) * np.exp(0.05 * rng.normal(size=(count, n)))
    return A / (root[:, :, None] * root[:, None, :])


@DIVERGENCE
def test_ill_conditioned_matrices(divergence):
    A = correlated(6, 12)
    together = bo.nearest_correlation(A, divergence)
    for k in range(6):
        check_equal(together[k], bo.nearest_correlation(A[k], divergence))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@DIVERGENCE
def test_matrices_far_from_a_unit_diagonal(divergence, scale):
    A = scale * definite(3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.DataWarning)
        together = bo.nearest_correlation(A, divergence)
        for k in range(3):
            check_equal(together[k], bo.nearest_correlation(A[k], divergence), scale**2)


def test_solutions_are_a_read_only_sequence_that_pickles():
    A = symmetric(3, 4)
    before = A.copy()
    together = bo.nearest_correlation(A)
    assert np.array_equal(A, before)
    with pytest.raises(ValueError, match="read-only"):
        together.X[0, 0, 0] = 2
    with pytest.raises(ValueError, match="read-only"):
        together[0].X[0, 0] = 2
    with pytest.raises(IndexError, match="from -3 to 2"):
        together[3]
    assert together[-1].value == together.value[2]
    again = pickle.loads(pickle.dumps(together))
    assert np.array_equal(again.X, together.X)
    assert again[1].value == together[1].value
    assert repr(together).startswith("bregopt solutions: 3\n  status     3 optimal\n")


def test_lists_and_integers_are_stacks_too():
    together = bo.nearest_psd([[[1, 2], [2, 1]], np.eye(2)])
    assert together.X.round(6).tolist() == [[[1.5, 1.5], [1.5, 1.5]], [[1, 0], [0, 1]]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(bo.nearest_psd([[1, 2], [2, 1]]), bo.Solution)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.dok_array, sp.dok_matrix, sp.lil_array, sp.coo_array])
def test_sparse_matrices_of_any_format_are_matrices(kind):
    A, B = symmetric(2, 4)
    mask = np.abs(A) > np.median(np.abs(A))
    for dense, sparse in (
        (bo.nearest_correlation(A), bo.nearest_correlation(kind(A))),
        (bo.nearest_psd(A), bo.nearest_psd(kind(A))),
        (bo.nearest_correlation(A, fixed=mask), bo.nearest_correlation(kind(A), fixed=kind(mask))),
        (
            bo.nearest_correlation(A, lower=-np.abs(A), weights=A**2),
            bo.nearest_correlation(A, lower=kind(-np.abs(A)), weights=kind(A**2)),
        ),
        (bo.nearest_correlation(B), bo.nearest_correlation([kind(A), kind(B)])[1]),
        (bo.nearest_correlation(A), bo.nearest_correlation({"one": kind(A), "two": kind(B[:2, :2])})["one"]),
    ):
        check_equal(sparse, dense)
    with pytest.raises(TypeError, match="groups"):
        bo.nearest_correlation(A, groups=kind(A))


def test_many_fixed_entries_are_solved_one_by_one(monkeypatch):
    A, fixed = symmetric(2, 5) / 4 + 0.75 * np.eye(5), np.ones((5, 5), bool)
    usual = bo.nearest_correlation(A, fixed=fixed)
    monkeypatch.setattr(nearest_stacks, "_MOST_FIXED", 9)
    for together, other in zip(bo.nearest_correlation(A, fixed=fixed), usual, strict=True):
        check_equal(other, together)


@examples(10)
@given(
    bad=st.dictionaries(st.integers(0, 7), st.sampled_from(["nan", "asymmetric", "infeasible"]), max_size=5),
    divergence=st.sampled_from(["frobenius", "von_neumann"]),
    seed=st.integers(0, 2**16),
)
def test_any_mixture_of_failures(bad, divergence, seed):
    A = data(divergence, 8, 4, seed)
    lower = np.full(8, -1.0)
    expected = np.full(8, "optimal", dtype=object)
    for k, kind in bad.items():
        expected[k] = "infeasible" if kind == "infeasible" else "error"
        if kind == "nan":
            A[k, 1, 1] = np.nan
        elif kind == "asymmetric":
            A[k, 0, 1] += 0.5
    upper = np.where(expected == "infeasible", -0.5, 1.0)  # the sum of all entries would be negative
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.DataWarning)
        together = bo.nearest_correlation(A, divergence, lower=lower, upper=upper)
    assert together.status.tolist() == expected.tolist()
    assert (together.gap[expected == "optimal"] <= 1e-6).all()
    assert (np.isnan(together.X).any(axis=(1, 2)) == (expected != "optimal")).all()


def test_a_failure_of_lapack_leaves_the_slice_to_single_solves(monkeypatch):
    def fail(*_):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(route, "solve_stack", fail)
    A = symmetric(3, 4)
    for k, answer in enumerate(bo.nearest_correlation(A)):
        check_equal(answer, bo.nearest_correlation(A[k]))


def test_one_label_is_no_part_that_may_be_fixed():
    pd = pytest.importorskip("pandas")
    labels = list("abc")
    frames = {day: pd.DataFrame(A, labels, labels) for day, A in zip("xy", symmetric(2, 3), strict=True)}
    with pytest.raises(ValueError, match=r"fixed holds labels in shape \(\)"):
        bo.nearest_correlation(frames, fixed="a")
