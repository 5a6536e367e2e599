"""bo.solve_many: the same answers on every executor, errors as values, workers that die, Ctrl-C."""

import json
import os
import pickle
import re
import signal
import threading
import time
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import current_process, get_all_start_methods, get_context

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

import bregopt as bo
from bregopt import cli

pytestmark = [
    pytest.mark.skipif("fork" not in get_all_start_methods(), reason="its workers are forked"),
    # Python 3.12 and later warn of a fork beside other threads, such as those of BLAS.
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

SPEC = """
[data]
A = [[2.0, 1.0], [1.0, 2.0]]
[variables]
X = { psd = 2 }
[problem]
minimize = "frobenius_div(X, A)"
subject_to = ["diag(X) == 1"]
"""
MEASURED = ("timings", "history")  # seconds


def pool(workers=2):
    """Return a process pool; forked workers start at once and know the classes of this file."""
    return ProcessPoolExecutor(workers, mp_context=get_context("fork"))


def symmetric(n, seed):
    A = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def nearest(n, seed, divergence=bo.frobenius_div):
    A = symmetric(n, seed)
    X = bo.PSD(n, name="X")
    start = A if divergence is bo.frobenius_div else A @ A + np.eye(n)
    return bo.Problem(bo.Minimize(divergence(X, start)), [bo.diag(X) == 1])


def cut(n, seed):
    X = bo.PSD(n, name="X")
    return bo.Problem(bo.Maximize(bo.inner(symmetric(n, seed), X)), [bo.diag(X) == 1])


def pairs(n, count, drift=1.0):
    """Return one problem with as many diagonals."""
    X, p = bo.PSD(n, name="X"), bo.Parameter(n, name="p")
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, symmetric(n, 0))), [bo.diag(X) == p])
    steps = np.random.default_rng(1).uniform(-0.3, 0.3, (count, n))
    return [(problem, {p: 1.0 + drift * step}) for step in steps]


def mixed(folder):
    """Return problems of several routes; one is infeasible, one has no value, and one no file."""
    (folder / "good.toml").write_text(SPEC)
    X, p = bo.PSD(3, name="X"), bo.Parameter(name="p")
    one_row = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == p])
    Y = bo.PSD(2, name="Y")
    infeasible = bo.Problem(bo.Minimize(bo.frobenius_div(Y, np.eye(2))), [bo.diag(Y) == 1, Y[0, 1] == 2])
    return [
        *(nearest(8, k, d) for k, d in enumerate((bo.frobenius_div, bo.logdet_div, bo.von_neumann_div))),
        *(cut(6, k) for k in range(3)),
        folder / "good.toml",
        (one_row, {p: 1.5}),
        infeasible,
        one_row,
        folder / "missing.toml",
        (one_row, {p: 0.5}),
        *pairs(6, 6),
    ]


def plain(value):
    """Return arrays and LowRank matrices as bytes, and errors as text."""
    if isinstance(value, Exception):
        return repr(value)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return np.asarray(value).tobytes() if isinstance(value, np.ndarray | bo.LowRank) else value


def digits(answers):
    """Return all that an answer says, but not how long it took."""
    names = [name for name in bo.Solution.__dataclass_fields__ if name[0] != "_" and name not in MEASURED]
    return [
        plain(a)
        if isinstance(a, Exception)
        else repr(
            [plain(a.u.values()) if name == "u" else plain(getattr(a, name)) for name in names if name != "u"]
        )
        for a in answers
    ]


class Deadly(bo.Problem):
    """A problem that ends the process of its worker, the first time only if `mark` is a path."""

    mark = None

    def _solve(self, *arguments):
        if self.mark is None or not self.mark.exists():
            if self.mark is not None:
                self.mark.touch()
            os._exit(1)
        return super()._solve(*arguments)


def deadly(seed, mark=None):
    like = nearest(5, seed)
    problem = Deadly(like.objective, like.constraints)
    problem.mark = mark
    return problem


class Slow(bo.Problem):
    def _solve(self, *arguments):
        time.sleep(0.05)
        return super()._solve(*arguments)


