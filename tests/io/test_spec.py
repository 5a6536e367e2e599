"""Spec files, the evaluator behind them, their schema, and the readers of matrices."""

import contextlib
import gzip
import json
import os
import re
import tomllib
from pathlib import Path

import cvxpy as cp
import jsonschema
import numpy as np
import peers
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import bregopt as bo
from bregopt import arrays
from bregopt.io import spec as spec_module
from bregopt.io.evaluate import FUNCTIONS, evaluate
from bregopt.io.matrices import csv_text, read_matrix
from bregopt.io.spec import KEYS, load_spec
from bregopt.routes.base import Settings

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "specs").glob("*.toml"))
SCHEMA = json.loads(Path(spec_module.__file__).with_name("spec.schema.json").read_text(encoding="utf-8"))


# --- The evaluator ----------------------------------------------------------------------------------


def names():
    return {
        "X": bo.PSD(3, name="X"),
        "u": bo.Variable(3, name="u"),
        "t": bo.Variable(name="t"),
        "A": np.eye(3) + 0.1,
        "S": sp.csr_array(np.eye(3)),
        "K": bo.LowRank([[1.0], [2.0], [3.0]]),
        "i": np.array([0, 1]),
        "j": np.array([1, 2]),
        "d": np.array([1.0, 2.0]),
        "k": 2,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 8", 6.5),
        ("-A[0, 1:]", -np.array([0.1, 0.1])),
        ("A @ [1, 2, 3]", (np.eye(3) + 0.1) @ [1, 2, 3]),
        ("[[1, 2], [3, 4]] * 2", [[2, 4], [6, 8]]),
        ("A[i, j]", [0.1, 0.1]),
        ("A[k, -1] + +k", 3.1),
        ("[1, 2, 3][::2]", [1, 3]),
        ("K[1, 2]", 6.0),
        ("(S * 3)[0, 0]", 3.0),
    ],
)
def test_numbers(text, value):
    np.testing.assert_allclose(evaluate(text, names()), value)


@pytest.mark.parametrize(
    ("text", "in_python"),
    [
        ("diag(X) == 1", lambda X, u, t, A, S, K, i, j, d, k: bo.diag(X) == 1),
        ("X[0, 1:] >= A[0, 1:] / 2", lambda X, u, t, A, S, K, i, j, d, k: X[0, 1:] >= A[0, 1:] / 2),
        ("0.5 * sum(u) <= trace(X)", lambda X, u, t, A, S, K, i, j, d, k: 0.5 * bo.sum(u) <= bo.trace(X)),
        ("S @ u + diag(X) >= t", lambda X, u, t, A, S, K, i, j, d, k: S @ u + bo.diag(X) >= t),
        ("inner([S, 2 * S], X) <= d", lambda X, u, t, A, S, K, i, j, d, k: bo.inner([S, 2 * S], X) <= d),
        ("inner([A, A], X) <= d", lambda X, u, t, A, S, K, i, j, d, k: bo.inner([A, A], X) <= d),
        ("quad_form(A, X) <= k", lambda X, u, t, A, S, K, i, j, d, k: bo.quad_form(A, X) <= k),
        (
            'soft(sq_distance(X, i, j) <= d, gamma=2.0, penalty="hinge")',
            lambda X, u, t, A, S, K, i, j, d, k: bo.soft(bo.sq_distance(X, i, j) <= d, 2.0, "hinge"),
        ),
        ("A @ X @ A.T >= 0", lambda X, u, t, A, S, K, i, j, d, k: A @ X @ A.T >= 0),
        ("X @ [1, 2, 3] >= 1", lambda X, u, t, A, S, K, i, j, d, k: X @ [1, 2, 3] >= 1),
        ("A << X", lambda X, u, t, A, S, K, i, j, d, k: A << X),
        ("X >> 2 * A.T", lambda X, u, t, A, S, K, i, j, d, k: X >> 2 * A.T),
        ("vstack([u, X[0]]) == 1", lambda X, u, t, A, S, K, i, j, d, k: bo.vstack([u, X[0]]) == 1),
        ("bmat([[X, A], [A, X]]) == 1", lambda X, u, t, A, S, K, i, j, d, k: bo.bmat([[X, A], [A, X]]) == 1),
        (
            "between(X[[0, 0], [1, 2]], -d, d)",
            lambda X, u, t, A, S, K, i, j, d, k: bo.between(X[[0, 0], [1, 2]], -d, d),
        ),
    ],
)
def test_constraints_are_those_of_the_language(text, in_python):
    scope = names()
    objective = bo.Minimize(bo.frobenius_div(scope["X"], scope["A"]) + bo.sum(scope["u"]) + scope["t"])
    ours, theirs = (bo.Problem(objective, [c]).program() for c in (evaluate(text, scope), in_python(**scope)))
    y = np.arange(1.0, ours.m + 1)
    np.testing.assert_array_equal(ours.A.adjoint(y)[0], theirs.A.adjoint(y)[0])
    np.testing.assert_array_equal(ours.B.toarray(), theirs.B.toarray())
    for name in ("lo", "hi", "kind", "gamma"):
        np.testing.assert_array_equal(getattr(ours.bounds, name), getattr(theirs.bounds, name))


