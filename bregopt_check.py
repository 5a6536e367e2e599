"""Check certificates of bregopt in exact arithmetic, by the standard library alone.

    python bregopt_check.py FILE.npz ...

A file states a problem, and points that prove bounds on its optimum:

    minimize <C, X> + c'u  subject to  lo <= A(X) + B u <= hi,  X psd,  u in boxes and cones.

Lower bound. For all multipliers y, and a price q >= 0, q times the optimum is at least

    sum_k min(y_k lo_k, y_k hi_k) + min <q C - A*(y), X> + min (q c - B'y)'u.

The second term is zero if q C - A*(y) is psd. A positive bound with the price zero contradicts the rows.

Upper bound. The value of a feasible point. With all ends of rows and boxes zero, a negative one is that of a
ray: from a feasible point the objective falls without end.

Equations. Doubles solve equations M x = b up to a residual r. If M M' has no eigenvalue below s > 0, a
solution is within ||r|| / sqrt(s). So there are points near those of the file that meet rows without room,
and multipliers at which free variables cost nothing.

Eigenvalues. For any triangular L those of W are at least those of W - L L', nearly a multiple of the
identity: by Gershgorin's theorem at least a diagonal entry less the sizes of the others in its row.

Numbers are integers in units of a power of two, so that every sum and product is exact. Floating point only
proposes L. A pair (v, e) is any number within e of v, and the worse end of an interval counts.
"""

import ast
import json
import math
import sys
import zipfile
from array import array
from bisect import bisect_left
from fractions import Fraction
from importlib import import_module
from itertools import islice, product
from operator import mul

BOUNDS, CUT = "bregopt bounds 3", "bregopt cut 1"  # formats of files
LARGEST = 2**28  # bytes of a file, unpacked, and of its matrices
LARGEST_EXACT = 60  # order of matrices that are decided by elimination
LARGEST_PARTS = 64  # doubles whose sum is a number
FINENESS = 256  # shifts in a decade
SPARE_BITS = 64  # of the unit, beyond the digits of the file
INF, HUGE = math.inf, sys.float_info.max
HARD, HINGE, LOG = 0, 1, 5  # penalties of rows: none, linear, the last

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


def read(path, formats=(BOUNDS,)):
    """Return the arrays of a file of one of some formats as flat lists, and its facts."""
    with zipfile.ZipFile(path) as archive:
        demand(sum(member.file_size for member in archive.infolist()) <= LARGEST, "it is too large")
        lists = {name.removesuffix(".npy"): flat(name, archive.read(name)) for name in archive.namelist()}
    facts = json.loads(bytes(lists.pop("facts")))
    found = facts["format"]
    demand(found in formats, f"it has the format {found!r}, not {formats[0]!r}: try bregopt verify {path}")
    return lists, facts


def flat(name, raw):
    """Return the numbers of an array in NumPy's format 1.0, row by row."""
    start = 10 + int.from_bytes(raw[8:10], "little")
    head = ast.literal_eval(raw[10:start].decode())
    kind = {"<f8": "d", "<i8": "q", "|u1": "B"}.get(head["descr"])
    plain = raw[:8] == b"\x93NUMPY\x01\x00" and kind and not head["fortran_order"]
    demand(plain, f"the array {name} has another format")
    values = array(kind, raw[start:])
    if sys.byteorder == "big":
        values.byteswap()
    whole = len(values) == math.prod(head["shape"]) and all(x == x for x in values)
    demand(whole, f"the array {name} is damaged")
    return values.tolist()