class BlasThreads(bo.Problem):
    def _solve(self, *arguments):
        raise RuntimeError({each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"})


class Local:
    """An object that no pickle holds."""

    def __reduce__(self):
        raise pickle.PicklingError("not this one")


# --- Answers ----------------------------------------------------------------------------------------


def test_each_answer_is_that_of_the_problem_alone(tmp_path):
    problems = mixed(tmp_path)
    answers = bo.solve_many(problems)
    assert [type(a).__name__ for a in answers if isinstance(a, Exception)] == [
        "ValueError",
        "FileNotFoundError",
    ]
    assert answers[8].status == "infeasible"
    for k in (0, 1, 2, 3, 4, 5):
        alone = problems[k].solve()
        assert answers[k].status == "optimal"
        assert abs(answers[k].value - alone.value) <= answers[k].error + alone.error
    assert [round(answers[k].value, 5) for k in (7, 11)] == [3.0, 1.0]
    assert "parameter p has no value" in str(answers[9])


def test_answers_of_pairs_are_those_of_cvxpy():
    given = pairs(5, 3)
    for (_, values), answer in zip(given, bo.solve_many(given, tol=1e-8), strict=True):
        X = cp.Variable((5, 5), PSD=True)
        (diagonal,) = values.values()
        reference = cp.Problem(cp.Minimize(cp.sum_squares(X - symmetric(5, 0))), [cp.diag(X) == diagonal])
        reference.solve(solver="CLARABEL")
        assert np.allclose(answer.X, X.value, atol=1e-4)
        assert np.isclose(answer.value, reference.value, rtol=1e-6)


def test_digits_do_not_depend_on_executor_and_size_of_tasks(tmp_path):
    problems = mixed(tmp_path)
    expected = digits(bo.solve_many(problems))
    assert digits(bo.solve_many(problems, chunk=5)) == expected
    with ThreadPoolExecutor(2) as threads:
        assert digits(bo.solve_many(problems, threads)) == expected
    with pool() as processes:
        for chunk in (None, 1, 4, 100):
            assert digits(bo.solve_many(problems, processes, chunk=chunk)) == expected


def test_problems_of_the_user_do_not_change():
    given = pairs(4, 2)
    problem = given[0][0]
    (p,) = problem.parameters
    p.value = np.full(4, 2.0)
    bo.solve_many([*given, problem])
    assert problem.solution is None
    assert (p.value == 2).all()
    assert problem.matrices[0].value is None


def test_no_problems():
    assert bo.solve_many([]) == []


def test_a_spec_keeps_its_options_and_arguments_replace_them(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC + '[solve]\nsolver = "cvxpy"\ntol = 1e-5\n')
    (own,), (asked,) = bo.solve_many([path]), bo.solve_many([str(path)], solver="bregman")
    assert (own.solver, asked.solver) == ("cvxpy", "bregman")


# --- Chains -----------------------------------------------------------------------------------------


def test_chains_start_from_the_answer_before_and_have_fixed_boundaries():
    given = pairs(12, 9, drift=1e-3)
    cold, warm = bo.solve_many(given), bo.solve_many(given, warm_start="chain", chunk=4)
    steps = [[a.iterations for a in answers] for answers in (cold, warm)]
    firsts = (0, 4, 8)
    assert all(steps[0][k] == steps[1][k] for k in firsts)
    assert sum(steps[1]) < sum(steps[0])
    for a, b in zip(cold, warm, strict=True):
        assert a.status == b.status == "optimal"
        assert abs(a.value - b.value) <= a.error + b.error
    with pool() as processes:
        assert digits(bo.solve_many(given, processes, warm_start="chain", chunk=4)) == digits(warm)


def test_a_failure_in_a_chain_starts_it_anew(tmp_path):
    given = pairs(6, 3)
    problem, (p,) = given[0][0], given[0][0].parameters
    answers = bo.solve_many([given[0], (problem, {p: np.ones(2)}), given[1]], warm_start="chain")
    assert isinstance(answers[1], ValueError)
    assert digits(answers[2:]) == digits(bo.solve_many([given[1]]))


# --- Workers ----------------------------------------------------------------------------------------


def test_a_worker_that_dies_spoils_no_other_problem():
    problems = [nearest(5, k) for k in range(12)]
    expected = digits(bo.solve_many(problems))
    with pool() as processes:
        answers = bo.solve_many([*problems[:3], deadly(0), *problems[3:], deadly(1)], processes)
    assert isinstance(answers[3], BrokenProcessPool)
    assert isinstance(answers[-1], BrokenProcessPool)
    assert digits([*answers[:3], *answers[4:-1]]) == expected


def test_workers_that_die_one_after_the_other_spoil_no_other_problem():
    problems = [nearest(5, k) for k in range(3)]
    with pool(1) as processes:
        answers = bo.solve_many([*map(deadly, range(6)), *problems], processes, chunk=1)
    assert all(isinstance(answer, BrokenProcessPool) for answer in answers[:6])
    assert digits(answers[6:]) == digits(bo.solve_many(problems))


def test_a_worker_that_dies_once_gets_a_second_try(tmp_path):
    problems = [nearest(5, 0), deadly(1, tmp_path / "died"), nearest(5, 2)]
    with pool() as processes:
        answers = bo.solve_many(problems, processes, chunk=3)
    assert digits(answers) == digits(bo.solve_many([nearest(5, k) for k in range(3)]))


class Cut(bo.Problem):
    """A problem whose worker dies while it sends the answer, the first time."""

    def _solve(self, *arguments):
        if not self.mark.exists():
            self.mark.touch()
            queue = current_process()._args[1]
            queue._wlock.acquire()
            os.write(queue._writer.fileno(), (1_000).to_bytes(4, "big") + b"a part")
            os._exit(1)
        return super()._solve(*arguments)


def test_a_worker_that_dies_while_it_sends_an_answer(tmp_path):
    problems = [nearest(5, k) for k in range(6)]
    cut = Cut(problems[2].objective, problems[2].constraints)
    cut.mark = tmp_path / "died"
    with pool() as processes:
        answers = bo.solve_many([*problems[:2], cut, *problems[3:]], processes)
    assert digits(answers) == digits(bo.solve_many(problems))


def test_a_pool_that_never_starts_is_the_outcome_of_all():
    with ProcessPoolExecutor(2, get_context("fork"), initializer=os._exit, initargs=(1,)) as processes:
        answers = bo.solve_many([nearest(4, k) for k in range(50)], processes)
    assert len(answers) == 50
    assert all(isinstance(a, BrokenProcessPool) for a in answers)


def test_a_problem_that_cannot_be_sent_is_an_outcome():
    odd = nearest(4, 0)
    odd.local = Local()
    first, second = bo.solve_many([odd, nearest(4, 1)])
    assert isinstance(first, pickle.PicklingError)
    assert second.status == "optimal"


def test_workers_have_one_blas_thread():
    like = nearest(4, 0)
    with threadpool_limits(2, user_api="blas"), pool() as processes:
        for executor in (None, processes):
            (answer,) = bo.solve_many([BlasThreads(like.objective, like.constraints)], executor)
            assert answer.args == ({1},)


class Refusing(Executor):
    """Takes no task."""

    def submit(self, fn, /, *arguments):
        raise NotImplementedError


def test_errors_of_an_executor_itself_are_raised():
    with pytest.raises(NotImplementedError):
        bo.solve_many([nearest(4, 0)], Refusing())
    closed = pool()
    closed.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        bo.solve_many([nearest(4, 0)], closed)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")  # of the solve that Ctrl-C ends
@pytest.mark.parametrize("parallel", [False, True])
def test_ctrl_c_returns_the_answers_that_are_there(parallel):
    like = nearest(4, 0)
    slow = [Slow(like.objective, like.constraints) for _ in range(200)]
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    before = signal.getsignal(signal.SIGINT)
    begin = time.perf_counter()
    if parallel:
        with pool() as processes:
            answers = bo.solve_many(slow, processes)
    else:
        answers = bo.solve_many(slow)
    assert time.perf_counter() - begin < 4
    solved = [a for a in answers if isinstance(a, bo.Solution)]
    assert 0 < len(solved) < 200
    assert all(isinstance(a, CancelledError) for a in answers if not isinstance(a, bo.Solution))
    assert signal.getsignal(signal.SIGINT) is before


# --- What is sent -----------------------------------------------------------------------------------


def test_pickles_hold_data_but_no_cached_values():
    n = 20
    problem = nearest(n, 0)
    unsolved = len(pickle.dumps(problem))
    solution = problem.solve()
    matrix = 8 * n * n
    assert unsolved < matrix + 8_000
    assert len(pickle.dumps(solution)) < 2 * matrix + 8_000
    assert len(pickle.dumps([solution, problem.solve()])) < 3 * matrix + 12_000  # the data once
    linear = cut(5, 0).solve()
    assert np.array_equal(pickle.loads(pickle.dumps(linear)).dimacs, linear.dimacs)


# --- Arguments --------------------------------------------------------------------------------------


def test_bad_arguments():
    problem = nearest(4, 0)
    other = bo.Parameter(name="q")
    for wrong in (problem, "spec.toml", 3, sp.bsr_array(np.eye(2)), np.array(3.0)):
        with pytest.raises(TypeError, match="expected a list of problems"):
            bo.solve_many(wrong)
    for wrong in (3, (problem, 1), (problem, {}, {})):
        with pytest.raises(TypeError, match=r"problems\[1\] is .*expected a bo.Problem, the path"):
            bo.solve_many([problem, wrong])
    with pytest.raises(
        TypeError, match=r"problems\[0\] is ndarray of shape \(9, 9\).*bo.nearest_correlation"
    ):
        bo.solve_many([np.eye(9)])
    with pytest.raises(ValueError, match=r"problems\[0\] has a value for q, a parameter of another problem"):
        bo.solve_many([(problem, {other: 1.0})])
    with pytest.raises(TypeError, match="executor is 4"):
        bo.solve_many([problem], 4)
    with pytest.raises(TypeError, match=r"chunk is 1\.5"):
        bo.solve_many([problem], chunk=1.5)
    with pytest.raises(ValueError, match="chunk is 0"):
        bo.solve_many([problem], chunk=0)
    with pytest.raises(TypeError, match="progress is 1"):
        bo.solve_many([problem], progress=1)
    with pytest.raises(ValueError, match="warm_start is True"):
        bo.solve_many([problem], warm_start=True)
    with pytest.raises(ValueError, match="warm_start is array"):
        bo.solve_many([problem], warm_start=np.eye(2))
    with pytest.raises(TypeError, match="tolerance"):
        bo.solve_many([problem], tolerance=1e-3)


def test_answers_that_are_not_accurate_warn_once():
    with pytest.warns(
        bo.ConvergenceWarning, match=r"2 of 3 answers .* the first for problems\[1\]"
    ) as warned:
        bo.solve_many(
            [_easy(), nearest(8, 1, bo.von_neumann_div), nearest(8, 2, bo.von_neumann_div)], max_iter=1
        )
    assert len(warned) == 1


def _easy():
    X = bo.PSD(2, name="X")
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.diag(X) == 1])


