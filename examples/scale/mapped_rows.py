"""Learn a metric from a file larger than memory
=============================================

A file of 200,000 vectors is mapped into memory. Two processes read it part by
part, and each pass over the file bounds the optimum.
"""

import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

import bregopt as bo

ROWS, ORDER, PART = 200_000, 10, 50_000


def write(path):
    """Write vectors part by part, so that memory never holds all of them."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(ORDER, ORDER)) / ORDER**0.5
    Z = open_memmap(path, mode="w+", dtype=np.float32, shape=(ROWS, ORDER))
    for start in range(0, ROWS, PART):
        Z[start : start + PART] = rng.normal(size=(PART, ORDER)) @ mixing
    Z.flush()


def main():
    """Bound the lengths of the vectors in the metric."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        write(path)
        size = path.stat().st_size / 2**20
        rows = bo.RowChunks(path, bound=8.0, sense="<=", gamma=1e-4, chunk=PART)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            sol = rows.solve(
                np.eye(ORDER), executor=pool, sample=20_000, tol=1e-8
            )
    print(f"{ROWS:,} rows of {size:.0f} MB in {sol.iterations} passes")
    print(sol)
    sol.plot()


if __name__ == "__main__":
    main()