NOT_EXPRESSIONS = [
    "",
    "__import__('pathlib').Path('trap').touch()",
    "open('trap', 'w')",
    "exec(\"open('trap', 'w')\")",
    "X.value",
    "A.tofile('trap')",
    "().__class__.__bases__",
    "(lambda: 1)()",
    "lambda: 1",
    "[x for x in A]",
    "(x for x in A)",
    "{x: 1 for x in A}",
    "{1, 2}",
    "{1: 2}",
    "(1, 2)",
    'f"{A}"',
    "(y := 1)",
    "y = 1",
    "X if A else u",
    "X and u",
    "not X",
    "~k",
    "k ** 9",
    "k // 2",
    "k % 2",
    "k << 9",
    "X < 1",
    "X != 1",
    "X is u",
    "1 in A",
    "0 <= X[0, 0] <= 1",
    "A << A",
    "[X, u] + 1",
    "1 <= 2",
    "A == A",
    "logdet_div(X, A) == 1",
    "diag",
    "diag(*[X])",
    "diag(**A)",
    "A(1)",
    "True",
    "None",
    "...",
    "1e999j",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "b'a'",
    "'a'",
    "'a' * 1000000000",
    "[S] * 1000000000",
    "[[1, 2], [3]]",
    "X['a']",
    "X[1.5]",
    "X[3, 0]",
    "X[t]",
    "X[0:A]",
    "K[:, 0][5]",
    "1 / 0",
    "A / 0",
    "A * 1e308 * 1e308",
    "S + 1",
    "A @ d",
    "soft(X[0, 0] <= 1, gama=1)",
    "soft(soft(X[0, 0] <= 1))",
    'soft(X[0, 0] <= 1, penalty="hing")',
    "sq_distance(X, 1, 1)",
    "LowRank(u)",
    "Y + 1",
    "1if 2 else 3",
    "'\\d'",
    "\x00",
    "X[",
    "(" * 300 + "X" + ")" * 300,
    "-" * 50_000 + "1",
    "+".join("1" * 50_000),
]


@pytest.mark.parametrize("text", NOT_EXPRESSIONS, ids=lambda text: ascii(text)[:40])
def test_anything_else_is_refused_and_never_run(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError)):
        evaluate(text, names())
    assert not list(tmp_path.iterdir())


PIECES = (
    "0 1 2 -1 0.5 1e400 1j ( ) [ ] { } , : + - * / @ ** = == <= >= < . ' \" f' # ... := é lambda __import__"
)
TOKENS = [*names(), *FUNCTIONS, *PIECES.split(" "), " for ", " in ", " if ", " else ", 'penalty="hinge"']


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(TOKENS), max_size=12).map("".join)))
def test_garbage_raises_value_or_type_error_only(text):
    with contextlib.suppress(ValueError, TypeError):
        evaluate(text, names())


def expressions():
    """Well-formed texts, most of them without meaning."""
    leaves = st.sampled_from([*names(), "0", "1", "2.5", "[0, 1]", "[[1, 2], [2, 1]]"])

    def extended(inner):
        pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "@", "<=", ">=", "=="]), inner)
        calls = st.tuples(st.sampled_from(list(FUNCTIONS)), st.lists(inner, min_size=1, max_size=3))
        items = st.tuples(inner, st.lists(inner, min_size=1, max_size=2))
        return st.one_of(
            pairs.map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            calls.map(lambda c: f"{c[0]}({', '.join(c[1])})"),
            items.map(lambda s: f"{s[0]}[{', '.join(s[1])}]"),
            inner.map(lambda e: f"-{e}"),
        )

    return st.recursive(leaves, extended, max_leaves=8)


@given(expressions())
def test_senseless_expressions_raise_value_or_type_error_only(text):
    with contextlib.suppress(ValueError, TypeError):
        evaluate(text, names())


@pytest.mark.parametrize(
    ("text", "column"),
    [("diag(Y) == 1", 6), ("1 + Xx", 5), ("X[0 1]", 3), ("é + Y", 1), ("diag(X) == X.value", 12)],
)
def test_messages_point_at_the_column(text, column):
    with pytest.raises(ValueError, match=f"column {column}$") as caught:
        evaluate(text, names())
    shown, mark = str(caught.value).splitlines()[-2:]
    assert shown.strip() == text
    assert mark.index("^") - 4 == column - 1


