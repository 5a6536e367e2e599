"""Batches that survive: answers on disk while the batch runs, and a second call that solves the rest."""

import json
import os
import pickle
import signal
import threading
import time
from concurrent.futures import CancelledError
from multiprocessing import get_all_start_methods, get_context

import numpy as np
import pytest
from test_many import SPEC, Slow, command, deadly, digits, nearest, pairs, pool

import bregopt as bo
from bregopt.io.answers import Answers, fingerprint

pytestmark = [
    pytest.mark.skipif("fork" not in get_all_start_methods(), reason="its processes are forked"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


def solve(problems, **options):
    return bo.solve_many(problems, progress=False, **options)


def stored(folder):
    """Return the index of each answer on disk, as often as it is there."""
    answers = Answers(folder)
    return [k for position in answers.positions() for k, *_ in answers.load(position)]


def killed(folder, least, run):
    """Run a function in a process of its own, and kill it and its workers once there are `least` parts."""

    def leads():
        os.setsid()
        run()

    process = get_context("fork").Process(target=leads)
    process.start()
    while len(list(folder.glob("*.part"))) < least:
        assert process.is_alive(), "it ended before it was killed"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return sorted(path.name for path in folder.glob("*.part"))


# --- Killed and resumed -----------------------------------------------------------------------------


def test_a_run_that_is_killed_three_times_has_the_same_digits(tmp_path):
    problems, folder = pairs(6, 120), tmp_path / "answers"
    for least in (3, 9, 15):
        names = killed(folder, least, lambda: solve(problems, resume=folder, chunk=5))
        assert least <= len(names) < 24
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.part")}
    assert digits(solve(problems, resume=folder, chunk=5)) == digits(solve(problems))
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())
    assert sorted(stored(folder)) == list(range(120))


@pytest.mark.slow
@pytest.mark.parametrize("warm", [False, "chain"])
def test_3000_problems_killed_three_times_have_the_same_digits(tmp_path, warm):
    problems, folder = pairs(8, 3_000, drift=0.1), tmp_path / "answers"

    def alone():
        solve(problems, resume=folder, warm_start=warm)

    def in_a_pool():
        with pool() as processes:
            solve(problems, executor=processes, resume=folder, warm_start=warm)

    for least, run in ((3, alone), (9, in_a_pool), (15, alone)):
        killed(folder, least, run)
    assert 0 < len(stored(folder)) < 3_000
    assert digits(solve(problems, resume=folder, warm_start=warm)) == digits(solve(problems, warm_start=warm))


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")  # of the solve that the signal ends
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_batch_and_what_it_has_is_kept(tmp_path, number):
    like = nearest(4, 0)
    slow = [Slow(like.objective, like.constraints) for _ in range(30)]
    before = signal.getsignal(number)
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
    answers = solve(slow, resume=tmp_path / "answers")
    assert signal.getsignal(number) is before
    cancelled = [k for k, a in enumerate(answers) if isinstance(a, CancelledError)]
    assert 0 < len(cancelled) < 30
    kept = stored(tmp_path / "answers")
    assert set(kept).isdisjoint(cancelled)
    assert len(kept) >= 29 - len(cancelled)  # the one that runs ends early, and is solved again
    assert all(a.status == "optimal" for a in solve(slow, resume=tmp_path / "answers"))


def test_single_solves_leave_sigterm_to_the_program():
    found = []
    nearest(4, 0).solve(callback=lambda step: found.append(signal.getsignal(signal.SIGTERM)))
    assert found
    assert set(found) == {signal.SIG_DFL}


def test_errors_are_tried_again_and_end_no_other_problem(tmp_path):
    folder, mark = tmp_path / "answers", tmp_path / "killed"
    (tmp_path / "late.toml").write_text("no spec")
    problems = [nearest(5, 1), deadly(2), tmp_path / "late.toml", nearest(5, 3)]
    with pool() as processes:
        first = solve(problems, executor=processes, resume=folder)
    assert [isinstance(a, Exception) for a in first] == [False, True, True, False]
    assert sorted(stored(folder)) == [0, 3]
    (tmp_path / "late.toml").write_text(SPEC)
    mark.touch()
    problems[1] = deadly(2, mark)
    second = solve(problems, resume=folder)
    assert [a.status for a in second] == ["optimal"] * 4
    assert digits(second[::3]) == digits(first[::3])


def test_a_chain_with_an_error_is_solved_again_as_a_whole(tmp_path):
    problems, (tail,) = pairs(6, 10, drift=1e-2), [tmp_path / "tail.toml"]
    mixed = [*problems[:4], tail, *problems[4:]]
    folder, chained = tmp_path / "answers", {"warm_start": "chain", "chunk": 4}
    solve(mixed, resume=folder, **chained)
    assert 4 not in stored(folder)
    tail.write_text(SPEC)
    assert digits(solve(mixed, resume=folder, **chained)) == digits(solve(mixed, **chained))


# --- As they end ------------------------------------------------------------------------------------


def test_answers_are_yielded_as_they_end_and_from_the_folder_first(tmp_path):
    problems = pairs(6, 12)
    found = bo.solve_many(problems, progress=False, iterate=True, resume=tmp_path / "answers", chunk=2)
    first = [next(found) for _ in range(4)]
    assert sorted(stored(tmp_path / "answers")) == [0, 1, 2, 3]
    found.close()
    again = list(bo.solve_many(problems, progress=False, iterate=True, resume=tmp_path / "answers"))
    assert [k for k, _ in again] == list(range(12))
    assert digits(a for _, a in again[:4]) == digits(a for _, a in first)
    assert digits(a for _, a in again) == digits(solve(problems))


def test_ctrl_c_in_the_loop_of_the_user_is_the_usual_one():
    with pytest.raises(KeyboardInterrupt):
        for _ in bo.solve_many(pairs(6, 4), progress=False, iterate=True, chunk=1):
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_ctrl_c_in_a_solve_leaves_one_outcome_for_each_problem():
    like = nearest(4, 0)
    slow = [Slow(like.objective, like.constraints) for _ in range(40)]
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    found = dict(bo.solve_many(slow, progress=False, iterate=True))
    assert sorted(found) == list(range(40))
    assert any(isinstance(a, CancelledError) for a in found.values())
    assert any(isinstance(a, bo.Solution) for a in found.values())


# --- What a folder refuses --------------------------------------------------------------------------


def test_a_folder_of_other_problems_or_options_is_refused(tmp_path):
    problems, folder = pairs(6, 4), tmp_path / "answers"
    solve(problems, resume=folder)
    changed = [*problems[:2], (problems[2][0], {"p": np.full(6, 2.0)}), problems[3]]
    with pytest.raises(ValueError, match=r"other problems.*problems\[2\]"):
        solve(changed, resume=folder)
    with pytest.raises(ValueError, match=r"other problems.*problems\[2\]"):
        solve(problems[:2], resume=folder)
    with pytest.raises(ValueError, match="other values of tol"):
        solve(problems, resume=folder, tol=1e-4)
    with pytest.raises(ValueError, match="other values of chain"):
        solve(problems, resume=folder, warm_start="chain")
    assert len(solve([*problems, *pairs(6, 5)[4:]], resume=folder, verbose=False)) == 5  # a longer list


def test_other_folders_are_refused(tmp_path):
    problems = pairs(6, 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="has other files"):
        solve(problems, resume=tmp_path)
    for bad in (tmp_path / "file", tmp_path / "none" / "answers"):
        with pytest.raises(ValueError, match="expected a folder"):
            solve(problems, resume=bad)
    with pytest.raises(TypeError, match="expected the path of a folder"):
        solve(problems, resume=3)
    with pytest.raises(TypeError, match="iterate is 1"):
        solve(problems, iterate=1)
    folder = tmp_path / "answers"
    solve(problems, resume=folder)
    facts = json.loads((folder / "batch.json").read_text())
    (folder / "batch.json").write_text(json.dumps({**facts, "bregopt": "0.0"}))
    with pytest.raises(ValueError, match=r"by bregopt 0\.0"):
        solve(problems, resume=folder)
    (folder / "batch.json").write_text("{")
    with pytest.raises(ValueError, match=r"batch\.json is damaged"):
        solve(problems, resume=folder)


def test_two_calls_do_not_fill_one_folder(tmp_path):
    problems, folder = pairs(6, 4), tmp_path / "answers"
    running = bo.solve_many(problems, progress=False, iterate=True, resume=folder, chunk=1)
    next(running)
    with pytest.raises(ValueError, match="another solve writes now"):
        solve(problems, resume=folder)
    running.close()
    assert len(solve(problems, resume=folder)) == 4


def test_a_damaged_part_is_named(tmp_path):
    problems, folder = pairs(6, 3), tmp_path / "answers"
    expected = solve(problems, resume=folder, chunk=1)
    part = folder / "0000001.part"
    content = part.read_bytes()
    for bad in (content[:-1], content[:40], b"", content[:60] + b"x" + content[61:]):
        part.write_bytes(bad)
        with pytest.raises(ValueError, match=r"0000001\.part is damaged"):
            solve(problems, resume=folder)
    part.unlink()
    assert digits(solve(problems, resume=folder)) == digits(expected)


class Command:
    def __init__(self, words):
        self.words = words

    def __reduce__(self):
        return os.system, (self.words,)


@pytest.mark.parametrize("attack", ["system", "getattr", "method", "open"])
def test_a_part_runs_no_code(tmp_path, attack):
    import hashlib

    folder, mark = tmp_path / "answers", tmp_path / "mark"
    solve(pairs(6, 2), resume=folder)
    content = {
        "system": pickle.dumps(Command(f"touch {mark}")),
        "getattr": b"cbuiltins\neval\n(V1\ntR.",
        "method": b"\x80\x04\x8c\x0dbregopt.files\x8c\x09os.system\x93.",
        "open": b"cnumpy\nmemmap\n(V" + str(mark).encode() + b"\ntR.",
    }[attack]
    (folder / "0000001.part").write_bytes(hashlib.sha256(content).digest() + content)
    with pytest.raises(ValueError, match="holds no answers of bregopt"):
        solve(pairs(6, 2), resume=folder)
    assert not mark.exists()


def test_fingerprints_tell_data_apart_and_do_not_depend_on_the_process():
    """The same data have one in a new process; a changed bit, closure, or kind of number have another."""

    def of(value):
        return fingerprint(value)

    def function(level):
        return lambda x: x > level

    base = np.arange(4.0)
    values = [
        base,
        base.astype(np.float32),
        base.reshape(2, 2),
        np.nextafter(base, 9),
        [0, 1, 2, 3],
        (0, 1, 2, 3),
        {"a": 1},
        {"a": 1.0},
        {"a": True},
        function(1),
        function(2),
        "a",
        b"a",
        None,
        bo.LowRank(np.ones((3, 1))),
        bo.LowRank(np.full((3, 1), 2.0)),
    ]
    assert len({of(value) for value in values}) == len(values)
    shared = np.ones(2)
    assert of([shared, shared]) == of([np.ones(2), np.ones(2)])
    problem = nearest(5, 0)
    before = fingerprint(problem.program())
    problem.solve()
    assert fingerprint(problem.program()) == before
    context = get_context("spawn")
    with context.Pool(1) as processes:
        assert processes.apply(fingerprint, (base, {"a": bo.LowRank(np.ones((3, 1)))})) == fingerprint(
            base, {"a": bo.LowRank(np.ones((3, 1)))}
        )


# --- The command line -------------------------------------------------------------------------------


def test_the_command_says_what_it_skipped(tmp_path, capsys):
    specs = [tmp_path / f"{name}.toml" for name in "abc"]
    for path in specs[:2]:
        path.write_text(SPEC)
    folder, output = tmp_path / "answers", tmp_path / "output"
    output.mkdir()
    assert command(*specs, "--resume", folder) == 2
    capsys.readouterr()
    specs[2].write_text(SPEC)
    assert command(*specs, "--resume", folder, "--output", output) == 0
    said = capsys.readouterr()
    assert said.err == f"bregopt: 2 of 3 answers are in {folder}, the rest is solved\n"
    skipped = [line.endswith("from --resume") for line in said.out.splitlines()]
    assert skipped == [True, True, False, False]
    assert sorted(path.name for path in output.glob("*.json")) == ["a.json", "b.json", "c.json"]
    assert command(*specs[:2], "--resume", folder) == 2
    assert "the folder of other problems" in capsys.readouterr().err
