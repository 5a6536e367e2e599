"""The file of a certificate: arrays of fixed names, types and shapes, and a SHA-256 of all of them.

Whoever wrote the file may have chosen every number in it, and the SHA-256 has no key: it finds damage, not
fraud. The reader therefore checks all that the proofs assume of their data, and refuses names that it does
not know. Sizes come first, so that a small file does not ask for a large memory.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, check_memory
from bregopt.files import path_of, read_arrays, replacing, zipped
from bregopt.program import Penalty
from bregopt.program.bounds import SecondOrderCones
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.convex_terms import KINDS, SUM, StatedTerm
from bregopt.rigorous.data import LARGEST_DENSE, Anchor, Data, MatrixData, Null
from bregopt.rigorous.faces import IntegerFace
from bregopt.rigorous.linear_algebra import LARGEST_PARTS
from bregopt.rigorous.upper import Point

FORMAT = "bregopt bounds 3"
OLDER_FORMAT = "bregopt bounds 2"  # without the statement for `bregopt-check`
_WORK, _LISTS = 10, 64  # dense matrices of an order, and vectors of a size, that a proof may hold at a time
_RELATIVE = (Penalty.LOGDET, Penalty.VON_NEUMANN)  # whose bounds are positive numbers
_SIGNED = ("entropy", "trace of a logarithm")  # functions whose weights may be negative
_VECTORS = ("u_lo", "u_hi", "lo", "hi", "lo_rad", "hi_rad", "weight")


class Fields:
    """The fields of a file, each taken once, by name; errors name the file and the field.

    Parameters
    ----------
    path : Path
    arrays, facts : dict
        Arrays, and numbers and texts, by name.
    """

    def __init__(self, path: Path, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        self.path, self._arrays, self._facts = path, arrays, facts
        self.format = FORMAT

    @classmethod
    def of_file(cls, path: Path, *formats: str) -> Fields:
        """Return the fields of a file whose SHA-256 is right; `format` is one of those given."""
        arrays = read_arrays(path)
        found = arrays.pop("digest", None)
        if found is None or bytes(found) != bytes(_seal(arrays)):
            was = "is not a certificate of bounds: it has no digest" if found is None else "was changed"
            raise ValueError(f"{path} {was}; expected a file of certificate.save, as it was written")
        try:
            facts = json.loads(bytes(arrays.pop("facts", np.zeros(0, np.uint8))).decode())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not a certificate of bounds: its facts are no JSON") from error
        fields = cls(path, arrays, facts if isinstance(facts, dict) else {})
        formats = formats or (FORMAT, OLDER_FORMAT)
        known = " or ".join(map(repr, formats))
        fields.format = fields.fact("format", lambda value: value in formats, known)
        return fields

    def error(self, name: str, found: Any, expected: str) -> ValueError:
        """Return the error for a field."""
        shown = " ".join(repr(found).split())
        return ValueError(f"{self.path}: {name} is {shown[:80]}; expected {expected}")

    def __contains__(self, name: str) -> bool:
        return name in self._arrays or name in self._facts

    def fact(self, name: str, valid: Any, expected: str) -> Any:
        """Return a number or text for which `valid` holds."""
        value = self._facts.pop(name, None)
        if not valid(value):
            raise self.error(name, value, expected)
        return value

    def text(self, name: str) -> str:
        """Return a text."""
        found: str = self.fact(name, lambda value: isinstance(value, str), "a text")
        return found

    def count(self, name: str, least: int = 0, below: float = 2.0**31) -> int:
        """Return an integer from `least` on."""
        found: int = self.fact(
            name, lambda value: type(value) is int and least <= value < below, f"an integer, {least} or more"
        )
        return found

    def number(self, name: str) -> float:
        """Return a number that is written in hexadecimal digits; infinite ones, but no NaN."""
        text = self.text(name)
        try:
            value = float.fromhex(text)
        except (ValueError, OverflowError):
            value = math.nan
        if math.isnan(value):
            raise self.error(name, text, "a number in hexadecimal digits")
        return value

    def facts(self, name: str) -> dict[str, Any]:
        """Return the table in a JSON text."""
        raw = self._array(name, np.dtype("u1"), (None,))
        try:
            found = json.loads(bytes(raw).decode())
        except (ValueError, RecursionError) as error:
            raise self.error(name, error, "JSON") from error
        if not isinstance(found, dict):
            raise self.error(name, found, "a table")
        return found

    def parts(self, name: str) -> list[Fields]:
        """Return the entries of a list of tables, with the arrays of this file."""

        def are_tables(value: Any) -> bool:
            return isinstance(value, list) and all(isinstance(part, dict) for part in value)

        found = self.fact(name, are_tables, "a list of tables")
        return [Fields(self.path, self._arrays, part) for part in found]

    def rank(self, name: str) -> int:
        """Return the number of axes of an array."""
        return int(self._arrays[name].ndim)

    def floats(
        self, name: str, shape: tuple[int | None, ...], *, least: float = -math.inf, finite: bool = True
    ) -> Array:
        """Return an array of doubles, none of them NaN; a None in `shape` is any number."""
        array: Array = self._array(name, np.dtype("<f8"), shape)
        if not (array >= least).all():  # NaN, too
            raise self.error(name, float(array.min(initial=math.inf)), f"numbers from {least:g} on")
        if finite and not np.isfinite(array).all():
            raise self.error(name, math.inf, "finite numbers")
        return array

    def indices(self, name: str, shape: tuple[int | None, ...], size: int) -> IntArray:
        """Return an array of integers in ``0 .. size-1``."""
        return self.integers(name, shape, 0, size - 1)

    def integers(self, name: str, shape: tuple[int | None, ...], least: int, most: int) -> IntArray:
        """Return an array of integers from `least` to `most`."""
        array: IntArray = self._array(name, np.dtype("<i8"), shape)
        if array.size and not (least <= array.min() and array.max() <= most):
            raise self.error(name, [int(array.min()), int(array.max())], f"integers from {least} to {most}")
        return array

    def subset(self, name: str, size: int) -> IntArray:
        """Return some of ``0 .. size-1`` in ascending order."""
        array = self.indices(name, (None,), size)
        if (np.diff(array) <= 0).any():
            raise self.error(name, array, "ascending integers")
        return array

    def ball(self, name: str, shape: tuple[int, ...]) -> Ball:
        """Return finite numbers with their radii."""
        return Ball(self.floats(f"{name}_mid", shape), self.floats(f"{name}_radius", shape, least=0.0))

    def matrix(self, name: str, shape: tuple[int, int], *, least: float = -math.inf) -> Any:
        """Return a sparse array in canonical CSR form, or None where there is none."""
        if f"{name}_indptr" not in self._arrays:
            return None
        ends = self.indices(f"{name}_indptr", (shape[0] + 1,), 2**62)
        data = self.floats(f"{name}_data", (None,), least=least)
        if ends[0] != 0 or ends[-1] != len(data) or (np.diff(ends) < 0).any():
            raise self.error(f"{name}_indptr", ends, f"ascending integers from 0 to {len(data)}")
        column = self.indices(f"{name}_indices", (len(data),), shape[1])
        place = np.repeat(np.arange(shape[0]), np.diff(ends)) * shape[1] + column
        if (np.diff(place) <= 0).any():
            raise self.error(f"{name}_indices", column, "ascending columns in each row")
        return sp.csr_array((data, column, ends), shape)

    def finish(self) -> None:
        """Refuse the fields that are left."""
        self.finish_facts()
        for name in self._arrays:
            raise ValueError(f"{self.path}: {name} is no array of such a certificate")

    def finish_facts(self) -> None:
        """Refuse the numbers and texts that are left."""
        for name in self._facts:
            raise ValueError(f"{self.path}: {name} is no fact of such a certificate")

    def _array(self, name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Any:
        if name not in self._arrays:
            raise ValueError(f"{self.path}: {name} is missing")
        array = self._arrays.pop(name)
        if array.dtype != dtype:
            raise self.error(name, array.dtype.str, f"numbers of type {dtype.name}")
        fits = len(shape) == array.ndim and all(
            n in (None, size) for n, size in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise self.error(f"the shape of {name}", array.shape, f"({wanted})")
        return array


def sealed(arrays: Mapping[str, Any], facts: Mapping[str, Any], file_format: str = FORMAT) -> dict[str, Any]:
    """Return the arrays of a file with its facts and the SHA-256."""
    text = json.dumps({"format": file_format, **facts}, sort_keys=True).encode()
    whole = {**_plain(arrays), "facts": np.frombuffer(text, dtype=np.uint8)}
    return {**whole, "digest": _seal(whole)}


def write(path: str | Path, arrays: Mapping[str, Any], facts: Mapping[str, Any], file_format: str) -> None:
    """Write the file of a certificate, whose name ends with ``.npz``."""
    path = path_of(path)
    if path.suffix != ".npz":
        raise ValueError(f"the file is called {path.name!r}; expected a name that ends with .npz")
    with replacing(path) as file:
        file.write(zipped(sealed(arrays, facts, file_format), compressed=True))


def digest(arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of arrays and facts, in hexadecimal digits."""
    return bytes(sealed(arrays, facts)["digest"]).hex()


