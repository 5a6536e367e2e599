"""Files, plug-ins, executors and data of others do no harm: the cases of an adversary, one by one."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_all_start_methods
from pathlib import Path

import fuzz_security as adversary
import numpy as np
import pytest
from samples import first

import bregopt as bo
from bregopt import cli, files
from bregopt.program import Answer, StopReason
from bregopt.rigorous.file import schema

posix = pytest.mark.skipif(os.name != "posix", reason="files of POSIX")


def certified(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adversary.proven.cache_clear()
    return adversary.proven(kind)


# --- Specs --------------------------------------------------------------------------------------------

SPEC = """
[variables]
X = {{ psd = 2 }}
[problem]
minimize = "trace(X)"
subject_to = ["X[0, 1] == 0.5"]
[solve]
{}
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            'solver = "cvxpy"\nbackend = "SCS"\nbackend_options = {write_data_filename = "FILE"}',
            "write_data_filename",
        ),
        (
            'solver = "cvxpy"\nbackend = "SCS"\nbackend_options = {log_csv_filename = "FILE"}',
            "log_csv_filename",
        ),
        ('solver = "cvxpy"\nbackend = "SCS"\nbackend_options = {eps_abs = "FILE"}', "eps_abs"),
        ("callback = 1", "callback"),
    ],
)
def test_a_spec_writes_no_file(tmp_path, options, message):
    target = tmp_path / "keys"
    target.write_text("mine")
    path = tmp_path / "a.toml"
    path.write_text(SPEC.format(options.replace("FILE", str(target))))
    with pytest.raises((TypeError, ValueError), match=message):
        bo.load_spec(path).solve()
    assert target.read_text() == "mine"


