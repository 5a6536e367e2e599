"""Check certificates of bregopt in exact arithmetic, by the standard library alone.

    python bregopt_check.py FILE.npz ...

A file states a problem, and points that prove bounds on its optimum:

    minimize <C, X> + c'u  subject to  lo <= A(X) + B u <= hi,  X psd,  u in boxes and second-order cones.

Lower bound. For all multipliers y the optimum is at least min y'b + min <C - A*(y), X> + min (c - B'y)'u.
Where an eigenvalue of C - A*(y) is -s < 0, the second term is at least -s tr X, and single rows bound tr X.

Upper bound. The value of a feasible point. Rows without room are solved near the point of the file: with any
R near the inverse of their square part M, and q = ||I - R M|| < 1, a solution is within ||R r|| / (1 - q) of
a point that misses the rows by r. Free variables ask the same of multipliers.

Eigenvalues. For any triangular L those of W are at least those of W - L L', nearly a multiple of the
identity: by Gershgorin's theorem at least a diagonal entry less the sizes of the others in its row.

Numbers are integers in units of a power of two, so that every sum and product is exact. Floating point only
proposes L and R. A pair (v, e) is any number within e of v, and the worse end of an interval counts.
"""

import ast
import hashlib
import json
import math
import struct
import sys
import zipfile
from array import array
from copy import copy
from fractions import Fraction
from operator import mul

BOUNDS, CUT = "bregopt bounds 2", "bregopt cut 1"  # formats of files
LARGEST = 2**28  # bytes of a file, unpacked, and of its matrices
LARGEST_EXACT = 60  # order of matrices that are decided by elimination
LARGEST_PARTS = 64  # doubles whose sum is a number
SPARE_BITS = 64  # of the unit, beyond the digits of the file
INF = math.inf
FACE = "the rows leave a face, which only bregopt checks"


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


