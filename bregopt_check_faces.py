r"""Restrict the problem of a certificate to the face of the cone that its rows leave, in exact arithmetic.

It needs `bregopt_check.py` beside it, which calls it. If F = A*(w) is psd for multipliers w of rows, and the
ends of the rows say <F, X> <= 0, then F X = 0 for every psd X that meets them (Borwein and Wolkowicz 1981).
The file names w, and T with F = T S T' and a definite S, up to entries on the diagonal that are not negative.
So X T = 0. Where some rows of T are those of the identity, the entries of X there follow from the others: X =
H M H', and rows and costs are those of the smaller M. A face may have a further face, which is the next one
in the file. Some equalities may be combinations of others then, which elimination decides.
"""

from fractions import Fraction
from itertools import islice, product
from operator import mul

from bregopt_check import HARD, demand, is_psd, least_eigenvalue


def reduce(P):
    """Restrict a problem to the faces that its file names, one after the other."""
    for b, block in enumerate(P.blocks):
        if "null" in block:  # the row z'X z, of which the file lists z
            z, known = [int(v) for v in P.lists[f"null{b}"]], block["null"] in range(len(P.rows))
            row = P.rows[block["null"]] if known else {None: None}
            pairs = [(i, j) for j in range(len(z)) for i in range(j + 1) if z[i] and z[j]]
            right = len(z) == P.orders[b] and z == P.lists[f"null{b}"] and not row
            demand(right, f"the row of null{b} has other coefficients")
            row |= {(b, i, j): (z[i] * z[j] * P.one * (1 + (i < j)), 0) for i, j in pairs}
            P.cost = dict.fromkeys(row, (0, 0)) | P.cost
    for w, directions in faces(P):
        restricted = {}
        for b, ((T, units), F) in enumerate(zip(directions, combination(P, w), strict=True)):
            plain = not {"cap", "mu"} & P.blocks[b].keys()
            demand(not units or plain, "a face is of a matrix with a divergence or a cap")
            S = [[F.get((min(i, j), max(i, j)), 0) for j in units] for i in units]
            half = [[sum(map(mul, t, column)) for column in S] for t in T]
            for i, j in product(range(len(T)), range(len(T))):
                rest = F.get((i, j), 0) - sum(map(mul, half[i], T[j])) if i <= j else 0
                demand(rest == 0 or (i == j and rest > 0), "the rows imply no such face")
            definite = not units or least_eigenvalue(S, 2 * P.bits + 1) > 0 or is_psd(S, 1)
            demand(definite, "the rows imply no such face")
            restricted |= {b: (T, units)} if units else {}
        for b, own in restricted.items():
            restrict(P, b, *own)


def faces(P):
    """Yield multipliers of rows, in units, and for each matrix T and its rows that are the identity's."""

    def direction(flat, n, order):
        width = len(flat) // max(n, 1)
        T = [[int(x) if x == int(x) else Fraction(x) for x in flat[i * width :][:width]] for i in range(n)]
        rows = [[int(c == k) for c in range(width)] for k in range(width)]
        units = [next((i for i in range(n)[::order] if T[i] == row), None) for row in rows]
        demand(None not in units and len(flat) == width * n, "a face has no rows of the identity")
        return T, units

    if "exposing" in P.lists:
        w = {k: v for k, v in enumerate(P.sums("exposing", len(P.rows))) if v}
        yield w, [direction(P.lists[f"face{b}"], n, 1) for b, n in enumerate(P.orders)]
    rows = P.index("faces_row", None, 0, len(P.rows) - 1)
    signs, blocks = P.index("faces_sign", None, -1, 1), P.index("faces_block", None, 0, len(P.orders) - 1)
    numbers = iter(P.lists["faces_z"])
    for k, sign, own in zip(rows, signs, blocks, strict=True):
        z = list(islice(numbers, P.orders[own]))
        yield {k: sign * P.one}, [direction(z if b == own else [], n, -1) for b, n in enumerate(P.orders)]


def combination(P, w):
    """Return twice the matrices of A*(w), of which rows say that <A*(w), X> <= 0."""
    found, supply = [{} for _ in P.orders], 0
    for k, v in w.items():
        lo, hi, *wide = P.ends[k]
        end = hi if v > 0 else lo
        demand(end is not None and not any(wide) and P.kinds[k] == HARD, "a face is of rows without an end")
        supply += v * end
        for (b, i, j), (a, e) in P.rows[k].items():
            demand(b >= 0 and not e, "a row of a face has a variable, or a radius")
            found[b][i, j] = found[b].get((i, j), 0) + v * a * (2 if i == j else 1)
    demand(supply <= 0, "the rows imply no face")
    return found


def restrict(P, b, T, units):
    """Replace a matrix X with X T = 0 by M, its entries outside the rows of T that are those of the identity.

    X = H M H': the rows of H are those of the identity too, or less the others of T.
    """
    others = [i for i in range(P.orders[b]) if i not in units]
    H = {i: {k: 1} for k, i in enumerate(others)}
    H |= {i: {k: -T[o][c] for k, o in enumerate(others) if T[o][c]} for c, i in enumerate(units)}

    def folded(row):
        found = {p: own for p, own in row.items() if p[0] != b}
        for p in row.keys() - found.keys():
            a, e = row[p]
            for (i, g), (j, h) in product(H[p[1]].items(), H[p[2]].items()):
                q = b, min(i, j), max(i, j)
                v, r = found.get(q, (0, 0))
                found[q] = v + a * g * h, r + e * abs(g * h)
        demand(all(x.denominator == 1 for own in found.values() for x in own), "a face has too many digits")
        return {p: (int(v), int(r)) for p, (v, r) in found.items()}

    P.rows = [{p: own for p, own in folded(row).items() if any(own)} for row in P.rows]
    P.cost, P.orders[b] = folded(P.cost), len(others)


def consequences(P, ends, solving):
    """Return the equalities that solved ones imply, by elimination in fractions."""
    basis, found = {}, set()
    for k in sorted(range(len(P.rows)), key=lambda k: k not in solving):
        lo, hi, *wide = ends[k]
        exact = lo == hi is not None and not any(wide) and P.kinds[k] == HARD
        if not exact or any(e for _, e in P.rows[k].values()):
            continue
        row = {p: Fraction(a) for p, (a, _) in P.rows[k].items() if a} | {None: Fraction(lo)}
        for p, other in basis.items():
            factor = row.get(p, 0)
            for q, a in other.items() if factor else ():
                row[q] = row.get(q, 0) - factor * a
        row = {p: a for p, a in row.items() if a}
        if not row:
            found.add(k)
        elif k in solving and {*row} != {None}:
            p = next(p for p in row if p is not None)
            basis[p] = {q: a / row[p] for q, a in row.items()}
    return found