def test_a_spec_sets_tolerances_of_backends(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(SPEC.format('solver = "cvxpy"\nbackend = "SCS"\nbackend_options = {eps_abs = 1e-9}'))
    assert bo.load_spec(path).options["backend_options"] == {"eps_abs": 1e-9}


def test_a_spec_asks_for_no_memory_that_is_not_there(tmp_path):
    path = tmp_path / "a.toml"
    text = SPEC.format("tol = 1e-6") + "[parameters]\np = { value = 1.0, shape = [1000000, 1000000] }\n"
    path.write_text(text.replace("0.5", "p[0, 0]"))
    with pytest.raises(ValueError, match=r"parameters\.p: shape is .* too large"):
        bo.load_spec(path)


def test_arrays_of_another_spec_are_refused(tmp_path):
    X = bo.PSD(3, name="X")
    for name, seed in (("a", 1), ("b", 2)):
        C = np.random.default_rng(seed).normal(size=(3, 3))
        bo.Problem(bo.Minimize(bo.frobenius_div(X, C + C.T))).to_spec(tmp_path / f"{name}.toml")
    bo.load_spec(tmp_path / "a.toml")
    (tmp_path / "b.npz").replace(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a\.npz is not the file that was written with this one"):
        bo.load_spec(tmp_path / "a.toml")


# --- The writer ---------------------------------------------------------------------------------------


@posix
def test_a_save_follows_no_link_and_keeps_permissions(tmp_path):
    secret, path = tmp_path / "secret", tmp_path / "a.dat"
    secret.write_bytes(b"secret")
    path.symlink_to(secret)
    with files.replacing(path) as file:
        file.write(b"new")
    assert secret.read_bytes() == b"secret"
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"
    path.chmod(0o640)
    with files.replacing(path) as file:
        file.write(b"newer")
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.dat", "secret"]


@posix
def test_a_temporary_name_that_exists_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "urandom", lambda n: bytes(n))
    (tmp_path / f".bregopt-{bytes(8).hex()}.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError), files.replacing(tmp_path / "a") as file:
        file.write(b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_an_error_or_a_folder_leaves_everything(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), files.replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    with pytest.raises(ValueError, match="a folder"), files.replacing(tmp_path):
        pass


KILLED = """
import os, sys
from bregopt.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os._exit(9)
"""


def test_a_kill_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    root = str(Path(bo.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env={**os.environ, "PYTHONPATH": root})
    assert done.returncode == 9
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("room", [0, 50, 150])
def test_a_full_disk_leaves_a_spec_and_its_arrays(tmp_path, room):
    X = bo.PSD(3, name="X")
    path = tmp_path / "a.toml"
    bo.Problem(bo.Minimize(bo.frobenius_div(X, np.diag([1.0, 2, 3])))).to_spec(path)
    former = path.read_bytes(), path.with_suffix(".npz").read_bytes()
    other = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.diag([4.0, 5, 6]))))
    with adversary.no_space(room), pytest.raises(OSError, match="No space left"):
        other.to_spec(path)
    assert (path.read_bytes(), path.with_suffix(".npz").read_bytes()) == former
    assert len(list(tmp_path.iterdir())) == 2


# --- The reader ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["g", "M8[s]", "S3", "V8", "O"])
def test_arrays_of_rare_types_are_refused(tmp_path, kind):
    path = tmp_path / "a.npz"
    np.savez(path, mine=np.zeros(2, dtype=kind))
    with pytest.raises(ValueError, match=r"mine of .*a\.npz cannot be read"):
        files.read_arrays(path)


# --- Certificates -------------------------------------------------------------------------------------


def forged(change, kind, tmp_path, monkeypatch):
    """Return the path of a certificate with a change, hashed again, and its problem."""
    problem, arrays, facts, _ = certified(kind, tmp_path, monkeypatch)
    arrays, facts = {**arrays}, json.loads(json.dumps(facts))
    change(arrays, facts)
    adversary.written("forged.npz", arrays, facts)
    return Path("forged.npz"), problem


def _set(name, value):
    def change(arrays, facts):
        arrays[name] = value(arrays) if callable(value) else value

    return change


def _claim(name, value):
    def change(arrays, facts):
        facts[name] = float(value).hex()

    return change


def _block(name, value):
    def change(arrays, facts):
        facts["blocks"][0][name] = value

    return change


def _better(arrays, facts):
    facts["lower"] = float(np.nextafter(float.fromhex(facts["upper"]), -math.inf)).hex()


FORGERIES = {
    "negative radius of bounds": (
        _set("hi_rad", lambda a: a["hi_rad"] - 5),
        "hi_rad is .* numbers from 0 on",
    ),
    "negative radius of costs": (_set("C0_radius", lambda a: a["C0_radius"] - 10), "C0_radius"),
    "radius of one end": (_set("lo_rad", lambda a: a["lo_rad"] + 5), "lo_rad and hi_rad differ"),
    "no trace": (_set("traces", np.zeros(1)), "traces"),
    "NaN": (_set("y", lambda a: a["y"] * np.nan), "y is nan"),
    "infinite multipliers": (_set("y", lambda a: a["y"] + np.inf), "y is inf"),
    "complex": (_set("y", lambda a: a["y"].astype(complex)), "y is '<c16'"),
    "half precision": (_set("y", lambda a: a["y"].astype("f2")), "y is '<f2'"),
    "long double": (_set("y", lambda a: a["y"].astype("g")), "y of .* cannot be read"),
    "booleans": (_set("y", lambda a: a["y"] > 0), "y is '|b1'".replace("|", r"\|")),
    "length": (_set("y", lambda a: a["y"][:-1]), "shape of y"),
    "order of equations": (_set("point_equations", lambda a: a["point_equations"][::-1]), "ascending"),
    "index": (_set("i0", lambda a: a["i0"] + 100), "i0"),
    "lower triangle": (_set("j0", lambda a: a["i0"] * 0), "i0"),
    "other field": (_set("more", np.zeros(3)), "more"),
    "crossed claim": (_claim("lower", 1e6), "lower is"),
    "better claim": (_better, "the data prove the lower bound"),
    "huge order": (_block("n", 10**9), "too large|expected an integer"),
    "order": (_block("n", 5.0), "n is 5.0"),
    "cap": (_block("cap", float(-1).hex()), "cap is"),
    "divergence": (_block("divergence", 3), "divergence is 3"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_certificates_are_refused(name, tmp_path, monkeypatch):
    change, message = FORGERIES[name]
    path, _ = forged(change, "linear", tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=message):
        bo.BoundCertificate.load(path).check()


def test_multipliers_and_farkas_vectors_of_others_prove_nothing(tmp_path, monkeypatch):
    path, _ = forged(_set("farkas", lambda a: np.ones(len(a["lo"]))), "linear", tmp_path, monkeypatch)
    found = bo.BoundCertificate.load(path)
    assert found.bounds() == dataclasses.replace(found, farkas=None).bounds()
    lied = dataclasses.replace(found, claims=(math.inf, math.inf))
    with pytest.raises(ValueError, match="the data prove the lower bound"):
        lied.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_claim_is_never_better_than_what_is_proven(seed, tmp_path, monkeypatch):
    _, _, _, (lower, upper) = certified(adversary.KINDS[seed], tmp_path, monkeypatch)
    whole = bo.BoundCertificate.load("whole.npz")
    whole.check()
    found = whole.bounds()
    assert whole.claims[0] <= found[0]
    assert found[1] <= whole.claims[1]
    if whole.claims[0] > -math.inf:
        better = dataclasses.replace(whole, claims=(np.nextafter(found[0], math.inf), whole.claims[1]))
        with pytest.raises(ValueError, match="the data prove the lower bound"):
            better.check()
    assert whole.claims[0] < lower
    assert upper < whole.claims[1]


def test_assumptions_and_the_problem_are_part_of_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    C, X = rng.normal(size=(3, 3)), bo.PSD(3, name="X")
    problem = bo.Problem(bo.Minimize(bo.inner(C + C.T + 9 * np.eye(3), X)), [X[0, 1] >= 1])
    found = problem.solve(tol=1e-8).verify(trace_bound=0.44)
    found.certificate.save("bounds.npz", name="trial 7")
    problem.to_spec("problem.toml")
    said = found.given[0]
    assert "the trace of X is at most 0.44" in said
    assert bo.BoundCertificate.load("bounds.npz").given == found.given
    for more in ([], ["--problem", "problem.toml"]):
        assert cli.main(["verify", "bounds.npz", *more]) == 0
        printed = capsys.readouterr().out
        assert said in printed
        assert "trial 7: minimization, psd X (3), rows 1, variables 0, SHA-256 " in printed


def test_a_certificate_proves_the_readers_own_statement(tmp_path, monkeypatch, capsys):
    problem, arrays, facts, (lower, upper) = certified("linear", tmp_path, monkeypatch)
    problem.to_spec("problem.toml")
    assert cli.main(["verify", "whole.npz", "--problem", "problem.toml"]) == 0
    assert "proven again: the optimum is between" in capsys.readouterr().out
    checked = bo.verify(problem, bo.BoundCertificate.load("whole.npz"))
    assert checked.lower <= lower <= upper <= checked.upper
    # A file about a problem of which the optimum is 10 higher, with the right multipliers for it.
    adversary.written(
        "other.npz",
        arrays,
        {
            **facts,
            "offset": float(10).hex(),
            "lower": (float.fromhex(facts["lower"]) + 9.9).hex(),
            "upper": (float.fromhex(facts["upper"]) + 10.1).hex(),
        },
    )
    bo.BoundCertificate.load("other.npz").check()
    assert cli.main(["verify", "other.npz", "--problem", "problem.toml"]) == 2
    assert "the data prove the lower bound" in capsys.readouterr().err
    X = bo.PSD(5)
    with pytest.raises(ValueError, match="of another problem"):
        bo.verify(bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1]), bo.BoundCertificate.load("whole.npz"))
    assert cli.main(["verify", "whole.npz", "--problem", "whole.npz"]) == 2


@pytest.mark.parametrize("kind", adversary.KINDS)
@pytest.mark.parametrize("seeds", first(1, [range(15), range(15, 40)]), ids=["few", "more"])
def test_tampered_certificates_prove_nothing_false(seeds, kind, tmp_path, monkeypatch):
    certified(kind, tmp_path, monkeypatch)
    outcomes = set()
    with monkeypatch.context() as patch:
        patch.setattr(adversary, "KINDS", (kind,))
        for seed in seeds:
            outcomes.add(adversary.certificates(np.random.default_rng([seed, 41])))
    assert "refused" in outcomes


def test_a_certificate_of_any_kind_is_read_as_it_was_written(tmp_path, monkeypatch):
    for kind in adversary.KINDS:
        problem, arrays, facts, _ = certified(kind, tmp_path, monkeypatch)
        found = bo.BoundCertificate.load("whole.npz")
        found.check()
        bo.verify(problem, found)
        found.save("again.npz")
        with np.load("again.npz") as again:
            assert json.loads(bytes(again["facts"])) == facts
            assert all(np.array_equal(again[name], array) for name, array in arrays.items())
        assert schema.digest(*schema.packed_data(found.data)) in found.problem


# --- Plug-ins -----------------------------------------------------------------------------------------


def liar(act):
    return type("Liar", (adversary.Liar,), {"act": staticmethod(act)})


def small():
    X = bo.PSD(1, name="X")
    return bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1])


