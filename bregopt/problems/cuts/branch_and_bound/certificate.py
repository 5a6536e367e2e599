"""The certificate of a cut: the graph, the partition, and the leaves of a tree, in one file, and its check.

The check derives the pieces from the graph, in fractions. For each piece it goes along the paths of the
leaves: at each branching one pair of vertices is on one side or on two, and both must be there. So the leaves
cover all cuts. At each leaf the rows must hold for all cuts of the leaf, the multipliers must not be
negative, and the bound is computed with all rounding errors. Nothing of the search is used, and no number of
the file is trusted but the graph, which is the reader's to compare: :meth:`CutCertificate.of_graph`.

Balanced cuts are largest cuts of another graph. Let ``d`` be the difference of the sides and
``s = e'x - d x_0`` with one more vertex ``0``, none where ``d = 0``. A cut of weight ``w`` has the value
``-w - sigma s^2``. This is a constant plus the cut of the complete graph with weights ``4 sigma - w_ij``, and
``-4 sigma d`` at the vertex ``0``. It is ``-w`` for balanced cuts, so any bound on it holds for these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, check_memory
from bregopt.files import path_of
from bregopt.io.graphs import Graph
from bregopt.problems.cuts.branch_and_bound.leaves import (
    LARGEST_CLIQUE,
    Cliques,
    Cycles,
    Form,
    Node,
    Triples,
    cut_bound,
)
from bregopt.problems.cuts.branch_and_bound.reduction import Piece, Reduction, reduced
from bregopt.problems.cuts.proof import Lattice
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous.ball import UNIT, down, up
from bregopt.rigorous.file import schema
from bregopt.rigorous.file.statement import text

FORMAT = "bregopt cut 1"
_ROUNDING = (
    1e-9  # what another processor's order of operations may change of a bound, relative to all weights
)
_SIGMA_BITS = 6  # of the penalty, so that weights of the other graph are doubles


class Task(NamedTuple):
    """The cuts that are compared.

    Parameters
    ----------
    n : int
    i, j : int arrays of shape (m,)
        The ends of the edges, ``i < j``, in ascending order.
    weights : array of shape (m,)
    difference : int
        Of the sizes of the sides of a smallest cut; -1 for largest cuts without sizes.
    sizes : tuple of int
        Those of three parts or more, whose numbers take the place of signs; none for two sides.
    """

    n: int
    i: IntArray
    j: IntArray
    weights: Array
    difference: int
    sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, graph: Graph, difference: int = -1, sizes: tuple[int, ...] = ()) -> Task:
        """Return the task for a graph."""
        edges = graph.adjacency.tocoo()
        once = edges.row < edges.col
        i, j, w = (part[once] for part in (edges.row, edges.col, edges.data))
        order = np.lexsort((j, i))
        return cls(graph.n, i[order].astype(np.intp), j[order].astype(np.intp), w[order], difference, sizes)

    @property
    def largest(self) -> bool:
        """Whether large cuts are sought."""
        return self.difference < 0 and not self.sizes

    def weight(self, side: IntArray) -> Fraction:
        """Return the exact weight of a cut."""
        cut = self.weights[side[self.i] != side[self.j]].tolist()
        return sum(map(Fraction, cut), Fraction(0))

    def allows(self, side: IntArray) -> bool:
        """Whether the sides have the sizes asked for."""
        if self.sizes:
            return sorted(np.bincount(side).tolist()) == sorted(self.sizes)
        return self.largest or abs(int(side.sum())) == self.difference

    def reduction(self) -> Reduction:
        """Return the pieces; a balanced cut has one, and the constant of its value."""
        if self.largest:
            return reduced(self.n, self.i, self.j, self.weights)
        if self.sizes:
            weights = tuple(-Fraction(w) for w in self.weights.tolist())
            return Reduction([], [], Fraction(0), [Piece(np.arange(self.n), self.i, self.j, weights)])
        constant, piece = penalty(self)
        return Reduction([], [], constant, [piece])

    def sides(self, side: IntArray, pieces: Sequence[Piece]) -> list[IntArray]:
        """Return the parts of a cut in the pieces."""
        if self.difference > 0:
            side = np.append(side, 1 if side.sum() > 0 else -1)
        return [side[piece.vertices] for piece in pieces]


def penalty(task: Task) -> tuple[Fraction, Piece]:
    """Return the constant and the graph whose cuts are the values of balanced cuts, with an exact penalty.

    Where the sides are too unequal, one vertex of the larger one adds at most twice all weights over its
    size when it moves, and takes at least ``4 sigma`` off the penalty.
    """
    n, d = task.n, task.difference
    exact = [Fraction(w) for w in task.weights.tolist()]
    sigma = _rounded_up(sum(exact, Fraction(0)) / (n - d + 2)) or Fraction(1)
    i, j = np.triu_indices(n, 1)
    place = i * n + j
    at = np.searchsorted(place, task.i * n + task.j)
    weights = [4 * sigma] * len(place)
    for k, w in zip(at.tolist(), exact, strict=True):
        weights[k] -= w
    if d:
        i, j = np.append(i, np.arange(n)), np.append(j, np.full(n, n))
        weights += [-4 * sigma * d] * n
    kept = [k for k, w in enumerate(weights) if w]
    piece = Piece(np.arange(n + (d > 0)), i[kept], j[kept], tuple(weights[k] for k in kept))
    return -sigma * (n - d) ** 2, piece


def _rounded_up(x: Fraction) -> Fraction:
    """Return the next number of few binary digits."""
    if not x:
        return x
    unit = Fraction(2) ** (math.frexp(float(x))[1] - _SIGMA_BITS)
    return math.ceil(x / unit) * unit


class Bounds(NamedTuple):
    """What leaves prove.

    Parameters
    ----------
    value : float
        No cut that is sought is better.
    optimal : bool
        Whether this proves that none is better than the partition.
    """

    value: float
    optimal: bool


@dataclass(frozen=True, eq=False, repr=False)
class CutCertificate:
    """All that a third party needs to check that no cut of a graph is better than a bound.

    Parameters
    ----------
    task : Task
        The graph, and the sizes of its sides.
    side : int array of shape (n,)
        The partition, 1 or -1 for each vertex.
    trees : tuple of tuples of Node
        The leaves for each piece of the graph.
    claim : float
        The bound that is stated, rounded outward once.
    optimal : bool
        Whether it is stated that no partition is better.
    name : str
        What the graph is called.
    """

    task: Task
    side: IntArray
    trees: tuple[tuple[Node, ...], ...]
    claim: float = field(default=math.nan)
    optimal: bool = False
    name: str = ""

    @cached_property
    def cut(self) -> float:
        """The weight of the partition."""
        return float(self.task.weight(self.side))

    def bounds(self) -> Bounds:
        """Return the bound that the leaves prove, computed from the graph.

        Raises
        ------
        ValueError
            If leaves are missing or have rows that do not hold; the message says which.
        """
        task = self.task
        reduction = task.reduction()
        pieces = reduction.pieces
        if len(self.trees) != len(pieces):
            raise ValueError(f"the graph has {len(pieces)} pieces, and the certificate {len(self.trees)}")
        if task.sizes and not task.allows(self.side):
            raise ValueError(f"the parts have {np.bincount(self.side)} vertices, not {task.sizes}")
        if not task.allows(self.side):
            raise ValueError(
                f"the sides differ by {abs(int(self.side.sum()))} vertices, not {task.difference}"
            )
        lattice = Lattice.of(task.weights)
        unit = lattice.unit if not lattice.distance else Fraction(0)
        sides = task.sides(self.side, pieces)
        total, exact = reduction.total, True
        for number, (piece, leaves, side) in enumerate(zip(pieces, self.trees, sides, strict=True)):
            form = Form.of(piece, task.sizes)
            bound = Fraction(proven(form, leaves, f"piece {number}")) * Fraction(2) ** form.exponent
            own = piece.cut(side)
            # Cuts of a piece differ by multiples of the unit of the graph.
            closed = bool(unit) and bound < own + unit and bound >= own
            total += own if closed else bound
            exact = exact and closed
        weight = task.weight(self.side)
        if not task.largest:
            total = max(-total, Fraction(0))  # their weights are none below zero
        if exact and total == weight:
            value = float(weight)
            outward = up if task.largest else down
            return Bounds(value if Fraction(value) == weight else outward(value), True)
        value = up(float(total)) if task.largest else max(down(float(total)), 0.0)
        return Bounds(value, lattice.proves(value, float(weight), task.largest))

    def check(self) -> None:
        """Prove the bound again.

        Raises
        ------
        ValueError
            If the leaves do not prove what is claimed.
        """
        try:
            with np.errstate(all="ignore"):
                found = self.bounds()
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            raise ValueError(f"the leaves prove nothing: their numbers are out of range ({error})") from error
        holds = found.value <= self.claim if self.task.largest else found.value >= self.claim
        if not holds or (self.optimal and not found.optimal):
            claimed = f"{self.claim!r}{', so optimal' if self.optimal else ''}"
            raise ValueError(f"the leaves prove the bound {found.value!r}; the file claims {claimed}")

    def stated(self) -> CutCertificate:
        """Return the certificate with the claim that its leaves prove, rounded outward."""
        found = self.bounds()
        room = _ROUNDING * math.fsum(np.abs(self.task.weights).tolist())
        claim = found.value
        if claim and not math.isclose(claim, self.cut, rel_tol=4 * UNIT):  # zero and the cut are exact
            claim = up(claim + room) if self.task.largest else max(down(claim - room), 0.0)
        return replace(self, claim=claim, optimal=found.optimal)

    def of_graph(self, graph: Graph) -> CutCertificate:
        """Return the certificate with the graph of another statement: only partition and leaves stay."""
        return replace(self, task=Task.of(graph, self.task.difference, self.task.sizes))

    @property
    def proven(self) -> str:
        """What is claimed, as one sentence."""
        kind = "no cut weighs more than"
        best = f", and the cut of weight {self.cut:.17g} is optimal" if self.optimal else ""
        if self.task.sizes:
            parts = ", ".join(map(str, self.task.sizes))
            kind = f"no partition into parts of {parts} vertices cuts less than"
        elif not self.task.largest:
            sizes = (self.task.n + self.task.difference) // 2, (self.task.n - self.task.difference) // 2
            kind = f"no cut into {sizes[0]} and {sizes[1]} vertices weighs less than"
        return f"{kind} {self.claim:.17g}{best or f'; one weighs {self.cut:.17g}'}"

    @property
    def given(self) -> tuple[str, ...]:
        """Bounds that the author stated: none."""
        return ()

    @property
    def problem(self) -> str:
        """The name and the sizes of the graph, and the SHA-256 of its edges."""
        digest = schema.digest(*_packed_task(self.task))
        sizes = f"graph of {self.task.n} vertices and {len(self.task.i)} edges"
        leaves = sum(map(len, self.trees))
        return f"{self.name + ': ' if self.name else ''}{sizes}, {leaves} leaves, SHA-256 {digest}"

    def __repr__(self) -> str:
        return f"CutCertificate: {self.proven}\n  {self.problem}"

    def save(self, path: str | Path, name: str | None = None) -> None:
        """Write the certificate to a file ``.npz``, for ``bregopt verify FILE``.

        Parameters
        ----------
        path : str or Path
            A name that ends with ``.npz``; a file of this name is replaced in one step.
        name : str, optional
            What the graph is called, for those who check the file.

        Raises
        ------
        ValueError
            If the name has another ending.
        OSError
            If the file cannot be written; one of this name stays as it is.
        """
        arrays, facts = replace(self, name=self.name if name is None else str(name))._packed()
        arrays["statement"] = text(_stated(arrays, facts))
        schema.write(path, arrays, facts, FORMAT)

    def _packed(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays and the facts of a file."""
        arrays, facts = _packed_task(self.task)
        facts |= {
            "name": self.name,
            "claim": float(self.claim).hex(),
            "closed": bool(self.optimal),
            "trees": [],
        }
        arrays["side"] = self.side
        for number, leaves in enumerate(self.trees):
            own, fact = _packed_tree(leaves)
            arrays |= {f"{key}{number}": array for key, array in own.items()}
            facts["trees"].append(fact)
        return arrays, facts

    @classmethod
    def load(cls, path: str | Path) -> CutCertificate:
        """Return the certificate of a file that anybody may have written.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a certificate of a cut, was changed after it was written, or has a field of
            another type or shape, or outside its range; the message names the field.
        """
        return cls.of_fields(schema.Fields.of_file(path_of(path), FORMAT))

    @classmethod
    def of_fields(cls, fields: schema.Fields) -> CutCertificate:
        """Return the certificate in the fields of a file."""
        task = _read_task(fields)
        side = fields.integers("side", (task.n,), -1, max(len(task.sizes) - 1, 1))
        if task.sizes and side.min() < 0:
            raise fields.error("side", side, "numbers of parts")
        if not task.sizes and not np.abs(side).all():
            raise fields.error("side", side, "signs 1 or -1")
        trees = fields.parts("trees")
        pieces = task.reduction().pieces
        if len(trees) != len(pieces):
            raise fields.error("trees", len(trees), f"{len(pieces)}, one for each piece of the graph")
        read = tuple(
            _read_tree(own, k, piece, task.sizes)
            for k, (own, piece) in enumerate(zip(trees, pieces, strict=True))
        )
        found = cls(
            task,
            side,
            read,
            claim=fields.number("claim"),
            optimal=fields.fact("closed", lambda value: isinstance(value, bool), "true or false"),
            name=fields.text("name"),
        )
        if "statement" in fields and fields.facts("statement") != _stated(*found._packed()):
            raise ValueError(
                f"{fields.path}: the statement is not that of the other arrays; expected a file of "
                "certificate.save, as it was written"
            )
        fields.finish()
        return found


