"""Rows in Parquet files and Dask arrays: the answers of the same rows in memory."""

import pickle

import numpy as np
import pytest

import bregopt as bo

rng = np.random.default_rng(0)
POINTS = rng.normal(size=(50, 3))
LEFT, RIGHT = np.triu_indices(50, 1)
BOUND = np.sum((POINTS[LEFT] - POINTS[RIGHT]) ** 2, axis=1) * rng.uniform(0.5, 2, len(LEFT))
SENSE = np.where(rng.random(len(LEFT)) < 0.5, -1, 1)
GAMMA = np.full(len(LEFT), 0.05)


def in_memory(chunk=100):
    return bo.RowChunks(np.stack([LEFT, RIGHT], 1), BOUND, SENSE, GAMMA, points=POINTS, chunk=chunk)


@pytest.fixture
def table():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow

    return pyarrow.table({"i": LEFT, "j": RIGHT, "bound": BOUND, "sense": SENSE, "gamma": GAMMA})


def written(table, path, **options):
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, **options)
    return path


@pytest.mark.parametrize("size", [20, 100, 10_000])
def test_parquet_files_have_the_digits_of_arrays(tmp_path, table, size):
    path = written(table, tmp_path / "rows.parquet", row_group_size=size)
    rows = bo.RowChunks.from_parquet(path, points=POINTS, chunk=100)
    assert len(rows) == len(LEFT)
    a, b = rows.solve(np.eye(3)), in_memory().solve(np.eye(3))
    assert (a.value, a.dual_value) == (b.value, b.dual_value)
    for mine, other in zip(rows.batches(), in_memory().batches(), strict=True):
        assert all(map(np.array_equal, mine, other))


def test_parquet_files_of_vectors_of_any_order_and_type(tmp_path, table):
    import pyarrow

    Z = (POINTS[LEFT] - POINTS[RIGHT]).astype(np.float32)
    columns = {f"z_{k}": Z[:, k] for k in (2, 0, 1)} | {"sense": SENSE.astype(np.int8)}
    path = written(
        pyarrow.table({**columns, "gamma": np.full(len(Z), np.inf), "bound": 1e3 + BOUND}), tmp_path / "z"
    )
    rows = bo.RowChunks.from_parquet(str(path), chunk=333)
    assert rows.dimension == 3
    assert np.array_equal(np.concatenate([batch.vectors for batch in rows.batches()]), Z)
    assert rows.first_hard_row() == 0


def test_parquet_files_are_read_in_part_and_sent_as_paths(tmp_path, table, monkeypatch):
    path = written(table, tmp_path / "rows.parquet", row_group_size=100)
    rows = bo.RowChunks.from_parquet(path, points=POINTS[:, :2], chunk=100)
    chunk = list(rows.chunks())[3]
    assert len(pickle.dumps(chunk)) < 4_000
    groups = spied(monkeypatch)
    chunk.batch()
    assert groups == [3] * 4


def spied(monkeypatch):
    """Return the list to which each row group that is read is added, by a set of columns."""
    import pyarrow.parquet

    read, groups = pyarrow.parquet.ParquetFile.read_row_group, []

    def noted(self, group, **options):
        groups.append(group)
        return read(self, group, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "read_row_group", noted)
    return groups


def test_a_row_group_of_many_chunks_is_decoded_once(tmp_path, table, monkeypatch):
    """Pandas writes a million rows to a row group, and a chunk has 50,000."""
    rows = bo.RowChunks.from_parquet(written(table, tmp_path / "rows.parquet"), points=POINTS, chunk=100)
    groups = spied(monkeypatch)
    sol = rows.solve(np.eye(3))
    assert sol.iterations > 3
    assert groups == [0] * 4  # rows, bound, sense and gamma
    monkeypatch.setattr("bregopt.chunks.sources._LARGEST_HELD", 8 * len(LEFT))
    rows.solve(np.eye(3))
    assert len(groups) > 4 + 3 + sol.iterations  # those of the pairs are too large to be held


def test_a_file_that_was_replaced_is_read_anew(tmp_path, table):
    path = written(table, tmp_path / "rows.parquet")
    rows = bo.RowChunks.from_parquet(path, points=POINTS)
    assert np.array_equal(next(rows.batches()).bound, BOUND)
    path.unlink()
    written(replaced(table, "bound", 2 * BOUND), path)
    assert np.array_equal(next(rows.batches()).bound, 2 * BOUND)


def test_parquet_files_in_other_processes(tmp_path, table, processes):
    rows = bo.RowChunks.from_parquet(written(table, tmp_path / "rows.parquet"), points=POINTS, chunk=400)
    assert rows.solve(np.eye(3), executor=processes).value == rows.solve(np.eye(3)).value


def without(table, *names):
    return table.drop_columns(list(names))