def answer(program, **parts):
    own = {
        "X": (np.eye(1),),
        "u": np.zeros(0),
        "y": np.ones(1),
        "stop": StopReason.CONVERGED,
        "iterations": 0,
    }
    return Answer(**{**own, **parts})


def test_an_honest_plugin_is_taken():
    assert small().solve(solver=liar(answer)).status == "optimal"


def test_a_plugin_cannot_write_into_the_program():
    def in_place(program):
        b = program.bounds.lo
        b -= 1
        return answer(program, X=(np.zeros((1, 1)),))

    def by_force(program):
        program.bounds.lo.flags.writeable = True
        return in_place(program)

    def by_name(program):
        object.__setattr__(program.bounds, "lo", np.zeros(1))
        return answer(program, X=(np.zeros((1, 1)),))

    for act, error, message in (
        (in_place, ValueError, "read-only"),
        (by_force, bo.SolverError, "changed the data of the problem in place"),
        (by_name, bo.SolverError, "changed the data of the problem in place"),
    ):
        problem = small()
        with pytest.raises(error, match=message):
            problem.solve(solver=liar(act))
        found = problem.solve(tol=1e-9)
        assert found.value == pytest.approx(1.0, abs=1e-7)
        problem.program().bounds.lo.setflags(write=True)  # is the problem's own again


