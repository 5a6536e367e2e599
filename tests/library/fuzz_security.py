"""Targets of `fuzz.py`: files, plug-ins and executors that mean harm.

A tampered certificate is judged by the optimum of the problem that it is about; a checkpoint, a plug-in and
an executor by the answer without them; a save by the file that was there before.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from concurrent.futures import Executor, Future
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fuzz_values import require

import bregopt as bo
from bregopt import files
from bregopt.program import Answer, StopReason
from bregopt.rigorous.file import schema
from bregopt.routes.base import Capabilities, Settings

KINDS = ("linear", "maximum", "weights", "logdet", "infeasible", "unbounded", "soft", "cone", "cut", "factor")


# --- Certificates -------------------------------------------------------------------------------------


def stated(kind):
    """Return a small problem of each kind that a certificate has fields for."""
    rng = np.random.default_rng(KINDS.index(kind))
    n = 4
    G = rng.normal(size=(n, n))
    C, X, u = G + G.T, bo.PSD(n, name="X"), bo.Variable(2, lower=-1, upper=2, name="u")
    rows = [bo.diag(X) == 1, X[0, 1] + u[0] >= 0.2, bo.sum(u) <= 1]
    costs = {
        "linear": bo.Minimize(bo.inner(C, X) + u[0] - u[1]),
        "maximum": bo.Maximize(bo.inner(C, X) + u[0]),
        "weights": bo.Minimize(bo.frobenius_div(X, C, weights=1 + np.abs(C)) + u[1]),
        "logdet": bo.Minimize(bo.logdet_div(X, G @ G.T + np.eye(n))),
        "infeasible": bo.Minimize(bo.trace(X)),
        "unbounded": bo.Minimize(-bo.trace(X)),
        "soft": bo.Minimize(bo.inner(C @ C, X)),
        "cone": bo.Minimize(bo.inner(C, X) + bo.norm2(u - [0.5, 1.5])),
        "cut": bo.Minimize(bo.inner(C, X)),
        "factor": bo.Minimize(bo.inner(C, X)),
    }
    others = {
        "infeasible": [bo.diag(X) == 1, X[0, 1] >= 1.5],
        "unbounded": [X[0, 1] == 1],
        "soft": [bo.soft(bo.diag(X) >= 1, gamma=2.0), bo.soft(X[0, 1] >= 1, gamma=3.0, penalty="hinge")],
        "cut": [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) == 0],
        "factor": [bo.diag(X) == 1],
    }
    return bo.Problem(costs[kind], others.get(kind, rows))


@cache
def proven(kind):
    """Return a problem, its certificate as arrays and facts, and proven bounds of the minimization."""
    problem = stated(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = problem.solve(tol=1e-9, solver="lowrank" if kind == "factor" else "auto").verify()
    lower, upper = found.lower, found.upper
    found.certificate.save("whole.npz")
    with np.load("whole.npz") as file:
        arrays = dict(file)
    facts = json.loads(bytes(arrays.pop("facts")))
    arrays.pop("digest")
    arrays.pop("statement", None)  # for the checker: changed arrays would only contradict it
    return problem, arrays, facts, (-upper, -lower) if found.certificate.data.maximize else (lower, upper)


def tampered(rng, arrays, facts):
    """Return arrays and facts with a random change that an adversary might make."""
    arrays, facts = dict(arrays), json.loads(json.dumps(facts))
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice(list(arrays)))
        array = np.array(arrays[name])
        wild = [0.0, 1.0, -1.0, 5.0, -5.0, 1e-9, 1e300, -1e300, np.nan, np.inf, -np.inf, 1e-320, 0.44]
        action = rng.integers(12)
        if action < 5 and array.size and array.dtype.kind in "fi":
            flat = array.reshape(-1).copy()
            k = rng.integers(flat.size)
            value = rng.choice(wild if array.dtype.kind == "f" else [-(2**62), -1, 0, 1, 2, 9, 2**31, 2**62])
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                flat[k] = value if rng.random() < 0.5 else flat[k] + value if action else -flat[k]
            arrays[name] = flat.reshape(array.shape)
        elif action == 5:
            kinds = ["f2", "f4", "c16", "b1", "i4", "u8", ">f8", "g", "U3"]
            with np.errstate(all="ignore"), contextlib.suppress(ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arrays[name] = array.astype(rng.choice(kinds))
        elif action == 6:
            shapes = [array.ravel()[:-1], array.ravel()[:0], array[None], np.append(array, 1), np.zeros(())]
            arrays[name] = shapes[rng.integers(len(shapes))]
        elif action == 7:
            del arrays[name]
        elif action == 8:
            arrays[str(rng.choice([*arrays, "farkas", "y", "factor", "null0", "more", "B_rad_data"]))] = array
        elif action == 9:
            fact = str(rng.choice(["lower", "upper"]))
            given = 0.0
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                given = float.fromhex(facts.get(fact))
            size = abs(given) if np.isfinite(given) else 1.0
            facts[fact] = float(given + rng.choice([1, -1]) * size * 10.0 ** rng.integers(-10, 2)).hex()
        elif action == 10:
            values = [None, -1, 0, 10**9, 2**70, "nan", "0x1p+9999", [], {}, True, 1.5, "text", "inf", "-inf"]
            facts[str(rng.choice(list(facts)))] = values[rng.integers(len(values))]
        elif (
            isinstance(facts.get("blocks"), list) and facts["blocks"] and isinstance(facts["blocks"][0], dict)
        ):
            key = str(rng.choice([*facts["blocks"][0], "cap", "null", "mu", "divergence", "more"]))
            values = [None, 0, 1, 2, 4, 10**9, "0x1p+0", "0x1p-9", "frobenius", "logdet", -1, "nan"]
            facts["blocks"][0][key] = values[rng.integers(len(values))]
        if not arrays:
            break
    return arrays, facts


def written(path, arrays, facts):
    """Write arrays and facts with the digest that they have."""
    text = json.dumps(facts, sort_keys=True).encode()
    whole = {**arrays, "facts": np.frombuffer(text, dtype=np.uint8)}
    np.savez(path, digest=schema._seal(whole), **whole)


def _statement(arrays, facts):
    """Return what a file says of the problem: all but radii, points, names and claims."""
    numbers = ("lower", "upper", "name", "format")
    own = {name: array for name, array in arrays.items() if name in _STATED or name[:-1] in _STATED_OF_BLOCK}
    return own, {name: fact for name, fact in facts.items() if name not in numbers}


_STATED = {"u_lo", "u_hi", "lo", "hi", "kind", "weight", "cone_index", "cone_dimensions", "c_mid"}
_STATED |= {"B_data", "B_indices", "B_indptr"}
_STATED_OF_BLOCK = {"i", "j", "null", "weights"}
_STATED |= {f"{name}0_{part}" for name in "A" for part in ("data", "indices", "indptr")}
_STATED |= {"C0_mid", "anchor0_mid"}


def _same(one, two):
    (a, f), (b, g) = one, two
    return f == g and a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def certificates(rng):
    """Tamper with a certificate and hash it again: refused by a ValueError, or nothing false is proven."""
    kind = str(rng.choice(KINDS))
    problem, arrays, facts, (lower, upper) = proven(kind)
    path = Path("tampered.npz")
    other, says = tampered(rng, arrays, facts)
    written(path, other, says)
    outcome = "refused"
    for statement in (None, problem):
        try:
            again = bo.BoundCertificate.load(path)
            if statement is None:
                again.check()
            else:
                again = bo.verify(statement, again).certificate
        except ValueError:
            continue
        outcome = "taken"
        ours = statement is not None or _same(_statement(other, says), _statement(arrays, facts))
        if not ours or np.isfinite(again.traces).any():  # another problem, or one that is conditional
            require(again.given or not np.isfinite(again.traces).any(), "an assumption is not stated")
            continue
        require(
            again.claims[0] <= upper and lower <= again.claims[1],
            f"{kind}: {again.proven} from the file, the optimum is from {lower!r} to {upper!r}",
        )
    return outcome


def flipped(rng):
    """Flip bits of a certificate, a checkpoint or the arrays of a spec: a ValueError names the file."""
    _, arrays, facts, _ = proven("linear")
    path = Path("flipped.npz")
    written(path, arrays, facts)
    content = bytearray(path.read_bytes())
    for _ in range(rng.integers(1, 6)):
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(content[: rng.integers(len(content)) if rng.random() < 0.2 else None]))
    try:
        bo.BoundCertificate.load(path).check()
    except ValueError:
        return "refused"
    return "unharmed"


# --- Checkpoints --------------------------------------------------------------------------------------


def checkpoints(rng):
    """Resume from a checkpoint that was changed or cut: it is refused, or the answer is right."""
    Z, path = np.random.default_rng(1).normal(size=(30, 3)), Path("state.npz")
    rows = bo.RowChunks(Z, 1.0 + Z[:, 0] ** 2, "<=", 0.3, chunk=10)
    for old in (path, Path("state.npz.lock")):
        old.unlink(missing_ok=True)
    whole = rows.solve(np.eye(3), resume=path)
    with np.load(path) as file:
        state = dict(file)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        name = str(rng.choice(list(state)))
        wild = [
            np.nan,
            np.zeros((3, 3)),
            -state[name] if state[name].dtype.kind == "f" else 7,
            "x",
            np.ones(9),
        ]
        np.savez(path, **{**state, name: wild[rng.integers(len(wild))]})
    elif rng.random() < 0.5:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(content))
    else:
        path.write_bytes(bytes(content[: rng.integers(len(content))]))
    try:
        found = rows.solve(np.eye(3), resume=path)
    except ValueError as error:
        require("resume is" in str(error), f"the file is not named: {error}")
        return "refused"
    require(abs(found.value - whole.value) <= 1e-5 * abs(whole.value), "another value")
    return found.status


# --- Plug-ins and executors ---------------------------------------------------------------------------


class Liar:
    """A route that returns anything, and may write into its program."""

    name: ClassVar[str] = "liar"
    summary: ClassVar[str] = "lies"
    citation: ClassVar[str] = "none"
    capabilities: ClassVar[Capabilities] = Capabilities(objectives=frozenset({"linear"}))
    Settings: ClassVar[type[Settings]] = Settings
    act: ClassVar[Any] = None

    def refusal(self, program, settings):
        return None

    def choice(self, program, settings):
        return "lies"

    def solve(self, program, settings, start, progress):
        return type(self).act(program)


def _written_in_place(program, rng):
    arrays = [
        program.bounds.lo,
        program.bounds.hi,
        program.u_lo,
        program.c,
        program.B.data,
        program.bounds.gamma,
    ]
    array = arrays[rng.integers(len(arrays))]
    if rng.random() < 0.5:
        with contextlib.suppress(ValueError):
            array.flags.writeable = True
    with contextlib.suppress(ValueError):
        array -= 1


def plugins(rng):
    """Solve by a route that lies or writes into the program: the next solve is that of the user's problem."""
    X = bo.PSD(2, name="X")
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1, X[0, 1] == 0.5])
    wild = [
        None,
        [],
        "optimal",
        np.nan,
        np.full((2, 2), np.nan),
        np.eye(3),
        np.eye(2, dtype=complex),
        3,
        (1,),
    ]

    def act(program):
        if rng.random() < 0.6:
            _written_in_place(program, rng)
        own = {
            "X": (np.eye(2),),
            "u": np.zeros(program.k),
            "y": np.zeros(program.m),
            "stop": StopReason.CONVERGED,
            "iterations": 1,
        }
        if rng.random() < 0.7:
            own[str(rng.choice(list(own)))] = wild[rng.integers(len(wild))]
        if rng.random() < 0.1:
            return wild[rng.integers(len(wild))]
        return Answer(**own)

    solver = type("Liar", (Liar,), {"act": staticmethod(act)})
    status = "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(bo.SolverError):
            status = problem.solve(solver=solver).status
    require(status != "optimal", "a lie is optimal")
    again = problem.solve(tol=1e-8)
    require(again.status == "optimal" and abs(again.value - 1.25) < 1e-5, f"{again.value} after a lie")
    return status


