r"""Check that no cut of a graph is better than a file says, in exact arithmetic, by the standard library.

    python bregopt_check_cuts.py FILE.npz ...

It needs `bregopt_check.py` beside it. A file states a graph, a cut of it, and for each piece of the graph the
leaves of a tree. At each branching two vertices are on one side or on two, so that the leaves hold all cuts.

Pieces. The best side of a vertex with at most three neighbors depends on their sides alone: edges between
them take its place, up to a constant. The edges of blocks are no edges of others, so the largest cuts of all
blocks add up to a bound. A balanced cut is a largest cut of another graph, whose penalty is zero for it.

Leaves. The cuts of a leaf have x_i = s_i u_g for the vertices i of a group g, with signs s and u.
- Few groups: all cuts are compared.
- Clique rows. An odd number of signs has a sum of at least 1, so that b'xx'b >= 1. With multipliers z >= 0
  and any y, the cut is at most e'y + sum_t z_t (|b_t|^2 - 1) / 2 + half of all weights + u'Mu, and u'Mu at
  most the order of M times its largest eigenvalue.
- Rows of pairs and triples, for k parts of given sizes. X_ij is 1 in one part and -1/(k-1) else, so that
  X_ij >= -1/(k-1) and X_ij + X_im - X_jm <= 1, and the sizes fix e'Xe. A branch puts two vertices in one part
  or apart; the row of a pair that is apart is an equation, and its multiplier has any sign.
- Cycle rows. A closed walk changes sides an even number of times: if F is an odd set of its edges, then
  x(F) - x(C \ F) <= |F| - 1. What multipliers z >= 0 leave of the weights counts where it is positive.

All numbers are fractions, or integers in units of a power of two.
"""

import math
import sys
from bisect import bisect_left
from fractions import Fraction
from itertools import pairwise

import bregopt_check
from bregopt_check import CUT, demand, has_factor, read

COMPARED = 14  # groups up to which all cuts are compared
LARGEST = 2_000  # vertices of a balanced cut, which makes a complete graph
LARGEST_DIVISOR = 1_000  # of ratios of weights
LABELINGS = 2**13  # partitions up to which all are compared
CLIQUE = 7  # vertices of a row
SIGMA_BITS = 6  # of the penalty


# --- The graph and its pieces -------------------------------------------------------------------------


class Graph:
    """The graph and the cut of a file, and its pieces.

    A piece is a list of vertices and a dictionary from pairs of their places to weights.
    """

    def __init__(self, facts):
        self.n, self.difference, side = facts["vertices"], facts["difference"], facts["side"]
        self.parts = facts.get("sizes", [])
        self.largest = self.difference < 0 and not self.parts
        ends, weights = list(zip(facts["i"], facts["j"], strict=True)), list(map(Fraction, facts["weights"]))
        right = all(0 <= i < j < self.n for i, j in ends) and len(set(ends)) == len(ends)
        demand(right and len(side) == self.n, "its edges or sides are damaged")
        demand(self.largest or min(weights, default=0) >= 0, "a weight is negative")
        self.edges = dict(zip(ends, weights, strict=True))
        self.cut = cut_of(self.edges, side)
        self.weights, self.constant, self.pieces = [w for w in weights if w], Fraction(0), []
        shared = math.lcm(*(w.denominator for w in self.weights))
        self.unit = Fraction(math.gcd(*(int(w * shared) for w in self.weights)) or 1, shared)
        if self.parts:
            demand(sum(self.parts) == self.n and min(self.parts) > 0, "its sizes are damaged")
            sizes = sorted(map(side.count, range(len(self.parts))))
            demand(len(sizes) > 2 and sizes == sorted(self.parts), "the parts have other sizes")
            self.pieces.append((list(range(self.n)), {edge: -w for edge, w in self.edges.items()}))
        elif self.largest:
            near = {v: {} for v in range(self.n)}
            for (i, j), w in self.edges.items():
                join(near, i, j, w)
            self.constant = self.reduce(near)
        else:
            demand(self.n <= LARGEST, "only bregopt checks balanced cuts of so many vertices")
            demand(abs(sum(side)) == self.difference, "the sides have other sizes")
            self.constant, near = self.penalty()
            self.pieces.append(piece(near))
            side = [*side, 1 if sum(side) > 0 else -1]
        demand(self.parts or {*side} <= {1, -1}, "its sides are damaged")
        self.own = [cut_of(edges, [side[v] for v in vertices]) for vertices, edges in self.pieces]

    def reduce(self, near):
        """Add the pieces of a graph; return the constant."""
        constant, waiting = Fraction(0), [v for v in near if len(near[v]) <= 3]
        while waiting:
            v = waiting.pop()
            if v not in near or len(near[v]) > 3:
                continue
            own = near.pop(v)
            for u in own:
                del near[u][v]
            constant += replaced(near, own)
            waiting += [u for u in own if len(near[u]) <= 3]
        found = blocks(near)
        if len(found) == 1 and len(found[0]) == len(near):
            self.pieces.append(piece(near))
        else:
            for block in found:
                constant += self.reduce({v: {u: near[v][u] for u in near[v] if u in block} for v in block})
        return constant

    def near_unit(self):
        """Return a number of which the weights are nearly multiples, and how far sums of them may be off."""
        least = min(map(abs, self.weights))
        ratios = [(abs(w) / least).limit_denominator(LARGEST_DIVISOR) for w in self.weights]
        shared = math.lcm(*(ratio.denominator for ratio in ratios))
        unit = least * math.gcd(*(int(ratio * shared) for ratio in ratios)) / shared
        return unit, sum(abs(abs(w) - round(abs(w) / unit) * unit) for w in self.weights)

    def penalty(self):
        """Return the constant and the graph whose cuts have the values of balanced cuts, less a penalty."""
        n, d = self.n, self.difference
        sigma = sum(self.edges.values(), Fraction(0)) / (n - d + 2)
        unit = Fraction(2) ** (math.frexp(float(sigma))[1] - SIGMA_BITS)
        sigma = math.ceil(sigma / unit) * unit or Fraction(1)
        near = {v: {} for v in range(n + (d > 0))}
        for i in range(n):
            for j in range(i + 1, n):
                join(near, i, j, 4 * sigma - self.edges.get((i, j), 0))
            if d:
                join(near, i, n, -4 * sigma * d)
        return -sigma * (n - d) ** 2, near