def test_data_are_not_changed():
    scope = names()
    before = scope["A"].copy()
    evaluate("A * 2 + A[0] - A / 3", scope)
    np.testing.assert_array_equal(scope["A"], before)


# --- Readers ----------------------------------------------------------------------------------------


def test_csv_without_labels(tmp_path):
    (tmp_path / "A.csv").write_text("1, 2.5\n\n-3,4e-1\n")
    table = read_matrix(tmp_path / "A.csv")
    np.testing.assert_array_equal(table.values, [[1, 2.5], [-3, 0.4]])
    assert table.index is None
    assert table.columns is None


@pytest.mark.parametrize(
    ("text", "index", "columns"),
    [
        (",a,b\nx,1,2\ny,3,4\n", ("x", "y"), ("a", "b")),
        ("name,a,b\nx,1,2\ny,3,4\n", ("x", "y"), ("a", "b")),
        (",2001,2002\n2001,1,2\n2002,3,4\n", ("2001", "2002"), ("2001", "2002")),
        ("a,b\n1,2\n3,4\n", None, ("a", "b")),
        ("x,1,2\ny,3,4\n", ("x", "y"), None),
        ("\ufeffa,b\r\n1,2\r\n3,4\r\n", None, ("a", "b")),
        ('"a,1","2020_1"\n1,2\n3,4\n', None, ("a,1", "2020_1")),
    ],
)
def test_csv_with_labels(tmp_path, text, index, columns):
    (tmp_path / "A.csv").write_text(text, encoding="utf-8")
    table = read_matrix(tmp_path / "A.csv")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])
    assert (table.index, table.columns) == (index, columns)
    (tmp_path / "B.csv").write_text(csv_text(table.values, table.index, table.columns))
    again = read_matrix(tmp_path / "B.csv")
    np.testing.assert_array_equal(again.values, table.values)
    assert (again.index, again.columns) == (index, columns)


def test_csv_of_one_column_is_a_vector_and_integers_are_indices(tmp_path):
    (tmp_path / "i.csv").write_text("0\n2\n1\n")
    values = read_matrix(tmp_path / "i.csv").values
    assert values.shape == (3,)
    assert values.dtype == np.int64


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (4, 2)])
def test_csv_round_trip_is_exact(tmp_path, rng, shape):
    A = rng.normal(size=shape) * 10.0 ** rng.integers(-20, 20, size=shape)
    (tmp_path / "A.csv").write_text(csv_text(A))
    np.testing.assert_array_equal(read_matrix(tmp_path / "A.csv").values, A)


def test_npy_and_npz(tmp_path, rng):
    A = rng.normal(size=(3, 3))
    np.save(tmp_path / "A.npy", A)
    np.savez(tmp_path / "one.npz", A=A)
    np.savez(tmp_path / "two.npz", A=A, B=2 * A)
    np.testing.assert_array_equal(read_matrix(tmp_path / "A.npy").values, A)
    np.testing.assert_array_equal(read_matrix(tmp_path / "one.npz").values, A)
    np.testing.assert_array_equal(read_matrix(tmp_path / "two.npz", "B").values, 2 * A)
    with pytest.raises(ValueError, match="holds 2 arrays"):
        read_matrix(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="no array of key 'a'"):
        read_matrix(tmp_path / "two.npz", "a")
    with pytest.raises(ValueError, match=r"only \.npz files have keys"):
        read_matrix(tmp_path / "A.npy", "A")


