"""Check certificates of bregopt in exact arithmetic, by the standard library alone.

    python bregopt_check.py FILE.npz ...

A file states a problem, and points that prove bounds on its optimum:

    minimize c'x  subject to  a_k'x = b_k  or  a_k'x >= b_k.

The unknowns are the entries of psd matrices, row by row from the diagonal on, variables that are not
negative, free ones, and vectors in second-order cones. Each point ends with a factor t >= 0 of all b_k.

Upper bound. If x meets the rows and is in the cones, c'x / t is one. With t = 0, a negative c'x is that
of a ray: from a feasible point the objective falls without end.

Lower bound. Let y_k >= 0 for inequalities, and t c - sum_k y_k a_k be zero for free variables, else in
the cones, its entries beside the diagonal halved. Then t c'x >= b'y for all feasible x, and b'y / t is a
lower bound. With t = 0, a positive b'y contradicts the rows.

Equations. If M M' has no eigenvalue below s^2, a solution of M z = 0 is within |M z| / s of any z. So
points near those of the file meet equations exactly.

Eigenvalues. Cholesky's factorization in integers leaves remainders W - L L' below its divisors, the
diagonal of L. Eigenvalues of W are at least minus the largest sum of their sizes in a row.

Numbers are integers, in units of a power of two, so that sums and products are exact. A coefficient
(a, e) is any number within e of a. Rows are dictionaries of coefficients, with that of t at -1.
"""

import json
import math
import sys
import zipfile
from fractions import Fraction
from importlib import import_module
from itertools import combinations_with_replacement as pairs
from itertools import islice, product
from operator import mul

BOUNDS, CUT = "bregopt bounds 3", "bregopt cut 1"  # formats of files
EQUAL, LEAST = 0, 1  # relations of rows
LARGEST = 2**28  # bytes of a file, unpacked
LARGEST_EXACT = 60  # order of matrices that are decided by elimination
DIGITS = 120  # of a factor, binary

sys.modules.setdefault("bregopt_check", sys.modules[__name__])  # for its other files, under any name


class Unproven(Exception):  # noqa: N818 - it is no error of the program
    """The file is refused, or does not prove what it states; the message says why."""


def demand(holds, message):
    """Refuse what does not hold."""
    if not holds:
        raise Unproven(message)


def chapter(name):
    """Return another file of this program."""
    try:
        return import_module(f"bregopt_check_{name}")
    except ImportError:
        raise Unproven(f"it needs bregopt_check_{name}.py: download it, too") from None


# --- The file -----------------------------------------------------------------------------------------


def read(path):
    """Return the statement of a file, which is a text in JSON."""
    with zipfile.ZipFile(path) as archive:
        demand(sum(member.file_size for member in archive.infolist()) <= LARGEST, "it is too large")
        demand("statement.npy" in archive.namelist(), f"only bregopt reads it: bregopt verify {path}")
        text = archive.read("statement.npy").split(b"\n", 1)[1]
    return json.loads(text, parse_float=lambda x: Fraction(float(x)), parse_constant=Fraction)


