"""Stacks in files, and answers that a folder keeps: the digits of stacks in memory, also after SIGKILL."""

import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.io.answers import Answers
from bregopt.problems import stacks

pytestmark = [
    pytest.mark.skipif("fork" not in get_all_start_methods(), reason="its processes are forked"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]
NUMBERS = ("value", "dual_value", "gap", "error", "accuracy", "iterations", "status")


def matrices(count, n, seed=0):
    A = np.random.default_rng(seed).uniform(-1, 1, (count, n, n))
    A = (A + A.transpose(0, 2, 1)) / 2
    A[:, range(n), range(n)] = 1
    return A


@pytest.fixture
def short_parts(monkeypatch):
    """Parts of 8 matrices of order 6."""
    monkeypatch.setattr(stacks, "_CHAIN", 2)
    monkeypatch.setattr(stacks, "_SLICE", 4 * 6**2)


def same(found, expected):
    np.testing.assert_array_equal(found.X, expected.X)
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for one, other in zip(found, expected, strict=True):
        if other.X is not None:
            np.testing.assert_array_equal(one.X, other.X)
            for own, its in zip(one.duals or (), other.duals or (), strict=True):
                np.testing.assert_array_equal(own, its)


# --- Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "function"), turns([np.float64, np.float32, np.int64], [bo.nearest_correlation, bo.nearest_psd])
)
def test_a_stack_in_a_file_has_the_answers_of_one_in_memory(tmp_path, short_parts, dtype, function):
    A = (2 * matrices(21, 6)).astype(dtype)
    A[:, range(6), range(6)] = 1
    np.save(tmp_path / "A.npy", A)
    expected = function(A)
    for way in (tmp_path / "A.npy", str(tmp_path / "A.npy"), np.load(tmp_path / "A.npy", mmap_mode="r")):
        same(function(way), expected)
    alone = function(A[5])
    assert abs(expected[5].value - alone.value) <= expected[5].error + alone.error


@pytest.mark.filterwarnings("ignore:2 of 11 matrices have a warning.*left out:bregopt.DataWarning")
def test_missing_assets_of_a_stack_in_a_file(tmp_path, short_parts):
    A = matrices(11, 6)
    A[2, 4] = A[2, :, 4] = np.nan
    A[9, 0] = A[9, :, 0] = np.nan
    np.save(tmp_path / "A.npy", A)
    expected = bo.nearest_correlation(A)
    same(bo.nearest_correlation(tmp_path / "A.npy"), expected)
    for _ in range(2):
        found = bo.nearest_correlation(tmp_path / "A.npy", resume=tmp_path / "answers")
        same(found, expected)
        assert found[2].X.shape == (5, 5)


def test_single_matrices_and_frames_in_files(tmp_path):
    A = matrices(1, 5)[0]
    frame = pd.DataFrame(A, list("abcde"), list("abcde"))
    frame.to_csv(tmp_path / "A.csv")
    np.save(tmp_path / "A.npy", A)
    labeled = bo.nearest_correlation(tmp_path / "A.csv", fixed=[("a", "b")])
    assert labeled.X.index.tolist() == list("abcde")
    assert labeled.X.loc["a", "b"] == A[0, 1]
    np.testing.assert_allclose(bo.nearest_correlation(tmp_path / "A.npy").X, bo.nearest_correlation(A).X)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
def test_a_panel_in_a_parquet_file(tmp_path):
    returns = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 4)), columns=list("abcd"))
    panel = returns.rolling(4).corr().iloc[12:]
    panel.to_parquet(tmp_path / "panel.parquet")
    found = bo.nearest_correlation(tmp_path / "panel.parquet", min_eigenvalue=0.01)
    pd.testing.assert_frame_equal(found.X, bo.nearest_correlation(panel, min_eigenvalue=0.01).X)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
