"""Parts that the experiments share: the data sets, clustering, tables and the command line."""

import argparse
import gzip
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from scipy.linalg import lapack
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

COLORS = {"LogDet": "#0072B2", "von Neumann": "#D55E00", "start": "#555555"}


def arguments(doc, data=True):
    """Return the command line's options: a folder with data, if any, one for plots, whether to be quick."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", type=Path, required=True, help="folder with the files named above")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the plot")
    parser.add_argument("--quick", action="store_true", help="a small part of the experiment, in seconds")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def labeled(path, label=-1):
    """Return the numbers and the labels of a comma-separated file, whose column `label` is the class."""
    rows = [[cell.strip() for cell in line.split(",")] for line in path.read_text().splitlines() if line]
    classes = np.array([row[label] for row in rows])
    numbers = np.array([row[:label] if label == -1 else row[label + 1 :] for row in rows], dtype=float)
    return numbers, classes


def pendigits(data, digits):
    """Return all samples of some digits, 16 coordinates from 0 to 100 (UCI, Pen-Based Recognition)."""
    parts = [labeled(data / name) for name in ("pendigits.tra", "pendigits.tes")]
    points, label = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    chosen = np.isin(label.astype(int), digits)
    return points[chosen], label[chosen].astype(int)


def mnist(data, part):
    """Return the images of MNIST, 28 x 28 from 0 to 1, and their digits (LeCun, Cortes, Burges)."""
    images = gzip.decompress((data / f"{part}-images-idx3-ubyte.gz").read_bytes())
    digits = gzip.decompress((data / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return pixels, np.frombuffer(digits, np.uint8, offset=8).astype(int)


def proteins(seed=0):
    """Return a 52 x 52 kernel matrix of trace one and the labels of its points, in three clusters.

    It stands for that among gyrB proteins of three species of bacteria, which is not public.
    """
    rng, d = np.random.default_rng(seed), 52
    label = np.arange(d) % 3
    points = rng.normal(size=(3, 8))[label] + 0.8 * rng.normal(size=(d, 8))
    points -= points.mean(axis=0)
    K = points @ points.T + 0.05 * np.trace(points @ points.T) / d * np.eye(d)
    return K / np.trace(K), label


def factor(K, tol=1e-12):
    """Return the incomplete Cholesky factor ``G`` of a kernel: ``K = G G'`` to `tol` times its mean diagonal.

    Its rows are points whose inner products are the kernel's, for neighbors and k-means.
    """
    L, pivots, rank, _ = lapack.dpstrf(K, tol=tol * np.trace(K) / len(K), lower=1)
    G = np.empty((len(K), rank))
    G[pivots - 1] = np.tril(L)[:, :rank]
    return G


def clustering_nmi(features, label):
    """Return the NMI of kernel k-means with the kernel ``features @ features.T``: the best of ten starts."""
    clusters = KMeans(len(np.unique(label)), n_init=10, random_state=0).fit_predict(features)
    return normalized_mutual_info_score(label, clusters)


def print_table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(heading) + " |")
    print("|" + "---|" * len(heading))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def mean_sd(values, scale=100.0, digits=1):
    """Return mean and standard deviation as text, in per cent unless told otherwise."""
    values = scale * np.asarray(values)
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"


def new_axes(count, width=4.2, height=3.4):
    """Return a figure and `count` axes side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, count))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    return figure, axes


def save(figure, path):
    """Save a figure in 128 colors, which are enough, and a third of the bytes."""
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, dpi=120)
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)
