"""Check certificates of bregopt in exact arithmetic, by the standard library alone.

    python bregopt_check.py FILE.npz ...

A file states a problem, and points that prove bounds on its optimum:

    minimize <C, X> + c'u + penalties  subject to  lo <= A(X) + B u <= hi,  X psd,  u in boxes and cones.

Lower bound. For all multipliers y, and a price q >= 0, q times the optimum is at least

    min y'b + min <q C - A*(y), X> + min (q c - B'y)'u.

Where an eigenvalue of q C - A*(y) is -s < 0, the second term is at least -s tr X, and single rows bound tr X.
A positive bound with the price zero is a contradiction of the rows.

Upper bound. The value of a feasible point. With all ends of rows and boxes zero, a negative one is that of a
ray: from a feasible point the objective falls without end.

Equations. Doubles solve equations M x = b up to a residual r. If M M' has no eigenvalue below s > 0, a
solution is within ||r|| / sqrt(s). So there are points that meet rows without room, and multipliers at which
free variables cost nothing.

Eigenvalues. For any triangular L those of W are at least those of W - L L', nearly a multiple of the
identity: by Gershgorin's theorem at least a diagonal entry less the sizes of the others in its row.

Numbers are integers in units of a power of two, so that every sum and product is exact. Floating point only
proposes L. A pair (v, e) is any number within e of v, and the worse end of an interval counts.
"""

import ast
import hashlib
import json
import math
import struct
import sys
import zipfile
from array import array
from bisect import bisect_left
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from itertools import islice, product
from operator import mul

BOUNDS, CUT = "bregopt bounds 2", "bregopt cut 1"  # formats of files
LARGEST = 2**28  # bytes of a file, unpacked, and of its matrices
LARGEST_EXACT = 60  # order of matrices that are decided by elimination
LARGEST_PARTS = 64  # doubles whose sum is a number
FINENESS = 256  # shifts in a decade
REFINEMENTS = 60  # of the solution of equations
SPARE_BITS = 64  # of the unit, beyond the digits of the file
INF = math.inf
HARD, HINGE, SQUARE, LOG = 0, 1, 4, 5  # penalties of rows: none, w |a - b|, w (a - b)^2, -w log(a - b)

sys.modules.setdefault("bregopt_check", sys.modules[__name__])  # for its other files, under any name


class Unproven(Exception):  # noqa: N818 - it is no error of the program
    """The file is refused, or does not prove what it states; the message says why."""


def demand(holds, message):
    """Refuse what does not hold."""
    if not holds:
        raise Unproven(message)


# --- The file -----------------------------------------------------------------------------------------


def read(path, formats=(BOUNDS,)):
    """Return the arrays of a file of one of some formats as flat lists, and its facts."""
    lists, seal = {}, hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        demand(sum(member.file_size for member in archive.infolist()) <= LARGEST, "it is too large")
        for file in sorted(set(archive.namelist())):
            raw, name = archive.read(file), file.removesuffix(".npy")
            start = 10 + struct.unpack("<H", raw[8:10])[0]
            head = ast.literal_eval(raw[10:start].decode())
            kind = {"<f8": "d", "<i8": "q", "|u1": "B"}.get(head["descr"])
            demand(raw[:8] == b"\x93NUMPY\x01\x00" and kind, f"the array {name} has another format")
            values = array(kind, raw[start:])
            if sys.byteorder == "big":
                values.byteswap()
            fits = len(values) == math.prod(head["shape"]) and not head["fortran_order"]
            demand(fits and all(x == x for x in values), f"the array {name} is damaged")
            lists[name] = values.tolist()
            if name != "digest":
                seal.update(f"{name} {head['descr']} {head['shape']} ".encode() + raw[start:])
    demand(bytes(lists.pop("digest", [])) == seal.digest(), "it was changed, or is no certificate of bounds")
    facts = json.loads(bytes(lists.pop("facts")))
    demand(facts["format"] in formats, f"it has the format {facts['format']!r}")
    return lists, facts