ANSWERS = {
    "None": (lambda program: None, "returned NoneType"),
    "a list": (lambda program: [], "returned list"),
    "text": (lambda program: answer(program, stop="optimal"), "stop of its answer is 'optimal'"),
    "matrices": (lambda program: answer(program, X=None), "X of its answer is None"),
    "order": (lambda program: answer(program, X=(np.eye(2),)), r"X\[0\] of its answer has shape \(2, 2\)"),
    "NaN": (lambda program: answer(program, X=(np.full((1, 1), np.nan),)), r"X\[0\] of its answer has NaN"),
    "duals": (lambda program: answer(program, y=np.ones(2)), r"y of its answer has shape \(2,\)"),
    "lists": (lambda program: answer(program, u=[]), "u of its answer is"),
    "count": (lambda program: answer(program, iterations=None), "iterations of its answer is None"),
    "division": (lambda program: 1 // 0, "a route of another package, failed: ZeroDivisionError"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_plugins_are_checked(name):
    act, message = ANSWERS[name]
    with pytest.raises(bo.SolverError, match=message) as caught:
        small().solve(solver=liar(act))
    if name == "division":
        trace, frames = caught.value.__cause__.__traceback__, []
        while trace is not None:
            frames.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        assert frames[-1] == __file__  # where the plug-in failed


class Hanging(adversary.Liar):
    name = "hanging"

    def solve(self, program, settings, start, progress):
        time.sleep(3600)


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="its workers are forked")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_hanging_plugin_is_ended_in_a_process(monkeypatch):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from bregopt import many

    monkeypatch.setattr(many, "_STARTING", 1.0)
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        begin = time.monotonic()
        found = bo.solve_many([small()], pool, False, solver=Hanging, time_limit=0.2)
        assert time.monotonic() - begin < 60
    assert isinstance(found[0], TimeoutError)
    assert "time_limit" in str(found[0])


# --- Executors ----------------------------------------------------------------------------------------


def chunked():
    Z = np.random.default_rng(2).normal(size=(40, 3))
    return bo.RowChunks(Z, 1.0 + Z[:, 0] ** 2, "<=", 0.3, chunk=10)


@pytest.mark.parametrize("act", [adversary.scaled, adversary.swapped, lambda result, kept: None])
def test_an_executor_that_lies_is_found_out(act):
    with pytest.raises(bo.SolverError, match="executor is a Strange that returned"):
        chunked().solve(np.eye(3), executor=adversary.Strange(act))


def test_a_lie_in_the_last_pass_is_found_out():
    passes = chunked().solve(np.eye(3)).iterations

    def last(result, kept):
        kept.append(result)
        changed = len(kept) >= 4 * passes - 1 and len(kept) % 4 == 3  # one of four chunks
        return result._replace(penalty=1.01 * result.penalty) if changed else result

    with pytest.raises(bo.SolverError, match="another result than this process"):
        chunked().solve(np.eye(3), executor=adversary.Strange(last))


def test_an_honest_executor_of_an_unknown_class_is_taken():
    found = chunked().solve(np.eye(3), executor=adversary.Strange(lambda result, kept: result))
    assert found.value == chunked().solve(np.eye(3)).value


def test_an_executor_without_futures_is_named():
    class Futureless(adversary.Strange):
        def submit(self, fn, /, *args, **kwargs):
            return None

    with pytest.raises(TypeError, match="a Futureless whose submit returns None; expected a Future"):
        chunked().solve(np.eye(3), executor=Futureless(None))


def test_a_future_without_end_respects_the_time_limit():
    from bregopt import clock
    from bregopt.executors import Crew

    class Endless(adversary.Strange):
        def submit(self, fn, /, *args, **kwargs):
            return Future()

    crew = Crew(Endless(None))
    with clock.limited(0.1), clock.stoppable(), pytest.raises(clock.CutShort):
        crew.result(crew.submit(len, ()))


# --- Masks, forks, checkpoints, spreadsheets ------------------------------------------------------------


def test_masked_entries_are_refused_by_name():
    X = bo.PSD(3)
    v = np.ma.masked_array([1.0, 2.0, -999.0], mask=[False, False, True])
    with pytest.raises(ValueError, match=r"1 masked entries, the first at \(2,\).*filled"):
        bo.diag(X) >= v
    rows = bo.diag(X) >= np.ma.masked_array([1.0, 2.0, 3.0])  # nothing is masked
    assert bo.Problem(bo.Minimize(bo.trace(X)), [rows]).solve().value == pytest.approx(6, rel=1e-5)
    for seed in range(40):
        adversary.masks(np.random.default_rng(seed))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_beside_threads_that_compute_ends():
    from bregopt.records import cached_property

    inside, go = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def value(self):
            inside.set()
            go.wait(30)
            return 1

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: Slow().value)
        inside.wait(30)
        child = os.fork()
        if child == 0:
            go.set()
            os._exit(Slow().value)
        end = time.monotonic() + 30
        done = 0
        while not done and time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not done:
            os.kill(child, 9)
        go.set()
        assert done, "the child waits for a lock of its parent's thread"
        assert os.waitstatus_to_exitcode(status) == 1
        assert waiting.result() == 1


