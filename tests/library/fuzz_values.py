"""Values that the targets of `fuzz.py` pass, and checks of what they get; see there."""

from __future__ import annotations

import contextlib
import decimal
import fractions
import io
import linecache
import traceback

import numpy as np
import scipy.sparse as sp

import bregopt as bo

QUICK = {"time_limit": 5.0}


class WrongError(Exception):
    """An answer that is wrong."""


def require(holds, message):
    if not holds:
        raise WrongError(message)


def hostile(rng, n=3):
    """Return a value that a caller might pass by mistake, or a good one."""
    M = rng.normal(size=(n, n))
    S = M @ M.T
    values = [
        lambda: None,
        lambda: bool(rng.integers(2)),
        lambda: str(rng.choice(["", "x", "auto", "logdet", "nan", "1e5", "\x00", "ä" * 50])),
        lambda: b"1",
        lambda: float(
            rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, 1e-70])
        ),
        lambda: int(rng.choice([0, 1, -1, 2, 3, 7, 2**31, 2**62])),
        lambda: 10 ** int(rng.integers(18, 400)),
        lambda: complex(1, rng.integers(2)),
        lambda: fractions.Fraction(1, 3),
        lambda: decimal.Decimal("0.1"),
        lambda: np.float32(0.5),
        lambda: np.longdouble("1e4000"),
        lambda: np.int8(3),
        lambda: np.datetime64("2020-01-01"),
        lambda: [],
        lambda: [[]],
        lambda: [[1], [1, 2]],
        lambda: {"a": 1},
        lambda: {1, 2},
        lambda: range(int(rng.integers(4))),
        lambda: (x for x in [1, 2]),
        lambda: object(),
        lambda: lambda X: bo.trace(X) <= 1,
        lambda: bo.PSD,
        lambda: bo.PSD(n),
        lambda: bo.PSD(n) + 0.0,
        lambda: bo.Variable(n),
        lambda: bo.Parameter(n),
        lambda: bo.LowRank(M[:, :1]),
        lambda: bo.trace(bo.PSD(n)) <= 1,
        lambda: M,
        lambda: S,
        lambda: S * 10.0 ** rng.integers(-320, 308),
        lambda: S[:, :2],
        lambda: S[0],
        lambda: S[None],
        lambda: S[::-1, ::-1],
        lambda: np.asfortranarray(S).T,
        lambda: S.astype(rng.choice(["f2", "f4", "i1", "?", "c16", "O", "U5", "S3", ">f8", "g"])),
        lambda: np.broadcast_to(1.0, (n, n)),
        lambda: np.ma.masked_array(S, mask=S < 0),
        lambda: np.matrix(S),
        lambda: np.where(rng.random((n, n)) < 0.2, rng.choice([np.nan, np.inf]), S),
        lambda: np.zeros((0, 0)),
        lambda: np.zeros((n, 0)),
        lambda: np.zeros((n, n)),
        lambda: -S,
        lambda: np.array(5.0),
        lambda: np.zeros(3, dtype=[("a", "f8")]),
        lambda: getattr(sp, f"{rng.choice(['coo', 'csr', 'csc', 'lil', 'dok', 'dia', 'bsr'])}_array")(S),
        lambda: sp.csr_matrix(S),
        lambda: sp.coo_array((10**6, 10**6 + 1)),
        lambda: sp.csr_array(np.full((n, n), np.nan)),
        lambda: frame(rng, S),
    ]
    return values[rng.integers(len(values))]()


def frame(rng, S):
    pandas = optional("pandas")
    if pandas is None:
        return S
    names = rng.choice(["a", "b", "c", "a"], size=len(S))
    return pandas.DataFrame(S, index=names, columns=rng.permutation(names))


def optional(module):
    try:
        return __import__(module)
    except ImportError:
        return None


def sensible(rng, n=3):
    """Return mostly good values, so that a call gets past its first check."""
    M = rng.normal(size=(n, n))
    S = M @ M.T + 0.1 * np.eye(n)
    good = [
        S,
        np.eye(n),
        S / np.sqrt(np.outer(np.diag(S), np.diag(S))),
        1.0,
        0.5,
        np.ones(n),
        [0, 1],
        0,
        1,
        2,
    ]
    return good[rng.integers(len(good))] if rng.random() < 0.7 else hostile(rng, n)


def snapshot(values):
    """Return the bytes of the arrays among values."""
    held = []
    for value in values:
        if sp.issparse(value) and hasattr(value, "data") and isinstance(value.data, np.ndarray):
            value = value.data
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            held.append((value, value.tobytes()))
    return held


def is_refusal(error):
    """Whether the library raised an error itself: an error of NumPy or Python names no argument.

    Scikit-learn's checks, and functions of a target that the library calls, have words of their own.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    modules = [frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in frames]
    if "bregopt" not in modules:  # an error of the target itself
        return False
    called = modules[len(modules) - modules[::-1].index("bregopt") :]
    if called:
        return "sklearn" in called or called[-1].startswith("fuzz")
    frame, line = frames[-1]
    return linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise")


@contextlib.contextmanager
def unmodified(*values):
    held = snapshot(values)
    try:
        yield
    finally:
        require(all(array.tobytes() == before for array, before in held), "an input was modified")


def quiet(call):
    """Call a function and discard its printed output."""
    with contextlib.redirect_stdout(io.StringIO()):
        return call()


def symmetric(rng, n):
    M = rng.normal(size=(n, n))
    return (M + M.T) / 2
