r"""Find the faces of the cone that the rows of a certificate leave, in exact arithmetic.

It needs `bregopt_check.py` beside it, which calls it. If F = A*(w) is psd for multipliers w of rows, and the
ends of the rows say <F, X> <= 0, then F X = 0 for every psd X that meets them (Borwein and Wolkowicz 1981).
Three kinds of rows show it:

- z'X z <= 0;
- a sum of diagonal entries with positive coefficients that is at most zero;
- equalities with weights w, w'b = 0, whose sum is F = T S T' with a positive definite S.

Then X T = 0, with T = z in the first case. Where some rows of T are those of the identity, the entries of X
there follow from the others: X = H M H', and rows and costs are those of the smaller M. Some equalities may
be combinations of others then, which elimination decides.
"""

from fractions import Fraction
from itertools import product
from operator import mul

from bregopt_check import HARD, demand, implied_traces, is_psd, least_eigenvalue, near_nothing


def on_faces(P, lists, facts):
    """Replace matrices X with X T = 0 by their other entries; return bounds on the traces of these."""
    traces = implied_traces(P)
    for b, (T, units) in enumerate(exposed(P, lists, facts) if "exposing" in lists else ()):
        restrict(P, b, T, units)
        traces = list(map(min, traces, implied_traces(P)))
    for b, fact in enumerate(facts["blocks"]):
        k, z = fact.get("null"), [int(x) for x in lists.get(f"null{b}", [])]
        if z:
            alone = P.rows[k] == {} and P.ends[k] == (0, 0, 0, 0) and P.kinds[k] == HARD
            alone = alone and sum(other.get("null") == k for other in facts["blocks"]) == 1
            demand(alone and len(z) == P.orders[b] and {*z} <= {-1, 0, 1} != {0}, f"row {k} is not z'X z = 0")
        while near_nothing(fact):
            k, z = (k, z) if z else null_row(P, b)
            if not z:
                break
            last = max(i for i, x in enumerate(z) if x)
            restrict(P, b, [[x * z[last]] for x in z], [last])
            if k is not None:
                P.rows[k], P.ends[k] = {}, (None, None, 0, 0)
            traces, z = list(map(min, traces, implied_traces(P))), []
    return traces


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

    P.rows, P.cost, P.orders[b] = list(map(folded, P.rows)), folded(P.cost), len(others)


def null_row(P, b):
    """Return a row of the matrix b that implies X z = 0, and z: z'X z <= 0, or some X_ii of a sum of them.

    The row is None where it says more than that.
    """
    for k, (row, (lo, hi, *wide)) in enumerate(zip(P.rows, P.ends, strict=True)):
        own = sorted((i, j, a if i == j else Fraction(a, 2)) for (at, i, j), (a, _) in row.items() if at == b)
        exact = not any(wide) and not any(e for _, e in row.values()) and P.kinds[k] == HARD
        if not (own and len(own) == len(row) and exact and P.orders[b] > 1):
            continue
        first, second, pivot = own[0]
        if first != second or not pivot or (hi if pivot > 0 else lo) != 0:
            continue
        if all(i == j and pivot * a > 0 for i, j, a in own):
            return k if len(own) == 1 else None, [int(i == first) for i in range(P.orders[b])]
        z = {j: Fraction(a, pivot) for i, j, a in own if i == first}
        size = len({i for entry in own for i in entry[:2]})
        products = all(a == pivot * z.get(i, 0) * z.get(j, 0) for i, j, a in own)
        if products and len(own) == size * (size + 1) // 2:
            last = z[max(j for j, x in z.items() if x)]
            return k, [z.get(i, 0) / last for i in range(P.orders[b])]
    return None, None


def exposed(P, lists, facts):
    """Return T of each matrix, and its rows that are those of the identity.

    Equalities with weights w, w'b = 0, have the sum A*(w) = T S T' with a definite S.
    """
    W, total = [{} for _ in P.orders], 0
    for k, w in enumerate(P.sums(lists["exposing"], len(P.rows))):
        lo, hi, *wide = P.ends[k]
        exact = lo == hi is not None and not any(wide) and P.kinds[k] == HARD
        demand(not w or exact, "a face is not of equalities")
        total += w * lo if w else 0
        for (b, i, j), (a, e) in P.rows[k].items() if w else ():
            demand(b >= 0 and not e, "a row of a face has a variable, or a radius")
            for q in {(i, j), (j, i)}:
                W[b][q] = W[b].get(q, 0) + w * a * (2 if i == j else 1)
    demand(total == 0, "the rows imply no face")
    found = []
    for b, n in enumerate(P.orders):
        flat = list(map(int, lists[f"face{b}"]))
        d = len(flat) // n
        T = [flat[i * d : (i + 1) * d] for i in range(n)]
        units = [next((i for i in range(n) if T[i] == [k == c for k in range(d)]), None) for c in range(d)]
        demand(None not in units and len(flat) == d * n, "a face has no rows of the identity")
        demand(not d or near_nothing(facts["blocks"][b]), "a face is of a matrix with a divergence or a cap")
        S = [[W[b].get((i, j), 0) for j in units] for i in units]
        half = [[sum(map(mul, row, column)) for column in S] for row in T]
        whole = all(sum(map(mul, half[i], T[j])) == W[b].get((i, j), 0) for i in range(n) for j in range(n))
        definite = not d or least_eigenvalue(S, 2 * P.bits + 1) > 0 or is_psd(S, 1)
        demand(whole and definite, "the rows imply no such face")
        found.append((T, units))
    return found


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
