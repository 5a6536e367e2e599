"""Executors of other packages: loky, joblib's, a local Dask cluster, an MPI pool, beside spawned processes.

Rows in chunks and many problems have the digits that they have without an executor, also after a worker is
killed. One script does both, as the start of a cluster takes longer than the rest.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from test_row_chunks import data

import bregopt as bo

MODULES = {"loky": "loky", "joblib": "joblib", "dask": "distributed", "mpi": "mpi4py"}
# Open MPI 4 and 5 start more processes than there are cores, also as root.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

DEADLY = """
import os, signal
import bregopt as bo

class Deadly(bo.Problem):
    "A problem that kills its worker, the first time only if `mark` is a path."

    mark = None

    def _solve(self, *arguments):
        if self.mark is None or not os.path.exists(self.mark):
            if self.mark is not None:
                open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._solve(*arguments)
"""

SCRIPT = """
import os, signal, sys
from contextlib import contextmanager
import numpy as np
import bregopt as bo
from bregopt.chunks import chunk, solve
from deadly_problem import Deadly  # workers import no class of this script

@contextmanager
def executor(kind):
    if kind == "processes":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            yield pool
    elif kind == "loky":
        from loky import get_reusable_executor
        yield get_reusable_executor(2)
    elif kind == "joblib":
        from joblib.externals.loky import get_reusable_executor
        yield get_reusable_executor(2)
    elif kind == "dask":
        import dask
        dask.config.set({"distributed.scheduler.allowed-failures": 1})  # a deadly task kills two workers only
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                yield client.get_executor()
    else:
        from mpi4py.futures import MPIPoolExecutor
        with MPIPoolExecutor() as pool:
            yield pool

# --- Rows in chunks ---

sums_of, drawn = chunk.sums_of, solve.drawn
MARK = sys.argv[2] + "/killed"

def killed_once(chunk, root, *options):
    "Ends the worker that has rows 3,000 on, in the second pass or later."
    if chunk.numbers[0] == 3_000 and abs(root - np.eye(6)).max() > 1e-6 and not os.path.exists(MARK):
        open(MARK, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return sums_of(chunk, root, *options)

def rows(folder):
    paths = [f"{folder}/{name}.npy" for name in ("pairs", "bound", "sense")]
    return bo.RowChunks(*paths, 0.01, points=f"{folder}/F.npy", chunk=500)

def digits(sol):
    return sol.status, sol.value, sol.dual_value, sol.iterations, sol.X.tobytes()

def solves_rows(kind, engine, folder):
    given, start = rows(folder), np.eye(6)
    expected = [digits(given.solve(start, sample=size)) for size in (None, 1_500)]
    found = [digits(given.solve(start, sample=size, executor=engine)) for size in (None, 1_500)]
    assert found == expected, [of[:4] for of in (*found, *expected)]
    if kind != "mpi":  # a process that dies ends the whole job
        chunk.sums_of = killed_once
        after = [digits(given.solve(start, executor=engine)) for _ in range(2)]
        assert os.path.exists(MARK)
        assert after == 2 * expected[:1], [of[:4] for of in (*after, *expected)]

# --- Many problems ---

def problems():
    rng, X, p = np.random.default_rng(0), bo.PSD(6, name="X"), bo.Parameter(6)
    A = rng.uniform(-1, 1, (6, 6))
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, (A + A.T) / 2)), [bo.diag(X) == p])
    return [(problem, {p: rng.uniform(0.5, 1.5, 6)}) for _ in range(40)]

def deadly(given, mark=None):
    like = given[0][0]
    like.parameters[0].value = np.ones(6)
    problem = Deadly(like.objective, like.constraints)
    problem.mark = mark
    return problem

def same(answers, expected):
    equal = [np.array_equal(a.X, b.X) and a.value == b.value for a, b in zip(answers, expected, strict=True)]
    assert all(equal), equal

def solves_problems(kind, engine, folder):
    given = problems()
    expected = bo.solve_many(given)
    same(bo.solve_many(given, engine), expected)
    if kind != "mpi":
        once = deadly(given, folder + "/once")
        *rest, revived = bo.solve_many([*given, once], engine, resume=folder + "/answers")
        assert os.path.exists(once.mark), revived
        assert revived.status == "optimal"
        same(rest, expected)
        same(bo.solve_many([*given, once], resume=folder + "/answers"), [*rest, revived])
        *rest, dead = bo.solve_many([*given[:5], deadly(given)], engine)
        assert isinstance(dead, Exception) and not isinstance(dead, AttributeError), dead
        assert all(isinstance(a, bo.Solution) for a in rest), rest
    else:  # the first run ends at the last problem, which kills the job, and the second goes on
        mark = folder + "/once"
        kept = len(os.listdir(folder + "/answers")) if os.path.exists(mark) else 0
        found = bo.solve_many([*given, deadly(given, mark)], engine, chunk=2, resume=folder + "/answers")
        assert kept > 10, kept
        same(found[:-1], expected)
    if kind == "joblib":
        import joblib
        parts = [given[k : k + 10] for k in range(0, len(given), 10)]
        found = joblib.Parallel(2)(joblib.delayed(bo.solve_many)(part, progress=False) for part in parts)
        same([answer for part in found for answer in part], expected)

def main(kind, folder):
    solve._CHUNK = 400
    with executor(kind) as engine:
        solves_rows(kind, engine, folder)
        solves_problems(kind, engine, folder)
    print("the same")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def run(kind, script, *arguments, fails=False):
    """Return the output of a script for an executor; skip the test where its package is missing.

    Parameters
    ----------
    kind : {"processes", "loky", "dask", "mpi"}
    script : Path
    *arguments
        Of the script, after `kind`.
    fails : bool
        Whether its job is to fail.
    """
    if kind in MODULES and find_spec(MODULES[kind]) is None:
        pytest.skip(f"needs {MODULES[kind]}")
    command = [sys.executable, str(script), kind, *map(str, arguments)]
    if kind == "mpi":
        beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        if (mpiexec := shutil.which("mpiexec", path=beside)) is None:
            pytest.skip("needs mpiexec")
        command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", *command[1:]]
    path = os.pathsep.join(
        [str(Path(bo.__file__).parents[1]), str(script.parent), os.environ.get("PYTHONPATH", "")]
    )
    environment = {**os.environ, **MPI, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout


# test_many.py, test_row_chunks.py and test_row_samples.py have pools of processes, too.
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "loky", "joblib", "dask", "mpi"])
def test_digits_are_the_same_also_after_a_worker_is_killed(kind, tmp_path):
    for name, array in data(m=6_000, n=300)._asdict().items():
        np.save(tmp_path / f"{name}.npy", array)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "deadly_problem.py").write_text(DEADLY)
    if kind == "mpi":
        run(kind, script, tmp_path, fails=True)  # a process that dies ends the whole job
    output = run(kind, script, tmp_path)
    assert output.strip().endswith("the same"), output
