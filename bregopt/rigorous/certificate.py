"""A certificate of bounds: the data of a problem and the points that prove them, in one file.

The check recomputes both bounds from the file, with the proofs of this package and with nothing of a solver.
The file holds arrays in NumPy's ``.npz`` format, without pickled objects, and a SHA-256 of all of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.program.cones import SecondOrderCones
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Anchor, Data, MatrixData, Null
from bregopt.rigorous.diagonal import factor_bound, fixes_diagonal
from bregopt.rigorous.implied import implied_bounds
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.reduction import reduced
from bregopt.rigorous.refutation import homogeneous, refutes
from bregopt.rigorous.upper import Point, upper_bound

__all__ = ["BoundCertificate", "stated"]

_FORMAT = "bregopt bounds 1"


@dataclass(frozen=True, eq=False)
class BoundCertificate:
    """All that a third party needs to check proven bounds of a minimization.

    Parameters
    ----------
    data : Data
        The problem. Multipliers and points are those of the problem on faces and ranges
        (:func:`bregopt.rigorous.reduction.reduced`), beside a `factor` of the problem itself.
    traces : array of shape (blocks,)
        Bounds on traces that the caller stated; infinite where there are none.
    y : array of shape (m,) or None
        The multipliers that prove the lower bound.
    X : tuple of array or None
        Approximate matrices, from which terms of divergences take multipliers.
    point : Point or None
        The point that proves the upper bound.
    factor : array of shape (n, r) or None
        In place of `point`: a factor that proves the upper bound of a cut.
    farkas : array of shape (m,) or None
        Multipliers that prove the problem infeasible.
    ray : Point or None
        A direction that proves the problem unbounded, beside `point`.
    claims : (float, float)
        The bounds of the minimization.
    """

    data: Data
    traces: Array
    y: Array | None = None
    X: tuple[Array, ...] | None = None
    point: Point | None = None
    factor: Array | None = None
    farkas: Array | None = None
    ray: Point | None = None
    claims: tuple[float, float] = (-math.inf, math.inf)

    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the minimization that the points prove, computed from the data."""
        data, lower, upper = self.data, -math.inf, math.inf
        if self.factor is None:
            data = reduced(data).data
        if self.farkas is not None and refutes(self.data, self.farkas):
            return math.inf, math.inf
        if self.y is not None:
            implied = implied_bounds(data).with_traces(self.traces)
            lower = lower_bound(data, self.y, implied, self.X).value
        if self.point is not None:
            upper = upper_bound(data, self.point).value
        if self.factor is not None and fixes_diagonal(data):
            upper = factor_bound(data, self.factor).value
        if self.ray is not None and upper < math.inf:
            along = homogeneous(data)
            if along is not None and upper_bound(along, self.ray).value < 0:
                return -math.inf, -math.inf
        return lower, upper

    def check(self) -> None:
        """Prove the bounds again.

        Raises
        ------
        ValueError
            If the data do not prove what is claimed.
        """
        lower, upper = self.bounds()
        for name, found, claim, better in (
            ("lower", lower, self.claims[0], lower >= self.claims[0]),
            ("upper", upper, self.claims[1], upper <= self.claims[1]),
        ):
            if not better and not _same(found, claim):
                raise ValueError(f"the data prove the {name} bound {found!r}; the file claims {claim!r}")

    @property
    def proven(self) -> str:
        """What is claimed, as one sentence, in the user's sign of the objective."""
        lower, upper = self.claims
        return stated(-upper, -lower, True) if self.data.maximize else stated(lower, upper, False)

    def save(self, path: str | Path) -> None:
        """Write the certificate to a file ``.npz``.

        Parameters
        ----------
        path : str or Path
            A name that ends with ``.npz``; a file of this name is replaced.

        Raises
        ------
        ValueError
            If the name has another ending.
        """
        if Path(path).suffix != ".npz":
            raise ValueError(f"the file is called {Path(path).name!r}; expected a name that ends with .npz")
        arrays = _packed(self)
        np.savez_compressed(path, digest=_digest(arrays), **arrays)

    @classmethod
    def load(cls, path: str | Path) -> BoundCertificate:
        """Return the certificate of a file.

        Raises
        ------
        ValueError
            If the file is not a certificate, or was changed after it was written.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            digest = bytes(arrays.pop("digest"))
            if digest != bytes(_digest(arrays)):
                raise ValueError(f"{path} was changed after it was written: its digest differs")
            return _unpacked(arrays)
        except (KeyError, EOFError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is not a certificate of bounds: {error!r}") from None


def stated(lower: float, upper: float, maximize: bool) -> str:
    """Return what bounds say of the optimum, as one sentence."""
    if math.isinf(lower) and lower == upper:
        return f"the problem is {'infeasible' if (lower > 0) != maximize else 'unbounded'}"
    if math.isfinite(lower) and math.isfinite(upper):
        return f"the optimum is between {lower:.17g} and {upper:.17g}"
    if math.isfinite(lower):
        return f"the optimum is at least {lower:.17g}"
    return f"the optimum is at most {upper:.17g}" if math.isfinite(upper) else "nothing"


def _same(a: float, b: float) -> bool:
    """Whether two bounds differ by the rounding of another processor's order of operations only."""
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


def _digest(arrays: dict[str, Any]) -> Array:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(array.tobytes())
    return np.frombuffer(found.digest(), dtype=np.uint8)