# --- Proofs -------------------------------------------------------------------------------------------


def proven(form: Form, leaves: Sequence[Node], name: str) -> float:
    """Return a bound on all cuts, in the units of the form.

    Raises
    ------
    ValueError
        If the leaves do not cover all cuts, or have rows that do not hold.
    """
    _check_cover([leaf.path for leaf in leaves], name)
    bound = -math.inf
    for number, leaf in enumerate(leaves):
        place = f"leaf {number} of {name}"
        try:
            group, sign = leaf.groups(form.n)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        if form.sizes != () and not isinstance(leaf.rows, Triples):
            raise ValueError(
                f"{place}: its rows are those of two sides, and the graph has {len(form.sizes)} parts"
            )
        if isinstance(leaf.rows, Triples):
            i, j, m = leaf.rows.vertices.T
            pair = (i < j) & (j == m) & (leaf.rows.signs == (1, 0, 0)).all(axis=1)
            triple = (i < j) & (j < m) & (np.sort(leaf.rows.signs, axis=1) == (-1, -1, 1)).all(axis=1)
            if not (pair | triple).all():
                raise ValueError(f"{place}: a row of triples does not hold for all partitions")
            _check_multipliers(leaf.rows.z[~leaf.rows.apart(group, leaf.path)], place)
        elif isinstance(leaf.rows, Cliques):
            used = leaf.rows.sign != 0
            twice = np.sort(np.where(used, leaf.rows.support, -1 - np.arange(LARGEST_CLIQUE)), axis=1)
            if (used.sum(axis=1) % 2 == 0).any():
                raise ValueError(f"{place}: a clique row has an even number of vertices; expected 3, 5 or 7")
            if (np.diff(twice, axis=1) == 0).any():
                raise ValueError(f"{place}: a clique row has a vertex twice")
            _check_multipliers(leaf.rows.z, place)
        else:
            _check_cycles(form, leaf.rows, group, sign, place)
        own = cut_bound(form, leaf)
        bound = max(bound, own if own < math.inf else math.inf)  # NaN, too
    return bound


