r"""Prove the terms of soft rows, divergences, caps, logarithms, entropies and exponentials of a certificate.

It needs `bregopt_check.py` beside it, which calls it, and the balls of python-flint for all but linear and
square penalties. A matrix may have one of the divergences

    mu |H o (X - X0)|^2,
    mu (<inv X0, X> - log det X + log det X0 - n),
    mu tr(X log X - X log X0 - X + X0),

and a cap, X <= cap I. Lower bounds are those of <W, X> + mu D(X, X0) over psd X, for any psd multiplier T:

- Frobenius: an entry with the weight h adds V x0 - V^2 / (4 mu h^2), V = W - T; those without a weight are a
  matrix E with <E, X> >= -|E| tr X.
- LogDet: mu (log det(inv X0 + W / mu) + log det X0).
- von Neumann: mu (tr X0 - tr exp(log X0 - W / mu)).
- A cap adds T to W, and -cap tr T to the bound.

They grow with W, so that W less its radius is one of the matrices W. If |exp K - X0| <= r and X0 >= s I, then
K is within -log(1 - r / s) of log X0, as the logarithm is monotone: any K near it will do.

Convex terms of an objective or a row bound it in the `terms` of the statement: sums of terms are no more than
rows. So a point is in their epigraph, whose other rows are linear.
"""

import math
from bisect import bisect_left
from fractions import Fraction
from itertools import product
from operator import add, mul

from bregopt_check import EQUAL, demand, has_factor

try:
    import flint
except ImportError:
    flint = None

FROBENIUS, LOGDET, VON_NEUMANN = "frobenius", "logdet", "von_neumann"
HINGE, LOGDET_ROW, SQUARE, LOG = 1, 2, 4, 5  # penalties of rows; 3 is von Neumann's
SUM, TRACE_LOG = "sum", "trace of a logarithm"
BITS = 192  # of the balls, beyond the unit of the file
STEPS = 200  # of iterations that propose matrices


