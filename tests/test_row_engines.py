"""Rows in chunks on real engines: the same digits on all, also after a worker is killed in the middle."""

import engines
import numpy as np
import pytest
from test_row_chunks import data

SCRIPT = (
    engines.EXECUTOR
    + """
import os, signal, sys
import numpy as np
import bregopt as bo
from bregopt.chunks import objective, sample, sampled

sums_of, drawn = objective.sums_of, sampled.drawn
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

def main(kind, folder):
    sample._CHUNK = 400
    given, start = rows(folder), np.eye(6)
    expected = [digits(given.solve(start, sample=size)) for size in (None, 1_500)]
    with executor(kind) as engine:
        found = [digits(given.solve(start, sample=size, executor=engine)) for size in (None, 1_500)]
        assert found == expected, [of[:4] for of in (*found, *expected)]
        if kind != "mpi":
            objective.sums_of = killed_once
            after = [digits(given.solve(start, executor=engine)) for _ in range(2)]
            assert os.path.exists(MARK)
            assert after == 2 * expected[:1], [of[:4] for of in (*after, *expected)]
    print("the same")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
)


@pytest.mark.parametrize("kind", ["processes", "loky", "dask", "mpi"])
def test_digits_are_the_same_also_after_a_worker_is_killed(kind, tmp_path):
    for name, array in data(m=6_000, n=300)._asdict().items():
        np.save(tmp_path / f"{name}.npy", array)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    output = engines.run(kind, script, tmp_path)
    assert output.strip().endswith("the same"), output