def cut_of(edges, side):
    """Return the weight of the edges between different sides."""
    return sum((w for (i, j), w in edges.items() if side[i] != side[j]), Fraction(0))


def join(near, a, b, weight):
    """Add a weight to an edge, which vanishes where it is zero then."""
    total = near[a].get(b, Fraction(0)) + weight
    if total:
        near[a][b] = near[b][a] = total
    else:
        near[a].pop(b, None)
        near[b].pop(a, None)


def replaced(near, own):
    """Add the edges that take the place of a vertex with these neighbors; return the constant."""
    ends, w = list(own), list(own.values())
    whole = sum(w, Fraction(0))
    alike = max(Fraction(0), whole)
    if len(ends) == 2:
        join(near, *ends, max(w) - alike)
    if len(ends) == 3:
        apart = [max(one, whole - one) - alike for one in w]  # where one neighbor is alone
        for k in range(3):
            join(near, ends[k], ends[k - 1], (apart[k] + apart[k - 1] - apart[k - 2]) / 2)
    return alike


def blocks(near):
    """Return the blocks of a graph, sets of vertices, by depth-first search, those found last first."""
    found, number, low = [], {}, {}
    for root in near:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack, edges = [(root, -1, iter(near[root]))], []
        while stack:
            v, parent, rest = stack[-1]
            u = next(rest, None)
            if u is None:
                stack.pop()
                if parent < 0:
                    continue
                low[parent] = min(low[parent], low[v])
                if low[v] >= number[parent]:
                    first = edges.index((parent, v))
                    found.append({end for edge in edges[first:] for end in edge})
                    del edges[first:]
            elif u not in number:
                number[u] = low[u] = len(number)
                edges.append((v, u))
                stack.append((u, v, iter(near[u])))
            elif u != parent and number[u] < number[v]:
                low[v] = min(low[v], number[u])
                edges.append((v, u))
    return found[::-1]


def piece(near):
    """Return a graph as a piece, with its edges in ascending order."""
    vertices = sorted(near)
    place = {v: k for k, v in enumerate(vertices)}
    edges = {(place[v], place[u]): near[v][u] for v in vertices for u in sorted(near[v]) if v < u}
    return vertices, edges


# --- Trees and leaves ---------------------------------------------------------------------------------


def parts(values, starts, width=1):
    """Return the parts of a list, of rows of a width, that begin at some places."""
    demand(
        starts[0] == 0 and starts == sorted(starts) and starts[-1] * width == len(values), "a tree is damaged"
    )
    return [values[a * width : b * width] for a, b in pairwise(starts)]


