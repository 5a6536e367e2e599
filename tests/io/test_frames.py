"""Labels of pandas are kept from the first argument to the answer, and never confused between arguments."""

import itertools

import numpy as np
import pytest

import bregopt as bo
from bregopt.io.matrices import aligned, labels_of

pd = pytest.importorskip("pandas")

HIGHAM = np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])
NAMES = ["a", "b", "c"]


def frame(values, names=NAMES):
    return pd.DataFrame(np.array(values), index=names, columns=names)


@pytest.mark.parametrize(
    "labels",
    [
        NAMES,
        range(3),
        [2.5, 0.5, 1.5],
        pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)]),
        pd.date_range("2026-01-01", periods=3),
        pd.CategoricalIndex(["p", "q", "r"]),
    ],
    ids=["str", "range", "float", "multi", "dates", "categorical"],
)
def test_labels_of_any_kind_come_back(labels):
    A = frame(HIGHAM, labels)
    found = bo.nearest_correlation(A).X
    pd.testing.assert_index_equal(found.index, A.index)
    pd.testing.assert_index_equal(found.columns, A.columns)
    np.testing.assert_array_equal(found, bo.nearest_correlation(HIGHAM).X)


def test_every_matrix_problem_keeps_labels():
    A = frame(HIGHAM + np.eye(3))
    assert list(bo.nearest_psd(A).X.index) == NAMES
    assert list(bo.learn_kernel(A, [[0, 1]], []).X.columns) == NAMES
    cut = bo.min_balanced_cut(frame(HIGHAM - np.eye(3)))
    assert sorted(cut.sides[0] + cut.sides[1]) == NAMES


def test_an_infeasible_problem_has_no_matrix_to_label():
    assert bo.nearest_correlation(frame(HIGHAM), upper=-0.6).X is None


def test_second_arguments_may_carry_the_same_labels():
    A = frame(HIGHAM)
    upper = np.array([[1.0, 0.4, 0.2], [0.4, 1, 0.6], [0.2, 0.6, 1]])
    mask = np.array([[False, False, True], [False, False, False], [True, False, False]])
    plain = bo.nearest_correlation(HIGHAM, upper=upper, weights=[1.0, 2.0, 3.0]).X
    named = bo.nearest_correlation(A, upper=frame(upper), weights=pd.Series([1.0, 2.0, 3.0], NAMES)).X
    np.testing.assert_array_equal(named, plain)
    held = bo.nearest_correlation(A, fixed=frame(mask)).X
    assert held.loc["a", "c"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("argument", ["fixed", "lower", "upper", "weights"])
@pytest.mark.parametrize("names", [["c", "b", "a"], ["a", "b", "z"], ["a", "b"]])
def test_other_labels_are_refused(argument, names):
    value = frame(np.zeros((len(names),) * 2, dtype=bool if argument == "fixed" else float), names)
    with pytest.raises(ValueError, match=f"{argument} is a DataFrame with other labels"):
        bo.nearest_correlation(frame(HIGHAM), **{argument: value})


def test_a_series_in_another_order_is_refused():
    with pytest.raises(ValueError, match="weights is a Series with other labels"):
        bo.nearest_correlation(frame(HIGHAM), weights=pd.Series([3.0, 2.0, 1.0], NAMES[::-1]))


def test_labels_that_do_not_fit_a_square_matrix():
    with pytest.raises(ValueError, match="A is a DataFrame whose index and columns differ"):
        bo.nearest_psd(pd.DataFrame(HIGHAM, index=NAMES, columns=NAMES[::-1]))
    with pytest.raises(ValueError, match="A is a DataFrame whose index and columns differ"):
        bo.nearest_psd(pd.DataFrame(np.zeros((2, 3))))
    with pytest.raises(ValueError, match="K0 is a DataFrame with the label 'a' twice"):
        bo.learn_kernel(frame(np.eye(3), ["a", "b", "a"]), [[0, 1]], [])


def test_missing_values_are_named():
    gap = frame([[1, np.nan, 0], [np.nan, 1, 0], [0, 0, 1]])
    place = r"A has 2 NaN or Inf value\(s\), the first at \(0, 1\) \(row a, column b\); .* fill or drop it"
    for A in (gap, gap.astype("Float64")):
        with pytest.raises(ValueError, match=place):
            bo.nearest_correlation(A)
    with pytest.raises(ValueError, match=r"weights has 1 NaN .* at 2 \(row c\)"):
        bo.nearest_correlation(frame(HIGHAM), weights=pd.Series([1, 1, np.nan], NAMES))
    with pytest.raises(TypeError, match="A has dtype object"):
        bo.nearest_correlation(frame([[1, "x", 0], ["x", 1, 0], [0, 0, 1]]))


def test_nullable_dtypes_are_read_as_numbers():
    A, mask = frame(HIGHAM), frame(np.eye(3, k=1) + np.eye(3, k=-1) > 0)
    plain = bo.nearest_correlation(A, fixed=mask, upper=1.0, weights=pd.Series([1, 2, 3], NAMES))
    weights = pd.Series([1, 2, 3], NAMES, dtype="Int64")
    for dtype in ("Float64", "Int64"):
        found = bo.nearest_correlation(
            A.astype(dtype),
            fixed=mask.astype("boolean"),
            upper=frame(np.ones((3, 3))).astype(dtype),
            weights=weights,
        )
        pd.testing.assert_frame_equal(found.X, plain.X)


def test_arrays_of_pandas_are_read_as_numbers():
    plain = bo.nearest_correlation(HIGHAM, weights=[1.0, 2.0, 3.0]).X
    np.testing.assert_array_equal(
        bo.nearest_correlation(HIGHAM, weights=pd.array([1, 2, 3], dtype="Int64")).X, plain
    )
    with pytest.raises(ValueError, match=r"weights has 1 NaN or Inf .* at 1"):
        bo.nearest_correlation(HIGHAM, weights=pd.array([1, None, 3], dtype="Int64"))


@pytest.mark.parametrize(
    ("repair", "hint"),
    [
        (bo.nearest_correlation, r"bo.pairwise_correlation\(A\).A, or A.corr"),
        (bo.nearest_covariance, r"S.cov\(\)"),
        (lambda S: bo.graphical_lasso(S, 0.1), r"S.cov\(\), or S.corr"),
    ],
)
def test_data_in_the_place_of_their_matrix_are_told(repair, hint):
    returns = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)), columns=NAMES)
    with pytest.raises(ValueError, match=f"index and columns differ.*If it holds data, pass {hint}"):
        repair(returns)
    with pytest.raises(ValueError, match=r"expected the same labels$"):
        repair(frame(HIGHAM).reset_index())  # a table that was read without index_col


