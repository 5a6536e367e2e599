"""A few hundred trials of `fuzz.py`, with a fixed seed; `make fuzz` runs 100,000 with a new one."""

import math
import os
import time

import fuzz
import pytest

SEED = 20


@pytest.mark.parametrize("target", fuzz.TARGETS, ids=lambda target: target.__name__)
def test_hostile_input_is_refused_and_answers_are_true(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(fuzz.QUICK, "time_limit", 2.0)
    turns = sum(fuzz.TARGETS.values())
    trials = [trial for trial in range(turns) if fuzz.target_of(trial) is target]
    failed = {trial: fuzz.run_trial(SEED, trial) for trial in trials}
    failed = {trial: result for trial, result in failed.items() if result[0].startswith("FAILED")}
    assert not failed, "\n".join(trace for _, trace in failed.values())


def test_every_target_has_its_turns():
    turns = sum(fuzz.TARGETS.values())
    assert math.gcd(37, turns) == 1
    for target, times in fuzz.TARGETS.items():
        assert sum(fuzz.target_of(trial) is target for trial in range(turns)) == times


def hangs_and_dies(pipe, seed):
    pipe.send("ready")
    for trial in iter(pipe.recv, None):
        if trial == 1:
            time.sleep(600)
        if trial == 2:
            os._exit(7)
        pipe.send(("held", ""))


def test_a_hang_and_a_death_are_failures_of_their_trials_alone(capsys):
    run = fuzz.Fuzz(SEED, range(5), seconds=2.0, work=hangs_and_dies)
    run.run(1)
    assert run.failures == [1, 2]
    assert sum(count for (_, outcome), count in run.outcomes.items() if outcome == "held") == 3
    printed = capsys.readouterr().out
    assert "no end in 2 s" in printed
    assert "the process died with 7" in printed