def tree_bound(facts, kind, number, n, edges, sizes):
    """Return a bound on all cuts of a piece, in units of its weights."""
    demand((kind == "triples") == bool(sizes), "a tree has rows of another problem")

    def own(name):
        return facts[f"{name}{number}"]

    paths = [
        list(zip(p[::3], p[1::3], p[2::3], strict=True)) for p in parts(own("path"), own("path_start"), 3)
    ]
    cover(paths)
    largest = max(map(abs, edges.values()), default=Fraction(1))
    scale = Fraction(2) ** -math.frexp(float(largest))[1]
    weights = {edge: w * scale for edge, w in edges.items()}
    z = parts([Fraction(x) for x in own("z")], own("row_start"))
    demand(len(z) == len(paths), "a tree is damaged")
    if kind == "triples":
        demand(all(z), "a tree is damaged")
        starts = [a - k for k, a in enumerate(own("row_start"))]
        pairs = list(zip(own("vertices"), own("signs"), strict=True))
        leaves = zip(
            paths, parts(pairs, starts, 3), z, parts(own("y"), list(range(len(z) + 1)), n), strict=True
        )
        return max(parts_bound(n, weights, sizes, *leaf) for leaf in leaves) / scale
    demand(all(x >= 0 for row in z for x in row), "a multiplier is negative")
    if kind == "cliques":
        pairs = list(zip(own("support"), own("sign"), strict=True))
        rows = parts(pairs, own("row_start"), CLIQUE)
        y = [[Fraction(x) for x in own("y")[k * n : (k + 1) * n]] for k in range(len(paths))]
    else:
        steps = list(zip(own("edge"), own("back"), own("odd"), strict=True))
        rows = parts(parts(steps, own("walk_start")), own("row_start"))
        y = [None] * len(paths)
    leaves = (leaf_bound(n, weights, *leaf) for leaf in zip(paths, rows, z, y, strict=True))
    return max(leaves) / scale


def cover(paths):
    """Refuse paths that are not those of all leaves of a binary tree."""
    waiting = [(paths, 0)]
    while waiting:
        own, depth = waiting.pop()
        if len(own) == 1 and len(own[0]) == depth:
            continue
        demand(own and all(len(path) > depth for path in own), "the leaves are those of no tree")
        demand(len({path[depth][:2] for path in own}) == 1, "the leaves branch at different pairs")
        for sign in (1, -1):
            side = [path for path in own if path[depth][2] == sign]
            demand(side, "a branch has leaves on one side only")
            waiting.append((side, depth + 1))
        demand({path[depth][2] for path in own} == {1, -1}, "a branch has another sign")


def leaf_bound(n, weights, path, rows, z, y):
    """Return a bound on the cuts of a leaf."""
    group, sign = list(range(n)), [1] * n
    for i, j, s in path:
        demand(0 <= i < n and 0 <= j < n and group[i] != group[j], "a path joins two vertices twice")
        low, high = sorted((group[i], group[j]))
        turn = s * sign[i] * sign[j]
        for v in range(n):
            if group[v] == high:
                group[v], sign[v] = low, sign[v] * turn
    place = {g: k for k, g in enumerate(sorted(set(group)))}
    group, m = [place[g] for g in group], len(place)
    if m <= COMPARED:
        return compared(m, weights, group, sign)
    if y is None:
        return cycle_bound(weights, rows, z, group, sign)
    return clique_bound(m, weights, rows, z, y, group, sign)


def compared(m, weights, group, sign):
    """Return the largest cut of few groups, by changes of one sign at a time."""
    W, value = [[Fraction(0)] * m for _ in range(m)], Fraction(0)
    for (i, j), w in weights.items():
        turn, g, h = sign[i] * sign[j], group[i], group[j]
        value += w if turn < 0 else 0
        if g != h:
            W[g][h] += turn * w
            W[h][g] += turn * w
    u, best = [1] * m, value
    for step in range(1, 1 << (m - 1)):
        g = (step & -step).bit_length() - 1  # of Gray's code
        value += sum(u[g] * s * w for s, w in zip(u, W[g], strict=True))
        u[g] = -u[g]
        best = max(best, value)
    return best


