"""Tasks on executors: results in order, pools that break, executors that were shut down."""

import os
import signal
import struct
import time
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import current_process, get_all_start_methods, get_context

import pytest

from bregopt.executors import Crew, Serial

pytestmark = [
    pytest.mark.skipif("fork" not in get_all_start_methods(), reason="its workers are forked"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


def pool(workers=2, **settings):
    """Return a process pool; forked workers start at once and know the functions of this file."""
    return ProcessPoolExecutor(workers, mp_context=get_context("fork"), **settings)


def square(k):
    time.sleep(0.002 * (k % 3))
    return k * k


def square_once_killed(k, folder, killers):
    """End this process the first time for each of some numbers."""
    mark = folder / str(k)
    if k in killers and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(k)


def square_once_cut(k, folder):
    """End this process in the middle of a result."""
    mark = folder / str(k)
    if k in (0, 70) and not mark.exists():
        mark.touch()
        queue = current_process()._args[1]
        queue._wlock.acquire()
        os.write(queue._writer.fileno(), struct.pack("!i", 1_000) + b"a part")
        os.kill(os.getpid(), signal.SIGKILL)
    return square(k)


def square_unless(k, killer):
    if k == killer:
        os._exit(1)
    return square(k)


def interrupted(k):
    raise KeyboardInterrupt


def broken(k):
    raise BrokenExecutor("by its own words")


@pytest.mark.parametrize("make", [Serial, lambda: ThreadPoolExecutor(3), pool])
def test_results_have_the_order_of_the_items(make):
    with make() as executor:
        assert list(Crew(executor).map(square, range(200))) == [k * k for k in range(200)]
        assert list(Crew(executor).map(square, [])) == []


def test_nothing_is_computed_ahead_in_this_thread():
    seen = []
    results = Crew(None).map(seen.append, range(5))
    next(results)
    assert seen == [0]


@pytest.mark.parametrize("killers", [{0}, {3, 50}, {7, 8, 9, 119}])
def test_lost_tasks_run_again_on_a_new_pool(tmp_path, killers):
    with pool() as given, closing(Crew(given)) as crew:
        found = list(crew.map(square_once_killed, range(120), tmp_path, killers))
        assert found == [k * k for k in range(120)]
        assert list(crew.map(square, range(9))) == [k * k for k in range(9)]


def test_a_worker_that_dies_while_it_sends_a_result(tmp_path):
    # Python's pool waits for the rest of the result, and the other worker for the lock.
    with pool() as given, closing(Crew(given)) as crew:
        assert list(crew.map(square_once_cut, range(120), tmp_path)) == [k * k for k in range(120)]


def test_the_new_pool_has_the_settings_of_the_old_one(tmp_path):
    with pool(1, initializer=os.nice, initargs=(1,)) as given, closing(Crew(given)) as crew:
        list(crew.map(square_once_killed, [0], tmp_path, {0}))
        new = crew._current
        assert new is not given
        for name in ("max_workers", "mp_context", "initializer", "initargs"):
            assert getattr(new, f"_{name}") == getattr(given, f"_{name}")


def test_a_task_that_always_ends_its_worker_is_an_error():
    with pool() as given, closing(Crew(given)) as crew:
        results = crew.map(square_unless, range(20), 11)
        assert [next(results) for _ in range(11)] == [k * k for k in range(11)]
        with pytest.raises(BrokenProcessPool) as caught:
            next(results)
        assert "3 broke in a row" in caught.value.__notes__[0]


def test_other_executors_are_not_replaced():
    with ThreadPoolExecutor(1) as threads, pytest.raises(BrokenExecutor) as caught:
        list(Crew(threads).map(broken, [0]))
    assert "starts no other executor in place of this ThreadPoolExecutor" in caught.value.__notes__[0]


@pytest.mark.parametrize("make", [pool, ThreadPoolExecutor])
def test_an_executor_that_was_shut_down_is_named(make):
    with make(1) as executor:
        pass
    with pytest.raises(
        RuntimeError, match=r"executor is a \w+ that was shut down .*; expected one that runs"
    ):
        list(Crew(executor).map(square, [1, 2]))


def test_an_executor_that_is_shut_down_in_the_middle():
    executor = ThreadPoolExecutor(1)
    results = Crew(executor).map(square, range(200))
    next(results)
    executor.shutdown(cancel_futures=True)
    with pytest.raises((CancelledError, RuntimeError), match="shut down"):
        list(results)


def test_ctrl_c_in_a_worker_is_no_ctrl_c_here():
    with ThreadPoolExecutor(1) as threads, pytest.raises(CancelledError, match="KeyboardInterrupt"):
        list(Crew(threads).map(interrupted, [0]))


def test_the_number_of_workers():
    assert Crew(None).workers == Crew(Serial()).workers == 1
    with ThreadPoolExecutor(3) as threads:
        assert Crew(threads).workers == 3


class Losing(ThreadPoolExecutor):
    """Loses the outcome of some tasks as Dask does: its future unpacks what is no exception."""

    def __init__(self, lost):
        super().__init__(1)
        self._lost, self._count = lost, 0

    def submit(self, fn, /, *args, **kwargs):
        self._count += 1
        if self._count not in self._lost:
            return super().submit(fn, *args, **kwargs)

        def _cascade_future(future):
            try:
                _, _, _ = "none"
            except ValueError as error:
                future.set_exception(error)

        future = Future()
        _cascade_future(future)
        return future


def test_a_task_that_the_scheduler_lost_runs_again():
    with Losing({1, 4, 9}) as executor, closing(Crew(executor).map(square, range(12))) as results:
        assert list(results) == [k * k for k in range(12)]


def test_a_task_s_own_error_is_raised():
    def _cascade_future(_):
        raise KeyError("no unpacking")

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyError):
        list(Crew(executor).map(_cascade_future, range(2)))