class Strange(Executor):
    """An executor that may return other results than those of its tasks."""

    def __init__(self, act):
        self._act, self._kept = act, []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(self._act(fn(*args, **kwargs), self._kept))
        except Exception as error:
            future.set_exception(error)
        return future


def scaled(result, kept):
    """Return sums times 1.5."""
    return type(result)(*(1.5 * part for part in result)) if isinstance(result, tuple) else result


def swapped(result, kept):
    """Return the result before."""
    kept.append(result)
    return kept[-2] if len(kept) > 1 else result


def executors(rng):
    """Solve on an executor that lies: it is found out."""
    Z = np.random.default_rng(2).normal(size=(40, 3))
    rows = bo.RowChunks(Z, 1.0 + Z[:, 0] ** 2, "<=", 0.3, chunk=10)
    acts = [scaled, swapped, lambda result, kept: None, lambda result, kept: result]
    k = int(rng.integers(len(acts)))
    try:
        found = rows.solve(np.eye(3), executor=Strange(acts[k]))
    except bo.SolverError as error:
        require(k < 3 and "Strange" in str(error), f"refused: {error}")
        return "found out"
    require(k == 3, "a lie is not found out")
    require(found.value == rows.solve(np.eye(3)).value, "another value")
    return found.status


# --- Masks and files ----------------------------------------------------------------------------------