def clique_bound(m, weights, rows, z, y, group, sign):
    """Return the bound of clique rows: a sum, and an eigenvalue."""
    demand(len(y) == len(group), "a tree is damaged")
    M, total = [[Fraction(0)] * m for _ in range(m)], sum(y, Fraction(0)) + sum(weights.values()) / 2

    def add(i, j, x):
        M[group[i]][group[j]] += sign[i] * sign[j] * x
        M[group[j]][group[i]] += sign[i] * sign[j] * x

    for (i, j), w in weights.items():
        add(i, j, -w / 4)
    for v, x in enumerate(y):
        M[group[v]][group[v]] -= x
    for k, x in enumerate(z):
        b = [(v, s) for v, s in rows[k * CLIQUE : (k + 1) * CLIQUE] if s]
        demand(all(0 <= v < len(group) and abs(s) == 1 for v, s in b), "a clique row is damaged")
        demand(len(b) % 2 and len({v for v, _ in b}) == len(b), "a clique row has an even number of vertices")
        total += x * (len(b) - 1) / 2
        for a, (i, s) in enumerate(b):
            for j, t in b[a + 1 :]:
                add(i, j, s * t * x / 2)
    return total - m * least_of(M)


def cycle_bound(weights, rows, z, group, sign):
    """Return the bound of cycle rows: what multipliers leave of the weights, where it is positive."""
    left, total, edges = dict(weights), Fraction(0), list(weights)
    for walk, x in zip(rows, z, strict=True):
        demand(walk and all(0 <= e < len(edges) for e, _, _ in walk), "a cycle row is damaged")
        ends = [(edges[e][1 if back else 0], edges[e][0 if back else 1]) for e, back, _ in walk]
        changes = sum(bool(odd) for _, _, odd in walk)
        for (_, head), (tail, _) in zip(ends, [*ends[1:], ends[0]], strict=True):
            demand(group[head] == group[tail], "a cycle row is no closed walk")
            changes += sign[head] != sign[tail]
        demand(changes % 2, "a cycle row has an even set of edges")
        total += x * (sum(bool(odd) for _, _, odd in walk) - 1)
        for e, _, odd in walk:
            left[edges[e]] -= x if odd else -x
    between = {}
    for (i, j), w in left.items():
        turn, pair = sign[i] * sign[j], tuple(sorted((group[i], group[j])))
        total += w if turn < 0 else 0
        if group[i] != group[j]:
            between[pair] = between.get(pair, Fraction(0)) + turn * w
    return total + sum(max(w, 0) for w in between.values())


def parts_bound(n, weights, sizes, path, rows, z, y):
    """Return a bound on what partitions of a leaf have, weights less than zero; minus infinity for none."""
    group = list(range(n))
    for i, j, s in path:
        demand(0 <= i < n and 0 <= j < n, "a path is damaged")
        if s > 0:
            demand(group[i] != group[j], "a path joins two vertices twice")
            low, high = sorted((group[i], group[j]))
            group = [low if g == high else g for g in group]
    place = {g: a for a, g in enumerate(sorted(set(group)))}
    group, m, k = [place[g] for g in group], len(place), len(sizes)
    apart = {tuple(sorted((group[i], group[j]))) for i, j, s in path if s < 0}
    share = [group.count(g) for g in range(m)]
    if any(g == h for g, h in apart) or max(share) > max(sizes):
        return -math.inf
    between = {}
    for (i, j), w in weights.items():
        pair = tuple(sorted((group[i], group[j])))
        between[pair] = between.get(pair, 0) + w
    few = partitions(share, sizes, apart)
    if few is not None:
        cuts = (sum(w for (g, h), w in between.items() if part[g] != part[h]) for part in few)
        return max(cuts, default=-math.inf)
    M = [[Fraction(0)] * m for _ in range(m)]  # k times the matrix, whose entries have finitely many digits

    def add(g, h, x):
        M[g][h] += x * k / 2
        M[h][g] += x * k / 2

    factor = Fraction(k - 1, k)
    total = sum(map(Fraction, y), Fraction(0)) + factor * sum(weights.values())
    for (g, h), w in between.items():
        add(g, h, -factor * w)
    for v, x in enumerate(y):
        M[group[v]][group[v]] -= k * Fraction(x)
    balance = z[0] / 2 ** n.bit_length()
    for g in range(m):
        for h in range(g, m):
            add(g, h, balance * (1 + (g < h)) * share[g] * share[h])
    total -= balance * Fraction(k * sum(s * s for s in sizes) - n * n, k - 1)
    demand(len(rows) == 3 * (len(z) - 1), "a tree is damaged")
    for t, x in enumerate(z[1:]):
        (i, a), (j, b), (v, c) = rows[3 * t : 3 * t + 3]
        demand(0 <= i < j <= v < n, "a row of triples is damaged")
        if j == v:
            demand((a, b, c) == (1, 0, 0), "a row of a pair is damaged")
            free = tuple(sorted((group[i], group[j]))) in apart
            total += x / (k - 1)
        else:
            demand(sorted((a, b, c)) == [-1, -1, 1], "a row does not hold for all partitions")
            free = False
            total += x
        demand(free or x >= 0, "a multiplier is negative")
        for (p, q), sign in (((i, j), a), ((i, v), b), ((j, v), c)):
            if sign:
                add(group[p], group[q], x * sign)
    return total - m * Fraction(least_of(M)) / k