def _plain(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of doubles, of 64-bit integers and of bytes."""
    kinds = {"f": "<f8", "u": "u1"}
    return {
        name: np.ascontiguousarray(array, dtype=kinds.get(np.asarray(array).dtype.kind, "<i8"))
        for name, array in arrays.items()
    }


def _seal(arrays: Mapping[str, Any]) -> Array:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(array.tobytes())
    return np.frombuffer(found.digest(), dtype=np.uint8)


# --- The problem ------------------------------------------------------------------------------------


def packed_data(data: Data) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a problem as named arrays and facts."""
    facts: dict[str, Any] = {
        "rows": data.m,
        "variables": data.k,
        "offset": float(data.offset).hex(),
        "maximize": bool(data.maximize),
        "blocks": [],
    }
    arrays: dict[str, Any] = {name: getattr(data, name) for name in (*_VECTORS, "kind")}
    arrays |= {"cone_index": data.cones.index, "cone_dimensions": data.cones.dimensions}
    arrays |= _sparse("B", data.B) | _sparse("B_rad", data.B_rad) | _ball("c", data.c)
    for b, block in enumerate(data.matrices):
        arrays |= {f"i{b}": block.i, f"j{b}": block.j} | _ball(f"C{b}", block.C)
        arrays |= _sparse(f"A{b}", block.A) | _sparse(f"A_rad{b}", block.A_rad)
        fact: dict[str, Any] = {"name": block.name, "n": block.n}
        if block.cap is not None:
            fact["cap"] = float(block.cap).hex()
        if block.null is not None:
            fact["null"], arrays[f"null{b}"] = int(block.null.row), block.null.z
        if block.anchor is not None:
            fact |= {"divergence": block.anchor.divergence, "mu": float(block.anchor.mu).hex()}
            arrays |= _ball(f"anchor{b}", block.anchor.X0)
            for name in ("weights", "factor"):
                own = getattr(block.anchor, name)
                if own is not None:
                    arrays[f"{name}{b}"] = own
        facts["blocks"].append(fact)
    return arrays, facts


def read_data(fields: Fields) -> Data:
    """Return the problem of a file, all that proofs assume of it checked."""
    m, k = fields.count("rows"), fields.count("variables")
    blocks = fields.parts("blocks")
    orders = [block.count("n", 1) for block in blocks]
    dense = sum(n * n for n in orders if n <= LARGEST_DENSE)
    check_memory(8 * (_WORK * dense + _LISTS * (sum(orders) + m + k)), f"the problem of {fields.path}")
    offset = fields.number("offset")
    if not math.isfinite(offset):
        raise fields.error("offset", offset, "a finite number")
    vectors: dict[str, Any] = {
        name: fields.floats(
            name,
            (k,) if name.startswith("u_") else (m,),
            least=0.0 if name in ("lo_rad", "hi_rad", "weight") else -math.inf,
            finite=name in ("lo_rad", "hi_rad"),
        )
        for name in _VECTORS
    }
    data = Data(
        tuple(_read_block(own, n, b, m) for b, (own, n) in enumerate(zip(blocks, orders, strict=True))),
        B=_required(fields, fields.matrix("B", (m, k)), "B"),
        B_rad=fields.matrix("B_rad", (m, k), least=0.0),
        c=fields.ball("c", (k,)),
        cones=_read_cones(fields, k),
        kind=fields.indices("kind", (m,), len(Penalty)),
        offset=offset,
        maximize=fields.fact("maximize", lambda value: isinstance(value, bool), "true or false"),
        **vectors,
    )
    for block in blocks:
        block.finish_facts()
    _check_ends(fields, data)
    _check_nulls(fields, data)
    return data


def _required(fields: Fields, found: Any, name: str) -> Any:
    if found is None:
        raise ValueError(f"{fields.path}: {name}_indptr is missing")
    return found


def _check_ends(fields: Fields, data: Data) -> None:
    """Refuse crossed or infinite equal ends, and penalties outside their domain."""
    for low, high in (("lo", "hi"), ("u_lo", "u_hi")):
        lo, hi = getattr(data, low), getattr(data, high)
        if not ((lo <= hi) & (lo < math.inf) & (hi > -math.inf)).all():
            raise ValueError(f"{fields.path}: {low} is above {high}, or infinite with the wrong sign")
    if (data.lo_rad != data.hi_rad)[data.lo == data.hi].any():
        raise ValueError(f"{fields.path}: lo_rad and hi_rad differ where lo and hi are one number")
    kind, hard = data.kind, data.kind == int(Penalty.HARD)
    if (np.isinf(data.weight) != hard).any():
        raise ValueError(f"{fields.path}: weight is not infinite for hard rows and finite for soft ones")
    if not (np.isinf(data.hi) & np.isfinite(data.lo))[kind == int(Penalty.LOG)].all():
        raise ValueError(f"{fields.path}: a logarithmic row has other bounds than a lower one")
    for end, rad in ((data.lo, data.lo_rad), (data.hi, data.hi_rad)):
        chosen = np.isin(kind, [int(penalty) for penalty in _RELATIVE]) & np.isfinite(end)
        if not (end - rad > 0)[chosen].all():
            raise ValueError(
                f"{fields.path}: a soft row with a relative penalty has a bound that is not positive"
            )
    if (data.weight == 0)[~hard & (kind != int(Penalty.LOG))].any():
        raise ValueError(f"{fields.path}: weight of a soft row is zero; expected a positive number")


def _check_nulls(fields: Fields, data: Data) -> None:
    """Refuse a row ``z'X z = 0`` that is none: its bounds are zero, and nothing else is in it."""
    for b, block in enumerate(data.matrices):
        if block.null is None:
            continue
        row = block.null.row
        ends = [data.lo[row], data.hi[row], data.lo_rad[row], data.hi_rad[row], data.kind[row]]
        lists = [data.B, *(other.A for other in data.matrices)]
        twice = sum(other.null is not None and other.null.row == row for other in data.matrices) > 1
        if any(ends) or any(A.indptr[row] != A.indptr[row + 1] for A in lists) or twice:
            raise ValueError(f"{fields.path}: row {row} is not z'X z = 0 alone, as null{b} says")


def _read_cones(fields: Fields, k: int) -> SecondOrderCones:
    dimensions = fields.indices("cone_dimensions", (None,), k + 1)
    index = fields.indices("cone_index", (None,), k)
    if not (dimensions > 0).all() or dimensions.sum() != len(index) or len(np.unique(index)) != len(index):
        raise fields.error("cone_dimensions", dimensions, f"the sizes of disjoint parts of {len(index)}")
    return SecondOrderCones(index, dimensions)


def _read_block(fields: Fields, n: int, b: int, m: int) -> MatrixData:
    i, j = (fields.indices(f"{name}{b}", (None,), n) for name in ("i", "j"))
    if len(i) != len(j) or (i > j).any() or (np.diff(i * n + j) <= 0).any():
        raise fields.error(f"i{b}", i, f"rows of ascending entries with i <= j, as many as j{b}")
    shape = (m, len(i))
    A = _required(fields, fields.matrix(f"A{b}", shape), f"A{b}")
    rad = fields.matrix(f"A_rad{b}", shape, least=0.0)
    same = rad is None or (np.array_equal(A.indptr, rad.indptr) and np.array_equal(A.indices, rad.indices))
    if not same:
        raise ValueError(f"{fields.path}: A_rad{b} has other entries than A{b}")
    cap = fields.number("cap") if "cap" in fields else None
    if cap is not None and not 0 < cap < math.inf:
        raise fields.error("cap", cap, "a positive number")
    null = None
    if "null" in fields:
        null = Null(fields.count("null", below=m), fields.floats(f"null{b}", (n,)))
        if not np.isin(null.z, (-1.0, 0.0, 1.0)).all() or np.count_nonzero(null.z) < 2 or n < 2:
            raise fields.error(f"null{b}", null.z, "two entries 1 or -1 or more, and zeros")
    anchor = _read_anchor(fields, n, b)
    if null is not None and (cap is not None or anchor is not None):
        raise ValueError(f"{fields.path}: null{b} belongs to a matrix with a cap or a divergence")
    return MatrixData(
        fields.text("name"), n, i, j, A, rad, fields.ball(f"C{b}", (len(i),)), cap, anchor, null=null
    )


def _read_anchor(fields: Fields, n: int, b: int) -> Anchor | None:
    if "divergence" not in fields:
        return None
    divergence, mu = fields.text("divergence"), fields.number("mu")
    if not 0 < mu < math.inf:
        raise fields.error("mu", mu, "a positive number")
    factor = fields.floats(f"factor{b}", (n, None)) if f"factor{b}" in fields else None
    X0 = fields.ball(f"anchor{b}", (0, 0) if factor is not None else (n, n))
    weights = fields.floats(f"weights{b}", (n, n), least=0.0) if f"weights{b}" in fields else None
    for name, part in (("mid", X0.mid), ("radius", X0.rad), ("weights", weights)):
        if part is not None and (part != part.T).any():
            raise ValueError(f"{fields.path}: {name} of the anchor of {b} is not symmetric")
    if weights is not None and (divergence != "frobenius" or factor is not None):
        raise fields.error("divergence", divergence, "frobenius, which alone has weights")
    return Anchor(divergence, X0, mu, weights, factor)


def _ball(name: str, ball: Ball) -> dict[str, Any]:
    return {f"{name}_mid": ball.mid, f"{name}_radius": ball.rad}


def _sparse(name: str, A: Any) -> dict[str, Any]:
    if A is None:
        return {}
    return {f"{name}_data": A.data, f"{name}_indices": A.indices, f"{name}_indptr": A.indptr}


# --- Points -----------------------------------------------------------------------------------------


def packed_point(name: str, point: Point) -> dict[str, Any]:
    """Return a point as named arrays."""
    parts = {part: getattr(point, part) for part in ("u", "equations", "movable")}
    matrices = {f"{name}_X{b}": X for b, X in enumerate(point.X)}
    return {f"{name}_{part}": array for part, array in parts.items()} | matrices


def read_point(fields: Fields, name: str, data: Data) -> Point | None:
    """Return a point with a matrix for each block, on its face or range; None where the file has none."""
    if f"{name}_u" not in fields:
        return None
    X = tuple(fields.floats(f"{name}_X{b}", (None, None)) for b in range(len(data.matrices)))
    return Point(
        X,
        fields.floats(f"{name}_u", (data.k,)),
        fields.subset(f"{name}_equations", data.m),
        fields.subset(f"{name}_movable", data.k),
    )


def read_face(fields: Fields, data: Data) -> IntegerFace | None:
    """Return the face that rows imply together, which the proofs check; None where the file has none."""
    if "exposing" not in fields:
        return None
    directions = tuple(fields.floats(f"face{b}", (block.n, None)) for b, block in enumerate(data.matrices))
    shape = (None, data.m) if fields.rank("exposing") == 2 else (data.m,)
    weight = fields.floats("exposing", shape)
    if weight.ndim == 2 and not 0 < len(weight) <= LARGEST_PARTS:
        raise fields.error("exposing", len(weight), f"1 to {LARGEST_PARTS} parts of each number")
    return IntegerFace(weight, directions)


# --- Convex terms -----------------------------------------------------------------------------------


def packed_terms(terms: tuple[StatedTerm, ...]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return terms as named arrays, and a list of facts."""
    arrays: dict[str, Any] = {f"term_weights{k}": term.weights for k, term in enumerate(terms)}
    arrays |= {f"term_orders{k}": np.array(term.orders, dtype=int) for k, term in enumerate(terms)}
    return arrays, [{"kind": term.kind} for term in terms]


def read_terms(fields: Fields, data: Data) -> tuple[StatedTerm, ...]:
    """Return the terms of a file, none where it has none."""
    found: list[StatedTerm] = []
    kinds = (SUM, *KINDS)
    for k, own in enumerate(fields.parts("terms") if "terms" in fields else ()):
        kind = own.fact("kind", lambda kind: isinstance(kind, str) and kind in kinds, " or ".join(kinds))
        own.finish_facts()
        weights = fields.floats(f"term_weights{k}", (None,), least=-math.inf if kind in _SIGNED else 0.0)
        orders = tuple(fields.integers(f"term_orders{k}", (None,), 1, max(data.m, 1)).tolist())
        counts = {"entropy": len(weights), "relative entropy": 2}
        counts |= dict.fromkeys(("logarithm of a sum", "trace of a logarithm"), 1)
        right = len(orders) == counts.get(kind, 0) and (kind == "entropy" or len(set(orders)) <= 1)
        right &= kind != "relative entropy" or len(weights) == 1
        right &= kind != "trace of a logarithm" or (len(weights) > 1 and (len(weights) - 1) % orders[0] == 0)
        if not right or (kind == SUM) != (not len(weights)) or (kind != SUM and not found):
            raise fields.error(f"term_orders{k}", orders, f"the orders of the arguments of its {kind}")
        found.append(StatedTerm(kind, weights, orders))
    if found and sum(term.size for term in found) >= data.m:
        raise fields.error("terms", len(found), "terms whose arguments are rows, after that of the objective")
    return tuple(found)
