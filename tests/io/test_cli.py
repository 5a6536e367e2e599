"""The command line: exit statuses, outputs and error messages."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from samples import turns
from threadpoolctl import threadpool_info

import bregopt as bo
from bregopt import cli
from bregopt.io.matrices import read_matrix
from bregopt.program import Answer, StopReason
from bregopt.routes import registry
from bregopt.routes.base import Capabilities, Settings

SPECS = Path(__file__).parents[2] / "examples" / "specs"
NEAREST = ["--problem", "nearest-correlation"]
HIGHAM = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])


def run(*arguments):
    """Return the exit status, which may be that of argparse."""
    try:
        return cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code


def spec(
    folder,
    minimize="frobenius_div(X, A)",
    rows=("diag(X) == 1",),
    solve="",
    data="A = [[2.0, 1.0], [1.0, 2.0]]",
):
    path = folder / "spec.toml"
    named = " ".join([minimize, *rows])
    data = "\n".join(line for line in data.splitlines() if line.partition(" ")[0] in named)
    path.write_text(
        f"[data]\n{data}\n[variables]\nX = {{ psd = 2 }}\n"
        f'[problem]\nminimize = "{minimize}"\nsubject_to = {json.dumps(list(rows))}\n[solve]\n{solve}\n'
    )
    return path


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "A.csv"
    np.savetxt(path, HIGHAM, delimiter=",")
    return path


# --- Solved -----------------------------------------------------------------------------------------


def test_solve_prints_the_card(matrix, capsys):
    assert run("solve", matrix, *NEAREST) == 0
    out, err = capsys.readouterr()
    assert "nearest-correlation of A.csv, frobenius" in out
    assert "bregopt solution: optimal" in out
    assert err == ""


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".mtx"])
def test_every_kind_of_matrix_gives_highams_answer(tmp_path, suffix):
    path = tmp_path / f"A{suffix}"
    write = {
        ".csv": lambda: np.savetxt(path, HIGHAM, delimiter=","),
        ".npy": lambda: np.save(path, HIGHAM),
        ".npz": lambda: np.savez(path, other=np.eye(2), A=HIGHAM),
        ".mtx": lambda: scipy.io.mmwrite(path, sp.csr_array(HIGHAM)),
    }
    write[suffix]()
    key = ["--key", "A"] if suffix == ".npz" else []
    assert run("solve", path, *NEAREST, *key, "--tol", "1e-9", "--output", tmp_path / "X.npz") == 0
    # Higham 2002, section 4: to four digits.
    np.testing.assert_allclose(np.load(tmp_path / "X.npz")["X"][0], [1, 0.7607, 0.1573], atol=6e-5)


def test_nearest_psd_is_the_positive_part(matrix, tmp_path):
    assert run("solve", matrix, "--problem", "nearest-psd", "--output", tmp_path / "X.csv") == 0
    w, Q = np.linalg.eigh(HIGHAM)
    np.testing.assert_allclose(
        read_matrix(tmp_path / "X.csv").values, (Q * np.maximum(w, 0)) @ Q.T, atol=1e-6
    )


@pytest.mark.parametrize("divergence", ["frobenius", "logdet", "von_neumann"])
def test_divergences_are_those_of_the_language(tmp_path, divergence):
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.save(tmp_path / "A.npy", A)
    out = tmp_path / "out.json"
    assert run("solve", tmp_path / "A.npy", *NEAREST, "--divergence", divergence, "--output", out) == 0
    X = bo.PSD(2)
    reference = bo.Problem(bo.Minimize(getattr(bo, f"{divergence}_div")(X, A)), [bo.diag(X) == 1]).solve()
    assert json.loads(out.read_text())["value"] == pytest.approx(reference.value, abs=1e-8)


# --- Outputs ----------------------------------------------------------------------------------------


def test_outputs_round_trip(tmp_path):
    outputs = [tmp_path / f"out{suffix}" for suffix in (".npz", ".json", ".csv")]
    path = spec(tmp_path, rows=["diag(X) == 1", "trace(X) <= 3"])
    assert run("solve", path, *(part for output in outputs for part in ("--output", output))) == 0
    arrays = np.load(outputs[0])
    assert set(arrays) == {"X", "dual_0", "dual_1"}
    assert arrays["dual_0"].shape == (2,)
    np.testing.assert_array_equal(read_matrix(outputs[2]).values, arrays["X"])
    report = json.loads(outputs[1].read_text())
    names = ["status", "value", "dual_value", "gap", "residuals", "solver", "iterations", "timings"]
    assert list(report) == names
    assert report["status"] == "optimal"
    assert report["value"] == pytest.approx(2.0, abs=1e-5)
    assert set(report["residuals"]) == {"primal", "dual"}
    # An answer is data for the next problem.
    again = spec(tmp_path, data='A = { file = "out.npz", key = "X" }', rows=[])
    assert run("solve", again, "--output", outputs[1]) == 0
    assert json.loads(outputs[1].read_text())["value"] == pytest.approx(0.0, abs=1e-8)


def test_complex_answers(tmp_path, capsys):
    rho = bo.PSD(2, hermitian=True, name="rho")
    start, corner = np.array([[1, 1j], [-1j, 2]]), rho[0, 1] == 0.25j
    bo.Problem(bo.Minimize(bo.frobenius_div(rho, start)), [corner]).to_spec(tmp_path / "a.toml")
    outputs = ["--output", tmp_path / "a.json", "--output", tmp_path / "x.npz"]
    assert run("solve", tmp_path / "a.toml", *outputs, "--with", "X,duals") == 0
    report, arrays = json.loads((tmp_path / "a.json").read_text()), np.load(tmp_path / "x.npz")
    X = np.array(report["X"]["rho"]["real"]) + 1j * np.array(report["X"]["rho"]["imag"])
    np.testing.assert_array_equal(X, arrays["X"])
    np.testing.assert_allclose(X, [[1, 0.25j], [-0.25j, 2]], atol=1e-6)
    dual = report["duals"][0]["value"]
    assert dual["real"] + 1j * dual["imag"] == arrays["dual_0"]
    capsys.readouterr()
    assert run("solve", tmp_path / "a.toml", "--output", tmp_path / "a.csv") == 2
    assert "rho is Hermitian; use .npz" in capsys.readouterr().err


def test_csv_keeps_labels(tmp_path):
    (tmp_path / "A.csv").write_text(",bonds,shares\nbonds,1,1.5\nshares,1.5,1\n")
    assert run("solve", tmp_path / "A.csv", *NEAREST, "--output", tmp_path / "X.csv") == 0
    table = read_matrix(tmp_path / "X.csv")
    assert table.index == table.columns == ("bonds", "shares")
    np.testing.assert_allclose(table.values, 1.0, atol=1e-5)


@pytest.mark.parametrize("text", [",b,s\nb,1,1.5\ns,1.5,1\n", "b,s\n1,1.5\n1.5,1\n", "b,1,1.5\ns,1.5,1\n"])
def test_csv_keeps_labels_of_a_spec(tmp_path, text):
    (tmp_path / "A.csv").write_text(text)
    path = spec(tmp_path, data='A = { file = "A.csv" }')
    assert run("solve", path, "--output", tmp_path / "X.csv") == 0
    given, found = read_matrix(tmp_path / "A.csv"), read_matrix(tmp_path / "X.csv")
    assert (found.index, found.columns) == (given.index, given.columns)


def test_labels_of_two_files_are_nobodys(tmp_path):
    (tmp_path / "A.csv").write_text("b,s\n1,1.5\n1.5,1\n")
    (tmp_path / "B.csv").write_text("c,d\n1,0\n0,1\n")
    data = 'A = { file = "A.csv" }\nB = { file = "B.csv" }'
    path = spec(tmp_path, data=data, rows=["inner(B, X) == 2"])
    assert run("solve", path, "--output", tmp_path / "X.csv") == 0
    assert read_matrix(tmp_path / "X.csv").columns is None


def test_low_rank_answers_are_written_as_factors(tmp_path):
    assert (
        run("solve", SPECS / "kernel.toml", "--output", tmp_path / "X.npz", "--output", tmp_path / "X.csv")
        == 0
    )
    arrays = np.load(tmp_path / "X.npz")
    assert set(arrays) == {"factor", "dual_0", "dual_1"}
    factor = arrays["factor"]
    np.testing.assert_allclose(read_matrix(tmp_path / "X.csv").values, factor @ factor.T)


def test_several_matrices_and_variables_are_written_by_name(tmp_path, capsys):
    path = tmp_path / "two.toml"
    path.write_text(
        "[variables]\nX = { psd = 2 }\nY = { psd = 3 }\nt = { lower = 1 }\n"
        '[problem]\nminimize = "trace(X) + trace(Y) + t"\nsubject_to = ["X[0, 0] + Y[0, 0] == 2"]\n'
    )
    assert run("solve", path, "--solver", "cvxpy", "--output", tmp_path / "out.npz") == 0
    assert set(np.load(tmp_path / "out.npz")) == {"X_X", "X_Y", "u_t", "dual_0"}
    capsys.readouterr()
    assert run("solve", path, "--output", tmp_path / "out.csv") == 2
    assert "argument --output: " in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


# --- No answer, or not to tolerance -----------------------------------------------------------------


def test_infeasible_is_3_and_json_stays_json(tmp_path, capsys):
    path = spec(tmp_path, rows=["X[0, 0] == 1", "X[0, 0] == 2", "trace(X) <= 5"])
    outputs = [tmp_path / "out.json", tmp_path / "out.csv", tmp_path / "out.npz"]
    assert run("solve", path, *(part for output in outputs for part in ("--output", output))) == 3
    out, err = capsys.readouterr()
    assert "bregopt solution: infeasible" in out
    assert err == f"bregopt: warning: there is no X to write to {outputs[1]}\n"
    report = json.loads(outputs[0].read_text(), parse_constant=pytest.fail)
    assert report["status"] == "infeasible"
    assert report["value"] is None
    assert report["gap"] is None
    assert not outputs[1].exists()
    assert "X" not in np.load(outputs[2])


def test_unbounded_is_3(tmp_path):
    assert run("solve", spec(tmp_path, minimize="-trace(X)", rows=["X[0, 0] == 1"])) == 3


def test_a_row_that_is_infeasible_alone_is_3(tmp_path, capsys):
    assert run("solve", spec(tmp_path, minimize="logdet_div(X, A)", rows=["sq_distance(X, 0, 1) <= 0"])) == 3
    err = capsys.readouterr().err
    assert err.startswith("bregopt: infeasible: ")
    assert "sq_distance(X, 0, 1) <= 0" in err


def test_limit_is_4_with_one_clean_line_and_the_best_answer(tmp_path, capsys):
    path = SPECS / "kernel.toml"
    assert run("solve", path, "--max-iter", 1, "--tol", "1e-12", "--output", tmp_path / "out.npz") == 4
    out, err = capsys.readouterr()
    assert "user_limit" in out
    assert err.startswith("bregopt: warning: bregman: user_limit")
    assert err.count("\n") == 1
    assert "ConvergenceWarning" not in err
    assert "factor" in np.load(tmp_path / "out.npz")


def test_command_line_goes_before_the_spec(tmp_path, capsys):
    path = spec(tmp_path, solve="max_iter = 1\ntol = 1e-14")
    assert run("solve", path, "--max-iter", 500, "--tol", "1e-5") == 0
    assert run("solve", path, "--solver", "bergman") == 2
    assert "did you mean 'bregman'" in capsys.readouterr().err


def test_verbose_prints_the_progress(matrix, capsys):
    assert run("solve", matrix, *NEAREST, "--solver", "bregman", "--verbose") == 0
    assert "iteration" in capsys.readouterr().out


# --- Other commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nearest_correlation", "stress_test", "kernel"])
def test_check_agrees_on_the_examples(name, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        assert run("check", SPECS / f"{name}.toml", "--tol", "1e-6") == 0
    out = capsys.readouterr().out
    assert "bregman" in out
    assert "cvxpy" in out


def test_check_takes_the_named_routes_and_options_of_all(tmp_path, capsys):
    path = spec(tmp_path, solve='solver = "bregman"\nmethod = "cyclic"')
    assert run("check", path, "--solver", "bregman", "--solver", "cvxpy") == 0
    out = capsys.readouterr().out
    assert "psdboost" not in out


class Liar:
    """A route that returns an arbitrary point as converged."""

    name, summary, citation = "liar", "wrong", "none"
    capabilities = Capabilities(objectives=frozenset({"logdet", "frobenius", "linear"}))
    Settings = Settings

    def refusal(self, program, settings):
        return None

    def choice(self, program, settings):
        return ""

    def solve(self, program, settings, start, progress):
        X = [np.eye(block.n) * 2 for block in program.blocks]
        return Answer(X, np.zeros(program.k), np.ones(program.m), StopReason.INFEASIBLE, 1)


@pytest.mark.parametrize("kind", ["matrix", "spec", "sdpa"])
def test_check_that_decides_nothing_is_4_and_leaves_the_instance(kind, matrix, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {**registry._registered, "liar": Liar})
    file, more = matrix, NEAREST
    if kind == "spec":
        file, more = SPECS / "stress_test.toml", ()  # its data are in a file in the same folder
    if kind == "sdpa":
        X = bo.PSD(3)
        file, more = tmp_path / "theta.dat-s.gz", ()
        bo.write_sdpa(bo.Problem(bo.Maximize(bo.sum(X)), [bo.trace(X) == 1, X[0, 1] == 0]), file)
    assert run("check", file, *more, "--tol", "1e-5", "--solver", "cvxpy", "--solver", "liar") == 4
    out, err = capsys.readouterr()
    assert "\nnot ok, undecided: liar ends infeasible_inaccurate: No X meets the hard rows" in out
    (instance,) = tmp_path.glob("*-undecided.toml")
    again = f"bregopt check {instance.name} --solver cvxpy --solver liar --tol 1e-05"
    assert again in err
    assert run(*again.split()[1:]) == 4
    assert out.splitlines()[3].split()[:4] == capsys.readouterr().out.splitlines()[3].split()[:4]


def test_explain_names_every_route(matrix, capsys):
    assert run("explain", matrix, *NEAREST) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in bo.solvers())
    assert "-> bregman" in out


def test_explain_says_what_the_options_of_a_spec_do(tmp_path, capsys):
    file = tmp_path / "own.toml"

    def explained(solve, *more):
        file.write_text(
            "[data]\nA = [[1, 0], [0, 1]]\n[variables]\nX = { psd = 2 }\n"
            "[problem]\nminimize = 'logdet_div(X, A)'\nsubject_to = ['X[0, 0] == 0.5']\n"
            f"[solve]\n{solve}\n"
        )
        assert run("explain", file, *more) == 0
        lines = capsys.readouterr().out.splitlines()
        return next(line for line in lines if line.startswith("->"))

    assert "takes it: method 'cyclic', for one row alone" in explained('solver = "bregman"')
    newton = explained('solver = "bregman"\nmethod = "newton"\ntol = 1e-3')
    assert "'newton'" in newton
    assert "cyclic" not in newton
    assert "-> cvxpy" in explained("tol = 1e-3", "--solver", "cvxpy")


def test_demo_is_handed_its_folder(tmp_path, monkeypatch):
    import types

    calls = []
    module = types.ModuleType("bregopt.demo")
    module.main = lambda output, verbose: calls.append((output, verbose)) or 0
    monkeypatch.setitem(sys.modules, "bregopt.demo", module)
    assert run("demo", "--output", tmp_path, "--quiet") == 0
    assert run("demo") == 0
    assert calls == [(tmp_path, False), (Path("bregopt-demo"), True)]


def test_version_and_help(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"bregopt {bo.__version__}\n"
    assert run("--help") == 0
    tasks = dict(re.findall(r"^    ([a-z-]+)\s+(.*\.)$", capsys.readouterr().out, re.MULTILINE))
    assert list(tasks) == ["solve", "solve-many", "repair", "check", "explain", "verify", "demo", "about"]
    for command, task in tasks.items():
        assert run(command, "--help") == 0
        assert task in capsys.readouterr().out


# --- Bad input --------------------------------------------------------------------------------------

BAD_MATRICES = {
    "nan.csv": (b"1,nan\nnan,1\n", "NaN or Inf"),
    "inf.csv": (b"1,inf\ninf,1\n", "NaN or Inf"),
    "skew.csv": (b"1,0\n0.5,1\n", "is not symmetric"),
    "wide.csv": (b"1,0,0\n0,1,0\n", "expected a square matrix"),
    "vector.csv": (b"1\n0\n", "1 dimensions"),
    "word.csv": (b"1,0\nx,1\n", "line 2, column 1 is 'x'"),
    "empty.csv": (b"", "is empty"),
    "labels.csv": (b",a,b\nb,1,0\na,0,1\n", "the labels of the rows and of the columns differ"),
    "text.npy": (b"x", "cannot be read as .npy"),
    "A.xlsx": (b"1\n", "'.xlsx' are not read; expected a spec (.toml), an SDPA file (.dat-s"),
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_bad_matrices_are_2_and_named(tmp_path, capsys, name):
    content, message = BAD_MATRICES[name]
    (tmp_path / name).write_bytes(content)
    assert run("solve", tmp_path / name, *NEAREST) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"bregopt: error: {tmp_path / name}")
    assert message in err
    assert (tmp_path / name).read_bytes() == content


def test_asymmetry_of_printed_digits_warns(tmp_path, capsys):
    (tmp_path / "A.csv").write_text("1,0.123456789\n0.12345679,1\n")
    assert run("solve", tmp_path / "A.csv", *NEAREST) == 0
    assert "bregopt: warning: " in (err := capsys.readouterr().err)
    assert "entry (0, 1) is 0.123456789 but entry (1, 0) is 0.12345679. Means are taken" in err


@pytest.mark.parametrize("array", [1j * np.eye(2), np.array([[None]])], ids=["complex", "object"])
def test_arrays_of_other_kinds_are_2(tmp_path, capsys, array):
    np.save(tmp_path / "A.npy", array)
    assert run("solve", tmp_path / "A.npy", *NEAREST) == 2
    assert "A.npy" in capsys.readouterr().err


def test_indefinite_start_of_logdet_is_2(matrix, capsys):
    assert run("solve", matrix, *NEAREST, "--divergence", "logdet") == 2
    assert "X0 of logdet_div is not positive definite" in capsys.readouterr().err


BAD_ROWS = {
    "nan": ("X[0, 0] <= b", "b = nan", "data.b"),
    "crossed": ("between(X[0, 0], 2, 1)", "", "1"),
    "self": ("sq_distance(X, 1, 1) <= 1", "", "i == j"),
    "range": ("X[0, 2] == 1", "", "index"),
    "order": ("inner([[1]], X) == 1", "", "A of inner"),
    "gamma": ("soft(X[0, 0] <= 1, gamma=0)", "", "gamma of soft"),
    "penalty": ("soft(X[0, 0] <= 1, penalty='hing')", "", "penalty of soft"),
    "name": ("diag(Y) == 1", "", "name 'Y'"),
    "code": ("__import__('os').system('true')", "", "is not a function here"),
    "file": ("X[0, 0] <= b", 'b = { file = "none.csv" }', "none.csv: no such file"),
}


@pytest.mark.parametrize("command", ["solve", "check", "explain"])
@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_2_and_named(tmp_path, capsys, command, name):
    row, data, message = BAD_ROWS[name]
    path = spec(tmp_path, rows=[row], data=f"A = [[2, 1], [1, 2]]\n{data}")
    assert run(command, path) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"bregopt: error: {path}: ")
    assert message in err
    assert "Traceback" not in err
    assert out == ""


TWO = ["--solver", "bregman", "--solver", "cvxpy"]
BAD_ARGUMENTS = {
    "nothing": ([], "COMMAND"),
    "command": (["sovle", "A.csv"], "COMMAND"),
    "no-file": (["solve"], "FILE"),
    "no-problem": (["solve", "A.csv"], "--problem"),
    "problem": (["solve", "A.csv", "--problem", "nearest"], "--problem"),
    "divergence": (["solve", "A.csv", *NEAREST, "--divergence", "bregman"], "--divergence"),
    "tol": (["solve", "A.csv", *NEAREST, "--tol", "small"], "--tol"),
    "tol-sign": (["solve", "A.csv", *NEAREST, "--tol", "-1"], "tol is -1"),
    "tol-nan": (["solve", "A.csv", *NEAREST, "--tol", "nan"], "tol is nan"),
    "max-iter": (["solve", "A.csv", *NEAREST, "--max-iter", "1.5"], "--max-iter"),
    "time-limit": (["solve", "A.csv", *NEAREST, "--time-limit", "0"], "time_limit is 0"),
    "solver": (["solve", "A.csv", *NEAREST, "--solver", "brgman"], "did you mean 'bregman'"),
    "refused": (["solve", "spec.toml", "--solver", "bregman"], "it does not take a linear objective"),
    "check-solver": (["check", "A.csv", *NEAREST, *TWO, "--solver", "brgman"], "did you mean 'bregman'"),
    "check-one": (["check", "A.csv", *NEAREST, "--solver", "cvxpy"], "name at least two"),
    "check-same": (["check", "A.csv", *NEAREST, *["--solver", "cvxpy"] * 2], "name at least two"),
    "explain-solver": (["explain", "A.csv", *NEAREST, "--solver", "brgman"], "did you mean 'bregman'"),
    "output-kind": (["solve", "A.csv", *NEAREST, "--output", "X.txt"], "--output"),
    "output-folder": (["solve", "A.csv", *NEAREST, "--output", "none/X.csv"], "--output"),
    "missing": (["solve", "none.csv", *NEAREST], "none.csv: no such file"),
    "missing-spec": (["check", "none.toml"], "none.toml: no such file"),
    "folder": (["solve", "folder.csv", *NEAREST], "folder.csv cannot be read"),
    "key": (["solve", "A.csv", *NEAREST, "--key", "A"], "key is 'A'"),
    "spec-problem": (["solve", "spec.toml", *NEAREST], "argument --problem"),
    "spec-divergence": (["explain", "spec.toml", "--divergence", "logdet"], "argument --divergence"),
    "option": (["solve", "A.csv", *NEAREST, "--tool", "1"], "--tool"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_are_2_and_named(tmp_path, matrix, monkeypatch, capsys, name):
    arguments, message = BAD_ARGUMENTS[name]
    spec(tmp_path, minimize="trace(X)")
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert "error: " in err
    assert "Traceback" not in err
    assert out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["X.csv", "long" * 100 + ".csv"], ids=["folder", "too-long"])
def test_output_that_cannot_be_written_is_2_before_the_work(matrix, tmp_path, monkeypatch, capsys, name):
    (tmp_path / "X.csv").mkdir()
    monkeypatch.setattr(bo.Problem, "solve", lambda *_, **__: pytest.fail("solved in vain"))
    assert run("solve", matrix, *NEAREST, "--output", tmp_path / "ok.csv", "--output", tmp_path / name) == 2
    assert f"{name}' cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "ok.csv").exists()


def test_outputs_are_as_before_where_nothing_was_solved(matrix, tmp_path):
    (tmp_path / "old.csv").write_text("1\n")
    outputs = ["--output", tmp_path / "old.csv", "--output", tmp_path / "new.csv"]
    assert run("solve", matrix, *NEAREST, *outputs, "--tol", "-1") == 2
    assert (tmp_path / "old.csv").read_text() == "1\n"
    assert not (tmp_path / "new.csv").exists()


def test_the_answer_is_shown_even_if_writing_fails_after_all(matrix, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(cli.WRITERS, ".csv", full)
    assert run("solve", matrix, *NEAREST, "--output", tmp_path / "X.csv") == 2
    out, err = capsys.readouterr()
    assert "bregopt solution: optimal" in out
    assert "No space left" in err


def test_a_failing_route_is_4(matrix, monkeypatch, capsys):
    def fail(*_, **__):
        raise bo.SolverError("the backend gave up")

    monkeypatch.setattr(bo.Problem, "solve", fail)
    assert run("solve", matrix, *NEAREST) == 4
    assert capsys.readouterr().err == "bregopt: not solved: the backend gave up\n"


def test_memory_that_runs_out_is_2(matrix, monkeypatch, capsys):
    def fail(*_, **__):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr(bo.Problem, "solve", fail)
    assert run("solve", matrix, *NEAREST) == 2
    message = "this machine has too little memory for the problem (Unable to allocate 7.28 TiB)"
    assert capsys.readouterr().err == f"bregopt: error: {message}\n"


HUGE = {
    "spec.toml": "[variables]\nX = {{ psd = {n} }}\n[problem]\nminimize = 'X[0, 0]'",
    "sum.toml": "[variables]\nX = {{ psd = {n} }}\n[problem]\nminimize = 'sum(X)'",
    "vector.toml": "[variables]\nu = {{ shape = {n}000 }}\n[problem]\nminimize = 'sum(u)'",
    "matrix.dat-s": "1\n1\n{n}\n1\n1 1 1 1 1\n0 1 1 1 1\n",
    "diagonal.dat-s": "1\n2\n2 -{n}000\n1\n1 1 1 1 1\n",
    "sparse.mtx": "%%MatrixMarket matrix coordinate real symmetric\n{n} {n} 1\n1 1 1\n",
    "dense.mtx": "%%MatrixMarket matrix array real symmetric\n{n} {n}\n1\n",
}


@pytest.mark.parametrize(("n", "name"), turns([10_000_000, 10**12, 10**30], HUGE))
def test_sizes_that_memory_does_not_hold_are_2(tmp_path, capsys, name, n):
    tracemalloc.start()
    path = tmp_path / name
    path.write_text(HUGE[name].format(n=n))
    assert run("solve", path, *(NEAREST if path.suffix == ".mtx" else [])) == 2
    assert tracemalloc.get_traced_memory()[1] < 2e9
    tracemalloc.stop()
    message = capsys.readouterr().err
    numbers = r"it would need [\d.]+ GB of memory, this machine has|expected at most 2147483647|size|entries"
    assert re.search(numbers, message), message


def test_interrupted_is_130(matrix, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "problem_of_matrix", interrupt)
    assert run("solve", matrix, *NEAREST) == 130
    assert capsys.readouterr().err == "bregopt: interrupted\n"


def test_warnings_are_as_before_afterwards(matrix):
    before = warnings.showwarning
    run("solve", matrix, *NEAREST, "--max-iter", 1, "--tol", "1e-14")
    assert warnings.showwarning is before


# --- As a program -----------------------------------------------------------------------------------


def program(*arguments, **options):
    command = [sys.executable, "-m", "bregopt", *(str(a) for a in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_python_m_bregopt_is_the_same():
    done = program("--version")
    assert (done.returncode, done.stdout) == (0, f"bregopt {bo.__version__}\n")
    done = program("solve", "none.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bregopt: error: none.toml: no such file\n"


def test_a_terminal_without_umlauts_gets_an_escape_and_the_outputs_are_written(tmp_path):
    path = tmp_path / "spec.toml"
    text = spec(tmp_path).read_text()
    path.write_text(f'\ufefftitle = "Mäßig"\n{text}', encoding="utf-8")  # with the mark of Windows
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = program("solve", path, "--output", tmp_path / "X.csv", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("M\\xe4\\xdfig\nbregopt solution: optimal")
    assert read_matrix(tmp_path / "X.csv").values.shape == (2, 2)


@pytest.mark.skipif(os.name == "nt", reason="pipes break in another way there")
def test_broken_pipe_is_quiet(matrix):
    command = [sys.executable, "-m", "bregopt", "solve", str(matrix), *NEAREST, "--verbose"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


# --- Parameters, reports, pipes ---------------------------------------------------------------------

WITH_PARAMETERS = (
    "[parameters]\nt = 1\nd = [1, 2]\n[variables]\nX = { psd = 2 }\nu = { nonneg = true }\n[problem]\n"
    'minimize = "trace(X) + u"\nsubject_to = ["diag(X) >= d", "u + X[0, 0] >= t"]\n'
)


def value_of(*arguments, capsys):
    assert run("solve", *arguments, "--output", "-") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)["value"]


def test_parameters_are_set_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "a.toml"
    path.write_text(WITH_PARAMETERS)
    assert value_of(path, capsys=capsys) == pytest.approx(3, abs=1e-5)
    assert value_of(path, "--set", "t=2.5", capsys=capsys) == pytest.approx(4.5, abs=1e-5)
    assert value_of(path, "--set", "t = 3", "--set", "d=[2, 4]", capsys=capsys) == pytest.approx(7, abs=1e-5)
    path.write_text(WITH_PARAMETERS.replace("t = 1", "t = { }"))
    assert run("solve", path) == 2
    assert "a.toml: parameter t has no value; give one by --set t=..." in capsys.readouterr().err
    assert value_of(path, "--set", "t=2", capsys=capsys) == pytest.approx(4, abs=1e-5)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("s=1", "parameters: 's' is given a value, but is no parameter"),
        ("t", "is no NAME=VALUE"),
        ("t=one", "is no NAME=VALUE"),
        ("t=true", "parameters.t: the value is True; expected numbers"),
        ("t=nan", "parameters.t: "),
        ("t=[1, 2]", "shape"),
        ("d=4", "lower bound 4 is above upper bound 3"),
    ],
)
def test_bad_parameters_are_2_and_named(tmp_path, capsys, word, message):
    path = tmp_path / "a.toml"
    text = WITH_PARAMETERS.replace("diag(X) >= d", "between(diag(X), d, [3, 3])")
    path.write_text(text.replace("t = 1\n", "t = { shape = [], value = 1 }\n"))
    assert run("solve", path, "--set", word) == 2
    assert message in capsys.readouterr().err


def test_parameters_are_of_specs(matrix, capsys):
    assert run("solve", matrix, *NEAREST, "--set", "t=1") == 2
    assert "argument --set is for a spec" in capsys.readouterr().err


def test_a_report_has_the_parts_that_are_asked_for(tmp_path):
    path, output = tmp_path / "a.toml", tmp_path / "a.json"
    path.write_text(WITH_PARAMETERS)
    assert run("solve", path, "--output", output, "--with", "X,u,duals") == 0
    report = json.loads(output.read_text())
    np.testing.assert_allclose(report["X"]["X"], [[1, 0], [0, 2]], atol=1e-4)
    assert report["u"] == {"u": pytest.approx(0, abs=1e-5)}
    first, second = report["duals"]
    assert first["constraint"] == "diag(X) >= d"
    np.testing.assert_allclose(first["value"][1], 1, atol=1e-4)
    assert second["constraint"] == "u + X[0, 0] >= t"
    assert run("solve", path, "--output", output, "--with", "duals") == 0
    assert set(json.loads(output.read_text())) & {"X", "u", "duals"} == {"duals"}


def test_a_report_has_labels_and_factors(tmp_path):
    (tmp_path / "A.csv").write_text(",bonds,shares\nbonds,1,1.5\nshares,1.5,1\n")
    output = tmp_path / "a.json"
    assert run("solve", tmp_path / "A.csv", *NEAREST, "--output", output, "--with", "X") == 0
    report = json.loads(output.read_text())
    assert report["labels"] == {"rows": ["bonds", "shares"], "columns": ["bonds", "shares"]}
    assert run("solve", SPECS / "kernel.toml", "--output", output, "--with", "X") == 0
    assert np.shape(json.loads(output.read_text())["X"]["X"]["factor"]) == (12, 4)


def test_a_report_without_an_answer_is_null(tmp_path):
    output = tmp_path / "a.json"
    path = spec(tmp_path, rows=["X[0, 0] == 1", "X[0, 0] == 2", "trace(X) <= 5"])
    assert run("solve", path, "--output", output, "--with", "X,u,duals") == 3
    report = json.loads(output.read_text(), parse_constant=pytest.fail)
    assert report["X"] == {"X": None}
    assert len(report["duals"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--with", "X"], "argument --with is for a report"), (["--with", "X,y"], "'y' is none of X, u, duals")],
)
def test_parts_without_a_report_are_2(matrix, capsys, arguments, message):
    assert run("solve", matrix, *NEAREST, *arguments) == 2
    assert message in capsys.readouterr().err


def piped(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_specs_matrices_and_sdpa_come_through_pipes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    piped(monkeypatch, WITH_PARAMETERS.encode())
    assert value_of("-", "--set", "t=2.5", capsys=capsys) == pytest.approx(4.5, abs=1e-5)
    piped(monkeypatch, b",a,b\na,1,1.5\nb,1.5,1\n")
    assert run("solve", "-", *NEAREST, "--output", "-.csv", "--verbose") == 0
    out, err = capsys.readouterr()
    assert out.startswith(",a,b\na,")
    assert "iteration" in err
    piped(monkeypatch, b"1\n1\n2\n1\n0 1 1 1 -1\n0 1 2 2 -1\n1 1 1 1 1\n")
    assert value_of("-.dat-s", capsys=capsys) == pytest.approx(-1, abs=1e-5)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_pipe_name_it(monkeypatch, capsys):
    piped(monkeypatch, b"[data")
    assert run("solve", "-") == 2
    assert capsys.readouterr().err.startswith("bregopt: error: -.toml: not a TOML file")
    piped(monkeypatch, b"1,x\ny,1\n2,3\n")
    assert run("solve", "-", *NEAREST) == 2
    assert "-.csv, line 1" in capsys.readouterr().err


def test_all_errors_of_a_spec_come_at_once(tmp_path, capsys):
    path = tmp_path / "a.toml"
    path.write_text(
        "titel = 1\n[data]\na = nan\nb = 1\nunused = 2\n[variables]\nX = { pds = 2 }\nY = { psd = 2 }\n"
        '[problem]\nminimize = "trace(X) + a"\nsubject_to = ["Y[0, 2] == b", "Z == 1", "diag(Y) == 1"]\n'
        "[solve]\ntool = 1\n"
    )
    assert run("solve", path) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"bregopt: error: {path}: 7 errors"
    starts = ["unknown key 'titel'", "data.a: ", "variables.X: ", "problem: subject_to[0]: index of Y"]
    starts += ["problem: subject_to[1]: name 'Z'", "data: 'unused' occurs in no expression", "solve: "]
    found = [line[2:] for line in lines[1:] if not line.startswith("   ")]
    assert len(found) == 7
    assert all(line.startswith(start) for line, start in zip(found, starts, strict=True))


def test_about_names_what_a_report_needs(capsys):
    assert cli.main(["about"]) == 0
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["bregopt"] == bo.__version__
    assert facts["numpy"] == np.__version__
    assert facts["scipy"] == scipy.__version__
    assert facts["Python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert {"cvxpy", "highspy", "threadpoolctl", "extras", "limits", "cores", "memory"} <= facts.keys()
    blas = [info for info in threadpool_info() if info["user_api"] == "blas"]
    shown = [value for name, value in facts.items() if " in " in name]
    for info in blas:
        assert any(
            f"{info['version']}" in value and f"{info['num_threads']} threads" in value for value in shown
        )