def partitions(share, sizes, apart):
    """Return all numberings of groups by parts of these sizes, or None for many."""
    found, k = [([], [0] * len(sizes))], len(sizes)
    for g, size in enumerate(share):
        longer = []
        for part, used in found:
            for p in range(min(sum(map(bool, used)) + 1, k)):
                free = all(part[h] != p for h in range(g) if (h, g) in apart)
                if free and used[p] + size <= max(sizes):
                    longer.append(([*part, p], [u + size * (q == p) for q, u in enumerate(used)]))
        if len(longer) > LABELINGS:
            return None
        found = longer
    return [part for part, used in found if sorted(used) == sorted(sizes)]


def least_of(M):
    """Return a proven bound below the eigenvalues of ``-M``."""
    bits = max(x.denominator.bit_length() for row in M for x in row) + 64
    W = [[-x * (1 << bits) for x in row] for row in M]
    whole = all(x.denominator == 1 for row in W for x in row)
    demand(whole, "a weight has no finite number of binary digits")
    W = [[int(x) for x in row] for row in W]
    return Fraction(least_eigenvalue(W), 1 << bits)


def least_eigenvalue(W):
    """Return a lower bound on the eigenvalues of a matrix, nearly the largest one."""
    powers = range(64 * max(sum(map(abs, row)) for row in W).bit_length() + 64)

    def power(k):
        return (64 + k % 64 << k // 64 >> 6) - 1

    if has_factor(W):
        return power(bisect_left(powers, True, key=lambda k: not has_factor(W, power(k))) - 1)
    return -power(bisect_left(powers, True, key=lambda k: has_factor(W, -power(k))))


# --- Statements ---------------------------------------------------------------------------------------


def checked(path, facts=None):
    """Print what a file proves; return whether that is all it states."""
    facts = facts or read(path)
    demand(facts["format"] == CUT, f"it has the format {facts['format']!r}, not {CUT!r}")
    graph = Graph(facts)
    demand(
        len(facts["trees"]) == len(graph.pieces), "it has another number of trees than the graph has pieces"
    )
    total = graph.constant
    for k, (fact, (vertices, edges), own) in enumerate(
        zip(facts["trees"], graph.pieces, graph.own, strict=True)
    ):
        bound = tree_bound(facts, fact["kind"], k, len(vertices), edges, graph.parts)
        demand(bound >= own, "the leaves prove less than the cut of the file")
        total += own if bound < own + graph.unit else bound  # cuts differ by multiples of the unit
    least = "no cut weighs more" if graph.largest else "no cut of these sizes weighs less"
    total = total if graph.largest else max(-total, Fraction(0))  # their weights are none below zero
    claim = Fraction(float.fromhex(facts["claim"]))
    holds = total <= claim if graph.largest else total >= claim
    print(f"{path}: graph of {graph.n} vertices and {len(graph.edges)} edges, pieces {len(graph.pieces)}")
    print(f"  {least} than {float(claim)!r}: {'proven' if holds else f'NOT proven, but {float(total)!r}'}")
    if facts["closed"]:
        room, unit, off = abs(total - graph.cut), graph.unit, 0
        if room >= unit and graph.weights:
            unit, off = graph.near_unit()
        optimal = room < unit - 2 * off
        least = f", up to {float(2 * off):.1e}" if off else ""
        answer = f"proven{least}" if optimal else "NOT proven"
        print(f"  the cut of weight {float(graph.cut)!r} is optimal: {answer}")
        holds = holds and optimal
    return holds


def main(paths=None):
    """Print what files prove; return 0 if that is all they state, 1 if it is not, 2 if one is refused."""
    return bregopt_check.main(paths, checked, __doc__)


if __name__ == "__main__":
    sys.exit(main())
