"""Benchmarks can be imported, and print the tables of their results."""

import importlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA
from page_tables import pages
from samples import first

import bregopt as bo

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def loaded(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:  # a peer, or an extra
        if str(error.name).startswith(("bregopt", "nearness", "sdp")):
            raise
        pytest.skip(f"needs {error.name}")


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_benchmark_loads(name, monkeypatch):
    loaded(name, monkeypatch)


def table_of(text):
    """Return the titles of the first table in a text, and the first cell of each line."""
    table = pages.TABLE.findall(text)[0]
    return pages.titles(table), [pages.titles(line)[0] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("name", "small", "needed"),
    [
        ("compiling", ["--order", "6", "--rows", "10"], None),
        ("lowering", ["--orders", "6", "--constraints", "10"], None),
        ("online", ["--rounds", "1", "--trials", "5"], None),
        ("sweep", ["--sides", "2", "--order", "8"], None),
        ("many_simulation", ["--quick"], None),
        ("special_paths", ["--only", "slacks", "--rounds", "1"], None),
        ("many_stacks", ["--quick"], None),
        ("packages", ["--only", "CVXPY"], None),
        pytest.param(
            "low_rank", ["--orders", "400", "--cyclic", "50", "--pairs", "60"], None, marks=pytest.mark.slow
        ),
        ("large_cuts", ["--only", "gpp100", "--data", str(DATA)], "sdplib/gpp100.dat-s.gz"),
    ],
)
def test_a_small_run_prints_the_table_of_the_results(name, small, needed, monkeypatch, capsys):
    if needed is not None and not (DATA / needed).exists():
        pytest.skip(f"needs {needed}")
    before = (BENCHMARKS / "results" / f"{name}.md").read_text()
    module = loaded(name, monkeypatch)
    monkeypatch.setattr(module, "ROWS", 20, raising=False)  # of a sweep
    monkeypatch.setattr(sys, "argv", [name, *small])
    module.main()
    (titles, lines), (saved_titles, saved_lines) = table_of(capsys.readouterr().out), table_of(before)
    assert titles == saved_titles
    assert {line for line in lines if not line.isdigit()} <= set(saved_lines)
    assert (BENCHMARKS / "results" / f"{name}.md").read_text() == before  # only full runs are saved


@pytest.mark.parametrize(
    "name",
    [
        "NPA, CHSH, level 1",
        "NPA, I3322, level 1",
        "Lasserre, cut of a cycle of 5, level 2",
        "optimal power flow, 9 buses",
    ],
)
def test_hierarchies_have_the_published_values(name, monkeypatch):
    known = loaded("hierarchies", monkeypatch).PUBLISHED[name]
    problem = known.make()
    problem.solve(method="bregopt", tol=1e-8)
    assert problem.status == "optimal"
    assert known.error(problem.value) <= known.digits


@pytest.mark.parametrize(("n", "d", "size"), first(2, [(12, 6, 24), (14, 6, 64), (16, 6, 256)]))
def test_bounds_on_codes_are_proven(n, d, size, monkeypatch):
    """Codes of this size exist (Best et al. 1978). A variable is the constant one, and blocks vanish."""
    problem = loaded("hierarchies", monkeypatch).code(n, d)
    problem.solve(method="bregopt", tol=1e-8)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(size, rel=1e-8)


def test_special_paths_name_their_problems_where_they_are_chosen(monkeypatch):
    module = loaded("special_paths", monkeypatch)
    for path in module.paths(DATA):
        file, _, _ = path.place.partition(":")
        source = (BENCHMARKS.parent / "bregopt" / f"{file.replace('.', '/')}.py").read_text()
        assert f"# Pays on: {path.problem}.\n" in source, path.name


def test_every_problem_that_a_comment_names_has_a_row():
    source = BENCHMARKS.parent / "bregopt"
    named = {p for f in source.rglob("*.py") for p in re.findall(r"# Pays on: (.*)\.\n", f.read_text())}
    rows = (BENCHMARKS / "results" / "special_paths.md").read_text().splitlines()[2:]
    assert named == {row.split(" | ")[1] for row in rows}


def test_results_have_the_columns_that_their_benchmarks_print(monkeypatch):
    headings = {
        "definiteboost": loaded("definiteboost", monkeypatch).HEAD,
        "nearness": "\n".join(loaded("nearness", monkeypatch).Table().lines) + "\n",
    }
    for name, heading in headings.items():
        assert (BENCHMARKS / "results" / f"{name}.md").read_text().startswith(heading), name


# Python compiles all modules of a commit's files first.
@pytest.mark.slow
@pytest.mark.parametrize("base", [".", "HEAD"])
def test_two_versions_take_turns(base, monkeypatch, capfd):
    if base == "HEAD" and not has_commits():
        pytest.skip("needs git and a commit")
    module = loaded("compare", monkeypatch)
    monkeypatch.chdir(BENCHMARKS.parent)
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):  # a temporary folder is not measured
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda *_: None, raising=False)
    words = ["--rounds", "1", "--seconds", "0", "--only", "nearest_psd"]
    monkeypatch.setattr(sys, "argv", ["compare", base, ".", *words])
    module.main()
    titles, lines = table_of(capfd.readouterr().out)
    assert titles == ["call", "base, ms", "head, ms", "ratio", "quartiles", ""]
    assert lines == ["nearest_psd, n = 60"]