@pytest.mark.parametrize("rows", first(1, [77, 10_000]))
def test_a_parquet_panel_is_read_part_by_part(tmp_path, monkeypatch, rows):
    """Parts, chains, folders, missing assets and reports are those of the frame in memory."""
    from bregopt.io import panels, stacks

    rng = np.random.default_rng(1)
    C = rng.uniform(-1, 1, (60, 5, 5))
    C = (C + C.transpose(0, 2, 1)) / 2
    C[7, 2] = C[7, :, 2] = C[30:40, 4] = C[30:40, :, 4] = np.nan
    C[:, range(5), range(5)] = 1
    dates, labels = pd.date_range("2020-01-01", periods=60), list("abcde")
    panel = pd.concat({key: pd.DataFrame(A, labels, labels) for key, A in zip(dates, C, strict=True)})
    path, read = tmp_path / "panel.parquet", []
    panel.to_parquet(path, row_group_size=rows)
    for module in (stacks, panels):
        monkeypatch.setattr(module, "BLOCK", 9 * 8 * 5**2)  # nine matrices
    monkeypatch.setattr(panels, "_ROWS", 64)
    whole = panels._ParquetReader._rows
    monkeypatch.setattr(
        panels._ParquetReader, "_rows", lambda self, a, b: read.append(b - a) or whole(self, a, b)
    )
    asked = {"missing": "unknown", "min_eigenvalue": 0.01, "warm_start": "chain"}
    with pytest.warns(bo.DataWarning, match="11 of 60 matrices have a warning"):
        expected = bo.nearest_correlation(panel, **asked)
    for resume in (None, tmp_path / "answers", tmp_path / "answers"):
        with pytest.warns(bo.DataWarning, match="11 of 60 matrices have a warning"):
            found = bo.nearest_correlation(path, resume=resume, **asked)
        pd.testing.assert_frame_equal(found.X, expected.X)
        assert list(found.keys) == list(expected.keys)
    assert 0 < max(read) <= 9 * 5
    X = found.X.to_numpy()
    assert np.shares_memory(X, found[dates[3]].X.to_numpy()) or any(
        isinstance(base, np.memmap) for base in (X.base, X.base.base)
    )
    np.testing.assert_allclose(found.report().distance, expected.report().distance, atol=1e-12)
    pd.testing.assert_frame_equal(found[dates[7]].X, expected[dates[7]].X)
    panel.sort_index(level=1).to_parquet(path)  # dates apart
    with pytest.warns(bo.DataWarning):
        apart = bo.nearest_correlation(path, missing="unknown", min_eigenvalue=0.01)
    np.testing.assert_allclose(apart.X.loc[dates[3]], expected.X.loc[dates[3]], atol=1e-5)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
@pytest.mark.parametrize("form", ["array", "dict", "frames", "panel"])
def test_answers_are_written_as_a_parquet_panel(tmp_path, monkeypatch, form):
    """Part by part, with the digits of X; a matrix without an answer has no row or NaN."""
    from bregopt.io import stacks

    monkeypatch.setattr(stacks, "BLOCK", 2 * 8 * 4**2)  # two matrices
    A, labels = matrices(5, 4), list("abcd")
    A[1, 0, 2] = A[1, 2, 0] = np.inf
    frames = {f"day {k}": pd.DataFrame(own, labels, labels) for k, own in enumerate(A)}
    given = {"array": A, "dict": dict(enumerate(A)), "frames": frames, "panel": pd.concat(frames)}[form]
    with pytest.warns(bo.DataWarning, match="1 of 5 matrices has an error"):
        sols = bo.nearest_correlation(given)
    sols.to_parquet(tmp_path / "X.parquet")
    found = pd.read_parquet(tmp_path / "X.parquet")
    if form == "panel":
        pd.testing.assert_frame_equal(found, sols.X)
    for k, key in enumerate(sols.keys):
        if k != 1:
            np.testing.assert_array_equal(found.loc[key], sols[key].X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.DataWarning)  # of the matrix that is NaN
        again = bo.nearest_correlation(tmp_path / "X.parquet")
    assert (again.status == "optimal").sum() == 4
    kept = range(5) if form in ("array", "panel") else [0, 2, 3, 4]
    assert list(again.keys) == [sols.keys[k] for k in kept]