def test_progress_shows_a_bar_where_tqdm_is_installed(capsys):
    problems = [nearest(4, k) for k in range(3)]
    bo.solve_many(problems, progress=False)
    assert capsys.readouterr().err == ""
    bo.solve_many(problems)
    shown = capsys.readouterr().err
    assert "3/3" in shown if find_spec("tqdm") else shown == ""


# --- The command line -------------------------------------------------------------------------------


def command(*arguments):
    try:
        return cli.main(["solve-many", *map(str, arguments), "--quiet"])
    except SystemExit as stop:
        return stop.code


@pytest.fixture
def specs(tmp_path):
    paths = [tmp_path / f"{name}.toml" for name in ("a", "b", "none", "infeasible")]
    for path in paths[:2]:
        path.write_text(SPEC)
    paths[3].write_text(SPEC.replace('"diag(X) == 1"', '"diag(X) == 1", "X[0, 1] == 2"'))
    return paths


@pytest.mark.parametrize("jobs", [1, 2])
def test_command_solves_specs_and_writes_answers(jobs, specs, capsys, tmp_path):
    assert command(*specs[:2], "--jobs", jobs, "--output", tmp_path, "--tol", "1e-5") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{specs[0]}  optimal  value 2  gap ")
    assert lines[2] == "2 of 2 solved"
    for name in "ab":
        assert json.loads((tmp_path / f"{name}.json").read_text())["status"] == "optimal"
        with np.load(tmp_path / f"{name}.npz") as arrays:
            assert np.allclose(arrays["X"], [[1, 1], [1, 1]], atol=1e-4)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_exit_status_of_the_command(specs, capsys, tmp_path):
    a, _, none, infeasible = specs
    assert command(a, infeasible) == 3
    assert command(a, infeasible, none) == 2
    assert re.search(r"none\.toml +FileNotFoundError: no such file\n", capsys.readouterr().out)
    assert command(a, "--jobs", 0) == 2
    assert command(a, "--output", tmp_path / "nowhere") == 2
    assert command(a, a, "--output", tmp_path) == 2
    assert "two specs are called a, and so would their answers be" in capsys.readouterr().err
    assert command(a, "--max-iter", 0) == 2


def test_values_of_parameters_by_object_and_by_name():
    X, level = bo.PSD(2), bo.Parameter(name="level")
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.trace(X) == level])
    by_object, by_name = bo.solve_many([(problem, {level: 3.0}), (problem, {"level": 3.0})], progress=False)
    assert by_object.value == by_name.value == pytest.approx(0.5)
    with pytest.raises(ValueError, match="is no parameter of its problem; did you mean 'level'"):
        bo.solve_many([(problem, {"levl": 3.0})])
    with pytest.raises(ValueError, match="level, a parameter of another problem"):
        bo.solve_many([(problem, {bo.Parameter(name="level"): 3.0})])