def _check_cover(paths: Sequence[tuple[tuple[int, int, int], ...]], name: str) -> None:
    """Refuse paths that are not those of all leaves of a binary tree."""
    waiting = [(list(range(len(paths))), 0)]
    while waiting:
        own, depth = waiting.pop()
        ends = [k for k in own if len(paths[k]) == depth]
        if len(own) == 1 and ends:
            continue
        if not own or ends:
            raise ValueError(f"{name}: the leaves are those of no tree; expected all cuts once")
        pairs = {paths[k][depth][:2] for k in own}
        sides = [[k for k in own if paths[k][depth][2] == sign] for sign in (1, -1)]
        if len(pairs) > 1 or not all(sides):
            pair = min(pairs)
            raise ValueError(
                f"{name}: a branch at vertices {pair[0]} and {pair[1]} has leaves on one side only; "
                "expected both"
            )
        waiting += [(side, depth + 1) for side in sides]


def _check_cycles(form: Form, rows: Cycles, group: IntArray, sign: IntArray, place: str) -> None:
    """Refuse a row that is no closed walk with an odd set of edges, or a negative multiplier."""
    ends = form.i[rows.edge], form.j[rows.edge]
    tail, head = (np.where(rows.back, ends[1 - k], ends[k]) for k in (0, 1))
    follower = np.arange(1, len(rows.edge) + 1)
    follower[rows.start[1:] - 1] = rows.start[:-1]
    jump = tail[follower]
    if (group[head] != group[jump]).any():
        raise ValueError(f"{place}: a cycle row is no closed walk")
    changes = rows.odd.astype(np.intp) + (sign[head] != sign[jump])
    if len(rows.z) and (np.add.reduceat(changes, rows.start[:-1]) % 2 == 0).any():
        raise ValueError(f"{place}: a cycle row has an even set of edges; expected an odd one")
    _check_multipliers(rows.z, place)