def test_mtx_keeps_sparse_sparse(tmp_path, rng):
    S = sp.csr_array([[0.0, 2.0], [2.0, 0.0]])
    scipy.io.mmwrite(tmp_path / "S.mtx", S)
    scipy.io.mmwrite(tmp_path / "A.mtx", S.toarray())
    read = read_matrix(tmp_path / "S.mtx").values
    assert isinstance(read, sp.csr_array)
    np.testing.assert_array_equal(read.toarray(), S.toarray())
    np.testing.assert_array_equal(read_matrix(tmp_path / "A.mtx").values, S.toarray())


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_mtx_reads_as_scipy_does(tmp_path, rng, dense, symmetry, field):
    if dense and field == "pattern":
        pytest.skip("the format has no dense patterns")
    A = rng.integers(-9, 9, size=(4, 4)) + (0.25 if field == "real" else 0)
    A = A + A.T if symmetry == "symmetric" else A[:, :3]
    path = tmp_path / "A.mtx"
    scipy.io.mmwrite(path, A if dense else sp.coo_array(A), "a comment", field, symmetry=symmetry)
    expected, found = scipy.io.mmread(path), read_matrix(path).values
    assert sp.issparse(found) is not dense
    assert (found.dtype.kind == "i") is (field == "integer")
    assert (sp.csr_array(found) != sp.csr_array(expected)).nnz == 0
    with pytest.raises(ValueError, match="the file may be cut"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        read_matrix(path)


def test_the_mtx_file_that_killed_the_process_is_read(tmp_path):
    path = tmp_path / "A.mtx"  # without a newline after the last value
    path.write_bytes(b"%%MatrixMarket matrix array real symmetric\n2 2\n1\n0\n1 ")
    np.testing.assert_array_equal(read_matrix(path).values, np.eye(2))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mtx", ".csv"])
def test_damaged_files_are_read_or_refused(tmp_path, rng, suffix):
    path = tmp_path / f"A{suffix}"
    A = np.round(rng.normal(size=(3, 3)), 3)
    write = {
        ".npy": lambda: np.save(path, A),
        ".npz": lambda: np.savez_compressed(path, A=A),
        ".mtx": lambda: scipy.io.mmwrite(path, A + A.T),
        ".csv": lambda: np.savetxt(path, A, delimiter=","),
    }
    write[suffix]()
    content = path.read_bytes()
    damaged = [content[:k] for k in range(0, len(content), 7)]
    for k in rng.integers(len(content), size=200):
        damaged.append(content[:k] + bytes(rng.integers(256, size=1).tolist()) + content[k + 1 :])
    for part in damaged:
        path.write_bytes(part)
        with contextlib.suppress(ValueError, TypeError):
            found = read_matrix(path).values
            assert np.isfinite(found.toarray() if sp.issparse(found) else found).all()


@pytest.mark.parametrize("suffix", [".npz", ".dat-s.gz"])
def test_what_unpacks_to_more_than_memory_is_refused_with_the_numbers(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(arrays, "memory", lambda: 10**8)
    path = tmp_path / f"A{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, A=np.zeros(3 * 10**6))
    else:
        path.write_bytes(gzip.compress(bytes(10**7)))
    assert path.stat().st_size < 10**5
    with pytest.raises(
        ValueError, match=r"unpacked, is too large: .* GB of memory, this machine has 0\.1 GB"
    ):
        (read_matrix if suffix == ".npz" else bo.read_sdpa)(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mtx", ".csv", ".toml", ".dat-s"])
def test_only_regular_files_are_read(tmp_path, suffix):
    pipe, device = tmp_path / f"pipe{suffix}", tmp_path / f"device{suffix}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    read = {".toml": load_spec, ".dat-s": bo.read_sdpa}.get(suffix, read_matrix)
    for path in (pipe, device):
        with pytest.raises(ValueError, match=f"{path.name}.*it is a folder, pipe or device"):
            read(path)


BAD_FILES = {
    "empty.csv": (b"", "empty"),
    "blank.csv": (b"\n , \n", "empty"),
    "labels.csv": (b"a,b\n", "no numbers"),
    "word.csv": (b"1,2\n3,four\n", "line 2, column 2 is 'four'"),
    "label.csv": (b",a,b\nx,1,2\ny,3,?\n", "line 3, column 3 is '\\?'"),
    "first.csv": (b"1,abc\n2,3\n", "line 1, column 2 is 'abc'"),
    "hole.csv": (b"1,2\n,4\n", "line 2, column 1 is empty"),
    "leading.csv": (b",1,2\n,3,4\n", "line 1, column 1 is empty"),
    "ragged.csv": (b"1,2\n3\n", "line 2 has 1 cells"),
    "semicolon.csv": (b"1;2\n3;4\n5,6\n", "line 3 has 2 cells"),
    "nan.csv": (b"1,nan\n1,2\n", "NaN or Inf"),
    "quote.csv": (b'"1,2\n', "cannot be read as .csv"),
    "binary.csv": (b"\xff\xfe\x00", "cannot be read as .csv"),
    "empty.npy": (b"", "cannot be read as .npy"),
    "text.npy": (b"1 2 3", "cannot be read as .npy"),
    "empty.npz": (b"", "cannot be read as .npz"),
    "text.npz": (b"1 2 3", "cannot be read as .npz"),
    "empty.mtx": (b"", "cannot be read as .mtx"),
    "text.mtx": (b"1 2 3", "cannot be read as .mtx"),
    "letter.mtx": (
        b"%%MatrixMarket matrix array real general\n1 2\n1\nx\n",
        "line 4: 'x'; expected a number",
    ),
    "cut.mtx": (b"%%MatrixMarket matrix array real symmetric\n2 2\n1\n0\n", "line 2: .* 3 entries; .* not 2"),
    "long.mtx": (b"%%MatrixMarket matrix array real general\n1 1\n1\n2\n", "line 2: .* 1 entries; .* not 2"),
    "few.mtx": (b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n", "2 entries; .* not 1"),
    "huge.mtx": (
        b"%%MatrixMarket matrix coordinate real general\n9000000000000 1 0\n",
        "72000.0 GB of memory",
    ),
    "size.mtx": (b"%%MatrixMarket matrix array real general\n-1 1\n1\n", "line 2: the size -1"),
    "sizes.mtx": (b"%%MatrixMarket matrix array real general\n1\n1\n", "line 2: 1 words"),
    "none.mtx": (b"%%MatrixMarket matrix array real general\n% 1 1\n", "line 3: 0 words"),
    "outside.mtx": (
        b"%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n",
        "line 3: i is 3; .* 1 to 2",
    ),
    "half.mtx": (b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1.5 1\n", "line 3: j is 1.5; "),
    "twice.mtx": (
        b"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n%\n1 2 1\n",
        "line 5: the entry at 2 1 of line 3 once more; expected each entry once",
    ),
    "wide.mtx": (b"%%MatrixMarket matrix array real symmetric\n2 1\n1\n1\n", "line 2: a symmetric .* 2 x 1"),
    "whole.mtx": (b"%%MatrixMarket matrix array integer general\n1 1\n1.5\n", "line 3: the value 1.5"),
    "large.mtx": (b"%%MatrixMarket matrix array real general\n1 1\n1e999\n", "NaN or Inf"),
    "skew.mtx": (
        b"%%MatrixMarket matrix array real skew-symmetric\n1 1\n",
        "array real skew-symmetric; expected",
    ),
    "dots.mtx": (b"%%MatrixMarket matrix array pattern general\n1 1\n", "array pattern general; expected"),
    "A.txt": (b"1", "'.txt' are not read"),
    "A": (b"1", "are not read"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named(tmp_path, name):
    content, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_matrix(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.array([1, "a"], dtype=object), ValueError),
        (np.array([1j]), TypeError),
        (np.array(["a"]), TypeError),
        (np.array([np.inf]), ValueError),
        (np.zeros((0, 3)), ValueError),
    ],
    ids=["object", "complex", "text", "inf", "empty"],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_bad_arrays_are_named(tmp_path, array, error, suffix):
    path = tmp_path / f"A{suffix}"
    (np.save if suffix == ".npy" else np.savez)(path, array)
    with pytest.raises(error, match=r"A\.np"):
        read_matrix(path)


def test_truncated_arrays_and_folders_are_named(tmp_path):
    np.save(tmp_path / "A.npy", np.ones(100))
    (tmp_path / "A.npy").write_bytes((tmp_path / "A.npy").read_bytes()[:200])
    np.savez(tmp_path / "A.npz", np.ones(100))
    (tmp_path / "A.npz").write_bytes((tmp_path / "A.npz").read_bytes()[:200])
    (tmp_path / "A.csv").mkdir()
    for name in ("A.npy", "A.npz", "A.csv"):
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            read_matrix(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"none\.csv: no such file"):
        read_matrix(tmp_path / "none.csv")


# --- Spec files -------------------------------------------------------------------------------------

GOOD = """
title = "A test"
[data]
A = [[2.0, 0.5], [0.5, 1.0]]
b = 1
[variables]
X = { psd = 2 }
[problem]
minimize = "frobenius_div(X, A)"
subject_to = ["diag(X) == b"]
[solve]
tol = 1e-8
"""


def written(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_spec_is_the_problem_it_declares(tmp_path):
    spec = load_spec(written(tmp_path, GOOD))
    assert (spec.title, spec.solver, spec.options) == ("A test", "auto", {"tol": 1e-8})
    sol = spec.problem.solve(spec.solver, **spec.options)
    np.testing.assert_allclose(sol.X, [[1, 0.5], [0.5, 1]], atol=1e-7)


def test_title_and_solve_may_be_left_out(tmp_path):
    text = GOOD.replace('title = "A test"', "").split("[solve]")[0]
    spec = load_spec(written(tmp_path, text))
    assert (spec.title, spec.solver, spec.options) == ("spec", "auto", {})


def test_data_come_from_files_beside_the_spec(tmp_path, rng):
    G = rng.normal(size=(3, 2))
    np.save(tmp_path / "G.npy", G)
    np.savez(tmp_path / "all.npz", z=G[:, 0], other=G)
    (tmp_path / "g.csv").write_text("1\n2\n3\n")
    scipy.io.mmwrite(tmp_path / "S.mtx", sp.csr_array(np.eye(3)))
    text = """
    [data]
    K = { file = "G.npy", low_rank = true }
    g = { file = "g.csv", low_rank = true }
    z = { file = "all.npz", key = "z" }
    S = { file = "S.mtx" }
    [variables]
    X = { psd = 3 }
    Y = { psd = 3 }
    v = { shape = [2], lower = [0, 1], upper = 3 }
    w = { nonneg = true }
    [problem]
    minimize = "logdet_div(X, K) + logdet_div(Y, g) + sum(v) + w"
    subject_to = ["quad_form(z, X) <= 1", "inner(S, Y) <= sum(v) + w"]
    """
    problem = load_spec(written(tmp_path, text)).problem
    X0, Y0 = (block.nearness.X0 for block in problem.program().blocks)
    np.testing.assert_array_equal(X0.factor, G)
    np.testing.assert_array_equal(Y0.factor, [[1], [2], [3]])
    v, w = problem.variables
    assert (v.shape, w.shape) == ((2,), ())
    np.testing.assert_array_equal(v.lower, [0, 1])
    np.testing.assert_array_equal(v.upper, [3, 3])
    np.testing.assert_array_equal(w.lower, 0)


BAD_SPECS = {
    "not-toml": ("A = [1", "[data]", ValueError, "not a TOML file"),
    "no-variable": ("X = { psd = 2 }", "", ValueError, "name 'X' is not known"),
    "key": ("[solve]", "[solv]", ValueError, "unknown key 'solv'; did you mean 'solve'"),
    "title": ('"A test"', "3", TypeError, "title is 3; expected a string"),
    "data-name": ("b = 1", '"b c" = 1', ValueError, "data: 'b c' is not a name"),
    "data-keyword": ("b = 1", "lambda = 1", ValueError, "data: 'lambda' is not a name"),
    "data-function": ("b = 1", "diag = 1", ValueError, "data: 'diag' is the name of a function"),
    "data-text": ("b = 1", 'b = "one"', TypeError, "data.b: the value has dtype"),
    "data-empty": ("b = 1", "b = [[]]", ValueError, "data.b: the value is empty"),
    "data-nan": ("b = 1", "b = nan", ValueError, "data.b: the value has 1 NaN or Inf"),
    "data-ragged": ("b = 1", "b = [[1, 2], [3]]", ValueError, "data.b: the value is ragged"),
    "data-date": ("b = 1", "b = 2026-01-01", TypeError, "data.b"),
    "file-key": (
        "b = 1",
        'b = { fil = "b.csv" }',
        ValueError,
        "data.b: unknown key 'fil'; did you mean 'file'",
    ),
    "file-none": ("b = 1", "b = { }", ValueError, "data.b: file is missing"),
    "file-type": ("b = 1", "b = { file = 1 }", TypeError, "data.b: file is 1; expected a string"),
    "file-missing": ("b = 1", 'b = { file = "b.csv" }', FileNotFoundError, r"data.b: .*b.csv: no such file"),
    "file-kind": ("b = 1", 'b = { file = "b.txt" }', ValueError, "data.b: .*'.txt' are not read"),
    "factor": ("b = 1", "b = { factor = [1, 2] }", ValueError, "data.b: factor has 1 dimensions"),
    "factor-key": ("b = 1", "b = { factor = [[1]], key = 'x' }", ValueError, "data.b: "),
    "file-low-rank": ("b = 1", 'b = { file = "A.npy", low_rank = 1 }', TypeError, "data.b: low_rank is 1"),
    "both": ("b = 1", "b = 1\nX = 2", ValueError, "variables: 'X' is a name in data already"),
    "variable": ("{ psd = 2 }", "2", TypeError, "variables.X: the value is 2; expected a table"),
    "variable-key": (
        "{ psd = 2 }",
        "{ pds = 2 }",
        ValueError,
        "variables.X: unknown key 'pds'; did you mean 'psd'",
    ),
    "matrix-key": ("{ psd = 2 }", "{ psd = 2, shape = 2 }", ValueError, "variables.X: unknown key 'shape'"),
    "order": ("{ psd = 2 }", "{ psd = 0 }", ValueError, "variables.X: n is 0; expected a positive integer"),
    "order-type": ("{ psd = 2 }", '{ psd = "2" }', TypeError, "variables.X: n is '2'"),
    "order-other": (
        "{ psd = 2 }",
        "{ psd = 3 }",
        ValueError,
        "problem: minimize: X0 of frobenius_div is 2 x 2",
    ),
    "shape": ("{ psd = 2 }", "{ psd = 2 }\nu = { shape = 0 }", ValueError, "variables.u: shape is 0"),
    "nonneg": ("{ psd = 2 }", "{ psd = 2 }\nu = { nonneg = 1 }", TypeError, "variables.u: nonneg is 1"),
    "box": (
        "{ psd = 2 }",
        "{ psd = 2 }\nu = { lower = 1, upper = 0 }",
        ValueError,
        "variables.u: .*lower <= upper",
    ),
    "box-shape": (
        "{ psd = 2 }",
        "{ psd = 2 }\nu = { lower = [1, 2] }",
        ValueError,
        "variables.u: lower of u",
    ),
    "unused": ("{ psd = 2 }", "{ psd = 2 }\nu = { }", ValueError, "variables: 'u' occurs in no expression"),
    "two-objectives": (
        "[solve]",
        'maximize = "1"\n[solve]',
        ValueError,
        "problem: minimize and maximize given",
    ),
    "no-objective": (
        "minimize",
        "minimise",
        ValueError,
        "problem: unknown key 'minimise'; did you mean 'minimize'",
    ),
    "objective-type": ('"frobenius_div(X, A)"', "1", TypeError, "problem: minimize: the value is 1"),
    "objective-vector": (
        '"frobenius_div(X, A)"',
        '"diag(X)"',
        ValueError,
        "problem: minimize: .*expected a scalar",
    ),
    "objective-sign": (
        '"frobenius_div(X, A)"',
        '"-frobenius_div(X, A)"',
        TypeError,
        "problem: minimize: Minimize",
    ),
    "objective-constraint": ('"frobenius_div(X, A)"', '"X == A"', TypeError, "problem: minimize: "),
    "rows-type": ('["diag(X) == b"]', '"diag(X) == b"', TypeError, "problem: subject_to is 'diag"),
    "row-type": ('["diag(X) == b"]', "[1]", TypeError, r"problem: subject_to\[0\]: the value is 1"),
    "row-name": (
        "diag(X) == b",
        "diag(X) == c",
        ValueError,
        r"problem: subject_to\[0\]: name 'c' is not known",
    ),
    "row-number": ("diag(X) == b", "trace(X)", TypeError, r"subject_to\[0\]: 'trace\(X\)' is no constraint"),
    "row-crossed": ("diag(X) == b", "between(diag(X), 2, b)", ValueError, "problem: .*2"),
    "row-run": ("diag(X) == b", "X.value == b", ValueError, r"subject_to\[0\]: Attribute is not part"),
    "option": (
        "tol = 1e-8",
        "tool = 1e-8",
        TypeError,
        "solve: no solver has an option 'tool'; did you mean 'tol'",
    ),
    "option-value": ("tol = 1e-8", "tol = -1", ValueError, "solve: tol is -1; expected a number above 0"),
    "solver": (
        "tol = 1e-8",
        'solver = "bergman"',
        ValueError,
        "solve: unknown solver 'bergman'; did you mean 'bregman'",
    ),
    "solver-type": ("tol = 1e-8", "solver = 1", TypeError, "solve: solver is 1"),
    "own-option": (
        "tol = 1e-8",
        'solver = "bregman"\nmetod = "cyclic"',
        TypeError,
        "solve: .*did you mean 'method'",
    ),
    "section": ("[solve]\ntol = 1e-8", "", TypeError, "solve is 3; expected a table"),
}


@pytest.mark.parametrize("name", BAD_SPECS)
def test_bad_specs_say_where(tmp_path, name):
    old, new, error, message = BAD_SPECS[name]
    text = (
        GOOD if name not in ("not-toml", "section") else {"not-toml": "[data", "section": "solve = 3"}[name]
    )
    np.save(tmp_path / "A.npy", np.eye(2))
    path = written(tmp_path, text.replace(old, new))
    with pytest.raises((FileNotFoundError, TypeError, ValueError), match=message) as caught:
        load_spec(path)
    several = re.match(r".*: \d+ errors\n", str(caught.value))
    assert type(caught.value) is (ValueError if several else error)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("how", ["above", "absolute", "link", "linked folder"])
def test_files_outside_of_the_folder_of_a_spec_are_refused(tmp_path, how):
    (tmp_path / "secret.csv").write_text("2,0.5\n0.5,1\n")
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "out").symlink_to(tmp_path)
    names = {"above": "../secret.csv", "absolute": tmp_path / "secret.csv", "link": "link.csv"}
    name = names.get(how, "out/secret.csv")
    path = written(folder, GOOD.replace("[[2.0, 0.5], [0.5, 1.0]]", f'{{ file = "{name}" }}'))
    with pytest.raises(ValueError, match=r"data.A: file is '.*secret|link.*', outside the spec's folder"):
        load_spec(path)
    for inside in ("A.csv", "data/A.csv", "data/../A.csv"):
        (folder / "data").mkdir(exist_ok=True)
        (folder / inside).write_text("2,0.5\n0.5,1\n")
        written(folder, GOOD.replace("[[2.0, 0.5], [0.5, 1.0]]", f'{{ file = "{inside}" }}'))
        assert load_spec(path).problem.matrices[0].n == 2
    (folder / "circle.csv").symlink_to("circle.csv")
    written(folder, GOOD.replace("[[2.0, 0.5], [0.5, 1.0]]", '{ file = "circle.csv" }'))
    with pytest.raises(ValueError, match=r"circle\.csv"):
        load_spec(path)


def test_missing_and_unreadable_specs(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.toml: no such file"):
        load_spec(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="cannot be read"):
        load_spec(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"cannot be read as \.toml: it is not UTF-8"):
        load_spec(tmp_path / "binary.toml")


@given(st.text(max_size=80))
def test_garbage_specs_raise_value_or_type_error_only(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("garbage") / "spec.toml"
    path.write_text(text, encoding="utf-8", errors="ignore")
    with pytest.raises((ValueError, TypeError)):
        load_spec(path)


# --- The schema and the examples --------------------------------------------------------------------


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_keys_of_code_and_schema_agree():
    definitions = {"spec": SCHEMA, **SCHEMA["$defs"]}
    for kind, keys in KEYS.items():
        assert set(definitions[kind]["properties"]) == set(keys), kind
        assert definitions[kind]["additionalProperties"] is False
    common = {"solver", *Settings.__dataclass_fields__} - {"tuning", "callback"}  # no data of files
    assert set(SCHEMA["properties"]["solve"]["properties"]) == common
    for function in FUNCTIONS:
        assert function in SCHEMA["$defs"]["problem"]["description"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_meet_the_schema(path):
    jsonschema.Draft202012Validator(SCHEMA).validate(tomllib.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[solve]", "[solv]"),
        ("psd = 2", "pds = 2"),
        ("psd = 2", "psd = 0"),
        ("minimize", "minimise"),
        ("b = 1", "b = true"),
    ],
)
def test_schema_refuses_what_the_code_refuses(tmp_path, old, new):
    text = GOOD.replace(old, new)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid(tomllib.loads(GOOD))
    assert not validator.is_valid(tomllib.loads(text))
    with pytest.raises((ValueError, TypeError)):
        load_spec(written(tmp_path, text))


def solved_example(name):
    path = next(path for path in EXAMPLES if path.stem == name)
    spec = load_spec(path)
    sol = spec.problem.solve(spec.solver, **spec.options)
    assert sol.status == "optimal"
    return sol, path


def test_example_lovasz_theta():
    sol, _ = solved_example("lovasz_theta")
    assert sol.value == pytest.approx(np.sqrt(5), abs=1e-5)


def test_example_nearest_correlation():
    # Alternating projections with Dykstra's correction, Higham 2002, Algorithm 3.3.
    A = 2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)
    Y, correction = A.copy(), np.zeros((4, 4))
    for _ in range(500):
        R = Y - correction
        w, Q = np.linalg.eigh(R)
        P = (Q * np.maximum(w, 0)) @ Q.T
        correction = P - R
        Y = P - np.diag(np.diag(P) - 1)
    sol, _ = solved_example("nearest_correlation")
    np.testing.assert_allclose(sol.X, Y, atol=1e-4)  # the root of tol


def test_example_stress_test():
    sol, path = solved_example("stress_test")
    A = np.loadtxt(path.with_suffix(".csv"), delimiter=",")
    X = cp.Variable((4, 4), PSD=True)
    kept = [cp.abs(X[i, j] - A[i, j]) <= 0.01 for i, j in ((1, 2), (1, 3), (2, 3))]
    reference = cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [cp.diag(X) == 1, *kept])
    peers.ask(reference).confirms(sol, {X: sol.X})


def test_example_factor_analysis():
    sol, path = solved_example("factor_analysis")
    R = read_matrix(path.with_suffix(".csv")).values
    u = cp.Variable(6, nonneg=True)
    reference = cp.Problem(cp.Minimize(6 - cp.sum(u)), [R - cp.diag(u) >> 0])
    peers.ask(reference).agrees(sol.value, sol.error)
    np.testing.assert_allclose(np.asarray(sol.X) + np.diag(sol.u["u"]), R, atol=1e-5)


def test_example_max_cut():
    sol, path = solved_example("max_cut")
    L = scipy.io.mmread(path.with_name("karate_laplacian.mtx")).toarray()
    X = cp.Variable((34, 34), PSD=True)
    reference = cp.Problem(cp.Maximize(cp.trace(L @ X) / 4), [cp.diag(X) == 1])
    peers.ask(reference).confirms(sol, {X: sol.X})


def test_example_kernel():
    sol, path = solved_example("kernel")
    assert isinstance(sol.X, bo.LowRank)
    assert sol.rank == 4
    K, X = bo.LowRank(read_matrix(path.with_suffix(".csv")).values), sol.X

    def distance(M, i, j):
        return M[i, i] + M[j, j] - 2 * M[i, j]

    data = tomllib.loads(path.read_text(encoding="utf-8"))["data"]
    same, other = ((np.array(data[f"{kind}_i"]), np.array(data[f"{kind}_j"])) for kind in ("same", "other"))
    assert distance(X, *same).max() < distance(K, *same).max()
    assert distance(X, *other).min() > distance(K, *other).min()