def masks(rng):
    """Pass a masked array: it is refused by the word."""
    n = 3
    X, u = bo.PSD(n), bo.Variable(n)
    mask = rng.random((n, n)) < 0.5
    mask |= mask.T
    M = np.ma.masked_array(2 * np.eye(n), mask=mask)
    v = np.ma.masked_array(np.arange(3.0), mask=mask[0])
    calls = [
        lambda: bo.diag(X) >= v,
        lambda: u * v,
        lambda: bo.inner(M, X),
        lambda: M @ u,
        lambda: X[np.ma.masked_array([0, 1, 2], mask=mask[0]), 0],
        lambda: bo.frobenius_div(X, M),
        lambda: bo.nearest_correlation([np.eye(n), M]),
        lambda: bo.nearest_psd(M),
        lambda: bo.RowChunks(M, 1.0, "<=", 1.0),
        lambda: bo.Parameter(n, value=v),
        lambda: bo.LowRank(M),
    ]
    k = int(rng.integers(len(calls)))
    expected = mask.any() if k in (2, 3, 5, 6, 7, 8, 10) else mask[0].any()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls[k]()
    except ValueError as error:
        require(expected and "masked" in str(error), f"call {k}: {error}")
        return "refused"
    require(not expected, f"call {k} takes masked entries")
    return "no mask"