def test_bad_files_are_named(tmp_path):
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY nothing")
    np.save(tmp_path / "flat.npy", np.ones((3, 4, 5)))
    np.save(tmp_path / "words.npy", np.full((3, 4, 4), "a"))
    (tmp_path / "A.txt").write_text("1")
    for name, error, text in (
        ("broken.npy", ValueError, "broken.npy cannot be read"),
        ("flat.npy", ValueError, r"A has shape \(3, 4, 5\); expected \(B, n, n\)"),
        ("words.npy", TypeError, "A has dtype <U1; expected real numbers"),
        ("A.txt", ValueError, "A.txt; expected a file of type"),
        ("none.npy", FileNotFoundError, "none.npy; there is no such file"),
    ):
        with pytest.raises(error, match=text):
            bo.nearest_correlation(tmp_path / name)


# --- Folders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "chained"), [("file", False), ("array", "chain"), ("dict", False), ("frame", "chain")]
)
def test_a_stack_that_is_killed_has_the_same_digits(tmp_path, short_parts, form, chained):
    A = matrices(61, 6)
    np.save(tmp_path / "A.npy", A)
    index = pd.MultiIndex.from_product([range(61), range(6)])
    given = {
        "file": tmp_path / "A.npy",
        "array": A,
        "dict": dict(enumerate(A)),
        "frame": pd.DataFrame(A.reshape(-1, 6), index),
    }[form]
    options = {"min_eigenvalue": 0.02, "lower": np.linspace(-0.9, -0.5, 61), "warm_start": chained}
    folder = tmp_path / "answers"

    def run():
        solve_part = stacks.solve_part

        def slowly(*arguments):
            time.sleep(0.02)
            return solve_part(*arguments)

        stacks.solve_part = slowly
        bo.nearest_correlation(given, resume=folder, **options)

    for least in (1, 3, 5):
        process = get_context("fork").Process(target=run)
        process.start()
        while len(list(folder.glob("*.part"))) < least:
            assert process.is_alive()
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.part")}
    assert 5 <= len(before) < 8
    expected = bo.nearest_correlation(A, **options)
    found = bo.nearest_correlation(given, resume=folder, **options)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())
    if form in ("file", "array"):
        assert isinstance(found.X, np.memmap)
        same(found, expected)
    else:
        np.testing.assert_array_equal([np.asarray(one.X) for one in found], expected.X)


def test_covariances_may_have_a_folder(tmp_path, short_parts):
    sd = np.array([1, 2, 3, 4, 5, 6.0])
    S = matrices(20, 6) * np.outer(sd, sd)
    np.save(tmp_path / "S.npy", S)
    expected = bo.nearest_covariance(S)
    for _ in range(2):
        same(bo.nearest_covariance(tmp_path / "S.npy", resume=tmp_path / "answers"), expected)
    with pytest.raises(ValueError, match="other values of units"):
        bo.nearest_covariance(S, units="correlation", resume=tmp_path / "answers")


def test_bad_matrices_may_be_mended_and_dates_added(tmp_path, short_parts):
    A = matrices(20, 6)
    bad = A[:14].copy()
    bad[3, 0, 1] = np.inf
    folder = tmp_path / "answers"
    with pytest.warns(bo.DataWarning, match="1 of 14 matrices has an error, matrix 3"):
        first = bo.nearest_correlation(bad, resume=folder)
    assert np.isnan(first.X[3]).all()
    same(bo.nearest_correlation(A, resume=folder), bo.nearest_correlation(A))


