"""Scripts on executors of other packages, for tests: loky, a local Dask cluster, an MPI pool."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import bregopt as bo

MODULES = {"loky": "loky", "dask": "distributed", "mpi": "mpi4py"}
# Open MPI 4 and 5 start more processes than there are cores, also as root.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

# The script's `executor(kind)`.
EXECUTOR = """
from contextlib import contextmanager

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
    elif kind == "dask":
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                yield client.get_executor()
    else:
        from mpi4py.futures import MPIPoolExecutor
        with MPIPoolExecutor() as pool:
            yield pool
"""


def run(kind, script, *arguments):
    """Return the output of a script for an executor; skip the test where its package is missing.

    Parameters
    ----------
    kind : {"processes", "loky", "dask", "mpi"}
    script : Path
    *arguments
        Of the script, after `kind`.
    """
    if kind in MODULES and find_spec(MODULES[kind]) is None:
        pytest.skip(f"needs {MODULES[kind]}")
    command = [sys.executable, str(script), kind, *map(str, arguments)]
    if kind == "mpi":
        beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        if (mpiexec := shutil.which("mpiexec", path=beside)) is None:
            pytest.skip("needs mpiexec")
        command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", *command[1:]]
    path = os.pathsep.join([str(Path(bo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **MPI, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
