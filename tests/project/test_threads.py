"""Small problems limit every BLAS library to one thread, and restore the numbers of threads."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import networkx
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import bregopt as bo
from bregopt.clock import SMALL, threads_for
from bregopt.program import Answer, StopReason
from bregopt.routes import registry
from bregopt.routes.base import Capabilities, Settings

HELD = 2  # threads that the user has


NAMES = """
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
for library in threadpool_info():
    if library["user_api"] == "blas":
        print(library["filepath"])
"""


def printed(code):
    """Return the output of a new process."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True
    )
    return done.stdout


@cache
def libraries():
    """Return the controllers of the BLAS libraries of NumPy and SciPy.

    Another process names the libraries, as peers load their own ones here, some without threads.
    """
    paths = printed(NAMES).splitlines()
    return [library for library in ThreadpoolController().lib_controllers if library.filepath in paths]


def numbers():
    return [library.get_num_threads() for library in libraries()]


@pytest.fixture(autouse=True)
def several_threads():
    with threadpool_limits(HELD, user_api="blas"):
        if not numbers() or min(numbers()) < HELD:
            pytest.skip(f"NumPy and SciPy have no BLAS that takes {HELD} threads")
        yield


def alone(found):
    return set(found) == {1}


def as_before(found):
    return set(found) == {HELD}


