"""Quick runs of the experiments on learned metrics and kernels, if their data are available."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from page_tables import assert_like_the_pages
from test_online_papers import PICTURES
from threadpoolctl import threadpool_limits

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
PENDIGITS = ["pendigits.tra", "pendigits.tes"]
FILES = {
    "corrections": [],
    "digits": PENDIGITS,
    "gyrb": [],
    "mnist": [
        f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
    ],
    "psdboost": PENDIGITS,
    "spambase_nursery": ["spambase.data", "nursery.data"],
    "uci_metrics": ["iris.data"],
}


def test_every_script_is_run():
    assert {path.stem for path in PAPERS.glob("*.py")} == {*FILES, *PICTURES, "common"}


@pytest.fixture
def tables(tmp_path, monkeypatch, capsys, request):
    """Run a script with ``--quick``; return the cells of the lines of its tables, which are the page's."""

    def run(script):
        monkeypatch.syspath_prepend(str(PAPERS))
        monkeypatch.setenv("MPLBACKEND", "Agg")
        arguments = [script, "--quick", "--output", str(tmp_path)]
        if FILES[script]:
            folder = request.getfixturevalue("data") / "uci"
            missing = [name for name in FILES[script] if not (folder / name).exists()]
            if missing:
                pytest.skip(f"needs {', '.join(missing)}")
            arguments += ["--data", str(folder)]
        monkeypatch.setattr(sys, "argv", arguments)
        module = importlib.import_module(script)
        with threadpool_limits(1):  # as the page says; more threads get in each other's way
            module.main()
        assert [p.name for p in tmp_path.glob("*.png")] == [f"{script}.png"]
        text = capsys.readouterr().out
        assert_like_the_pages(script, text)
        return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]

    return run


def test_corrections(tables):
    ends = {line[0]: [float(x) for x in line[1:4]] for line in tables("corrections")[1:]}
    np.testing.assert_allclose(ends["without"], [1 / 5, 7 / 15, 1 / 3], atol=2e-3)  # as printed
    assert np.abs(np.array(ends["with"]) - 1 / 3).max() < 0.01


@pytest.mark.slow
def test_digits(tables):
    lines = {tuple(line[:2]): line for line in tables("digits")}
    for divergence in ("LogDet", "von Neumann"):  # pairs help the clusters
        assert float(lines[divergence, "120"][5].split()[0]) > 0.1


@pytest.mark.slow
def test_gyrb(tables):
    lines = tables("gyrb")
    accuracy = {tuple(line[:2]): float(line[2].split()[0]) for line in lines if "±" in line[2]}
    for divergence in ("LogDet", "von Neumann"):  # from chance towards the target
        assert accuracy[divergence, "25"] < accuracy[divergence, "100"] < accuracy["target", ""]


@pytest.mark.slow
def test_mnist(tables):
    lines = tables("mnist")
    errors = [float(line[3]) for line in lines if line[0] in ("Euclidean", "LogDet", "von Neumann")]
    assert len(errors) == 3
    assert errors[0] < 10
    assert max(errors[1:]) < errors[0] + 0.5  # 500 pairs change little


def test_psdboost(tables):
    lines = tables("psdboost")
    for problem in {line[0] for line in lines if "triplets" in line[0]}:
        value = {line[1]: float(line[4]) for line in lines if line[0] == problem}
        assert value["semidefinite master"] == pytest.approx(value["central path"], rel=1e-4)
        assert value["as published"] <= value["central path"] * (1 + 1e-4)  # of a maximum, after few rounds


@pytest.mark.slow
def test_spambase_and_nursery(tables):
    names = [line[0] for line in tables("spambase_nursery")]
    assert names == ["divergence", *["LogDet"] * 2, *["von Neumann"] * 2] * 2


@pytest.mark.slow
def test_uci_metrics(tables):
    assert [line[0] for line in tables("uci_metrics")] == ["set", "iris"] * 2


class TestCommon:
    @pytest.fixture
    def common(self, monkeypatch):
        monkeypatch.syspath_prepend(str(PAPERS))
        return importlib.import_module("common")

    @pytest.mark.parametrize("rank", [3, 20])
    def test_incomplete_cholesky_factor(self, common, rng, rank):
        points = rng.normal(size=(20, rank))
        K = points @ points.T
        before = K.copy()
        G = common.factor(K)
        assert G.shape == (20, rank)
        np.testing.assert_allclose(G @ G.T, K, atol=1e-10)
        np.testing.assert_array_equal(K, before)

    def test_incomplete_cholesky_leaves_a_remainder_of_the_tolerance(self, common, rng):
        points = rng.normal(size=(60, 2))
        K = np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))
        G = common.factor(K, tol=1e-3)
        rest = np.diag(K) - (G**2).sum(axis=1)
        assert G.shape[1] < 40
        assert rest.min() > -1e-12
        assert rest.max() <= 1e-3

    def test_kernel_k_means_is_k_means_of_the_factor(self, common, rng):
        # The objective from the kernel alone: sum_i K_ii - sum_c (sum of K within c) / |c|.
        cluster = pytest.importorskip("sklearn.cluster")
        K, _ = common.proteins()
        fitted = cluster.KMeans(3, n_init=10, random_state=0).fit(common.factor(K))
        within = [
            K[np.ix_(c, c)].sum() / len(c) for c in (np.flatnonzero(fitted.labels_ == k) for k in range(3))
        ]
        assert fitted.inertia_ == pytest.approx(np.trace(K) - sum(within))
