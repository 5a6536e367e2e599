"""SDPA sparse files (``.dat-s``, ``.dat-s.gz``): a standard SDP read as a problem, and a problem written.

Such a file states the pair of problems, in SDPA's notation,

    (P)  minimize  sum_k c_k x_k   subject to  sum_k x_k F_k - F_0 psd
    (D)  maximize  <F_0, Y>        subject to  <F_k, Y> = c_k,  Y psd

with all matrices block-diagonal. Both directions use (D); ``x`` is the vector of its multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import LARGEST, Array, IntArray, check_memory
from bregopt.files import Lines, number, path_of, read_latin, write_ascii
from bregopt.modeling.convex.expression import Maximize
from bregopt.modeling.expressions import Expression
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.program import Program
from bregopt.program.rows import Coordinates, SparseRows, placed_coordinates
from bregopt.records import dataclass, field_names, replace

SUFFIXES = (".dat-s", ".dat-s.gz")
_PUNCTUATION = str.maketrans("{}(),", "     ")
_COMMENT = ('"', "*")
_COLUMNS = ("matrix", "block", "i", "j", "value")
_DIAGONAL = 100  # bytes for each element of a diagonal block: bounds, a column and its numbers


@dataclass(frozen=True, eq=False)
class SdpaEntries:
    """Entries of the ``F_k``, arrays of one length: matrix `row` (0 for the cost), block, place and value.

    Blocks and places count from zero, and ``i <= j``.
    """

    row: IntArray
    block: IntArray
    i: IntArray
    j: IntArray
    value: Array

    def take(self, which: Any) -> SdpaEntries:
        """Return the entries of a slice, a mask or an index array."""
        return SdpaEntries(*(getattr(self, name)[which] for name in field_names(type(self))))


def read_sdpa(path: str | Path) -> Problem:
    """Read an SDP from a file in SDPA's sparse format.

    A block of size two or more becomes a :class:`~bregopt.PSD` variable, and a diagonal block (a negative
    size, or size one) a vector of nonnegative numbers, never a matrix. The names ``X2`` and ``u3`` contain
    the number of the block. There is one constraint, whose ``dual_value`` is SDPA's ``x``.

    Parameters
    ----------
    path : str or Path
        Read through gzip if the name ends with ``.gz``.

    Returns
    -------
    Problem
        ``maximize <F_0, Y> subject to <F_k, Y> = c_k``, SDPA's dual (D).

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is of another kind, or has no matrix block; the message names the line, its content and
        the expected content.

    Notes
    -----
    Lines that begin with ``"`` or ``*`` are comments, the signs ``{}(),`` are blanks, text may follow the
    numbers of the header, and ``c`` and the sizes of the blocks may take several lines; an entry takes one.

    An entry below the diagonal stands for its mirror image, as for SDPA and CSDP. An entry that is given
    twice, at one place or at mirrored places, counts once if both values are the same and is refused if they
    differ. (SDPA takes the last, CSDP refuses both cases, DSDP ignores entries below the diagonal.)
    """
    path, at = path_of(path), 0
    text = read_latin(path).translate(_PUNCTUATION).rstrip()
    if not text:
        raise ValueError(f"{path} is empty; expected a problem in SDPA's sparse format")
    source = Lines(path, ["" if line.startswith(_COMMENT) else line for line in text.split("\n")])
    (m,), at = _integers(source, at, 1, "the number of constraints")
    if m < 1:
        raise source.error(at - 1, f"the number of constraints is {m}", "at least 1")
    (blocks,), at = _integers(source, at, 1, "the number of blocks")
    if blocks < 1:
        raise source.error(at - 1, f"the number of blocks is {blocks}", "at least 1")
    sizes, at = _integers(source, at, blocks, f"the sizes of {blocks} blocks")
    if 0 in sizes:
        raise source.error(at - 1, f"the size of block {sizes.index(0) + 1} is 0", "a size that is not zero")
    if max(sizes) < 2:
        raise source.error(at - 1, "all blocks are diagonal: a linear program", "a block of size 2 or more")
    diagonal = sum(abs(size) for size in sizes if size < 2)
    check_memory(_DIAGONAL * diagonal, f"the {diagonal} elements of diagonal blocks in {path}")
    c, at = _numbers(source, at, m, f"the {m} numbers of c")
    return _problem(sizes, np.array(c), _entries(source, at, m, np.array(sizes)))


def _numbers(source: Lines, at: int, count: int, name: str) -> tuple[list[float], int]:
    """Return `count` numbers from line `at` on, and the line after them; text may follow the last."""
    found: list[float] = []
    while len(found) < count:
        if at == len(source.lines):
            raise source.error(at - 1, f"the file ends after {len(found)} numbers", name)
        for token in source.lines[at].partition("=")[0].split():
            try:
                value = number(token)
            except ValueError:
                if len(found) == count:
                    break  # the rest of the line is text
                raise source.error(at, f"{token!r} after {len(found)} numbers", name) from None
            if len(found) == count:
                raise source.error(at, f"{token!r} after {count} numbers", f"{name} and no more")
            if not abs(value) <= LARGEST:
                expected = f"finite numbers for {name}, of magnitude {LARGEST:g} at most"
                raise source.error(at, f"{token!r}", expected)
            found.append(value)
        at += 1
    return found, at


def _integers(source: Lines, at: int, count: int, name: str) -> tuple[list[int], int]:
    values, after = _numbers(source, at, count, name)
    for value in values:
        if not value.is_integer():
            raise source.error(after - 1, f"{value!r}", f"integers for {name}")
    return [int(value) for value in values], after


def _entries(source: Lines, at: int, m: int, sizes: IntArray) -> SdpaEntries:
    """Return the entries from line `at` on, checked, each once, sorted by block, matrix and place."""
    line = source.written(at)
    if not line:
        raise source.error(len(source.lines) - 1, "the file ends here", "entries after it, 5 numbers a line")
    table = source.table(line, _COLUMNS)
    whole, value = table[:, :4], table[:, 4]
    size = np.abs(sizes)

    def refuse(bad: Any, found: str, expected: str) -> None:
        if bad.any():
            k = int(bad.argmax())
            numbers = (f"{number:.17g}" for number in table[k])
            names = dict(zip(_COLUMNS, numbers, strict=True))
            raise source.error(line[k], found.format(**names), expected)

    too_large = ~(np.abs(table) <= LARGEST)
    found = "the entry {matrix} {block} {i} {j} {value}"
    refuse(too_large.any(axis=1), found, f"finite numbers, of magnitude {LARGEST:g} at most")
    refuse((whole % 1 != 0).any(axis=1), "an entry at {matrix} {block} {i} {j}", "four integers")
    matrix, block, i, j = whole.T
    refuse((matrix < 0) | (matrix > m), "an entry of matrix {matrix}", f"0 to {m}")
    refuse((block < 1) | (block > len(sizes)), "an entry of block {block}", f"1 to {len(sizes)}")
    block = block.astype(np.intp) - 1
    low, high = np.minimum(i, j), np.maximum(i, j)
    outside = (low < 1) | (high > size[block])
    refuse(outside, "an entry at {i} {j} of block {block}", f"1 to {size[block[outside.argmax()]]}")
    refuse((i != j) & (sizes[block] < 2), "an entry at {i} {j} of the diagonal block {block}", "i = j")
    row, first, second = (index.astype(np.intp) for index in (matrix, low - 1, high - 1))
    return _each_once(source, np.array(line), SdpaEntries(row, block, first, second, value))


def _each_once(source: Lines, line: IntArray, entries: SdpaEntries) -> SdpaEntries:
    order = np.lexsort((line, entries.j, entries.i, entries.row, entries.block))
    e, line = entries.take(order), line[order]
    places = np.stack([e.block, e.row, e.i, e.j])
    again = np.append(False, (places[:, 1:] == places[:, :-1]).all(axis=0))
    differs = again & (e.value != np.roll(e.value, 1))
    if differs.any():
        k = int(np.flatnonzero(differs)[line[differs].argmin()])
        first, second = float(e.value[k - 1]), float(e.value[k])
        found = f"the value {second!r} at the place that has {first!r} on line {line[k - 1] + 1}"
        raise source.error(int(line[k]), found, "each entry once, above the diagonal or below it")
    return e.take(~again & (e.value != 0))


def _problem(sizes: Sequence[int], c: Array, entries: SdpaEntries) -> Problem:
    """Return the problem (D); it contains every block, even one without entries."""
    variables = [
        PSD(size, name=f"X{number}") if size > 1 else Variable(abs(size), name=f"u{number}", nonneg=True)
        for number, size in enumerate(sizes, start=1)
    ]
    ends = np.searchsorted(entries.block, np.arange(len(sizes) + 1))
    parts = [entries.take(slice(*pair)) for pair in pairwise(ends)]
    costs = [part.take(part.row == 0) for part in parts]
    others = [part.take(part.row > 0) for part in parts]
    rows = [replace(part, row=part.row - 1) for part in others]
    cost = _expression("<F_0, Y>", 1, variables, costs)
    return Problem(Maximize(cost), [_expression("<F_k, Y>", len(c), variables, rows) == c])


def _expression(
    label: str, m: int, variables: Sequence[PSD | Variable], parts: Sequence[SdpaEntries]
) -> Expression:
    """Return `m` rows; each is the sum over the blocks of inner products with its matrices."""
    psd: dict[PSD, Any] = {}
    vectors: dict[Variable, Any] = {}
    for X, e in zip(variables, parts, strict=True):
        if isinstance(X, PSD):
            value = np.where(e.i == e.j, e.value, 2 * e.value)
            psd[X] = SparseRows(m, X.n, Coordinates(e.row, e.i, e.j, value))
        else:
            vectors[X] = sp.csr_array((e.value, (e.row, e.i)), (m, X.size))
    return Expression((m,), np.zeros(m), psd, vectors, label=label)


def write_sdpa(problem: Problem, path: str | Path) -> None:
    """Write a problem with a linear objective to a file in SDPA's sparse format.

    The file has the form (D), ``maximize <F_0, Y>`` with equalities only. A minimization is written with the
    negative of its objective. Each matrix is a block; then each ordinary variable is a diagonal block. One
    more diagonal block holds the negative parts of variables that may be negative, slacks of inequalities,
    and the number one if the objective has a constant. The rows of the problem come first, then bounds of
    variables other than zero, equations between the two slacks of two-sided rows, and the equation of the
    number one. Parameters are replaced by their values.

    Parameters
    ----------
    problem : Problem
    path : str or Path
        Compressed with gzip if the name ends with ``.gz``. Numbers read back exactly.

    Raises
    ------
    ValueError
        If the problem has a divergence, a bound on eigenvalues, a soft row, or no row at all; the message
        names it.
    """
    path, program = path_of(path), problem.program()
    if program.cones.count:
        raise ValueError(
            f"the problem has {program.cones.count} second-order cones; an SDPA file takes psd matrices and "
            "rows only. Write norm2(x) <= t as the psd matrix [[t I, x], [x', t]], or use bo.write_cbf"
        )
    check_linear(program, "an SDPA file")
    B, c, cost = _standard_form(program)
    if len(c) == 0:
        raise ValueError("the problem has no constraint; an SDPA file needs at least one row")
    sizes = [u.size for u in problem.variables]
    sizes += [len(cost) - sum(sizes)] if len(cost) > sum(sizes) else []
    parts = [_matrix_entries(program, b) for b in range(len(program.blocks))]
    parts.append(_vector_entries(B, cost, sizes, first=len(program.blocks)))
    orders = [block.n for block in program.blocks] + [-size for size in sizes]
    write_ascii(path, _text(orders, c, _joined(parts)))


def _standard_form(program: Program) -> tuple[Any, Array, Array]:
    """Return ``B``, ``c`` and ``cost`` of the form ``A(X) + B v = c``, ``v >= 0`` of rows, bounds and `u`.

    ``v`` is `u`, or its positive part; then the negative parts, slacks of rows, second slacks of two-sided
    rows, and the number one if the objective has a constant.
    """
    free = program.u_lo < 0
    floor = np.where(program.u_lo == 0, -np.inf, program.u_lo)  # a lower bound of zero is v >= 0
    boxed = np.isfinite(floor) | np.isfinite(program.u_hi)
    B = sp.vstack([program.B, sp.eye_array(program.k, format="csr")[boxed]], format="csr")
    lo = np.concatenate([program.bounds.lo, floor[boxed]])
    hi = np.concatenate([program.bounds.hi, program.u_hi[boxed]])
    # Activity - s = lo, or activity + s = hi if there is no lower bound; for two-sided rows s + t = hi - lo.
    loose, below = np.flatnonzero(lo < hi), np.isfinite(lo)
    slack = _picked(loose, len(lo), np.where(below[loose], -1.0, 1.0))
    both = np.flatnonzero(below[loose] & np.isfinite(hi[loose]))
    tie = _picked(both, len(loose), np.ones(len(both))).T
    one = sp.eye_array(int(program.offset != 0))
    grid = [
        [B, -B[:, free], slack, None, None],
        [None, None, tie, sp.eye_array(len(both)), None],
        [None, None, None, None, one],
    ]
    width = (hi - lo)[loose[both]]
    right = np.concatenate([np.where(below, lo, hi), width, np.ones(one.shape[0])])
    unpriced = np.zeros(len(loose) + len(both))
    cost = np.concatenate([program.c, -program.c[free], unpriced, np.full(one.shape[0], program.offset)])
    return sp.block_array(grid, format="coo"), right, cost


def _picked(rows: IntArray, m: int, value: Array) -> Any:
    """Return the matrix with `m` rows and one value in each column, in the given row."""
    return sp.csr_array((value, (rows, np.arange(len(rows)))), (m, len(rows)))


def _matrix_entries(program: Program, b: int) -> SdpaEntries:
    """Return the entries of one matrix block; its ``F_0`` is the negative of its cost."""
    block = program.blocks[b]
    placed = [(term.at + 1, term.rows) for term in program.A.terms_of(b)]
    if block.cost is not None:
        placed.append((np.zeros(1, dtype=np.intp), block.cost.scale(np.array([-1.0]))))
    t = SparseRows.of(1 + program.m, block.n, placed_coordinates(placed)).terms
    return SdpaEntries(t.row, np.full(len(t.row), b), t.i, t.j, np.where(t.i == t.j, t.value, t.value / 2))


def _vector_entries(B: Any, cost: Array, sizes: Sequence[int], first: int) -> SdpaEntries:
    """Return the entries of the diagonal blocks, numbered from `first` on."""
    ends = np.cumsum([0, *sizes])
    column = np.concatenate([np.arange(len(cost)), B.col])
    row = np.concatenate([np.zeros(len(cost), dtype=np.intp), B.row + 1])
    block = np.searchsorted(ends, column, side="right") - 1
    i = column - ends[block]
    return SdpaEntries(row, first + block, i, i, np.concatenate([-cost, B.data]))


def _joined(parts: Sequence[SdpaEntries]) -> SdpaEntries:
    """Return the nonzero entries, sorted by matrix, block and place."""
    e = SdpaEntries(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in field_names(SdpaEntries))
    )
    order = np.lexsort((e.j, e.i, e.block, e.row))
    return e.take(order[e.value[order] != 0])


def _text(sizes: Sequence[int], c: Array, e: SdpaEntries) -> str:
    columns = (e.row, e.block + 1, e.i + 1, e.j + 1, e.value)
    lines = zip(*(column.tolist() for column in columns), strict=True)
    entries = [f"{row} {block} {i} {j} {value!r}" for row, block, i, j, value in lines]
    head = [str(len(c)), str(len(sizes)), " ".join(map(str, sizes)), " ".join(map(repr, (c + 0.0).tolist()))]
    return "\n".join([*head, *entries, ""])


def check_linear(program: Program, file: str) -> None:
    """Refuse a program with a divergence, a bound on eigenvalues or a soft row; `file` is the kind of file.

    Raises
    ------
    ValueError
        The message names the term or row.
    """
    for block, divergence in zip(program.blocks, program.divergences, strict=True):
        if divergence is not None:
            raise ValueError(
                f"the objective has the {divergence} divergence of {block.name}; "
                f"{file} takes linear objectives only"
            )
        if block.cap is not None:
            raise ValueError(
                f"lambda_max({block.name}) <= {block.cap:g} is no row; {file} takes rows only. Declare "
                f"S = bo.PSD({block.n}) and the rows {block.name} + S == {block.cap:g} * np.eye({block.n})"
            )
    soft = np.flatnonzero(~program.bounds.hard)
    if len(soft):
        raise ValueError(f"{program.row_name(int(soft[0]))} is soft; {file} takes hard rows only")