def test_fixed_labels_are_a_block_or_pairs():
    names = [f"asset {k}" for k in range(40)]
    A = pd.DataFrame(np.eye(40), names, names)
    for block in (names[:3], range(3)):
        pairs = bo.nearest_correlation(A, fixed=block).duals_by_name["fixed"].index
        assert pairs.tolist() == [*itertools.combinations(names[:3], 2)]
    with pytest.raises(ValueError, match=r"holds labels in shape \(1, 3\); expected pairs, shape \(k, 2\)"):
        bo.nearest_correlation(A, fixed=[names[:3]])
    for own in ({"fixed": [["asset 1", "gold"]]}, {"lower": {("asset 1", "gold"): 0.0}}):
        with pytest.raises(ValueError, match=r"'gold'.* no label of A.* and 35 more"):
            bo.nearest_correlation(A, **own)


def test_asymmetry_is_named_by_labels():
    A = frame(HIGHAM)
    A.loc["c", "a"] = 0.25
    with pytest.raises(
        ValueError, match=r"entry \(0, 2\) \(row a, column c\) is 0 but entry \(2, 0\) is 0.25"
    ):
        bo.nearest_correlation(A)


def test_frames_are_never_modified():
    A, upper = frame(HIGHAM), frame(np.full((3, 3), 0.9))
    copies = A.copy(), upper.copy()
    answer = bo.nearest_correlation(A, upper=upper)
    answer.X.iloc[0, 1] = 7.0
    pd.testing.assert_frame_equal(A, copies[0])
    pd.testing.assert_frame_equal(upper, copies[1])


def test_plain_arrays_pass_through():
    value = np.ones(3)
    assert labels_of(value, "A") is None
    assert aligned(value, pd.Index(NAMES), "weights") is value
    assert aligned(None, None, "upper") is None


def test_a_class_derived_from_dataframe_is_one():
    class Table(pd.DataFrame):
        pass

    assert list(labels_of(Table(HIGHAM, index=NAMES, columns=NAMES), "A")) == NAMES
