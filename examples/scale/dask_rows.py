"""Learn a metric on a Dask cluster
================================

The data are pairs of points, near in a class and far between classes. A cluster
of two workers passes over chunks of the pairs. Its answer has the same digits
as that of one process.
"""

import tempfile
from pathlib import Path

import numpy as np

import bregopt as bo

try:
    from distributed import Client, LocalCluster
except ImportError:
    Client = None

POINTS, PAIRS, ORDER = 3_000, 60_000, 10


def written(folder):
    """Write points of eight classes and pairs of them."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 8, POINTS)
    points = (
        rng.normal(size=(POINTS, ORDER)) + rng.normal(size=(8, ORDER))[label]
    )
    i, step = rng.integers(0, POINTS, PAIRS), rng.integers(1, POINTS, PAIRS)
    pairs = np.stack([i, (i + step) % POINTS], axis=1)
    alike = label[pairs[:, 0]] == label[pairs[:, 1]]
    arrays = {
        "points": points,
        "pairs": pairs,
        "bound": np.where(alike, 10.0, 30.0),
    }
    for name, array in {**arrays, "sense": np.where(alike, -1, 1)}.items():
        np.save(folder / f"{name}.npy", array)


def main():
    """Solve in this process and on the cluster, and compare all digits."""
    if Client is None:
        print("this example needs Dask: pip install 'bregopt[dask]'")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder)
        files = [folder / f"{each}.npy" for each in ("pairs", "bound", "sense")]
        rows = bo.RowChunks(
            *files, gamma=0.001, points=folder / "points.npy", chunk=10_000
        )
        here = rows.solve(np.eye(ORDER), sample=10_000)
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            there = rows.solve(
                np.eye(ORDER),
                sample=10_000,
                executor=client.get_executor(),
                resume=folder / "state.npz",
            )
    print(there)
    print("the same digits as in one process:", (there.X == here.X).all())
    there.plot()


if __name__ == "__main__":
    main()