def replaced(table, name, values):
    import pyarrow

    return table.set_column(table.schema.get_field_index(name), name, pyarrow.array(values))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda t: without(t, "gamma"),
            ValueError,
            r"has the columns i, j, bound, sense; expected i and j, or z_0",
        ),
        (lambda t: without(t, "i", "j"), ValueError, "has the columns bound, sense, gamma; expected i and j"),
        (
            lambda t: t.append_column("k", t["i"]),
            ValueError,
            "has the columns i, j, bound, sense, gamma, k; expected",
        ),
        (lambda t: t.append_column("z_1", t["bound"]), ValueError, "z_1; expected"),
        (lambda t: t.slice(0, 0), ValueError, r"rows has shape \(0, 2\); expected at least one row"),
        (
            lambda t: replaced(t, "i", LEFT / 2),
            TypeError,
            "columns i and j of .* have type float64; expected integers",
        ),
        (
            lambda t: replaced(t, "sense", ["<="] * len(LEFT)),
            TypeError,
            "sense has dtype object|sense has dtype <U",
        ),
    ],
)
def test_bad_parquet_files_are_refused(tmp_path, table, change, error, message):
    path = written(change(table), tmp_path / "rows.parquet")
    with pytest.raises(error, match=message):
        bo.RowChunks.from_parquet(path, points=POINTS)


def test_values_that_are_missing_or_bad_are_named(tmp_path, table):
    late = np.array(BOUND)
    late[1_000] = np.nan
    path = written(replaced(table, "bound", late), tmp_path / "rows.parquet", row_group_size=90)
    with pytest.raises(ValueError, match="bound of row 1000 is nan"):
        bo.RowChunks.from_parquet(path, points=POINTS, chunk=77).solve(np.eye(3))
    numbers = [None if k == 700 else int(i) for k, i in enumerate(LEFT)]
    path = written(replaced(table, "i", numbers), tmp_path / "rows.parquet", row_group_size=90)
    with pytest.raises(ValueError, match=r"column i of .* has no value in row 700; expected numbers"):
        bo.RowChunks.from_parquet(path, points=POINTS, chunk=77).solve(np.eye(3))


def test_files_of_other_kinds_are_refused(tmp_path, table):
    (tmp_path / "text").write_text("no columns")
    with pytest.raises(ValueError, match="expected a Parquet file"):
        bo.RowChunks.from_parquet(tmp_path / "text")
    with pytest.raises(ValueError, match="and there is none"):
        bo.RowChunks.from_parquet(tmp_path / "missing")
    with pytest.raises(TypeError, match="path is 3; expected the path"):
        bo.RowChunks.from_parquet(3)
    with pytest.raises(ValueError, match=r"expected an npy file: take RowChunks\.from_parquet"):
        bo.RowChunks(str(tmp_path / "rows.parquet"), 1.0, "<=", 1.0)


@pytest.fixture
def da():
    return pytest.importorskip("dask.array", reason="Dask is not installed")


def test_dask_arrays_have_the_digits_of_arrays(da):
    pairs = da.from_array(np.stack([LEFT, RIGHT], 1), chunks=(130, 1))
    bound, sense, gamma = (da.from_array(column, chunks=200) for column in (BOUND, SENSE, GAMMA))
    rows = bo.RowChunks(pairs, bound, sense, gamma, points=da.from_array(POINTS), chunk=100)
    a, b = rows.solve(np.eye(3)), in_memory().solve(np.eye(3))
    assert (a.value, a.dual_value) == (b.value, b.dual_value)


def test_dask_delayed_values_are_arrays_of_known_shape(da):
    from dask import delayed

    Z = POINTS[LEFT] - POINTS[RIGHT]
    parts = [(Z[k : k + 245], BOUND[k : k + 245]) for k in range(0, len(Z), 245)]
    read = []

    def load(k, column):
        read.append(k)
        return parts[k][column]

    def stacked(column, shape):
        loaded = [da.from_delayed(delayed(load)(k, column), shape, float) for k in range(len(parts))]
        return da.concatenate(loaded)

    rows = bo.RowChunks(stacked(0, (245, 3)), stacked(1, (245,)), "<=", 0.1, chunk=245)
    first = next(rows.batches())
    assert set(read) == {0}  # no chunk but the first was loaded
    assert np.array_equal(first.vectors, parts[0][0])
    whole = bo.RowChunks(Z, BOUND, "<=", 0.1, chunk=245)
    assert rows.solve(np.eye(3)).value == whole.solve(np.eye(3)).value


def test_bad_dask_values_are_refused(da):
    from dask import delayed

    with pytest.raises(
        TypeError, match=r"rows is a Dask Delayed; expected an array, which dask\.array\.from_delayed"
    ):
        bo.RowChunks(delayed(np.ones)((3, 2)), 1.0, "<=", 1.0)
    some = da.from_array(np.ones(5), chunks=2)
    with pytest.raises(ValueError, match=r"expected known lengths: call its compute_chunk_sizes\(\)"):
        bo.RowChunks(np.ones((5, 1)), some[some > 0], "<=", 1.0)
    with pytest.raises(TypeError, match="bound has dtype complex128"):
        bo.RowChunks(np.ones((5, 1)), some * 1j, "<=", 1.0)
    with pytest.raises(ValueError, match="bound of row 4 is nan"):
        late = da.from_array(np.array([1, 1, 1, 1, np.nan]), chunks=2)
        bo.RowChunks(np.ones((5, 1)), late, "<=", 1.0, chunk=2).solve(np.eye(1))


def test_the_extras_are_imported_where_they_are_used(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pip install 'bregopt\[parquet\]'"):
        bo.RowChunks.from_parquet(__file__)