class Balls:
    """Numbers and matrices of a file as balls, of enough bits for its unit."""

    def __init__(self, bits):
        demand(flint, "it has logarithms or divergences: pip install python-flint")
        self.bits = BITS + bits
        flint.ctx.prec = self.bits

    @staticmethod
    def number(x):
        """Return a ball around a fraction."""
        demand(flint, "it has logarithms or divergences: pip install python-flint")
        x = Fraction(x)
        return flint.arb(flint.fmpq(x.numerator, x.denominator))

    def matrix(self, W, unit, shift=0):
        """Return a matrix of integers times a unit, plus a multiple of the identity."""
        unit, shift = self.number(unit), self.number(shift)
        pairs = ((i, row) for i, row in enumerate(W))
        return flint.arb_mat(
            [[w * unit + (shift if i == j else 0) for j, w in enumerate(row)] for i, row in pairs]
        )

    def dense(self, rows, radii=None):
        """Return a matrix of fractions with radii."""
        balls = [[self.number(x) for x in row] for row in rows]
        if radii:
            wide = [[flint.arb(0, 1) * self.number(e) for e in row] for row in radii]
            balls = [list(map(add, *both)) for both in zip(balls, wide, strict=True)]
        return flint.arb_mat(balls)

    def integers(self, M):
        """Return a symmetric matrix of integers times 2^-bits, and its distance from the balls."""
        n, unit = M.nrows(), flint.arb(2) ** self.bits
        scaled = [[M[i, j] * unit for j in range(n)] for i in range(n)]
        W = [[round(below(x.mid())) for x in row] for row in scaled]
        W = [[W[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)]
        radii = (
            [math.ceil(above(abs(x - w))) for x, w in zip(*rows, strict=True)]
            for rows in zip(scaled, W, strict=True)
        )
        return W, max(map(sum, radii), default=0)

    def least(self, M):
        """Return a lower bound on the eigenvalues of all matrices in a ball."""
        W, reach = self.integers(M)
        return Fraction(least_eigenvalue(W, reach), 1 << self.bits)

    def log_det(self, M, name):
        """Return the logarithm of the determinant of a matrix that is proven positive definite."""
        demand(self.least(M) > 0, f"a matrix of {name} is not proven positive definite")
        return M.det().log()

    def positive_part(self, M):
        """Return a psd matrix near the positive part (M + |M|) / 2, by Newton's iteration for signs."""
        M = ((M + M.transpose()) / 2).mid()
        n = M.nrows()
        size = max((above(abs(x)) for x in M.entries()), default=0) or 1
        flint.ctx.prec = 2 * self.bits  # inverses of nearly singular matrices lose digits
        S = M / self.number(size * n) + eye(n) * flint.arb(2) ** (-BITS // 2)
        for _ in range(STEPS):
            new = ((S + S.inv()) / 2).mid()
            step, S = max(above(abs(x)) for x in (new - S).entries()), new
            if step < 2.0**-60:
                break
        W, _ = self.integers(((M + M * S) / 2).mid())
        flint.ctx.prec = self.bits
        unit = Fraction(1, 1 << self.bits)
        return self.matrix(W, unit, -unit * min(least_eigenvalue(W), 0)).mid()

    def logarithm(self, M, name):
        """Return a matrix near the logarithm of all matrices in a ball, and its distance from them.

        Newton's iteration for exp K = M falls to the logarithm from the multiple of I above it. A step
        multiplies round-off by up to the condition, and there are as many steps as that has digits.
        """
        least, n = self.least(M), M.nrows()
        demand(least > 0, f"a matrix of {name} is not proven positive definite")
        largest = max(sum((abs(M[i, j]) for j in range(n)), flint.arb(0)) for i in range(n))
        K = eye(n) * largest.log().mid()
        steep = int(above(largest) / least).bit_length()
        flint.ctx.prec = self.bits + steep * (steep + 16) // 2
        for _ in range(STEPS):
            step = (M.mid() * (-K).exp() - eye(n)).mid()
            K = (K + (step + step.transpose()) / 2).mid()
            if max(map(abs, step.entries())) < flint.arb(2) ** (-BITS // 2):
                break
        flint.ctx.prec = self.bits
        away = norm(K.exp() - M) / self.number(least)
        demand(away < 1, f"the logarithm of a matrix of {name} is not proven")
        return K, above(-(1 - away).log())


def eye(n):
    """Return the identity."""
    return flint.arb_mat([[int(i == j) for j in range(n)] for i in range(n)])


def inner(A, B):
    """Return <A, B>."""
    return sum(map(mul, A.entries(), B.entries()), flint.arb(0))


def norm(M):
    """Return an upper bound on the norm of a symmetric matrix, the largest sum of a row."""
    n = M.nrows()
    return max(sum((abs(M[i, j]).upper() for j in range(n)), flint.arb(0)).upper() for i in range(n))


def below(x):
    """Return the lower end of a ball as a fraction."""
    demand(x.is_finite(), "its numbers are out of range")
    mantissa, exponent = (int(part) for part in x.lower().man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


def above(x):
    """Return the upper end of a ball as a fraction."""
    return -below(-x)


def least_eigenvalue(W, reach=0):
    """Return a lower bound on the eigenvalues of a matrix less a reach, nearly the largest one."""
    powers = range(64 * (max(sum(map(abs, row)) for row in W) + reach).bit_length() + 64)

    def power(k):
        return (64 + k % 64 << k // 64 >> 6) - 1

    if has_factor(W, reach):
        return power(bisect_left(powers, True, key=lambda k: not has_factor(W, reach + power(k))) - 1)
    return -power(bisect_left(powers, True, key=lambda k: has_factor(W, reach - power(k))))


class Term(Balls):
    """The divergence and the cap of a matrix."""

    def __init__(self, P, b, near=None):
        super().__init__(P.bits)
        fact = P.blocks[b]
        self.name, self.n = fact["name"], fact["n"]
        self.cap, self.mu = (Fraction(fact[x], P.one) if x in fact else None for x in ("cap", "mu"))
        demand(self.cap is None or self.cap > 0, f"the cap of {self.name} is not positive")
        if self.mu is None:
            return
        self.divergence = fact["divergence"]
        demand(self.mu > 0 and self.divergence in (FROBENIUS, LOGDET, VON_NEUMANN), "a divergence is unknown")

        def square(rows, unit=P.one):
            rows = [[Fraction(x, unit) for x in row] for row in rows]
            right = len(rows) == self.n and rows == [list(column) for column in zip(*rows, strict=True)]
            demand(right, f"a matrix of {self.name} is not symmetric, or has another size")
            return rows

        self.X0, self.radii = square(fact["X0"]), square(fact["radii"])
        self.H = square(fact.get("weights", [[P.one] * self.n] * self.n))
        self.X = square(*near) if near and near[0] else None
        positive = all(x >= 0 for own in (self.radii, self.H) for row in own for x in row)
        demand(positive, f"a radius or a weight of {self.name} is negative")
        demand(self.divergence == FROBENIUS or "weights" not in fact, "only Frobenius has weights")
        self.trace = math.inf if all(map(all, self.H)) else implied_trace(P, b)
        self.anchor = self.dense(self.X0)
        self.whole = self.dense(self.X0, self.radii)

    # --- Lower bounds

    def lower(self, W, reach, unit):
        """Return a lower bound on <W, X> + mu D(X, X0), with a reach of W in its units."""
        W = self.matrix(W, unit, -reach * unit)
        constant = Fraction(0)
        if self.cap is not None:
            T = self.positive_part(self.slope_at_cap(W))
            W = W + T
            constant = -self.cap * above(T.trace())
            if self.mu is None:
                return constant + min(self.least(W), 0) * self.cap * self.n
        mu = self.mu
        if self.divergence == FROBENIUS:
            return constant + self.frobenius(W, mu)
        scaled = W / self.number(mu)
        if self.divergence == LOGDET:
            M = self.whole.inv() + scaled
            found = self.log_det((M + M.transpose()) / 2, self.name) + self.log_det(self.whole, self.name)
        else:
            K, away = self.logarithm(self.whole, self.name)
            found = self.whole.trace() - (K - scaled + eye(self.n) * self.number(away)).exp().trace()
        return constant + mu * below(found)

    def slope_at_cap(self, W):
        """Return a multiplier of the cap, whose positive part is the best one: it needs no proof."""
        if self.mu is None:
            return -W
        cap, mu = eye(self.n) * self.number(self.cap), self.number(self.mu)
        if self.divergence == FROBENIUS:
            return (self.anchor - cap) * (2 * mu) - W
        if self.divergence == LOGDET:
            return (cap.inv() - self.anchor.inv()) * mu - W
        return (
            self.logarithm(self.anchor, self.name)[0] - eye(self.n) * self.number(self.cap).log()
        ) * mu - W

    def frobenius(self, W, mu):
        """Return the bound of the multiplier T near the positive part of the slope at the answer."""
        n, squares = self.n, [[mu * h * h for h in row] for row in self.H]
        near = self.dense([[0] * n] * n if self.X is None else self.X) - self.anchor
        slope = flint.arb_mat(
            [[2 * self.number(squares[i][j]) * near[i, j] for j in range(n)] for i in range(n)]
        )
        V, total, rest = (
            W - self.positive_part(slope + W),
            Fraction(0),
            [[flint.arb(0)] * n for _ in range(n)],
        )
        for i, j in product(range(n), range(n)):
            if squares[i][j]:
                v, low = V[i, j], self.whole[i, j]
                total += below(v * low - v * v / self.number(4 * squares[i][j]))
            else:
                rest[i][j] = V[i, j]
        if all(map(all, squares)):
            return total
        demand(
            self.trace < math.inf, f"{self.name} has entries without a weight, and no row bounds the trace"
        )
        return total - above(norm(flint.arb_mat(rest))) * self.trace

    # --- Values

    def upper(self, X, reach, unit):
        """Return an upper bound on mu D(X, X0) for all X within a reach, in its units."""
        r, M = reach * unit, self.matrix(X, unit)
        if self.cap is not None:
            demand(self.least(eye(self.n) * self.number(self.cap) - M) >= r, f"{self.name} is above its cap")
        if self.mu is None:
            return 0
        shift = eye(self.n) * self.number(r)
        if self.divergence == FROBENIUS:
            sizes = map(abs, (M - self.whole).entries())
            weights = (h for row in self.H for h in row)
            return self.mu * sum(h * h * (above(x) + r) ** 2 for h, x in zip(weights, sizes, strict=True))
        if self.divergence == LOGDET:
            inverse = self.whole.inv()
            demand(self.least(self.whole) > 0, f"the X0 of {self.name} is not proven positive definite")
            found = inner(inverse, M) + norm(inverse) * self.n * self.number(r) - self.n
            found += self.log_det(self.whole, self.name) - self.log_det(M - shift, self.name)
        else:
            K0, away0 = self.logarithm(self.whole, self.name)
            K, away = self.logarithm(M + shift, self.name)
            size = (norm(K) + norm(K0)) * self.n * self.number(r)
            found = inner(M, K - K0) + size + self.number(away + away0) * (M + shift).trace()
            found += self.whole.trace() - (M - shift).trace()
        return self.mu * above(found)


# --- Convex terms -------------------------------------------------------------------------------------


class Epigraph(Balls):
    """The convex terms of a problem, after the rows that bound their sums, at all points near one."""

    def __init__(self, P, point):
        super().__init__(P.bits)
        demand(
            point.z[-1] and not P.facts["faces"], "an objective with terms has neither rays nor faces here"
        )
        self.P, self.point, self.unit = P, point, Fraction(1, P.one * point.z[-1])
        ends, totals = [], []
        for kind, *own in P.facts["terms"]:
            if kind == SUM:
                ends.append(self.ends(*own[2])[0])
                totals.append(0)
                continue
            demand(totals, "a term has no sum")
            totals[-1] += self.value(kind, *own)
        within = all(total <= end for total, end in zip(totals, ends, strict=True))
        demand(within, "the point is not proven in the epigraph of the terms")

    def ends(self, row):
        """Return the least and the largest activity of a stated row."""
        return [x * self.unit for x in self.point.ends(self.P.row(*row))]

    def value(self, kind, weights, orders, rows):
        """Return an upper bound on a term."""
        weights, own = [Fraction(w, self.P.one) for w in weights], [self.ends(row) for row in rows]
        if kind == TRACE_LOG:
            (B, away), w, r = *self.matrices(orders, own), weights[0], len(weights) // orders[0]
            demand(w >= 0 and len(weights) == 1 + r * orders[0], "a logarithm has another form")
            R = self.dense([weights[1 + r * i :][:r] for i in range(orders[0])])
            K, wide = self.logarithm(B - eye(B.nrows()) * self.number(away), "a term")
            C = R * R.transpose()
            return w * (wide * above(C.trace()) - below(inner(C, K)))
        demand(kind == "entropy" or min(weights) >= 0, "a weight of a term is negative")
        if kind == "entropy":
            found = zip(weights, self.matrices(orders, own), strict=True)
            return sum(w * self.entropy(*near, largest=w > 0) for w, near in found)
        if kind == "relative entropy":
            (A, r), (B, away) = self.matrices(orders, own)
            demand(len(weights) == 1 and A.nrows() == B.nrows(), "a relative entropy has another form")
            K, wide = self.logarithm(B - eye(B.nrows()) * self.number(away), "a term")
            return weights[0] * (self.entropy(A, r) - below(inner(A, K)) + self.change(A, r, K, wide))
        demand(kind in NUMBERS, "a term is unknown")
        size = {"relative entropy of numbers": 2, "logarithm of a sum": sum(orders)}.get(kind, 1)
        count = len(weights)
        demand(len(own) == size * count > 0, "a term has another number of arguments")
        step, width = (count, 1) if kind == "relative entropy of numbers" else (1, size)
        groups = [own[k * width :: step][:size] for k in range(count)]
        return sum(
            w * above(NUMBERS[kind](*map(interval, group))) for w, group in zip(weights, groups, strict=True)
        )

    def matrices(self, orders, own):
        """Return the matrices of arguments, and bounds on the norms of their changes, that stay definite."""
        demand(sum(n * n for n in orders) == len(own) and min(orders) > 0, "a term has other arguments")
        found, rest = [], iter(own)
        for n in orders:
            ends = [[next(rest) for _ in range(n)] for _ in range(n)]
            mid = [[sum(ends[i][j] + ends[j][i]) / 4 for j in range(n)] for i in range(n)]
            wide = [[(hi - lo) / 2 for lo, hi in row] for row in ends]
            r = max(sum(wide[i][j] + wide[j][i] for j in range(n)) for i in range(n)) / 2
            M = flint.arb_mat([[self.number(x) for x in row] for row in mid])
            demand(self.least(M) > r, "a matrix of a term is not proven positive definite")
            found.append((M, r))
        return found

    def entropy(self, M, r, largest=True):
        """Return an upper bound on tr A log A for all A near M, or a lower one: A <= P = M + r I.

        tr A log A is at most <A, log P>, and at least that less tr P - tr A (Klein).
        """
        K, away = self.logarithm(M + eye(M.nrows()) * self.number(r), "a term")
        own, change = inner(M, K), self.change(M, r, K, away)
        return above(own) + change if largest else below(own) - change - 2 * r * M.nrows()

    def change(self, M, r, K, away):
        """Return a bound on the change of <A, L> for A within r of M, and L within a distance of K."""
        n = M.nrows()
        return n * r * above(norm(K)) + away * (above(M.trace()) + n * r)


def interval(ends):
    """Return the ends of an interval as balls."""
    return [*map(Balls.number, ends)]


def times_log(ends, b=1):
    """Return an upper bound on a log(a / b), convex in a, on an interval."""
    demand(ends[0] >= 0 and b > 0, "a number of a term is outside the domain of a logarithm")
    return max((a * (a / b).log() if a > 0 else flint.arb(0) for a in ends), key=above)


NUMBERS = {  # upper bounds on functions of numbers in intervals
    "entropy of numbers": times_log,
    "relative entropy of numbers": lambda a, b: times_log(a, b[0]),
    "exponential": lambda y: y[1].exp(),
    "logistic": lambda y: (1 + y[1].exp()).log(),
    "logarithm of a sum": lambda *group: sum((y[1].exp() for y in group), flint.arb(0)).log(),
}


# --- Rows ---------------------------------------------------------------------------------------------


def implied_trace(P, b):
    """Return a bound on the trace of a matrix by single rows of nonnegative coefficients on diagonals."""
    largest, trace, place = {}, math.inf, {p: pair[0] for pair, p in P.matrices[b].items()}
    diagonal = {p for block in P.matrices for (i, j), p in block.items() if i == j}
    for relation, row in P.rows + P.given:
        for sign in (-1, 1) if relation == EQUAL else (-1,):
            entries = {p: (sign * a, e) for p, (a, e) in row.items() if p >= 0}
            if not all(p in diagonal and a >= e for p, (a, e) in entries.items()):
                continue
            supply = max(row[-1][1] - sign * row[-1][0], 0)
            own = {place[p]: Fraction(supply, a - e) for p, (a, e) in entries.items() if p in place and a > e}
            largest |= {i: min(x, largest.get(i, math.inf)) for i, x in own.items()}
            trace = min(trace, max(own.values(), default=0)) if len(own) == P.blocks[b]["n"] else trace
    return min(trace, sum(largest.values()) if len(largest) == P.blocks[b]["n"] else math.inf)


def terms(P, point, side):
    """Return what divergences, caps and soft rows add to the cost of a point, whose matrices may change."""
    lower, t, found = side == "lower", point.z[-1], []
    special = [b for b, fact in enumerate(P.blocks) if {"cap", "mu"} & fact.keys()]
    demand(t or lower or not special, "a divergence has no rays")
    if P.facts.get("terms") and not lower:
        Epigraph(P, point)
    for b in special if t else ():
        near = P.facts[side].get("near")
        own, unit = Term(P, b, near and (near[b], t)), Fraction(1, P.one * t)
        matrix = point.matrix(point.matrices[b])
        if lower:
            found.append(-own.lower(*matrix, unit / 2))
            point.matrices[b] = []
        else:
            found.append(own.upper(*matrix, unit))
    for k, (row, fact) in enumerate(zip(P.soft, P.facts["soft"], strict=True), len(P.rows + P.given)):
        own = SoftRow(P, fact, t)
        demand(not lower or k in P.facts[side]["fixed"], "a multiplier of a soft row changes")
        found.append(-own.conjugate(point.z[k]) if lower else own.penalty(*point.ends(row)))
    return sum(found) * P.one * (t or 1)


class SoftRow:
    """A row that pays a penalty, at points with the number t."""

    def __init__(self, P, fact, t):
        self.kind, weight, low, high, _ = fact
        self.t, self.one, self.w = t, P.one, Fraction(weight, P.one)
        self.low, self.high = ([Fraction(x * bool(t), P.one) for x in end] for end in (low, high))
        demand(all(end[1] >= 0 for end in (self.low, self.high) if end), "a radius is negative")
        demand(self.w >= 0, "a weight is negative")
        demand(self.kind != LOG or (low and not high), "a logarithm has other bounds than a lower one")
        self.stated = [Fraction(x, P.one) for x in low]

    def conjugate(self, v):
        """Return a lower bound on the least penalty(a) + v a of an activity a."""
        end = (self.low if v > 0 else self.high) if self.t else self.stated if v > 0 else []
        if not v and (self.kind != LOG or not self.t):
            return 0
        demand(end and (self.kind != LOG or v > 0), "a multiplier of a soft row has the wrong sign")
        demand(self.t or self.kind == LOG, "a contradiction has a soft row")
        y, ends = Fraction(v, self.t or 1), (end[0] - end[1], end[0] + end[1])
        demand(self.kind != HINGE or abs(y) <= self.w, "a multiplier is larger than the weight of its row")
        if self.kind == HINGE or not self.t:
            return min(y * b for b in ends)
        if self.kind == SQUARE:
            return min(y * b for b in ends) - y * y / (4 * self.w)
        return min(conjugate(self.kind, *map(Balls.number, (self.w, y, b))) for b in ends)

    def penalty(self, least, largest):
        """Return an upper bound on the penalty of a row whose activity is in an interval."""
        demand(self.t or self.kind in (HINGE, LOG), "a ray has a soft row")
        paid, unit = Fraction(0), self.one * (self.t or 1)
        for end, activity, sign in ((self.low, least, -1), (self.high, largest, 1)):
            if not end or not (self.t or self.kind == HINGE):
                continue
            a, b = Fraction(activity, unit), end[0] - sign * end[1]
            if self.kind == LOG:
                paid = penalty(self.kind, self.w, a, b)
            elif sign * (a - b) > 0:
                size = abs(a - b)
                own = {HINGE: self.w * size, SQUARE: self.w * size**2}.get(self.kind)
                paid = max(paid, penalty(self.kind, self.w, a, b) if own is None else own)
        return paid


def conjugate(kind, w, y, b):
    """Return a lower bound on the least penalty(a) + y a of a row with the weight w and the end b."""
    if kind == LOG:
        demand(y > 0, "a multiplier of a logarithm is not positive")
        return below(y * b + w * (1 + (y / w).log()))
    demand(b > 0, "the end of a row with a divergence is not positive")
    if kind != LOGDET_ROW:
        return below(w * b * (1 - (-y / w).exp()))
    demand(1 + y * b / w > 0, "a multiplier is outside the domain of its divergence")
    return below(w * (1 + y * b / w).log())


def penalty(kind, w, a, b):
    """Return an upper bound on a penalty with logarithms."""
    w, a, b = map(Balls.number, (w, a, b))
    demand(a > b if kind == LOG else a > 0 and b > 0, "a row is outside the domain of its penalty")
    if kind == LOG:
        return above(-w * (a - b).log())
    return above(w * (a / b - (a / b).log() - 1) if kind == LOGDET_ROW else w * (a * (a / b).log() - a + b))