def chapter(name, needs=""):
    """Return another file of this program."""
    try:
        return import_module(f"bregopt_check_{name}")
    except ImportError:
        raise Unproven(f"it has {name}: download bregopt_check_{name}.py, too{needs}") from None


def divergences():
    """Return the file for divergences, caps and logarithms."""
    return chapter("divergences", ", and install python-flint")


def near_nothing(fact):
    """Whether a matrix has neither a divergence nor a cap."""
    return not {"cap", "mu"} & fact.keys()


class Problem:
    """The problem of a file, on the faces that its rows leave.

    Rows and costs are dictionaries from unknowns to pairs of a coefficient and a radius. An unknown is the
    entry (b, i, j), i <= j, of the matrix b, or the variable (-1, j, j). Coefficients beside the diagonal
    count both entries. Infinite ends are None.
    """

    def __init__(self, lists, facts):
        finite = (x for own in lists.values() for x in own if type(x) is float and abs(x) < INF)
        self.bits = SPARE_BITS + max((x.as_integer_ratio()[1].bit_length() for x in finite), default=0)
        self.one, m, k = 1 << self.bits, len(lists["lo"]), len(lists["u_lo"])
        demand(facts["rows"] == m and facts["variables"] == k, "it has another size than it says")
        self.orders, self.rows = [fact["n"] for fact in facts["blocks"]], [{} for _ in range(m)]
        demand(sum(n * n for n in self.orders) * 8 <= LARGEST, "its matrices are too large")
        for low, high in (("lo", "hi"), ("u_lo", "u_hi")):
            pairs = zip(lists[low], lists[high], strict=True)
            ordered = all(a <= b and a < INF and b > -INF for a, b in pairs)
            demand(ordered, f"{low} is above {high}, or infinite with the wrong sign")
        self.kinds, self.weights = lists["kind"], self.fixed(lists["weight"])
        demand({*self.kinds} <= {*range(LOG + 1)}, "a row has an unknown penalty")
        weighted = zip(self.kinds, self.weights, strict=True)
        demand(
            all(kind == HARD or (w is not None and w > 0) for kind, w in weighted), "a weight is not positive"
        )
        self.cost = {}
        for b, fact in enumerate(facts["blocks"]):
            own = [(b, i, j) for i, j in zip(lists[f"i{b}"], lists[f"j{b}"], strict=True)]
            right = all(0 <= i <= j < fact["n"] for _, i, j in own) and len(set(own)) == len(own)
            demand(right, f"the entries of {fact['name']} are wrong")
            self._add(lists, f"A{b}", f"A_rad{b}", f"C{b}", own)
        self._add(lists, "B", "B_rad", "c", [(-1, j, j) for j in range(k)])
        ends = [self.fixed(lists[name]) for name in ("lo", "hi", "lo_rad", "hi_rad")]
        self.ends, self.offset = list(zip(*ends, strict=True)), Fraction(float.fromhex(facts["offset"]))
        demand(all(lo != hi or a == b for lo, hi, a, b in self.ends), "an equality has ends of two radii")
        one_sided = all(
            e[1] is None is not e[0] for e, kind in zip(self.ends, self.kinds, strict=True) if kind == LOG
        )
        demand(one_sided, "a logarithm has no lower end, or an upper one")
        demand(min([*ends[2], *ends[3]], default=0) >= 0, "a radius is negative")
        box = zip(self.fixed(lists["u_lo"]), self.fixed(lists["u_hi"]), strict=True)
        self.box = {(-1, j, j): both for j, both in enumerate(box)}
        index = iter(lists["cone_index"])
        self.cones = [[(-1, j, j) for j in islice(index, n)] for n in lists["cone_dimensions"]]
        self.in_cones = {p for cone in self.cones for p in cone}
        apart = len(self.in_cones) == len(lists["cone_index"]) and self.in_cones <= set(self.box)
        demand(apart and all(self.cones), "its second-order cones overlap")
        self.free = {p for p, both in self.box.items() if both == (None, None)} - self.in_cones
        stated, own = (Fraction(x) if x < INF else INF for x in lists["traces"]), implied_traces(self)
        if "exposing" in lists or find_spec("bregopt_check_faces"):
            own = map(min, own, chapter("faces").on_faces(self, lists, facts))
        self.traces = list(map(min, own, stated))
        self.terms = [
            None if near_nothing(fact) else divergences().Term(self, lists, fact, b)
            for b, fact in enumerate(facts["blocks"])
        ]

    def _add(self, lists, name, radius, cost, unknowns):
        """Add the coefficients of some unknowns to the rows and the costs."""
        ends, columns, values = (lists[f"{name}_{part}"] for part in ("indptr", "indices", "data"))
        radii = lists.get(f"{radius}_data", [0.0] * len(values))
        fits = len(ends) == len(self.rows) + 1 and ends == sorted(ends) and ends[0] == 0
        fits = fits and len(values) == len(columns) == len(radii) == ends[-1]
        demand(fits and all(0 <= j < len(unknowns) for j in columns), f"the array {name} is damaged")
        pairs = list(zip(self.fixed(values), self.fixed(radii), strict=True))
        costs = list(zip(*(self.fixed(lists[f"{cost}_{end}"]) for end in ("mid", "radius")), strict=True))
        demand(min((e for _, e in pairs + costs), default=0) >= 0, "a radius is negative")
        demand(len(costs) == len(unknowns), "it has another number of costs than of unknowns")
        self.cost.update(zip(unknowns, costs, strict=True))
        for k, row in enumerate(self.rows):
            own = slice(ends[k], ends[k + 1])
            row.update(zip((unknowns[j] for j in columns[own]), pairs[own], strict=True))
            demand(len(set(columns[own])) == ends[k + 1] - ends[k], f"the array {name} is damaged")

    def fixed(self, values):
        """Return numbers in units; None for infinite ones."""
        ratios = (x.as_integer_ratio() if abs(x) < INF else None for x in values)
        return [None if r is None else r[0] * (self.one // r[1]) for r in ratios]

    def sums(self, values, size):
        """Return that many numbers in units, each the sum of doubles, one after the other."""
        demand(
            len(values) == size or (size and len(values) % size == 0),
            "a point has another size; rows may leave faces",
        )
        demand(len(values) <= LARGEST_PARTS * size, "its numbers have too many parts")
        values = self.fixed(values)
        return [sum(values[k::size]) for k in range(size)]

    def point(self, lists, name):
        """Return the unknowns of a point, and the rows to be solved with the variables that may change."""
        x = {}
        for b, n in enumerate(self.orders):
            own = self.sums(lists[f"{name}_X{b}"], n * n)
            x |= {(b, i, j): own[i * n + j] for i in range(n) for j in range(i, n)}
        x |= zip(self.box, self.sums(lists[f"{name}_u"], len(self.box)), strict=True)
        solved = lists.get(f"{name}_equations", [k for k, (lo, hi, *_) in enumerate(self.ends) if lo == hi])
        movable = {(-1, j, j) for j in lists.get(f"{name}_movable", range(len(self.box)))}
        return x, solved, movable


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


def least_eigenvalue(W, bits, fineness=FINENESS):
    """Return a lower bound on the eigenvalues of a symmetric matrix of integers times 2^-bits.

    It is the largest of some negative and positive shifts, `fineness` of them in a decade.
    """

    def gershgorin(rest):
        sizes = [0] * n
        for i, row in enumerate(rest):
            for j, x in enumerate(row[:i]):
                sizes[i] += abs(x)
                sizes[j] += abs(x)
        return min((row[i] - sizes[i] for i, row in enumerate(rest)), default=0)

    n, half, low = len(W), bits // 2 + 1, -18 * fineness
    whole = Fraction(gershgorin(W), 1 << bits)
    if whole >= 0:
        return whole
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


def dot(row, x):
    """Return a row times numbers, both with radii."""
    value = radius = 0
    for p, (a, e) in row.items():
        v, d = x[p]
        value += a * v
        if d or e:
            radius += abs(a) * d + e * (abs(v) + d)
    return value, radius


def nearest(rows, movable, missing, bits):
    """Return changes of unknowns and a radius: within it, nothing is missing of the rows.

    `missing` returns what the rows lack after given changes, with radii, in units of 2^(-2 bits).
    """
    if not any(v or e for v, e in missing({})):
        return {}, 0
    large = (sorted((-abs(a), p) for p, (a, _) in row.items() if p in movable)[:4] for row in rows)
    for chosen in ({p for own in large for _, p in own}, movable):
        columns = {p: [] for p in chosen}
        lengths = [max((abs(a).bit_length() for a, _ in row.values()), default=0) for row in rows]
        top, wide = max(lengths), 0
        for k, row in enumerate(rows):  # scaled to the size of one, by powers of two
            for p in row.keys() & chosen:
                a, e = (x << top - lengths[k] for x in row[p])
                columns[p].append((k, a))
                wide += e * e
        gram = [[0] * len(rows) for _ in rows]
        for own in columns.values():
            for (i, a), (j, b) in product(own, own):
                gram[i][j] += a * b
        L = cholesky([[w / (1 << 2 * top) for w in row[: k + 1]] for k, row in enumerate(gram)], 0.0)
        least = least_eigenvalue(gram, 2 * top, fineness=1) if L else 0
        least = Fraction(math.isqrt(int(max(least, 0) * 4**64)), 2**64) - Fraction(root(wide), 1 << top)
        if least > 0:
            break
    demand(least > 0, "the rows without room are not proven independent")
    change = dict.fromkeys(columns, 0)
    for _ in range(REFINEMENTS):
        lack = [(v << top - n, e << top - n) for (v, e), n in zip(missing(change), lengths, strict=True)]
        size = max(abs(v) for v, _ in lack).bit_length()
        w = [int(x * 2.0**60) for x in solution(L, [v / (1 << size) for v, _ in lack])]
        unit = Fraction(2) ** (size - 2 * top - 60)
        steps = {p: round(sum(a * w[k] for k, a in own) * unit) for p, own in columns.items()}
        if not any(steps.values()):
            break
        change = {p: x + steps[p] for p, x in change.items()}
    radius = root(sum((abs(v) + e) ** 2 for v, e in lack)) / (least * (1 << top))
    return change, math.ceil(radius)


def solution(L, r):
    """Return the solution of L L' w = r in floating point."""
    w = []
    for k, row in enumerate(L):
        w.append((r[k] - sum(map(mul, row, w))) / row[k])
    for k in reversed(range(len(w))):
        w[k] /= L[k][k]
        for j in range(k):
            w[j] -= L[k][j] * w[k]
    return w


def root(x):
    """Return the square root of an integer, rounded upward."""
    return math.isqrt(x - 1) + 1 if x else 0


# --- Bounds -------------------------------------------------------------------------------------------


def implied_traces(P):
    """Return bounds on the traces by single rows of nonnegative coefficients on diagonals."""
    largest, traces = [{} for _ in P.orders], [INF for _ in P.orders]
    for row, kind, (lo, hi, lo_rad, hi_rad) in zip(P.rows, P.kinds, P.ends, strict=True):
        for sign, end, radius in ((1, hi, hi_rad), (-1, lo, lo_rad)):
            fits = end is not None and kind in (HARD, LOG)
            if not fits or not all(b >= 0 and i == j and sign * a >= e for (b, i, j), (a, e) in row.items()):
                continue
            supply = max(sign * end + radius, 0)
            most = {p: Fraction(supply, sign * a - e) for p, (a, e) in row.items() if sign * a > e}
            for (b, i, _), x in most.items():
                largest[b][i] = min(x, largest[b].get(i, INF))
            for b, n in enumerate(P.orders):
                own = [x for p, x in most.items() if p[0] == b]
                traces[b] = min(traces[b], max(own, default=0)) if len(own) == n else traces[b]
    sums = [sum(own.values()) if len(own) == n else INF for own, n in zip(largest, P.orders, strict=True)]
    return list(map(min, traces, sums))


def lower_bound(P, y, price):
    """Return what multipliers prove of the optimum times the price."""
    one, ranges, far = P.one, [], max(map(abs, [*y, P.one])) << SPARE_BITS
    for k, (lo, hi, *_) in enumerate(P.ends):
        reach = P.weights[k] * price // one if P.kinds[k] == HINGE else far
        reach = reach if price or P.kinds[k] in (HARD, LOG) else 0
        least, most = -reach if hi is not None else 0, reach if lo is not None else 0
        ranges.append((least, most) if lo == hi else (0, most) if y[k] > 0 else (least, 0))
    y = [min(max(v, least), most) for v, (least, most) in zip(y, ranges, strict=True)]
    tiny = max(map(abs, y), default=0) >> 20
    columns = {p: {k: row[p] for k, row in enumerate(P.rows) if p in row} for p in P.free}
    near = list(zip(y, ranges, strict=True))
    movable = {k for k, (v, (least, most)) in enumerate(near) if min(v - least, most - v) > tiny}

    def missing(change):
        at = {k: (v + change.get(k, 0), 0) for k, v in enumerate(y)}
        found = [(P.cost[p], dot(own, at)) for p, own in columns.items()]
        return [(c * price - a, r * price + e) for (c, r), (a, e) in found]

    change, radius = nearest(list(columns.values()), movable, missing, P.bits)
    y = [(v + change.get(k, 0), radius if k in change else 0) for k, v in enumerate(y)]
    inside = all(least <= v - d and v + d <= most for (v, d), (least, most) in zip(y, ranges, strict=True))
    demand(inside, "a multiplier has no room")
    slack = {p: (c * price, r * price) for p, (c, r) in P.cost.items()}
    total = P.offset * price / one
    for k, (row, (v, d)) in enumerate(zip(P.rows, y, strict=True)):
        if v or d or (P.kinds[k] == LOG and price):
            total += conjugate(P, k, v, d, price)
            for p, (a, e) in row.items():
                s, r = slack[p]
                slack[p] = s - a * v, r + abs(a) * d + e * (abs(v) + d)
    for b, n in enumerate(P.orders):
        W, R = [[0] * n for _ in range(n)], [0] * n  # twice the matrix, and sums of radii
        for (at, i, j), (s, r) in slack.items():
            if at == b:
                W[i][j] = W[j][i] = 2 * s if i == j else s
                R[i], R[j] = R[i] + r, R[j] + r
        reach = max(R, default=0)
        if P.terms[b] and price:
            total += P.terms[b].lower(W, reach, 2 * P.bits + 1, Fraction(price, one), P.traces[b])
            continue
        least = least_eigenvalue(W, 2 * P.bits + 1) - Fraction(reach, one**2)
        if least < 0 and not is_psd(W, 2 * reach):
            demand(P.traces[b] < INF, "a slack matrix is not proven psd, and no row bounds the trace")
            total += least * P.traces[b]
    for p, (lo, hi) in P.box.items():
        s, r = slack[p]
        if p not in P.in_cones and p not in P.free and (s or r):
            bounded = (lo is not None or s + r <= 0) and (hi is not None or s - r >= 0)
            demand(bounded, "the cost of a variable has the wrong sign")
            products = (z * end for z in (s - r, s + r) for end in (lo, hi) if end is not None)
            total += Fraction(min(products), one**3)
    for cone in P.cones:
        demand(in_cone([slack[p] for p in cone]), "the costs of a cone are not proven in it")
    return total


def conjugate(P, k, v, d, price):
    """Return a lower bound on the least penalty(a) + y a of a row, for y within d of v."""
    lo, hi, lo_rad, hi_rad = P.ends[k]
    end, wide = (lo, lo_rad) if v > 0 else (hi, hi_rad)
    kind, w = P.kinds[k], price and Fraction(P.weights[k] or 0, P.one) * Fraction(price, P.one)
    corners = product({v - d, v + d}, {end - wide, end + wide})  # concave in y, monotone in the end
    corners = [(Fraction(y, P.one), Fraction(b, P.one)) for y, b in corners]
    if kind in (HARD, HINGE) or not price:
        return min(y * b for y, b in corners)
    if kind == SQUARE:
        return min(y * b - y * y / (4 * w) for y, b in corners)
    return min(divergences().row_conjugate(kind, w, y, b) for y, b in corners)


def penalty(P, k, value, spread, ends):
    """Return an upper bound on the penalty of a row whose value is within a spread."""
    kind, w, paid = P.kinds[k], Fraction(P.weights[k], P.one), Fraction(0)
    lo, hi, lo_rad, hi_rad = ends
    for end, wide, sign in ((lo, lo_rad, -1), (hi, hi_rad, 1)):
        if end is None:
            continue
        a, b = Fraction(value + sign * spread, P.one**2), Fraction(end - sign * wide, P.one)
        if kind == LOG:
            paid = divergences().row_penalty(kind, w, a, b)
        elif sign * (a - b) > 0:
            size = abs(a - b)
            own = {HINGE: w * size, SQUARE: w * size**2}.get(kind)
            paid = max(paid, divergences().row_penalty(kind, w, a, b) if own is None else own)
    return paid


def in_cone(x):
    """Whether numbers with radii are in the second-order cone."""
    (v, d), *others = x
    return v >= d and (v - d) ** 2 >= sum((abs(s) + r) ** 2 for s, r in others)


def upper_bound(P, x, equations, movable, share=1):
    """Return the value of a feasible point near one, or of a ray if the share of the ends is zero."""
    one, ends, solving = P.one, P.ends, set(equations)
    box = P.box
    if not share:
        demand(not any(P.terms), "a divergence has no rays")
        ends = [(lo and 0, hi and 0, 0, 0) for lo, hi, *_ in ends]
        box = {p: (lo and 0, hi and 0) for p, (lo, hi) in box.items()}
    rows, targets = [P.rows[k] for k in equations], []
    for k, row in zip(equations, rows, strict=True):
        lo, hi, lo_rad, hi_rad = ends[k]
        value = sum(a * x[p] for p, (a, _) in row.items())
        low = hi is None or (lo is not None and abs(value - lo * one) <= abs(value - hi * one))
        demand(P.kinds[k] == HARD and (lo, hi) != (None, None), "a soft row is no equation")
        demand(lo == hi or not lo_rad + hi_rad, "an inequality with an uncertain end has no room")
        targets.append((lo, lo_rad) if low else (hi, hi_rad))

    def missing(change):
        at = {p: (v + change.get(p, 0), 0) for p, v in x.items()}
        found = [(end, wide, dot(row, at)) for row, (end, wide) in zip(rows, targets, strict=True)]
        return [(end * one - a, wide * one + e) for end, wide, (a, e) in found]

    change, radius = nearest(rows, {*P.cost} - {*P.box} | movable, missing, P.bits)
    x = {p: (v + change.get(p, 0), radius if p in change else 0) for p, v in x.items()}
    total = Fraction(sum(dot(P.cost, x)), one**2) + P.offset * share
    for b, n in enumerate(P.orders):
        X = [[x[b, min(i, j), max(i, j)][0] for j in range(n)] for i in range(n)]
        reach = 2 * max((d for p, (_, d) in x.items() if p[0] == b), default=0)  # of changes, in any norm
        inside = least_eigenvalue(X, P.bits) * one >= reach or is_psd(X, reach)
        demand(inside, "a matrix of the point is not proven psd")
        total += P.terms[b].upper(X, reach, P.bits) if P.terms[b] else 0
    implied = None
    for k, (row, (lo, hi, lo_rad, hi_rad)) in enumerate(zip(P.rows, ends, strict=True)):
        value, spread = dot(row, x)
        if P.kinds[k] != HARD and (share or P.kinds[k] == HINGE):
            total += penalty(P, k, value, spread, (lo, hi, lo_rad, hi_rad))
            continue
        above = lo is None or value - spread >= (lo + lo_rad) * one
        below = hi is None or value + spread <= (hi - hi_rad) * one
        if k not in solving and not (above and below):
            implied = chapter("faces").consequences(P, ends, solving) if implied is None else implied
            demand(k in implied, f"the point violates row {k}")
    for p, (lo, hi) in box.items():
        v, d = x[p]
        demand((lo is None or v - d >= lo) and (hi is None or v + d <= hi), "a variable leaves its box")
    demand(all(in_cone([x[p] for p in cone]) for cone in P.cones), "variables leave a second-order cone")
    return total


def best_lower_bound(P, y, price):
    """Return the bound of multipliers, or of simple fractions near them, which may be on a boundary of cones.

    With the price zero they prove a bound beyond every number, or none.
    """
    largest, trials = max([price, *map(abs, y)]) or 1, [(price, *y)]
    for limit in (12, 1000, 2**30):
        near = [Fraction(v, largest).limit_denominator(limit) for v in trials[0]]
        shared = math.lcm(*(v.denominator for v in near)) * P.one
        trials.append([int(v * shared) for v in near])
    reasons = []
    for cost, *own in trials:
        try:
            found = lower_bound(P, own, cost)
            if cost or found > 0:
                return found * P.one / cost if cost else INF
            reasons.append("the rows are not proven to contradict each other")
        except Unproven as reason:
            reasons.append(str(reason))
    raise Unproven(reasons[0])


def proven(P, lists, side):
    """Return the bound on one side that the points of a file prove."""
    if side == "lower":
        prices = {"farkas": 0, "y": P.one, "digits_y": P.one}
        names = [name for name in prices if name in lists]
        demand(names, "it has no multipliers")
        return max(best_lower_bound(P, P.sums(lists[name], len(P.rows)), prices[name]) for name in names)
    names = [name for name in ("point", "digits") if f"{name}_u" in lists]
    demand(names, "it has no point that this program checks")
    least = min(upper_bound(P, *P.point(lists, name)) for name in names)
    falls = "ray_u" in lists and upper_bound(P, *P.point(lists, "ray"), share=0) < 0
    return -INF if falls else least


def checked(path):
    """Print what a file proves; return whether that is all it states."""
    lists, facts = read(path, (BOUNDS, CUT))
    if facts["format"] == CUT:
        return chapter("cuts").checked(path, lists, facts)
    P, whole = Problem(lists, facts), True
    claims = {side: float.fromhex(facts[side]) for side in ("lower", "upper")}
    orders = ", ".join(f"{fact['name']} ({fact['n']})" for fact in facts["blocks"])
    print(f"{path}: minimize over {orders}; rows {len(P.rows)}, variables {len(P.box)}")
    for fact, trace in zip(facts["blocks"], lists["traces"], strict=True):
        if trace < INF:
            print(f"  given: the trace of {fact['name']} is at most {trace!r}, as the author states")
    for side, claim in claims.items():
        if claim == (-INF if side == "lower" else INF):
            continue
        try:
            bound = proven(P, lists, side)
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