def test_a_change_is_marked_where_three_quarters_of_the_rounds_see_it(monkeypatch):
    module = loaded("compare", monkeypatch)
    slow = [[1.0, ratio, ratio] for ratio in (1.0, 1.06, 1.07, 1.08, 1.09)]
    assert module.row("a call", slow) == (
        "| a call | 1000.00 | 1070.00 | 1.07 | 1.06 to 1.08 | slower |",
        1.07,
    )
    fast = [[1.0, 1 / ratio, 1 / ratio] for ratio in (1.0, 1.06, 1.07, 1.08, 1.09)]
    assert module.row("a call", fast)[0].endswith("| 0.93 | 0.93 to 0.94 | faster |")
    noise = [[1.0, ratio, ratio] for ratio in (0.9, 1.0, 1.1, 1.2)]
    assert module.row("a call", noise)[0].endswith("|  |")
    assert module.row("a call", [*noise, None]) == ("| a call | | | | | refused |", None)


def has_commits():
    command = ["git", "rev-parse", "HEAD"]
    return shutil.which("git") and not subprocess.run(command, cwd=BENCHMARKS, check=False).returncode


def test_a_commit_is_a_folder_of_its_files(monkeypatch, tmp_path):
    if not has_commits():
        pytest.skip("needs git and a commit")
    folder = loaded("compare", monkeypatch).checkout("HEAD", tmp_path / "base")
    assert (folder / "bregopt" / "__init__.py").exists()


def test_a_version_that_is_neither_folder_nor_commit_is_refused(monkeypatch, tmp_path):
    module = loaded("compare", monkeypatch)
    with pytest.raises(SystemExit, match="no-such-commit is neither a folder nor a commit"):
        module.checkout("no-such-commit", tmp_path / "base")


def test_constants_become_smaller_and_larger(monkeypatch):
    module = loaded("tuning", monkeypatch)
    cases = {60: (30, 120), 1: (1, 2), 0.1: (0.05, 0.2), 0.75: (0.5, 0.875), 2.0: (1.0, 4.0)}
    for value, expected in cases.items():
        assert tuple(module.scaled(value, factor) for factor in (0.5, 2.0)) == expected
    assert module.scaled((0.25, 4), 2.0) == (0.5, 8)
    default = bo.tuning("bregman")
    names = dict(module.constants(default))
    assert {"rounds", "pass_limit"} <= set(names)
    tuned = module.variants(default, "rounds", 60)
    assert [tuned[side].rounds for side in module.SIDES] == [30, 120]
    assert list(module.variants(replace(default, rounds=1), "rounds", 1)) == ["larger"]
    assert module.changed(default, "first_tol", -1.0) is None


def test_every_route_has_problems_on_which_its_constants_are_measured(monkeypatch):
    module = loaded("tuning_problems", monkeypatch)
    assert set(module.suites()) == set(bo.solvers()) - {"cvxpy"}


def test_the_effect_of_a_constant_is_printed(monkeypatch, capsys):
    results = BENCHMARKS / "results" / "tuning.md"
    before = results.read_text() if results.exists() else None
    module = loaded("tuning", monkeypatch)
    few = {route: cases[:2] for route, cases in module.suites().items()}
    monkeypatch.setattr(module, "suites", lambda: few)
    words = ["--only", "bregman", "--constant", "farkas_step", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["tuning", *words])
    module.main()
    text = capsys.readouterr().out
    assert text.startswith("Of 1 constants, halved and doubled one at a time, ")
    assert module.HEAD in text
    assert "`farkas_step`" in text
    assert (results.read_text() if results.exists() else None) == before  # only full runs are saved