class Problem:
    """The problem of a file; infinite ends are None, and a row is a list of (place, coefficient, radius).

    Places are the entries of the matrices, one block after the other, then the variables. Coefficients beside
    the diagonal count twice.
    """

    def __init__(self, lists, facts):
        finite = (x for own in lists.values() for x in own if type(x) is float and abs(x) < INF)
        self.bits = SPARE_BITS + max((x.as_integer_ratio()[1].bit_length() for x in finite), default=0)
        self.one, m, k = 1 << self.bits, len(lists["lo"]), len(lists["u_lo"])
        demand(facts["rows"] == m and facts["variables"] == k, "it has another size than it says")
        demand(sum(fact["n"] ** 2 for fact in facts["blocks"]) * 8 <= LARGEST, "its matrices are too large")
        demand(not any(lists["kind"]), "only bregopt checks soft rows")
        for low, high in (("lo", "hi"), ("u_lo", "u_hi")):
            ordered = all(
                a <= b and a < INF and b > -INF for a, b in zip(lists[low], lists[high], strict=True)
            )
            demand(ordered, f"{low} is above {high}, or infinite with the wrong sign")
        self.blocks, self.rows, first = [], [[] for _ in range(m)], 0
        for b, fact in enumerate(facts["blocks"]):
            name, n = fact["name"], fact["n"]
            demand(not {"cap", "mu"} & set(fact), f"only bregopt checks the cap or divergence of {name}")
            demand("null" not in fact, FACE)
            entries = list(zip(lists[f"i{b}"], lists[f"j{b}"], strict=True))
            right = all(0 <= i <= j < n for i, j in entries) and len(set(entries)) == len(entries)
            demand(right, f"the entries of {name} are wrong")
            self.blocks.append((n, entries, first))
            self._add_rows(lists, f"A{b}", f"A_rad{b}", first, len(entries))
            first += len(entries)
        self._add_rows(lists, "B", "B_rad", first, k)
        names = [*(f"C{b}" for b in range(len(self.blocks))), "c"]
        cost, radius = ([x for n in names for x in self.fixed(lists[n + end])] for end in ("_mid", "_radius"))
        ends = [self.fixed(lists[name]) for name in ("lo", "hi", "lo_rad", "hi_rad")]
        box = zip(self.fixed(lists["u_lo"]), self.fixed(lists["u_hi"]), strict=True)
        self.cost, self.ends = list(zip(cost, radius, strict=True)), list(zip(*ends, strict=True))
        self.box, self.offset = dict(enumerate(box, first)), Fraction(float.fromhex(facts["offset"]))
        demand(all(lo != hi or a == b for lo, hi, a, b in self.ends), "an equality has ends of two radii")
        demand(len(self.cost) == first + k, "it has another number of costs than of unknowns")
        demand(min([*radius, *ends[2], *ends[3]], default=0) >= 0, "a radius is negative")
        index = iter([first + j for j in lists["cone_index"]])
        self.cones = [[next(index) for _ in range(size)] for size in lists["cone_dimensions"]]
        self.in_cones = {p for cone in self.cones for p in cone}
        apart = len(self.in_cones) == len(lists["cone_index"]) and self.in_cones <= set(self.box)
        demand(apart and all(self.cones), "its second-order cones overlap")
        self.free = {p for p, both in self.box.items() if both == (None, None)} - self.in_cones

    def _add_rows(self, lists, name, radius, first, width):
        ends, columns, values = (lists[f"{name}_{part}"] for part in ("indptr", "indices", "data"))
        radii = lists.get(f"{radius}_data", [0.0] * len(values))
        fits = len(ends) == len(self.rows) + 1 and ends == sorted(ends) and ends[0] == 0
        fits = fits and len(values) == len(columns) == len(radii) == ends[-1] and min(radii, default=0) >= 0
        demand(fits and all(0 <= j < width for j in columns), f"the array {name} is damaged")
        own = zip([first + j for j in columns], self.fixed(values), self.fixed(radii), strict=True)
        terms = list(own)
        for k, row in enumerate(self.rows):
            row.extend(terms[ends[k] : ends[k + 1]])

    def fixed(self, values):
        """Return numbers in units."""
        ratios = (x.as_integer_ratio() if abs(x) < INF else None for x in values)
        return [None if r is None else r[0] * (self.one // r[1]) for r in ratios]

    def point(self, lists, name):
        """Return matrices and variables, with the rows to be solved and the variables that may change.

        Numbers are sums of doubles, one after the other; those of "digits" may have several.
        """
        flat = [self.sums(lists[f"{name}_X{b}"], n * n) for b, (n, _, _) in enumerate(self.blocks)]
        X = [
            [X[i * n : (i + 1) * n] for i in range(n)] for X, (n, _, _) in zip(flat, self.blocks, strict=True)
        ]
        equal = [k for k, (lo, hi, _, _) in enumerate(self.ends) if lo == hi]
        solved, movable = (
            lists.get(f"{name}_equations", equal),
            lists.get(f"{name}_movable", range(len(self.box))),
        )
        return X, self.sums(lists[f"{name}_u"], len(self.box)), solved, movable

    def sums(self, values, size):
        """Return that many numbers in units, each the sum of a number of each part."""
        demand(len(values) == size or (size and len(values) % size == 0), FACE)
        demand(len(values) <= LARGEST_PARTS * size, "its numbers have too many parts")
        values = self.fixed(values)
        return [sum(values[k::size]) for k in range(size)]


# --- Eigenvalues and equations ------------------------------------------------------------------------


def least_eigenvalue(W, bits):
    """Return a lower bound on the eigenvalues of the symmetric matrix of integers `W` times 2^-bits."""
    n = len(W)
    floats = [[w / (1 << bits) for w in row[: i + 1]] for i, row in enumerate(W)]
    norm = max((sum(map(abs, row)) for row in W), default=0) / (1 << bits) or 1.0

    def factor(shift):
        L = []
        for i, row in enumerate(floats):
            own = []
            for j in range(i):
                own.append((row[j] - sum(map(mul, own, L[j]))) / L[j][j])
            pivot = row[i] - shift - sum(map(mul, own, own))
            if not 0 < pivot < INF:
                return None
            L.append([*own, math.sqrt(pivot)])
        return L

    shifts = [norm * 10.0**-k for k in range(-1, 18)]
    shifts += [-s for s in reversed(shifts)]
    high, low = 0, len(shifts) - 1  # the largest shift fails, the least one succeeds
    while low - high > 1:
        middle = (high + low) // 2
        high, low = (high, middle) if factor(shifts[middle]) else (middle, low)
    high, low = shifts[high], shifts[low]
    for _ in range(10):
        middle = (high + low) / 2
        high, low = (high, middle) if factor(middle) else (middle, low)
    L, half = factor(low), bits // 2 + 1
    demand(L is not None, "its numbers are out of range")
    L = [[(p << half) // q for p, q in (x.as_integer_ratio() for x in row)] for row in L]
    rest = [
        [(W[i][j] << 2 * half - bits) - sum(map(mul, L[i], L[j])) for j in range(i + 1)] for i in range(n)
    ]
    others = [0] * n
    for i, row in enumerate(rest):
        for j, x in enumerate(row[:i]):
            others[i] += abs(x)
            others[j] += abs(x)
    return Fraction(min((rest[i][i] - others[i] for i in range(n)), default=0), 1 << 2 * half)


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
    for place, a, e in row:
        v, d = x[place]
        value += a * v
        if d or e:
            radius += abs(a) * d + e * (abs(v) + d)
    return value, radius


def eliminated(rows, movable, one):
    """Return a pivot of each row and a near inverse of their columns; None if rows seem dependent."""
    left = [{p: a / one for p, a, _ in row if p in movable} for row in rows]
    right, pivots = [{k: 1.0} for k in range(len(rows))], []
    for k, own in enumerate(left):
        pivot = max(own, key=lambda p: abs(own[p]), default=None)
        if pivot is None or abs(own[pivot]) <= 1e-10 * max(abs(a) for _, a, _ in rows[k]) / one:
            return None
        pivots.append(pivot)
        largest = own[pivot]
        for part in (right[k], own):
            part.update({p: x / largest for p, x in part.items()})
        for other, above in zip(left, right, strict=True):
            factor = 0.0 if other is own else other.get(pivot, 0.0)
            for part, change in ((above, right[k]), (other, own)) if factor else ():
                part.update({p: part.get(p, 0.0) - factor * x for p, x in change.items()})
            if factor:
                del other[pivot]
    return pivots, right


def solve(rows, movable, missing, one):
    """Return changes of some places and a radius: within it, nothing is missing of the rows.

    `missing` returns what the rows lack after given changes, with radii, in units of `one` squared.
    """
    if not rows:
        return {}, 0
    large = {p for row in rows for _, p in sorted((-abs(a), p) for p, a, _ in row if p in movable)[:4]}
    pivots, R = eliminated(rows, large, one) or eliminated(rows, movable, one) or (None, None)
    demand(pivots, "the rows without room are not proven independent")
    R = [{i: int(Fraction(x) * one) for i, x in row.items()} for row in R]
    change, place, contraction = dict.fromkeys(pivots, 0), {p: k for k, p in enumerate(pivots)}, 0
    for k, own in enumerate(R):
        error, spread = {k: one * one}, 0  # a row of I - R M
        for i, x in own.items():
            for p, a, e in rows[i]:
                if p in place:
                    error[place[p]] = error.get(place[p], 0) - x * a
                    spread += abs(x) * e
        contraction = max(contraction, sum(map(abs, error.values())) + spread)
    q = Fraction(contraction, one * one)
    demand(q < 1, "the rows without room are not proven independent")
    for _ in range(400):
        lack = missing(change)
        steps = [sum(x * lack[i][0] for i, x in own.items()) // one**2 for own in R]
        if max(map(abs, steps)) <= 1:
            break
        change = {p: change[p] + step for p, step in zip(pivots, steps, strict=True)}
    most = max(sum(abs(x) * (abs(lack[i][0]) + lack[i][1]) for i, x in own.items()) for own in R)
    return change, math.ceil(most / (1 - q) / one**2)


# --- Bounds -------------------------------------------------------------------------------------------


def implied_traces(P):
    """Return bounds on the traces by single rows of nonnegative coefficients on diagonals."""
    blocks = list(enumerate(P.blocks))
    place = {first + at: (b, i) for b, (_, own, first) in blocks for at, (i, j) in enumerate(own) if i == j}
    largest, traces = [{} for _ in blocks], [INF for _ in blocks]
    for row, (lo, hi, lo_rad, hi_rad) in zip(P.rows, P.ends, strict=True):
        for sign, end, radius in ((1, hi, hi_rad), (-1, lo, lo_rad)):
            if end is None or not all(p in place and sign * a >= e for p, a, e in row):
                continue
            supply = max(sign * end + radius, 0)
            most = {place[p]: Fraction(supply, sign * a - e) for p, a, e in row if sign * a > e}
            for (b, i), x in most.items():
                largest[b][i] = min(x, largest[b].get(i, INF))
            for b in {b for b, _ in most}:
                own = [x for (other, _), x in most.items() if other == b]
                traces[b] = min(traces[b], max(own)) if len(own) == P.blocks[b][0] else traces[b]
    sums = [sum(largest[b].values()) if len(largest[b]) == n else INF for b, (n, _, _) in blocks]
    return list(map(min, traces, sums))


def lower_bound(P, y, traces):
    """Return the bound that multipliers prove, those of infinite ends left out."""
    one, columns = P.one, {p: [] for p in P.free}
    y = [v if (lo if v > 0 else hi) is not None else 0 for v, (lo, hi, _, _) in zip(y, P.ends, strict=True)]
    for k, row in enumerate(P.rows):
        for p, a, e in row:
            if p in columns:
                columns[p].append((k, a, e))
    signed = {k for k, (lo, hi, _, _) in enumerate(P.ends) if lo != hi}  # their multipliers keep the sign
    movable = set(range(len(y))) - {k for k in signed if abs(y[k]) <= max(map(abs, y)) >> 20}

    def missing(change):
        at = {k: (y[k] + change.get(k, 0), 0) for own in columns.values() for k, _, _ in own}
        found = [(P.cost[p], dot(own, at)) for p, own in columns.items()]
        return [(c * one - a, r * one + e) for (c, r), (a, e) in found]

    change, radius = solve(list(columns.values()), movable, missing, one)
    demand(
        all(abs(y[k]) > abs(d) + radius for k, d in change.items() if k in signed), "a multiplier has no room"
    )
    y = [(v + change.get(k, 0), radius if k in change else 0) for k, v in enumerate(y)]
    slack, total = [(c * one, r * one) for c, r in P.cost], P.offset * one**2
    for row, (v, d), (lo, hi, lo_rad, hi_rad) in zip(P.rows, y, P.ends, strict=True):
        end, wide = (lo, lo_rad) if v > 0 else (hi, hi_rad)
        total += v * end - d * abs(end) - (abs(v) + d) * wide if v or d else 0
        for p, a, e in row if v or d else ():
            s, r = slack[p]
            slack[p] = s - a * v, r + abs(a) * d + e * (abs(v) + d)
    for (n, entries, first), trace in zip(P.blocks, traces, strict=True):
        W, R = [[0] * n for _ in range(n)], [0] * n  # twice the matrix, and sums of radii
        for (i, j), (s, r) in zip(entries, slack[first:], strict=False):
            W[i][j] = W[j][i] = 2 * s if i == j else s
            R[i], R[j] = R[i] + r, R[j] + r
        least = least_eigenvalue(W, 2 * P.bits + 1) * one**2 - max(R, default=0)
        if least < 0 and not is_psd(W, 2 * max(R, default=0)):
            demand(trace < INF, "a slack matrix is not proven psd, and no row bounds the trace")
            total += least * trace
    for p, (lo, hi) in P.box.items():
        s, r = slack[p]
        if p not in P.in_cones and p not in P.free and (s or r):
            bounded = (lo is not None or s + r <= 0) and (hi is not None or s - r >= 0)
            demand(bounded, "the cost of a variable has the wrong sign")
            total += min(z * end for z in (s - r, s + r) for end in (lo, hi) if end is not None)
    for cone in P.cones:
        demand(in_cone([slack[p] for p in cone]), "the costs of a cone are not proven in it")
    return total / one**2


def in_cone(x):
    """Whether numbers with radii are in the second-order cone."""
    (v, d), *others = x
    return v >= d and (v - d) ** 2 >= sum((abs(s) + r) ** 2 for s, r in others)


def upper_bound(P, X, u, equations, movable):
    """Return the value of a feasible point near matrices and variables."""
    x = [own[i][j] for (_, entries, _), own in zip(P.blocks, X, strict=True) for i, j in entries] + u
    first = len(P.cost) - len(P.box)
    rows, targets, solved = [P.rows[k] for k in equations], [], set(equations)
    for k, row in zip(equations, rows, strict=True):
        lo, hi, lo_rad, hi_rad = P.ends[k]
        value = sum(a * x[p] for p, a, _ in row)
        low = hi is None or (lo is not None and abs(value - lo * P.one) <= abs(value - hi * P.one))
        demand(lo == hi or not lo_rad + hi_rad, "an inequality with an uncertain end has no room")
        targets.append((lo, lo_rad) if low else (hi, hi_rad))

    def missing(change):
        at = [(v, 0) for v in x]
        for p, d in change.items():
            at[p] = x[p] + d, 0
        found = [(end, wide, dot(row, at)) for row, (end, wide) in zip(rows, targets, strict=True)]
        return [(end * P.one - a, wide * P.one + e) for end, wide, (a, e) in found]

    change, radius = solve(rows, {*range(first), *(first + j for j in movable)}, missing, P.one)
    x = [(v + change.get(p, 0), radius if p in change else 0) for p, v in enumerate(x)]
    for (_, entries, start), own in zip(P.blocks, X, strict=True):
        for (i, j), (v, _) in zip(entries, x[start:], strict=False):
            own[i][j] = own[j][i] = v
        reach = sum(d for _, (_, d) in zip(entries, x[start:], strict=False))
        inside = least_eigenvalue(own, P.bits) * P.one >= reach or is_psd(own, reach)
        demand(inside, "a matrix of the point is not proven psd")
    for k, (row, (lo, hi, lo_rad, hi_rad)) in enumerate(zip(P.rows, P.ends, strict=True)):
        value, spread = dot(row, x)
        above = lo is None or value - spread >= (lo + lo_rad) * P.one
        below = hi is None or value + spread <= (hi - hi_rad) * P.one
        demand(k in solved or (above and below), f"the point violates row {k}")
    for p, (lo, hi) in P.box.items():
        v, d = x[p]
        demand((lo is None or v - d >= lo) and (hi is None or v + d <= hi), "a variable leaves its box")
    demand(all(in_cone([x[p] for p in cone]) for cone in P.cones), "variables leave a second-order cone")
    return Fraction(sum(dot([(p, c, r) for p, (c, r) in enumerate(P.cost)], x)), P.one**2) + P.offset


def homogeneous(P, costs):
    """Return the problem of directions, whose finite ends are zero, or the one without `costs`."""
    Q = copy(P)
    Q.offset = Fraction(0)
    if costs:
        Q.ends = [(lo and 0, hi and 0, 0, 0) for lo, hi, _, _ in P.ends]
        Q.box = {p: (lo and 0, hi and 0) for p, (lo, hi) in P.box.items()}
    else:
        Q.cost = [(0, 0) for _ in P.cost]
    return Q


def is_farkas(P, y, traces):
    """Whether multiples of `y`, or of simple fractions near it, prove bounds beyond every number."""
    largest = max(map(abs, y), default=0) or 1
    for limit in (largest, 12, 1000, 2**30):
        near = [Fraction(v, largest).limit_denominator(limit) for v in y]
        shared = math.lcm(*(v.denominator for v in near))
        try:
            if lower_bound(homogeneous(P, False), [int(v * shared) for v in near], traces) > 0:
                return True
        except Unproven:
            continue
    return False


def best_lower_bound(P, y, traces):
    """Return the bound of multipliers, or of near ones of few digits, which may be on a boundary."""
    try:
        return lower_bound(P, y, traces)
    except Unproven:
        for unit in (P.one >> bits for bits in (0, 4, 10, 30)):
            try:
                return lower_bound(P, [(v + unit // 2) // unit * unit for v in y], traces)
            except Unproven:
                continue
        raise


def proven(P, lists, side):
    """Return the bound on one side that the points of a file prove."""
    stated = (Fraction(x) if x < INF else INF for x in lists["traces"])
    traces = list(map(min, implied_traces(P), stated))
    if "farkas" in lists and is_farkas(P, P.fixed(lists["farkas"]), traces):
        return INF
    if "ray_u" in lists and upper_bound(homogeneous(P, True), *P.point(lists, "ray")) < 0:
        upper_bound(P, *P.point(lists, "point"))
        return -INF
    if side == "lower":
        own = [P.sums(lists[name], len(P.rows)) for name in ("y", "digits_y") if name in lists]
        demand(own, "it has no multipliers")
        return max(best_lower_bound(P, y, traces) for y in own)
    names = [name for name in ("point", "digits") if f"{name}_u" in lists]
    demand(names, "it has no point that this program checks")
    return min(upper_bound(P, *P.point(lists, name)) for name in names)


def checked(path):
    """Print what a file proves; return whether that is all it states."""
    lists, facts = read(path, (BOUNDS, CUT))
    if facts["format"] == CUT:
        try:
            from bregopt_check_cuts import checked as checked_cut
        except ImportError:
            raise Unproven("it is the certificate of a cut: download bregopt_check_cuts.py, too") from None
        return checked_cut(path, lists, facts)
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
        except Unproven as reason:
            print(f"{path}: refused: {reason}")
            code = 2
        except OSError as error:
            print(f"{path}: refused: {error.strerror}")
            code = 2
        except Exception as error:  # the file is anybody's
            print(f"{path}: refused: it is damaged ({type(error).__name__}: {error})")
            code = 2
    return code


def main(paths=None):
    """Print what files prove; return 0 if that is all they state, 1 if it is not, 2 if one is refused."""
    return report(sys.argv[1:] if paths is None else paths, checked, __doc__)


if __name__ == "__main__":
    sys.exit(main())