def test_a_folder_of_other_matrices_or_arguments_is_refused(tmp_path, short_parts):
    A, folder = matrices(20, 6), tmp_path / "answers"
    bo.nearest_correlation(A, resume=folder)
    changed = A.copy()
    changed[9, 0, 1] = changed[9, 1, 0] = 0.125
    with pytest.raises(ValueError, match="other matrices than those from 8 to 15"):
        bo.nearest_correlation(changed, resume=folder)
    with pytest.raises(ValueError, match="other values of min_eigenvalue, tol"):
        bo.nearest_correlation(A, resume=folder, min_eigenvalue=0.1, tol=1e-4)
    with pytest.raises(ValueError, match=r"the folder of bo\.nearest_correlation"):
        bo.nearest_psd(A, resume=folder)
    with (folder / "X.npy").open("r+b") as file:
        file.seek(1_000)
        file.write(b"12345678")
    with pytest.raises(ValueError, match=r"X\.npy is damaged.* delete .*0000000\.part"):
        bo.nearest_correlation(A, resume=folder)
    (folder / "0000000.part").unlink()
    same(bo.nearest_correlation(A, resume=folder), bo.nearest_correlation(A))
    with pytest.raises(TypeError, match="no option 'resume'"):
        bo.nearest_correlation(A[0], resume=folder)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_a_time_limit_leaves_nan_and_the_next_call_solves_the_rest(tmp_path, short_parts, monkeypatch):
    A, solve_part = matrices(40, 6), stacks.solve_part

    def slowly(*arguments):
        time.sleep(0.1)
        return solve_part(*arguments)

    monkeypatch.setattr(stacks, "solve_part", slowly)
    found = bo.nearest_correlation(A, resume=tmp_path / "answers", time_limit=0.25)
    ended = found.status == "user_limit"
    assert 0 < ended.sum() < 40
    assert np.isnan(found.X[ended]).all()
    assert not np.isnan(found.X[~ended]).any()
    same(bo.nearest_correlation(A, resume=tmp_path / "answers"), bo.nearest_correlation(A))


class Deadly(np.ndarray):
    """A matrix whose part ends the process of its worker."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_worker_that_dies_costs_no_other_part(tmp_path, short_parts):
    A = dict(enumerate(matrices(30, 6)))
    expected = bo.nearest_correlation(A)
    deadly = {**A, 9: A[9].view(Deadly)}
    folder = tmp_path / "answers"
    with ProcessPoolExecutor(2, get_context("fork")) as pool, pytest.warns(bo.DataWarning, match="8 of 30"):
        found = bo.nearest_correlation(deadly, executor=pool, resume=folder)
    assert [k for k in A if found.status[k] == "error"] == list(range(8, 16))
    assert Answers(folder).positions() == [0, 16, 24]
    again = bo.nearest_correlation(A, resume=folder)
    assert all((again.X[k] == expected.X[k]).all() for k in A)


# --- Memory -----------------------------------------------------------------------------------------

CHILD = """
import sys
import bregopt as bo

def peak():  # getrusage would begin with the memory of the parent
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

path, folder, count, suffix = sys.argv[1:]
bo.nearest_correlation(f"{path}1.{suffix}", resume=f"{folder}1")  # a part
before = peak()
sols = bo.nearest_correlation(f"{path}.{suffix}", resume=folder)
assert (sols.status == "optimal").all() and len(sols) == int(count)
print(peak(), before)
"""


def peak(path, folder, count, suffix):
    """Return the peak memory of a child process that solves the stack in a file, and of a part, in MB."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    command = [sys.executable, "-c", CHILD, str(path), str(folder), str(count), suffix]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return [int(word) / 2**10 for word in done.stdout.split()]


def write(path, count, n, scale, suffix):
    """Write a stack, and one of a part beside it."""
    some = matrices(500, n) * scale + (1 - scale) * np.eye(n)
    if suffix == "parquet":
        from bregopt.io.panels import write_panel

        labels = [f"asset {k}" for k in range(n)]
        index = [pd.MultiIndex.from_product([range(a, a + 500), labels]) for a in range(0, count, 500)]
        frames = [pd.DataFrame(some.reshape(-1, n), own, labels) for own in index]
        write_panel(f"{path}.parquet", frames)
        write_panel(f"{path}1.parquet", frames[:1])
        return
    out = np.lib.format.open_memmap(f"{path}.npy", "w+", np.float64, (count, n, n))
    for a in range(0, count, 500):
        out[a : a + 500] = some[: count - a]
    np.save(f"{path}1.npy", some)


def test_memory_is_that_of_a_part(tmp_path):
    count, n = 1_500, 60
    write(tmp_path / "A", count, n, 0.05, "npy")  # they are psd, so their answers take one step
    after, before = peak(tmp_path / "A", tmp_path / "answers", count, "npy")
    assert after - before < 8e-6 * count * n * n / 2  # data and answers are four times as much


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_100000_matrices_of_order_60_take_less_than_a_gigabyte(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    write(tmp_path / "A", 100_000, 60, 0.3, suffix)
    after, _ = peak(tmp_path / "A", tmp_path / "answers", 100_000, suffix)
    assert after < 1_000