def _packed(certificate: BoundCertificate) -> dict[str, Any]:
    """Return the certificate as named arrays."""
    data = certificate.data
    facts: dict[str, Any] = {
        "format": _FORMAT,
        "offset": data.offset.hex(),
        "maximize": data.maximize,
        "claims": [claim.hex() for claim in certificate.claims],
        "blocks": [],
    }
    arrays: dict[str, Any] = {"traces": certificate.traces, "cone_index": data.cones.index}
    arrays["cone_dimensions"] = data.cones.dimensions
    arrays |= _sparse("B", data.B) | _sparse("B_rad", data.B_rad) | _ball("c", data.c)
    for name in ("u_lo", "u_hi", "lo", "hi", "lo_rad", "hi_rad", "kind", "weight"):
        arrays[name] = getattr(data, name)
    for b, block in enumerate(data.matrices):
        arrays |= {f"i{b}": block.i, f"j{b}": block.j} | _ball(f"C{b}", block.C)
        arrays |= _sparse(f"A{b}", block.A) | _sparse(f"A_rad{b}", block.A_rad)
        fact: dict[str, Any] = {"name": block.name, "n": block.n, "cap": _hex(block.cap)}
        if block.null is not None:
            fact["null"], arrays[f"null{b}"] = block.null.row, block.null.z
        if block.anchor is not None:
            fact |= {"divergence": block.anchor.divergence, "mu": block.anchor.mu.hex()}
            arrays |= _ball(f"X0{b}", block.anchor.X0)
            for name in ("weights", "factor"):
                own = getattr(block.anchor, name)
                if own is not None:
                    arrays[f"{name}{b}"] = own
        facts["blocks"].append(fact)
    for name, own in (
        ("y", certificate.y),
        ("factor", certificate.factor),
        ("farkas", certificate.farkas),
    ):
        if own is not None:
            arrays[name] = own
    for b, X in enumerate(certificate.X or ()):
        arrays[f"X{b}"] = X
    for name, point in (("point", certificate.point), ("ray", certificate.ray)):
        if point is not None:
            arrays |= {f"{name}_u": point.u, f"{name}_equations": point.equations}
            arrays[f"{name}_movable"] = point.movable
            arrays |= {f"{name}_X{b}": X for b, X in enumerate(point.X)}
    arrays["facts"] = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    return arrays


def _unpacked(arrays: dict[str, Any]) -> BoundCertificate:
    facts = json.loads(bytes(arrays["facts"]))
    if facts.get("format") != _FORMAT:
        raise KeyError(f"format {facts.get('format')!r}")
    m, k = len(arrays["lo"]), len(arrays["u_lo"])
    matrices = tuple(_block(arrays, fact, b, m) for b, fact in enumerate(facts["blocks"]))
    data = Data(
        matrices,
        B=_read_sparse(arrays, "B", (m, k)),
        B_rad=_read_sparse(arrays, "B_rad", (m, k)),
        c=_read_ball(arrays, "c"),
        cones=SecondOrderCones(arrays["cone_index"], arrays["cone_dimensions"]),
        offset=float.fromhex(facts["offset"]),
        maximize=bool(facts["maximize"]),
        **{name: arrays[name] for name in ("u_lo", "u_hi", "lo", "hi", "lo_rad", "hi_rad", "kind", "weight")},
    )
    blocks = range(len(matrices))
    points = {
        name: Point(
            tuple(arrays[f"{name}_X{b}"] for b in blocks),
            *(arrays[f"{name}_{part}"] for part in ("u", "equations", "movable")),
        )
        for name in ("point", "ray")
        if f"{name}_u" in arrays
    }
    lower, upper = map(float.fromhex, facts["claims"])
    return BoundCertificate(
        data,
        arrays["traces"],
        y=arrays.get("y"),
        X=tuple(arrays[f"X{b}"] for b in blocks) if "X0" in arrays and matrices else None,
        factor=arrays.get("factor"),
        farkas=arrays.get("farkas"),
        claims=(lower, upper),
        **points,
    )


def _block(arrays: dict[str, Any], fact: dict[str, Any], b: int, m: int) -> MatrixData:
    anchor = None
    if "divergence" in fact:
        X0 = _read_ball(arrays, f"X0{b}")
        weights, factor = (arrays.get(f"{name}{b}") for name in ("weights", "factor"))
        anchor = Anchor(fact["divergence"], X0, float.fromhex(fact["mu"]), weights, factor)
    i, j = arrays[f"i{b}"], arrays[f"j{b}"]
    return MatrixData(
        fact["name"],
        fact["n"],
        i,
        j,
        _read_sparse(arrays, f"A{b}", (m, len(i))),
        _read_sparse(arrays, f"A_rad{b}", (m, len(i))),
        _read_ball(arrays, f"C{b}"),
        None if fact["cap"] is None else float.fromhex(fact["cap"]),
        anchor,
        null=_null(fact, arrays[f"null{b}"]) if "null" in fact else None,
    )


def _null(fact: dict[str, Any], z: Array) -> Null:
    if not np.isin(z, (-1.0, 0.0, 1.0)).all():
        raise KeyError(f"a vector of {fact['name']} has other entries than 0, 1 and -1")
    return Null(fact["null"], z)


def _hex(number: float | None) -> str | None:
    return None if number is None else float(number).hex()


def _ball(name: str, ball: Ball) -> dict[str, Any]:
    return {f"{name}_mid": ball.mid, f"{name}_radius": ball.rad}


def _read_ball(arrays: dict[str, Any], name: str) -> Ball:
    return Ball(arrays[f"{name}_mid"], arrays[f"{name}_radius"])


def _sparse(name: str, A: Any) -> dict[str, Any]:
    if A is None:
        return {}
    return {f"{name}_data": A.data, f"{name}_indices": A.indices, f"{name}_indptr": A.indptr}


def _read_sparse(arrays: dict[str, Any], name: str, shape: tuple[int, int]) -> Any:
    if f"{name}_data" not in arrays:
        return None
    return sp.csr_array(tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr")), shape)