def test_no_module_uses_the_property_with_a_lock():
    folder = Path(bo.__file__).parent
    found = [
        p for p in folder.rglob("*.py") if "from functools import cached_property" in p.read_text("utf-8")
    ]
    assert found == []


@posix
def test_two_solves_do_not_share_a_checkpoint(tmp_path):
    rows, path = chunked(), tmp_path / "state.npz"

    class Second(adversary.Strange):
        def submit(self, fn, /, *args, **kwargs):
            with pytest.raises(ValueError, match="which another solve writes now"):
                rows.solve(np.eye(3), resume=path)
            return super().submit(fn, *args, **kwargs)

    honest = Second(lambda result, kept: result)
    rows.solve(np.eye(3), resume=path, executor=honest)
    assert rows.solve(np.eye(3), resume=path).status == "optimal"
    assert not path.with_name("state.npz.lock").exists()


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    rows, path = chunked(), tmp_path / "state.npz"
    rows.solve(np.eye(3), resume=path)
    Z = np.random.default_rng(3).normal(size=(40, 3))
    other = bo.RowChunks(Z, 1.0 + Z[:, 0] ** 2, "<=", 0.3, chunk=10)
    with pytest.raises(ValueError, match="the same data"):
        other.solve(np.eye(3), resume=path)