class Problem:
    """The problem of a statement."""

    def __init__(self, facts):
        self.facts, self.blocks, self.bits = facts, facts["matrices"], facts["bits"]
        orders = [block["n"] for block in self.blocks]
        counts = [n * (n + 1) // 2 for n in orders] + [facts["nonnegative"], facts["free"], *facts["cones"]]
        self.size = sum(counts)
        demand(min(counts) >= 0 and max(self.size * 8, self.bits) <= LARGEST, "it is too large")
        self.one, unknowns = 1 << self.bits, iter(range(self.size))
        self.matrices = [dict(zip(pairs(range(n), 2), unknowns, strict=False)) for n in orders]
        self.nonnegative, self.free, *self.cones = (list(islice(unknowns, n)) for n in counts[len(orders) :])
        self.cost, self.soft = self.row(*facts["cost"]), [self.row(0, 0, own[-1]) for own in facts["soft"]]
        self.rows = [(relation, self.row(*own)) for relation, *own in facts["rows"]]
        self.given = []  # rows of some optimal point, if the author is right
        for b, trace in facts["given"]:
            diagonal = [[p, -self.one, 0] for (i, j), p in self.matrices[b].items() if i == j]
            self.given.append((LEAST, self.row(-trace, 0, diagonal)))
        if facts["faces"]:
            chapter("faces").restrict(self)

    def row(self, end, radius, entries):
        """Return a row."""
        found = {-1: (-end, radius)} | {p: (a, e) for p, a, e in entries}
        right = len(found) == len(entries) + 1 and min(found) == -1 and max(found) < self.size
        demand(right and all(e >= 0 for _, e in found.values()), "a row is damaged")
        return found


def is_psd(W, reach=0):
    """Whether a symmetric matrix of integers less a multiple of I is psd."""
    return has_factor(W, reach) or (len(W) <= LARGEST_EXACT and has_pivots(W, reach))


def has_factor(W, reach=0):
    """Whether a matrix less a multiple of I has a Cholesky factor in spite of all remainders."""
    top = max((row[i] for i, row in enumerate(W)), default=0) - reach
    shift, room, L = 2 * DIGITS - top.bit_length(), len(W) + 1 << DIGITS, []
    for i, row in enumerate(W):
        row, own = [w << shift if shift > 0 else w >> -shift for w in (*row[:i], row[i] - reach)], []
        for j in range(i):
            own.append((row[j] - sum(map(mul, own, L[j]))) // L[j][j])
        pivot = row[i] - room - sum(map(mul, own, own))
        if pivot <= 0:
            return False
        L.append([*own, math.isqrt(pivot)])
    return True


def has_pivots(W, reach=0):
    """Whether a matrix less a multiple of I is psd, by elimination without fractions (Bareiss 1968)."""
    W, last = [[w - reach if i == j else w for j, w in enumerate(row)] for i, row in enumerate(W)], 1
    while W:
        (pivot, *top), *rest = W
        if pivot < 0 or (pivot == 0 and any(top)):
            return False
        factor = pivot or last  # a zero row is left out
        W = [[(factor * w - a * b) // last for w, b in zip(row, top, strict=True)] for a, *row in rest]
        last = factor
    return True


def root(x):
    """Return the square root of an integer, rounded upward."""
    return math.isqrt(x - 1) + 1 if x else 0


# --- Both sides ---------------------------------------------------------------------------------------


def primal(P):
    """Return the cost of a feasible point, its rows, and those that are its unknowns."""
    unknowns = [{p: (P.one, 0)} for p in range(P.size)]
    return P.cost, P.rows + [(LEAST, unknowns[p]) for p in P.nonnegative], unknowns


def dual(P):
    """Return the cost of multipliers, their bound with a minus, their rows, and the reduced costs."""
    columns = [{-1: P.cost.get(p, (0, 0))} for p in (*range(P.size), -1)]
    for k, row in enumerate([row for _, row in P.rows + P.given] + P.soft):
        for p, (a, e) in row.items():
            columns[p][k] = -a, e
    for block in P.matrices:
        for (i, j), p in block.items():  # twice the matrix
            columns[p] = {k: (a << (i == j), e << (i == j)) for k, (a, e) in columns[p].items()}
    rows = [(LEAST, {k: (P.one, 0)}) for k, (relation, _) in enumerate(P.rows + P.given) if relation != EQUAL]
    rows += [(LEAST, columns[p]) for p in P.nonnegative] + [(EQUAL, columns[p]) for p in P.free]
    return {k: (-a, e) for k, (a, e) in columns[-1].items()}, rows, columns


class Point:
    """A point of one side, and those within a radius, in numbers that move, that solve some of its rows."""

    def __init__(self, P, side):
        stated, lower, self.radius = P.facts[side], side == "lower", 0
        self.cost, self.rows, columns = dual(P) if lower else primal(P)
        self.matrices = [[columns[p] for p in block.values()] for block in P.matrices]
        self.cones = [[columns[p] for p in cone] for cone in P.cones]
        self.z, equations = stated["at"], stated["equations"]
        right = len(self.z) == 1 + (len(P.rows + P.given + P.soft) if lower else P.size)
        demand(right and self.z[-1] >= 0, "a point has another size")
        rows = [{p: (a << s, e << s) for p, (a, e) in self.rows[k][1].items()} for k, s in equations]
        self.solved = {k for k, _ in equations}
        self.moving = {p for row in rows for p in row} - {-1, *stated["fixed"]}
        self.radius = self.distance(rows, stated["singular"])

    def parts(self, row):
        """Return a row at the numbers, and what radii of coefficients and moves may change."""
        value = wide = squares = 0
        for p, (a, e) in row.items():
            value += a * self.z[p]
            wide += e * (abs(self.z[p]) + self.radius)
            squares += a * a if p in self.moving else 0
        return value, wide, self.radius * root(squares)

    def ends(self, row):
        """Return the least and the largest value of a row."""
        value, *changes = self.parts(row)
        return value - sum(changes), value + sum(changes)

    def matrix(self, rows):
        """Return a symmetric matrix, and a bound on the norm of its changes, by Schur's test."""
        n = math.isqrt(2 * len(rows))
        W, sums, across, down = [[0] * n for _ in range(n)], [0] * n, 0, dict.fromkeys(self.moving, 0)
        for (i, j), row in zip(pairs(range(n), 2), rows, strict=True):
            W[i][j], wide, _ = self.parts(row)
            W[j][i], sums[i], sums[j] = W[i][j], sums[i] + wide, sums[j] + wide
            across = max(across, sum(abs(row[p][0]) for p in row.keys() & self.moving))
            for p in row.keys() & self.moving:
                down[p] += 2 * abs(row[p][0])
        return W, max(sums, default=0) + self.radius * root(across * max(down.values(), default=0))

    def distance(self, rows, singular):
        """Return how far a solution of rows is at most; their matrix has no smaller singular value."""
        lack, wide = root(sum(max(map(abs, self.ends(row))) ** 2 for row in rows)), 0
        columns, gram = {p: [] for p in self.moving}, [[0] * len(rows) for _ in rows]
        for k, row in enumerate(rows if lack else []):
            for p in row.keys() & self.moving:
                columns[p].append((k, row[p][0]))
                wide += row[p][1] ** 2
        for own in columns.values():
            for (i, a), (j, b) in product(own, own):
                gram[i][j] += a * b
        least = singular - root(wide)
        demand(not lack or (least > 0 and is_psd(gram, singular**2)), "equations are not proven independent")
        return -(-lack // least) if lack else 0

    def value(self):
        """Return an upper bound on the cost, for a point that meets all that is asked for."""
        for k, (relation, row) in enumerate(self.rows):
            low, high = (0, 0) if k in self.solved else self.ends(row)
            if low < 0 or (high > 0 and relation == EQUAL):
                follows = relation == EQUAL and k in chapter("faces").implied(self)
                demand(follows, f"row {k} is violated")
        for rows in self.matrices:
            demand(is_psd(*self.matrix(rows)), "a matrix is not proven psd")
        for first, *others in self.cones:
            least, squares = self.ends(first)[0], sum(max(map(abs, self.ends(row))) ** 2 for row in others)
            demand(least >= 0 and least**2 >= squares, "a vector is not proven in its second-order cone")
        return self.ends(self.cost)[1]


def bound(P, side):
    """Return the bound that the point of a statement proves: lower, upper, or minus infinity by a ray."""
    demand(side in P.facts, "it has no point that this program checks")
    point, more = Point(P, side), 0
    if P.soft or P.facts.get("terms") or any({"cap", "mu"} & block.keys() for block in P.blocks):
        more = chapter("divergences").terms(P, point, side)
    found, t = point.value() + more, point.z[-1]
    demand(t or (found < 0 and side != "upper"), "the rows are not contradicted, or there is no point or ray")
    found = Fraction(found) / (t * P.one) if t else -math.inf
    return -found if side == "lower" else found


# --- Statements ---------------------------------------------------------------------------------------


def checked(path):
    """Print what a file proves; return whether that is all it states."""
    facts, whole = read(path), True
    if facts["format"] == CUT:
        return chapter("cuts").checked(path, facts)
    demand(facts["format"] == BOUNDS, f"it has the format {facts['format']!r}, not {BOUNDS!r}")
    P = Problem(facts)
    orders = ", ".join(f"{block['name']} ({block['n']})" for block in P.blocks)
    print(f"{path}: minimize over {orders}; rows {len(P.rows + P.soft)}, unknowns {P.size}")
    for b, trace in facts["given"]:
        print(f"  given: the trace of {P.blocks[b]['name']} is at most {trace / P.one!r}, as is stated")
    for side, nothing in (("lower", -math.inf), ("upper", math.inf)):
        claim = float.fromhex(facts[f"claimed {side}"])
        if claim == nothing:
            continue
        try:
            found = bound(P, side)
            found = bound(P, "ray") if side == "upper" and claim == -math.inf else found
            holds = found >= claim if side == "lower" else found <= claim
            answer = "proven" if holds else f"NOT proven, but {float(found)!r}"
        except Unproven as reason:
            holds, answer = False, f"NOT proven: {reason}"
        print(f"  {side} bound {claim!r}: {answer}")
        whole = whole and holds
    return whole


def main(paths=None, check=checked, about=__doc__):
    """Print what files prove; return 0 if that is all they state, 1 if it is not, 2 if one is refused."""
    paths, code = sys.argv[1:] if paths is None else paths, 0
    if not paths or {"-h", "--help"} & set(paths):
        print(about)
        return 0 if paths else 2
    for path in paths:
        try:
            code = code if check(path) else max(code, 1)
        except Exception as error:  # the file is anybody's
            reason = f"it cannot be read ({type(error).__name__}: {error})"
            print(f"{path}: refused: {error if isinstance(error, Unproven) else reason}")
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main())