def test_a_constant_is_listed_by_its_effect(monkeypatch):
    module = loaded("tuning", monkeypatch)
    case = module.Case("a problem", None, {})
    default, same = module.Run(0.1, "optimal", 10, 2.0), module.Run(0.1, "optimal", 10, 2.0)
    slow = module.Run(0.2, "max_iter", 20, 2.1)
    rounds = [[{"default": default, "smaller": slow, "larger": same}]]
    effects = {side: module.effect([(case, None)], rounds, side) for side in module.SIDES}
    line = module.Line("radius", 0.5, effects)
    assert str(line) == "| `radius` | 0.5 | 2.00 | 1.00 | 2.00 | 1.00 | 1 | smaller: slower |"
    assert line.changes_time
    assert not line.without_effect
    assert module.Line("radius", 0.5, {"larger": effects["larger"]}).without_effect
    monkeypatch.setattr(module, "suites", lambda: {"path": [case]})
    assert "- `radius` smaller, a problem: max_iter instead of optimal" in module.table("path", [line])
    assert module.summary({"path": [line]}) == (
        "Of 1 constants, halved and doubled one at a time, 1 change the time by more than 5%, and 0 have no "
        "effect on these problems; 1 of 2 answers have another status."
    )


# Each solver of an instance runs in a process of its own.
@pytest.mark.parametrize("instances", [[], pytest.param(["20 LMIs of order 4"], marks=pytest.mark.slow)])
def test_a_small_run_judges_what_is_to_be_reached(instances, monkeypatch, capsys):
    pytest.importorskip("clarabel")
    module = loaded("semidefinite", monkeypatch)
    words = ["--quick", "--only", *instances, "cones", "--solvers", "Clarabel", "--repeat", "1"]
    monkeypatch.setattr(sys, "argv", ["semidefinite", *words])
    module.main()
    tables = [page_table.splitlines() for page_table in pages.TABLE.findall(capsys.readouterr().out)]
    *of_instances, cones, reached = tables
    for table in of_instances:
        runs = [pages.titles(line)[1:3] for line in table[2:]]
        assert runs[:3] == [
            ["bregopt path", "optimal"],
            ["bregopt method", "optimal"],
            ["bregopt BREGOPT", "optimal"],
        ]
        assert ["Clarabel", "Solved"] in runs
        assert ["Clarabel by CVXPY", "optimal"] in runs
    assert len(of_instances) == len(instances)
    errors = np.array([pages.titles(line)[5].split() for line in cones[2:]], dtype=float)
    # Near the minimum of a quadratic the gradient is as small as the root of the gap.
    assert errors[:, 2].max() < 1e-4
    assert np.delete(errors, 2, axis=1).max() < 1e-5
    assert "lambda_max" in [pages.titles(line)[0] for line in reached[2:]]


def test_a_target_is_reached_by_all_runs_that_it_asks_for(monkeypatch):
    module = loaded("sdp_targets", monkeypatch)

    def result(solver, seconds, error=1e-8):
        return module.Result(solver, "optimal", seconds / 2, seconds, error, error < 1e-5)

    runs = [
        result("bregopt path", 1.0),
        result("bregopt method", 3.0),
        result("CSDP", 1.0),
        result("SDPA", 2.0),
    ]
    hooks = module.by_hooks
    assert (
        module.faster("a", ["p"], 3, "CSDP", hooks).line({"p": runs}) == "| a | at most 3x CSDP | 3x | yes |"
    )
    assert (
        module.faster("a", ["p"], 2, runs=hooks).line({"p": runs}) == "| a | at most 2x the best | 3x | no |"
    )
    assert module.faster("a", ["p"], 0.5).line({"p": runs}) == "| a | at most 0.5x the best | 1x | no |"
    wrong = [*runs[:3], result("SDPA", 0.1, 1e-3)]
    assert module.faster("a", ["p"], 1).line({"p": wrong}) == "| a | at most 1x the best | 1x | yes |"
    failed = [result("bregopt path", 0.1, 1e-3), *runs[2:]]
    line = "| a | at most 2x the best | 0.1x, not all solved | no |"
    assert module.faster("a", ["p"], 2).line({"p": failed}) == line
    both = {"p": runs, "q": [result("bregopt path", 1.0, 1e-6), result("CSDP", 1.0, 1e-7)]}
    assert module.accurate("a", ["p", "q"], 1e-7).line(both).endswith("| 1 of 2, largest 1.0e-06 | no |")
    assert module.no_worse("a", ["p", "q"], ["CSDP"]).line(both).endswith("| 1 of 2 | no |")
    assert module.faster("a", ["r"], 2).line(both) is None