@pytest.fixture
def route(monkeypatch):
    """A route that notes the numbers of threads, and does one thing more."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))

    @bo.register_solver
    class Watching:
        name, summary, citation = "watching", "notes threads", "none"
        capabilities = Capabilities(objectives=frozenset({"frobenius"}), blocks=1, variables=False)
        Settings = Settings
        seen, then = [], staticmethod(lambda: None)

        def refusal(self, program, settings):
            return None

        def choice(self, program, settings):
            return ""

        def solve(self, program, settings, start, progress):
            self.seen.append(numbers())
            self.then()
            self.seen.append(numbers())
            X0 = program.blocks[0].nearness.X0
            return Answer((X0,), np.zeros(0), np.zeros(program.m), StopReason.CONVERGED, 1)

    Watching.seen = []
    return Watching


def solved(n, solver="watching"):
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(n)))).solve(solver=solver)


def test_one_thread_where_the_matrix_is_small(route):
    assert solved(3).status == "optimal"
    assert all(map(alone, route.seen))
    assert as_before(numbers())


def test_all_threads_where_it_is_large(route):
    solved(SMALL + 1)
    assert all(map(as_before, route.seen))


def test_restored_after_an_error(route):
    def fail():
        raise InterruptedError

    route.then = staticmethod(fail)
    with pytest.raises(InterruptedError):
        solved(3)
    assert alone(route.seen[0])
    assert as_before(numbers())


def test_a_solve_inside_of_another(route):
    route.then = staticmethod(lambda: solved(3, "bregman"))
    solved(3)
    assert alone(route.seen[1])
    assert as_before(numbers())


def test_the_last_block_restores_in_whatever_thread():
    begun, ended, seen = threading.Event(), threading.Event(), []

    def second():
        with threads_for(3):
            begun.set()
            assert ended.wait(60)
            seen.append(numbers())

    with ThreadPoolExecutor(1) as pool:
        with threads_for(3):
            last = pool.submit(second)
            assert begun.wait(60)
        ended.set()
        last.result()
    assert alone(seen[0])
    assert as_before(numbers())


def test_a_block_restores_where_another_thread_holds_a_limit():
    """threadpoolctl lets only the thread that holds a limit set the number of OpenBLAS."""

    def one():
        with threads_for(3):
            return numbers()

    with ThreadPoolExecutor(1) as pool, threadpool_limits(HELD, user_api="blas"):
        assert alone(pool.submit(one).result())
        assert as_before(numbers())


def test_many_threads_leave_the_numbers_as_they_were():
    met, seen = threading.Barrier(4), []

    def one(_):
        with threads_for(3):
            met.wait(60)  # all four are inside at the same time
            seen.append(numbers())
            met.wait(60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))
        assert as_before(numbers())
        assert len(seen) == 4
        assert all(map(alone, seen))
        orders = [3, 20, 5, 40] * 10
        found = pool.map(lambda n: bo.nearest_correlation(np.eye(n) + 0.5).status, orders)
        assert set(found) == {"optimal"}
    assert as_before(numbers())


def test_solves_in_several_threads_have_the_digits_of_one_alone():
    rng = np.random.default_rng(0)
    data = [np.cov(rng.normal(size=(n, 2 * n))) for n in (8, 30, 60, 90)]

    def solve(A):
        return np.asarray(bo.nearest_correlation(A, "logdet").X)

    expected = [solve(A) for A in data]
    with ThreadPoolExecutor(4) as pool:
        for found, X in zip(pool.map(solve, data * 5), expected * 5, strict=True):
            np.testing.assert_array_equal(found, X)


def test_nothing_changes_for_a_user_with_one_thread(route):
    with threadpool_limits(1, user_api="blas"):
        solved(3)
        assert alone(numbers())
    assert all(map(alone, route.seen))


def test_a_number_that_the_user_changes_between_solves_is_kept():
    solved(3, "bregman")
    with threadpool_limits(1, user_api="blas"):
        solved(3, "bregman")
        assert alone(numbers())
    assert as_before(numbers())


def test_blocks_within_blocks():
    with threads_for(3), threads_for(SMALL + 1):
        assert alone(numbers())
    with threads_for(SMALL + 1):
        assert as_before(numbers())
        with threads_for(SMALL):
            assert alone(numbers())
        assert as_before(numbers())


def graph():
    return networkx.karate_club_graph()


def by_cvxpy(**how):
    import cvxpy as cp

    import bregopt.cvxpy

    X = cp.Variable((6, 6), PSD=True)
    problem = cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 1] == 1, cp.diag(X)[2:] == 1])
    problem.solve(**(how or {"solver": bregopt.cvxpy.BREGOPT}))
    return problem


def learned(name):
    learn = pytest.importorskip("bregopt.learn")
    rng = np.random.default_rng(0)
    getattr(learn, name)().fit(rng.normal(size=(40, 4)), np.arange(40) % 2)


def online(name, x=None):
    online = pytest.importorskip("bregopt.online")
    getattr(online, name)().fit(np.eye(4) if x is None else x, np.ones(4))


A = np.array([[1.0, 0.9, -0.4], [0.9, 1.0, 0.3], [-0.4, 0.3, 1.0]])


@pytest.mark.parametrize(
    "call",
    [
        lambda: bo.nearest_correlation(A),
        lambda: bo.nearest_correlation(np.eye(3) + 0.1, "logdet"),
        lambda: bo.nearest_psd(A, divergence="frobenius"),
        lambda: bo.learn_kernel(np.eye(4), [[0, 1]], [[2, 3]]),
        lambda: bo.min_balanced_cut(graph()),
        lambda: bo.max_cut(graph()),
        lambda: bo.lovasz_theta(graph()),
        lambda: by_cvxpy(),
        lambda: by_cvxpy(method="bregopt"),
        lambda: learned("LogDetMetricLearner"),
        lambda: learned("VonNeumannMetricLearner"),
        lambda: learned("SoftMarginMetricLearner"),
        lambda: learned("KernelLearner"),
        lambda: online("MEG"),
        lambda: online("MatrixBurgGradient"),
        lambda: online("MatrixWinnow"),
        lambda: online("GeneralMatrixWinnow", np.eye(4)[:, None, :]),
    ],
)
def test_small_matrices_are_factorized_by_one_thread(call, monkeypatch):
    """Every call of NumPy's decompositions by the package is made at one thread."""
    seen = []

    def watched(function):
        def noting(*args, **kwargs):
            if sys._getframe(1).f_globals.get("__name__", "").startswith("bregopt."):
                seen.append((function.__name__, numbers()))
            return function(*args, **kwargs)

        return noting

    call()  # imports, and finds the libraries
    for name in ("eigh", "eigvalsh", "svd", "inv", "solve"):
        monkeypatch.setattr(np.linalg, name, watched(getattr(np.linalg, name)))
    call()
    assert not [name for name, found in seen if not alone(found)]
    assert as_before(numbers())


ONE = """
import bregopt as bo
from bregopt.clock import threads_for
from threadpoolctl import threadpool_info

bo.nearest_correlation([[1, 1], [1, 1]])
with threads_for(3):
    print(*(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"))
"""


def test_both_libraries_are_known_in_a_new_process():
    assert printed(ONE).split() == ["1"] * len(libraries())
