r"""Restrict the problem of a certificate to the face of the cone that its rows leave, in exact arithmetic.

It needs `bregopt_check.py` beside it, which calls it. If F = A*(w) is psd for multipliers w of rows, and the
ends of the rows say <F, X> <= 0, then F X = 0 for every psd X that meets them (Borwein and Wolkowicz 1981).
The file names w, and T with F = T S T' and a definite S, up to entries on the diagonal that are not negative.
So X T = 0. Where some rows of T are those of the identity, the entries of X there follow from the others: X =
H M H', and rows and costs are those of the smaller M. A face may have a further face, which is the next one
in the file. Some equalities may be combinations of others then, which elimination decides.
"""

from fractions import Fraction
from functools import cache
from itertools import product
from operator import mul

from bregopt_check import EQUAL, demand, has_factor, is_psd


def restrict(P):
    """Restrict a problem to the faces that its statement names, one after the other."""
    for weights, stated in P.facts["faces"]:
        F, named = combination(P, weights), {b: own for b, *own in stated}
        demand(all(0 <= b < len(P.matrices) for b in named), "a face is of no matrix")
        for b, block in enumerate(P.matrices):
            indices = [i for i, j in block if i == j]
            units, T = named.get(b, ([], [[]] * len(indices)))
            demand(not units or len(P.blocks[b]) == 2, "a face is of a matrix with a divergence or a cap")
            T = dict(zip(indices, T, strict=True))
            identity = [[P.one * (c == k) for c in range(len(units))] for k in range(len(units))]
            demand([T[i] for i in units] == identity, "a face has no rows of the identity")
            S = [[F.get(block[min(i, j), max(i, j)], 0) for j in units] for i in units]
            half = {i: [sum(map(mul, row, column)) for column in S] for i, row in T.items()}
            for (i, j), p in block.items():
                rest = (F.get(p, 0) << 2 * P.bits) - sum(map(mul, half[i], T[j]))
                demand(rest == 0 or (i == j and rest > 0), "the rows imply no such face")
            definite = not units or has_factor(S) or is_psd(S, 1)
            demand(definite, "the rows imply no such face")
        for b, (units, T) in named.items():
            eliminate(P, b, units, T)


def combination(P, weights):
    """Return twice the matrices of A*(w), by unknowns, of which rows say that <A*(w), X> <= 0."""
    found = {}
    for k, w in weights:
        relation, row = P.rows[k]
        demand(k >= 0 and (relation == EQUAL or w <= 0), "a face is of rows without an end")
        for p, (a, e) in row.items():
            demand(not e, "a row of a face has a radius")
            found[p] = found.get(p, 0) + w * a
    demand(found.pop(-1, 0) >= 0, "the rows imply no face")
    diagonal = {p: i == j for block in P.matrices for (i, j), p in block.items()}
    demand(all(p in diagonal for p, a in found.items() if a), "a row of a face has a variable")
    return {p: a * (1 + diagonal[p]) for p, a in found.items() if a}


def eliminate(P, b, units, T):
    """Replace a matrix X with X T = 0 by M, its entries outside the rows of T that are those of the identity.

    X = H M H': the rows of H are those of the identity too, or less the others of T.
    """
    block = P.matrices[b]
    rows = dict(zip([i for i, j in block if i == j], T, strict=True))
    H = {i: {i: P.one} for i in rows if i not in units}
    H |= {i: {o: -rows[o][c] for o in H if rows[o][c]} for c, i in enumerate(units)}
    kept = {pair: p for pair, p in block.items() if not {*pair} & {*units}}
    places = {p: pair for pair, p in block.items()}

    def folded(row):
        found = {}
        for p, (a, e) in row.items():
            if p not in places:
                found[p] = a << 2 * P.bits, e << 2 * P.bits
                continue
            i, j = places[p]
            for (k, g), (m, h) in product(H[i].items(), H[j].items()):
                q = kept[min(k, m), max(k, m)]
                v, r = found.get(q, (0, 0))
                found[q] = v + a * g * h, r + e * abs(g * h)
        demand(not any(x % P.one**2 for own in found.values() for x in own), "a face has too many digits")
        return {p: (v >> 2 * P.bits, r >> 2 * P.bits) for p, (v, r) in found.items() if v or r}

    for rows in (P.rows, P.given):
        rows[:] = [(relation, {-1: (0, 0)} | folded(row)) for relation, row in rows]
    P.cost, P.soft, P.matrices[b] = folded(P.cost), [folded(row) for row in P.soft], kept


@cache
def implied(point):
    """Return the rows of a point that vanish where solved ones do, by elimination in fractions."""
    rows, solved, basis, found = point.rows, point.solved, {}, set()
    for k in sorted(range(len(rows)), key=lambda k: k not in solved):
        if (k not in solved and rows[k][0] != EQUAL) or any(e for _, e in rows[k][1].values()):
            continue
        row = {p: Fraction(a) for p, (a, _) in rows[k][1].items() if a}
        for p, other in basis.items():
            factor = row.get(p, 0)
            for q, a in other.items() if factor else ():
                row[q] = row.get(q, 0) - factor * a
        row = {p: a for p, a in row.items() if a}
        if not row:
            found.add(k)
        elif k in solved and {*row} != {-1}:
            p = next(p for p in row if p != -1)
            basis[p] = {q: a / row[p] for q, a in row.items()}
    return found