class Problem:
    """The problem of a file, on the faces that its rows leave.

    Rows and costs are dictionaries from unknowns to pairs of a coefficient and a radius. An unknown is the
    entry (b, i, j), i <= j, of the matrix b, or the variable (-1, j, j). Coefficients beside the diagonal
    count both entries. Infinite ends are None.
    """

    def __init__(self, lists, facts):
        finite = (x for own in lists.values() for x in own if type(x) is float and abs(x) < INF)
        self.bits = SPARE_BITS + max((x.as_integer_ratio()[1].bit_length() for x in finite), default=0)
        self.one, self.lists, self.cost = 1 << self.bits, lists, {}
        m, k, self.blocks = facts["rows"], facts["variables"], facts["blocks"]
        self.orders, self.rows = [block["n"] for block in self.blocks], [{} for _ in lists["lo"]]
        demand(sum(n * n for n in self.orders) * 8 <= LARGEST, "its matrices are too large")
        self.kinds, self.weights = self.index("kind", m, 0, LOG), self.take("weight", m, 0, INF)
        radii = self.take("lo_rad", m, 0), self.take("hi_rad", m, 0)
        self.ends = list(zip(*self.intervals("lo", "hi", m), *radii, strict=True))
        demand(all(lo != hi or a == b for lo, hi, a, b in self.ends), "an equality has ends of two radii")
        box = zip(*self.intervals("u_lo", "u_hi", k), strict=True)
        self.box = {(-1, j, j): both for j, both in enumerate(box)}
        self.add("B", "B_rad", "c", list(self.box))
        for b, n in enumerate(self.orders):
            i, j = (self.index(f"{name}{b}", None, 0, n - 1) for name in "ij")
            own = [(b, *pair) for pair in zip(i, j, strict=True)]
            demand(all(i <= j for _, i, j in own) and len({*own}) == len(own), f"the array i{b} is damaged")
            self.add(f"A{b}", f"A_rad{b}", f"C{b}", own)
        index = self.index("cone_index", None, 0, k - 1)
        dimensions, cones = self.index("cone_dimensions", None, 1, k), iter(index)
        self.cones = [[(-1, j, j) for j in islice(cones, n)] for n in dimensions]
        demand(len({*index}) == len(index) == sum(dimensions), "its second-order cones overlap")
        self.free = {p for p, both in self.box.items() if both == (None, None)}
        self.free -= {p for cone in self.cones for p in cone}
        self.offset = Fraction(float.fromhex(facts["offset"]))
        self.traces = self.take("traces", len(self.orders), 0, INF)
        if "exposing" in lists or lists["faces_row"] or any("null" in block for block in self.blocks):
            chapter("faces").reduce(self)
        self.terms = [
            chapter("divergences").Term(self, lists, block, b) if {"cap", "mu"} & block.keys() else None
            for b, block in enumerate(self.blocks)
        ]

    def take(self, name, size, least=-HUGE, most=HUGE):
        """Return numbers in a range, in units: that many, or any number of them for None."""
        own = self.lists[name]
        fits = size in (None, len(own)) and all(least <= x <= most for x in own)
        demand(fits, f"the array {name} has another size, or a number out of range")
        return list(map(self.units, own))

    def index(self, name, size, least, most):
        """Return integers in a range."""
        demand(all(type(x) is int for x in self.lists[name]), f"the array {name} is not of integers")
        return [x >> self.bits for x in self.take(name, size, least, most)]

    def units(self, x):
        """Return a number in units; None for an infinite one."""
        if abs(x) == INF:
            return None
        p, q = x.as_integer_ratio()
        return p * (self.one // q)

    def intervals(self, low, high, size):
        """Return the lower and the upper ends of intervals."""
        pairs = zip(self.lists[low], self.lists[high], strict=True)
        ordered = all(a <= b and a < INF and b > -INF for a, b in pairs)
        demand(ordered, f"{low} is above {high}, or infinite with the wrong sign")
        return self.take(low, size, -INF, INF), self.take(high, size, -INF, INF)

    def add(self, name, radius, cost, unknowns):
        """Add the coefficients of some unknowns to the rows, and their costs."""
        ends = self.index(f"{name}_indptr", len(self.rows) + 1, 0, HUGE)
        column = self.index(f"{name}_indices", ends[-1], 0, len(unknowns) - 1)
        value = self.take(f"{name}_data", ends[-1])
        wide = self.take(f"{radius}_data", ends[-1], 0) if f"{radius}_data" in self.lists else [0] * ends[-1]
        entries = [(unknowns[j], pair) for j, *pair in zip(column, value, wide, strict=True)]
        for row, start, end in zip(self.rows, ends, ends[1:], strict=False):
            before = len(row)
            row.update(entries[start:end])
            demand(len(row) - before == end - start, f"the array {name}_indices is damaged")
        mid, wide = self.take(f"{cost}_mid", len(unknowns)), self.take(f"{cost}_radius", len(unknowns), 0)
        self.cost.update(zip(unknowns, zip(mid, wide, strict=True), strict=True))

    def sums(self, name, size):
        """Return that many numbers, each the sum of doubles, one after the other."""
        own = self.take(name, None)
        parts = len(own) // max(size, 1)
        demand(len(own) == parts * size and parts <= LARGEST_PARTS, f"the array {name} has another size")
        return [sum(own[k::size]) for k in range(size)]

    def point(self, name):
        """Return the unknowns of a point, the rows that it solves, and the variables that may change."""
        x = dict(zip(self.box, self.sums(f"{name}_u", len(self.box)), strict=True))
        for b, n in enumerate(self.orders):
            own = self.sums(f"{name}_X{b}", n * n)
            x |= {(b, i, j): own[i * n + j] for i in range(n) for j in range(i, n)}
        solved = self.index(f"{name}_equations", None, 0, len(self.rows) - 1)
        movable = self.lists.get(f"{name}_movable", range(len(self.box)))
        return x, solved, {(-1, j, j) for j in movable}


# --- Eigenvalues and equations ------------------------------------------------------------------------


def cholesky(W, shift):
    """Return the factor of a matrix of doubles less a multiple of I, None where there is none."""
    L = []
    for i, row in enumerate(W):
        own = []
        for j in range(i):
            own.append((row[j] - sum(map(mul, own, L[j]))) / L[j][j])
        pivot = row[i] - shift - sum(map(mul, own, own))
        if not 0 < pivot < INF:
            return None
        L.append([*own, math.sqrt(pivot)])
    return L


def gershgorin(W):
    """Return a lower bound on the eigenvalues of a symmetric matrix, of which the lower half counts."""
    sizes = [0] * len(W)
    for i, row in enumerate(W):
        for j, x in enumerate(row[:i]):
            sizes[i] += abs(x)
            sizes[j] += abs(x)
    return min((row[i] - sizes[i] for i, row in enumerate(W)), default=0)


def least_eigenvalue(W, bits, fineness=FINENESS):
    """Return a lower bound on the eigenvalues of a symmetric matrix of integers times 2^-bits.

    It is the largest of some negative and positive shifts, `fineness` of them in a decade.
    """
    whole = Fraction(gershgorin(W), 1 << bits)
    if whole > 0 or not any(map(any, W)):
        return whole
    half, low = bits // 2 + 1, -18 * fineness
    floats = [[w / (1 << bits) for w in row[: i + 1]] for i, row in enumerate(W)]
    norm = max(sum(map(abs, row)) for row in W) / (1 << bits)

    def shifted(k):
        return cholesky(floats, math.copysign(norm * 10 ** ((low + abs(k)) / fineness), k))

    k = bisect_left(range(low, -low), True, key=lambda k: shifted(k) is None) + low - 1  # the last success
    L = shifted(k)
    demand(L is not None, "its numbers are out of range")
    L = [[(p << half) // q for p, q in (x.as_integer_ratio() for x in row)] for row in L]
    rest = [
        [(w << 2 * half - bits) - sum(map(mul, L[i], L[j])) for j, w in enumerate(row[: i + 1])]
        for i, row in enumerate(W)
    ]
    return max(whole, Fraction(gershgorin(rest), 1 << 2 * half))


def is_psd(W, shift=0):
    """Whether a small matrix less a multiple of I is psd, by elimination without fractions (Bareiss 1968)."""
    W, last = [[w - shift if i == j else w for j, w in enumerate(row)] for i, row in enumerate(W)], 1
    while 0 < len(W) <= LARGEST_EXACT:
        best = max(range(len(W)), key=lambda i: W[i][i])
        pivot, top = W[best][best], W[best]
        if pivot <= 0:
            return pivot == 0 and not any(map(any, W))
        rest = [i for i in range(len(W)) if i != best]
        W = [[(pivot * W[i][j] - top[i] * top[j]) // last for j in rest] for i in rest]
        last = pivot
    return not W


def least_within(W, reach, bits):
    """Return a lower bound on the eigenvalues of all matrices within a reach; zero if they are psd."""
    least = least_eigenvalue(W, bits) - Fraction(reach, 1 << bits)
    return 0 if least >= 0 or is_psd(W, reach) else least


def distance(rows, movable, lacks, bits):
    """Return how far movable unknowns are at most from a solution of rows that lack numbers with radii."""
    if not any(map(any, lacks)):
        return 0
    lengths = [max((abs(a).bit_length() for a, _ in row.values()), default=0) for row in rows]
    top, wide, columns = max(lengths), 0, {p: [] for p in movable}
    for k, row in enumerate(rows):  # scaled to the size of one, by powers of two
        for p in row.keys() & movable:
            a, e = (x << top - lengths[k] for x in row[p])
            columns[p].append((k, a))
            wide += e * e
    gram = [[0] * len(rows) for _ in rows]
    for own in columns.values():
        for (i, a), (j, b) in product(own, own):
            gram[i][j] += a * b
    square = max(least_eigenvalue(gram, 2 * top, fineness=1), 0)
    least = Fraction(math.isqrt(int(square * 4**64)), 2**64) - Fraction(root(wide), 1 << top)
    demand(least > 0, "the rows without room are not proven independent")
    lack = root(sum((abs(v) + e << top - n) ** 2 for (v, e), n in zip(lacks, lengths, strict=True)))
    return math.ceil(lack / (least * (1 << top)))


def root(x):
    """Return the square root of an integer, rounded upward."""
    return math.isqrt(x - 1) + 1 if x else 0


# --- Bounds -------------------------------------------------------------------------------------------


def dot(row, x):
    """Return a row times numbers, both with radii; that of the numbers is the length of their change."""
    value = radius = squares = 0
    for p, (a, e) in row.items():
        v, d = x[p]
        value, radius, squares = value + a * v, radius + e * (abs(v) + d), squares + (a * d) ** 2
    return value, radius + root(squares)


def least_product(v, d, lo, hi):
    """Return the least product of a number within d of v, in which it is concave, and one from lo to hi."""
    ends = [(y, lo if y > 0 else hi) for y in (v - d, v + d)]
    bounded = all(end is not None for y, end in ends if y)
    demand(bounded, "a multiplier, or the cost of a variable, has the wrong sign")
    return min(y and y * end for y, end in ends)


def in_cone(x):
    """Whether numbers with radii are in the second-order cone."""
    (v, d), *others = x
    return v >= d and (v - d) ** 2 >= sum((abs(s) + r) ** 2 for s, r in others)


def lower_bound(P, y, price):
    """Return what multipliers prove of the optimum times the price."""
    one, tiny = P.one, max(map(abs, y), default=0) >> 20
    columns = {p: {k: row[p] for k, row in enumerate(P.rows) if p in row} for p in P.free}
    used = {k: P.ends[k] for own in columns.values() for k in own if P.kinds[k] == HARD}
    movable = {k for k, (lo, hi, *_) in used.items() if lo == hi is not None or abs(y[k]) > tiny}
    slack = {p: (c * price, r * price) for p, (c, r) in P.cost.items()}
    sums = {p: dot(own, {k: (y[k], 0) for k in own}) for p, own in columns.items()}
    lacks = [(slack[p][0] - v, slack[p][1] + d) for p, (v, d) in sums.items()]
    radius = distance(list(columns.values()), movable, lacks, P.bits)
    y = [(v, radius if k in movable else 0) for k, v in enumerate(y)]
    total = P.offset * price / one
    for k, (row, (v, d), (lo, hi, lo_rad, hi_rad)) in enumerate(zip(P.rows, y, P.ends, strict=True)):
        if P.kinds[k] != HARD:
            total += chapter("divergences").row_conjugate(P, k, v, price)
        elif v or d:
            far = lo if lo is None else lo - lo_rad, hi if hi is None else hi + hi_rad
            total += Fraction(least_product(v, d, *far), one**2)
        for p, (a, e) in row.items() if v or d else ():
            s, r = slack[p]
            slack[p] = s - a * v, r + abs(a) * d + e * (abs(v) + d)
    for b, n in enumerate(P.orders):
        W, R = [[0] * n for _ in range(n)], [0] * n  # twice the matrix, and sums of radii
        for (at, i, j), (s, r) in slack.items():
            if at == b:
                W[i][j] = W[j][i] = 2 * s if i == j else s
                R[i], R[j] = R[i] + r, R[j] + r
        reach = 2 * max(R, default=0)
        if P.terms[b] and price:
            total += P.terms[b].lower(W, reach, 2 * P.bits + 1, Fraction(price, one))
            continue
        least = least_within(W, reach, 2 * P.bits + 1)
        demand(least == 0 or P.traces[b], "a slack matrix is not proven psd")
        total += least * Fraction(P.traces[b] or 0, one)
    for p in P.box.keys() - P.free - {p for cone in P.cones for p in cone}:
        total += Fraction(least_product(*slack[p], *P.box[p]), one**3)
    demand(all(in_cone([slack[p] for p in cone]) for cone in P.cones), "costs are not proven in their cone")
    return total


def upper_bound(P, x, equations, movable, share=1):
    """Return the value of a feasible point near one, or of a ray if the share of the ends is zero."""
    one, ends, box, solving = P.one, P.ends, P.box, set(equations)
    if not share:
        demand(not any(P.terms), "a divergence has no rays")
        ends = [(lo and 0, hi and 0, 0, 0) for lo, hi, *_ in ends]
        box = {p: (lo and 0, hi and 0) for p, (lo, hi) in box.items()}
    lacks, at = [], {p: (v, 0) for p, v in x.items()}
    for k in equations:
        (lo, hi, lo_rad, hi_rad), (value, spread) = ends[k], dot(P.rows[k], at)
        low = hi is None or (lo is not None and abs(value - lo * one) <= abs(value - hi * one))
        demand(P.kinds[k] == HARD and (lo, hi) != (None, None), "a soft row is no equation")
        demand(lo == hi or not lo_rad + hi_rad, "an inequality with an uncertain end has no room")
        end, wide = (lo, lo_rad) if low else (hi, hi_rad)
        lacks.append((end * one - value, wide * one + spread))
    movable = {p for k in equations for p in P.rows[k] if p in movable or p not in P.box}
    radius = distance([P.rows[k] for k in equations], movable, lacks, P.bits)
    x = {p: (v, radius if p in movable else 0) for p, v in x.items()}
    total = Fraction(sum(dot(P.cost, x)), one**2) + P.offset * share
    for b, n in enumerate(P.orders):
        X = [[x[b, min(i, j), max(i, j)][0] for j in range(n)] for i in range(n)]
        inside = least_within(X, 2 * radius, P.bits) == 0  # twice, as a change has two entries in X
        demand(inside, "a matrix of the point is not proven psd")
        total += P.terms[b].upper(X, 2 * radius, P.bits) if P.terms[b] else 0
    implied = None
    for k, (row, (lo, hi, lo_rad, hi_rad)) in enumerate(zip(P.rows, ends, strict=True)):
        value, spread = dot(row, x)
        if P.kinds[k] == HINGE or (P.kinds[k] != HARD and share):
            total += chapter("divergences").row_penalty(P, k, value, spread, ends[k])
        elif k not in solving and not (
            (lo is None or value - spread >= (lo + lo_rad) * one)
            and (hi is None or value + spread <= (hi - hi_rad) * one)
        ):
            implied = chapter("faces").consequences(P, ends, solving) if implied is None else implied
            demand(k in implied, f"the point violates row {k}")
    for p, (lo, hi) in box.items():
        v, d = x[p]
        demand((lo is None or v - d >= lo) and (hi is None or v + d <= hi), "a variable leaves its box")
    demand(all(in_cone([x[p] for p in cone]) for cone in P.cones), "variables leave a second-order cone")
    return total


def proven(P, side):
    """Return the bound on one side that the points of a file prove."""
    if side == "lower":
        name = next((name for name in ("fractions", "farkas", "y", "digits_y") if name in P.lists), None)
        demand(name, "it has no multipliers")
        y = P.sums(name, len(P.rows) + (name == "fractions"))
        price = y.pop() if name == "fractions" else 0 if name == "farkas" else P.one
        bound = lower_bound(P, y, price)
        demand(price > 0 or bound > 0 == price, "the rows are not proven to contradict each other")
        return bound * P.one / price if price else INF
    name = next((name for name in ("point", "digits") if f"{name}_u" in P.lists), None)
    demand(name, "it has no point that this program checks")
    value = upper_bound(P, *P.point(name))
    return -INF if "ray_u" in P.lists and upper_bound(P, *P.point("ray"), share=0) < 0 else value


def checked(path):
    """Print what a file proves; return whether that is all it states."""
    lists, facts = read(path, (BOUNDS, CUT))
    if facts["format"] == CUT:
        return chapter("cuts").checked(path, lists, facts)
    P, whole = Problem(lists, facts), True
    orders = ", ".join(f"{block['name']} ({block['n']})" for block in facts["blocks"])
    print(f"{path}: minimize over {orders}; rows {len(P.rows)}, variables {len(P.box)}")
    for block, trace in zip(facts["blocks"], lists["traces"], strict=True):
        if trace < INF:
            print(f"  given: the trace of {block['name']} is at most {trace!r}, as the author states")
    for side, nothing in (("lower", -INF), ("upper", INF)):
        claim = float.fromhex(facts[side])
        if claim == nothing:
            continue
        try:
            bound = proven(P, side)
            holds = bound >= claim if side == "lower" else bound <= claim
            answer = "proven" if holds else f"NOT proven, but {float(bound)!r}"
        except Unproven as reason:
            holds, answer = False, f"NOT proven: {reason}"
        print(f"  {side} bound {claim!r}: {answer}")
        whole = whole and holds
    return whole


def report(paths, check, about):
    """Check files, and print why one is refused; return the exit status."""
    code = 0
    if not paths or {"-h", "--help"} & set(paths):
        print(about)
        return 0 if paths else 2
    for path in paths:
        try:
            code = code if check(path) else max(code, 1)
        except Exception as error:  # the file is anybody's
            reason = f"it is damaged ({type(error).__name__}: {error})"
            reason = error if isinstance(error, Unproven) else getattr(error, "strerror", None) or reason
            print(f"{path}: refused: {reason}")
            code = 2
    return code


def main(paths=None):
    """Print what files prove; return 0 if that is all they state, 1 if it is not, 2 if one is refused."""
    return report(sys.argv[1:] if paths is None else paths, checked, __doc__)


if __name__ == "__main__":
    sys.exit(main())