def saves(rng):
    """Save over a file on a full disk, through a link, or beside a planted one: others stay as they are."""
    folder = Path("saved")
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    problem, arrays, facts, _ = proven("linear")
    written("whole.npz", arrays, facts)
    certificate = bo.BoundCertificate.load("whole.npz")
    X = bo.PSD(2, name="X")
    linear = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1])
    save, name = [
        (certificate.save, "a.npz"),
        (problem.to_spec, "a.toml"),
        (lambda path: bo.write_sdpa(linear, path), "a.dat-s"),
        (lambda path: bo.write_cbf(linear, path), "a.cbf"),
    ][rng.integers(4)]
    path, secret = folder / name, folder / "secret"
    secret.write_bytes(b"secret")
    if rng.random() < 0.5:
        path.symlink_to(secret.name)
    else:
        path.write_bytes(b"old")
    former = path.read_bytes()
    full = rng.random() < 0.5
    if full:
        room = int(rng.integers(0, 200))
        with no_space(room), contextlib.suppress(OSError):
            save(path)
            full = False
    else:
        save(path)
    require(secret.read_bytes() == b"secret", f"{name}: a file behind a link was written")
    require(not full or path.read_bytes() == former, f"{name}: the old file is lost")
    require(not [p for p in folder.iterdir() if p.suffix == ".new"], f"{name}: a temporary file is left")
    return "full" if full else "saved"


@contextlib.contextmanager
def no_space(room):
    """Let writers of files fail after `room` bytes."""
    own = files.os.fdopen

    def limited(fd, mode):
        file, left = own(fd, mode), [room]
        write = file.write

        class Limited:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def write(self, data):
                left[0] -= len(data)
                if left[0] < 0:
                    raise OSError(28, "No space left on device")
                return write(data)

            def __getattr__(self, name):
                return getattr(file, name)

        return Limited()

    files.os.fdopen = limited
    try:
        yield
    finally:
        files.os.fdopen = own