@posix
def test_a_checkpoint_follows_no_link(tmp_path):
    secret, path = tmp_path / "secret", tmp_path / "state.npz"
    secret.write_bytes(b"secret")
    (tmp_path / "state.npz.new").symlink_to(secret)
    chunked().solve(np.eye(3), resume=path)
    assert secret.read_bytes() == b"secret"
    (tmp_path / "state.npz.lock").symlink_to(secret)
    with pytest.raises(OSError):
        chunked().solve(np.eye(3), resume=path)
    assert secret.read_bytes() == b"secret"


@pytest.mark.parametrize("seeds", first(1, [range(15), range(15, 60)]), ids=["few", "more"])
def test_changed_checkpoints_are_refused_by_name(seeds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in seeds:
        adversary.checkpoints(np.random.default_rng([seed, 8]))


def test_a_checkpoint_of_a_singular_matrix_is_refused(tmp_path):
    Z, path = np.random.default_rng(1).normal(size=(30, 3)), tmp_path / "state.npz"
    rows = bo.RowChunks(Z, 1.0 + Z[:, 0] ** 2, "<=", 0.3, chunk=10)
    rows.solve(np.eye(3), resume=path)
    with np.load(path) as file:
        state = dict(file)
    np.savez(path, **{**state, "root": np.diag([1.0, 0.0, 0.0])})
    with pytest.raises(ValueError, match="its matrix is not definite"):
        rows.solve(np.eye(3), resume=path)


def labeled(*labels):
    A = 0.9 * np.ones((len(labels), len(labels))) + 0.1 * np.eye(len(labels))
    A[0, 1] = A[1, 0] = -0.9
    pandas = pytest.importorskip("pandas")
    return bo.nearest_correlation(pandas.DataFrame(A, list(labels), list(labels)))


def test_labels_are_text_in_workbooks(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    formula = "=cmd|' /C calc'!A0"
    labeled(formula, "b", "c").report().to_excel(tmp_path / "a.xlsx")
    cells = [cell for sheet in openpyxl.load_workbook(tmp_path / "a.xlsx") for row in sheet for cell in row]
    assert any(cell.value == formula for cell in cells)
    assert all(cell.data_type != "f" for cell in cells)
    with pytest.raises(ValueError, match="has control characters"):
        labeled("a\x07", "b", "c").report().to_excel(tmp_path / "b.xlsx")
    assert not (tmp_path / "b.xlsx").exists()


def test_labels_are_no_formulas_in_csv(tmp_path):
    (tmp_path / "a.csv").write_text(",=1+1,b\n=1+1,1,0.5\nb,0.5,1\n")
    out = tmp_path / "out.csv"
    assert cli.main(["repair", str(tmp_path / "a.csv"), "--output", str(out)]) == 0
    assert out.read_text().startswith(",'=1+1,b\n'=1+1,")


@pytest.mark.parametrize("target", ["flipped", "plugins", "executors", "saves"])
def test_the_targets_of_the_fuzz_hold(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adversary.proven.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = {getattr(adversary, target)(np.random.default_rng([seed, 5])) for seed in range(40)}
    assert len(outcomes) > 1