def _check_multipliers(z: Array, place: str) -> None:
    if len(z) and not (z >= 0).all():
        raise ValueError(f"{place}: a row has the multiplier {float(np.min(z))!r}; expected none below 0")


# --- The file -----------------------------------------------------------------------------------------


def _stated(arrays: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the statement for `bregopt-check`, of the same numbers."""
    return {"format": FORMAT, **facts, **{name: np.ravel(own).tolist() for name, own in arrays.items()}}


def _packed_task(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = {"i": task.i, "j": task.j, "weights": task.weights}
    facts = {"vertices": int(task.n), "difference": int(task.difference)}
    return arrays, facts | ({"sizes": list(task.sizes)} if task.sizes else {})


def _read_task(fields: schema.Fields) -> Task:
    n = fields.count("vertices", 2)
    difference = fields.count("difference", -1, n)
    if difference >= 0 and (n - difference) % 2:
        raise fields.error(
            "difference", difference, f"-1, or an integer that differs from {n} by an even one"
        )
    sizes: tuple[int, ...] = ()
    if "sizes" in fields:

        def valid(value: Any) -> bool:
            whole = isinstance(value, list) and all(type(size) is int and size > 0 for size in value)
            return whole and len(value) > 2 and sum(value) == n and difference < 0

        sizes = tuple(fields.fact("sizes", valid, f"three integers above 0 or more, with sum {n}"))
    check_memory(64.0 * n if difference < 0 and not sizes else 800.0 * n * n, f"the graph of {fields.path}")
    i = fields.indices("i", (None,), n)
    j, weights = fields.indices("j", i.shape, n), fields.floats("weights", i.shape)
    if (i >= j).any() or (np.diff(i * n + j) <= 0).any():
        raise fields.error("i", i, "ends of edges in ascending order, i < j")
    if (difference >= 0 or sizes) and (weights < 0).any():
        raise fields.error("weights", float(weights.min()), "none below 0 for a balanced cut")
    return Task(n, i, j, weights, difference, sizes)


def _packed_tree(leaves: Iterable[Node]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return leaves as arrays: paths, rows and multipliers one after the other."""
    leaves = list(leaves)
    rows = [leaf.rows for leaf in leaves]
    arrays: dict[str, Any] = {
        "path_start": _starts(len(leaf.path) for leaf in leaves),
        "path": np.array([step for leaf in leaves for step in leaf.path], dtype=np.int64).reshape(-1, 3),
        "row_start": _starts(len(own.z) for own in rows),
        "z": np.concatenate([own.z for own in rows]),
    }
    if isinstance(rows[0], Cycles):
        cycles = [own for own in rows if isinstance(own, Cycles)]
        arrays["walk_start"] = _starts(int(size) for own in cycles for size in np.diff(own.start))
        for key in ("edge", "back", "odd"):
            arrays[key] = np.concatenate([getattr(own, key) for own in cycles])
        return arrays, {"kind": "cycles"}
    triples = isinstance(rows[0], Triples)
    for key in ("vertices", "signs") if triples else ("support", "sign"):
        arrays[key] = np.concatenate([getattr(own, key) for own in rows])
    arrays["y"] = np.array([own.y for own in rows if not isinstance(own, Cycles)])
    return arrays, {"kind": "triples" if triples else "cliques"}


def _starts(sizes: Iterable[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(list(sizes), dtype=np.int64)]).astype(np.int64)


def _read_tree(fields: schema.Fields, number: int, piece: Piece, sizes: tuple[int, ...]) -> tuple[Node, ...]:
    """Return the leaves of a piece, all that proofs assume of their arrays checked."""
    kinds = ("triples",) if sizes else ("cliques", "cycles")
    kind = fields.fact("kind", lambda value: value in kinds, " or ".join(map(repr, kinds)))
    fields.finish_facts()
    path = fields.integers(f"path{number}", (None, 3), -1, max(piece.n - 1, 1))
    if len(path) and (
        path[:, :2].min() < 0 or path[:, :2].max() >= piece.n or not (np.abs(path[:, 2]) == 1).all()
    ):
        raise fields.error(f"path{number}", path, f"pairs of vertices from 0 to {piece.n - 1}, and 1 or -1")
    starts = _read_starts(fields, f"path_start{number}", len(path))
    z = fields.floats(f"z{number}", (None,), least=-math.inf if sizes else 0.0)
    row = _read_starts(fields, f"row_start{number}", len(z))
    if len(row) != len(starts) or len(starts) < 2:
        raise fields.error(f"row_start{number}", row, f"{len(starts)} numbers, as path_start{number}")
    steps = [tuple(map(int, step)) for step in path]
    paths = [tuple(steps[a:b]) for a, b in pairwise(starts)]
    if kind == "cycles":
        edge = fields.indices(f"edge{number}", (None,), len(piece.i))
        back, odd = (fields.integers(f"{key}{number}", edge.shape, 0, 1) > 0 for key in ("back", "odd"))
        walk = _read_starts(fields, f"walk_start{number}", len(edge))
        if len(walk) != len(z) + 1 or (np.diff(walk) == 0).any():
            raise fields.error(f"walk_start{number}", walk, f"{len(z) + 1} ascending numbers")
        whole = Cycles(walk, edge, back, odd, z)
        rows: list[Cliques | Cycles | Triples] = [whole.taken(np.arange(a, b)) for a, b in pairwise(row)]
    elif kind == "triples":
        if (np.diff(row) == 0).any():
            raise fields.error(f"row_start{number}", row, "a multiplier of the sizes at least for each leaf")
        count = len(z) - len(paths)
        vertices = fields.indices(f"vertices{number}", (count, 3), piece.n)
        signs = fields.integers(f"signs{number}", (count, 3), -1, 1)
        y = fields.floats(f"y{number}", (len(paths), piece.n))
        at = row - np.arange(len(row))
        rows = [
            Triples(vertices[c:d], signs[c:d], z[a:b], own)
            for own, (a, b), (c, d) in zip(y, pairwise(row), pairwise(at), strict=True)
        ]
    else:
        support = fields.indices(f"support{number}", (len(z), LARGEST_CLIQUE), piece.n)
        sign = fields.integers(f"sign{number}", support.shape, -1, 1)
        y = fields.floats(f"y{number}", (len(paths), piece.n))
        rows = [
            Cliques(support[a:b], sign[a:b], z[a:b], own)
            for own, a, b in zip(y, row[:-1], row[1:], strict=True)
        ]
    return tuple(Node(way, own) for way, own in zip(paths, rows, strict=True))  # type: ignore[arg-type]


def _read_starts(fields: schema.Fields, name: str, size: int) -> IntArray:
    found = fields.indices(name, (None,), size + 1)
    if not len(found) or found[0] != 0 or found[-1] != size or (np.diff(found) < 0).any():
        raise fields.error(name, found, f"ascending integers from 0 to {size}")
    return found
