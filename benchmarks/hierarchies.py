"""Semidefinite hierarchies and relaxations in CVXPY, each with the value that its source publishes.

    OPENBLAS_NUM_THREADS=1 python benchmarks/hierarchies.py

A cell has the CPU time of a `problem.solve` in seconds, the median over three fresh problems, or the only one
that takes more than five seconds. The error of the value follows where it is beyond the published digits.
CSDP solves the file that bregopt writes of a linear problem; its time includes starting and reading it. The
table goes to benchmarks/results/hierarchies.md.

Words of projectors bound quantum correlations (Navascues, Pironio, Acin 2008), moments bound polynomials
(Lasserre 2001), the Terwilliger algebra bounds codes (Schrijver 2005), and products of voltages bound the
cost of power (Lavaei, Low 2012).
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from itertools import combinations, product
from math import comb, cos, pi, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from relaxations import by_csdp
from textbook import WAYS

import bregopt as bo

RESULTS = Path(__file__).parent / "results" / "hierarchies.md"
ROUNDS, LONG, LIMIT = 3, 5.0, 60.0

Word = tuple[tuple[int, ...], tuple[int, ...]]


class Published(NamedTuple):
    """A problem and its value, to as many digits as the source has."""

    make: Callable[[], cp.Problem]
    value: float
    digits: float = 1e-6
    rounded: float = 0.0  # what the value may exceed the published one by: bounds on codes are rounded down

    def error(self, value: float) -> float:
        """Return the relative distance of a value from those that round to the published one."""
        off = max(self.value - value, value - self.value - self.rounded, 0.0)
        return off / max(abs(self.value), 1.0)


# --- Quantum correlations -----------------------------------------------------------------------------


def chsh() -> cp.Problem:
    """Return Tsirelson's problem, by words of one projector."""
    signs = {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): -1}
    value: dict[Word, float] = {((), ()): 0.0}
    for (a, b), sign in signs.items():  # (2 A - 1)(2 B - 1)
        for word, factor in ((((a,), (b,)), 4), (((a,), ()), -2), (((), (b,)), -2), (((), ()), 1)):
            value[word] = value.get(word, 0.0) + sign * factor
    return _bell(value, 2, level=1)


def i3322(level: int) -> cp.Problem:
    """Three measurements of two outcomes for each party (Collins, Gisin 2004)."""
    value: dict[Word, float] = {((0,), ()): -1.0, ((), (0,)): -2.0, ((), (1,)): -1.0}
    joint = [[1, 1, 1], [1, 1, -1], [1, -1, 0]]
    value |= {((a,), (b,)): float(joint[a][b]) for a, b in product(range(3), repeat=2)}
    return _bell(value, 3, level)


def _bell(value: dict[Word, float], settings: int, level: int) -> cp.Problem:
    """Return the largest value of moments of words of at most `level` projectors."""
    letters = [(party, x) for party in (0, 1) for x in range(settings)]
    words = sorted({_word(w) for k in range(level + 1) for w in product(letters, repeat=k)}, key=_key)
    moments: dict[Word, list[tuple[int, int]]] = {}
    for (i, left), (j, right) in product(enumerate(words), repeat=2):
        reverse = [(party, x) for party in (0, 1) for x in reversed(left[party])]
        straight = [(party, x) for party in (0, 1) for x in right[party]]
        word = _word((*reverse, *straight))
        mirrored = word[0][::-1], word[1][::-1]
        moments.setdefault(min(word, mirrored), []).append((i, j))
    X = cp.Variable((len(words), len(words)), PSD=True)
    rows = [X[i, j] == X[places[0]] for places in moments.values() for i, j in places[1:] if i <= j]
    objective = sum(weight * X[moments[word][0]] for word, weight in value.items())
    return cp.Problem(cp.Maximize(objective), [*rows, X[0, 0] == 1])


def _word(letters: tuple[tuple[int, int], ...]) -> Word:
    """Return the projectors of both parties, which commute; a projector is its own square."""
    own: tuple[list[int], list[int]] = ([], [])
    for party, x in letters:
        if own[party][-1:] != [x]:
            own[party].append(x)
    return tuple(own[0]), tuple(own[1])


def _key(word: Word) -> tuple[int, Word]:
    return len(word[0]) + len(word[1]), word


# --- Polynomials --------------------------------------------------------------------------------------


def cycle_cut(n: int, level: int) -> cp.Problem:
    """Bound the cuts of an odd cycle: signs with the moments of at most `level` vertices."""
    sets = [frozenset(s) for k in range(level + 1) for s in combinations(range(n), k)]
    X = cp.Variable((len(sets), len(sets)), PSD=True)
    moments: dict[frozenset[int], list[tuple[int, int]]] = {}
    for (i, a), (j, b) in product(enumerate(sets), repeat=2):
        moments.setdefault(a ^ b, []).append((i, j))
    rows = [X[i, j] == X[places[0]] for places in moments.values() for i, j in places[1:] if i <= j]
    cut = sum((1 - X[moments[frozenset({v, (v + 1) % n})][0]]) / 2 for v in range(n))
    return cp.Problem(cp.Maximize(cut), [*rows, X[0, 0] == 1])


# --- Codes --------------------------------------------------------------------------------------------


def code(n: int, d: int) -> cp.Problem:
    """Words of `n` bits with distances of at least `d`, by triples of words."""
    count: dict[tuple[int, ...], int] = {}  # orbits of triples by their distances, in any order
    orbit = {}
    for i, j in product(range(n + 1), repeat=2):
        for t in range(max(0, i + j - n), min(i, j) + 1):
            triple = tuple(sorted((i, j, i + j - 2 * t)))
            if not any(0 < distance < d for distance in triple):
                orbit[i, j, t] = count.setdefault(triple, len(count))
    x = cp.Variable(len(count))
    zero = np.zeros(len(count))

    def unit(i: int, j: int, t: int) -> np.ndarray:
        place = orbit.get((i, j, t))
        return zero if place is None else np.eye(len(count))[place]

    rows = [x[orbit[0, 0, 0]] == 1, x >= 0]
    rows += [x[place] <= unit(i, 0, 0) @ x for (i, _, _), place in orbit.items()]
    for k in range(n // 2 + 1):
        order = range(k, n - k + 1)
        inside, outside = (np.zeros((len(order), len(order), len(count))) for _ in range(2))
        for (a, i), (b, j) in product(enumerate(order), repeat=2):
            scale = sqrt(comb(n - 2 * k, i - k) * comb(n - 2 * k, j - k))
            for t in range(max(0, i + j - n), min(i, j) + 1):
                beta = _beta(n, i, j, k, t) / scale
                inside[a, b] += beta * unit(i, j, t)
                outside[a, b] += beta * (unit(i + j - 2 * t, 0, 0) - unit(i, j, t))
        for block in (inside, outside):
            form = cp.reshape(block.reshape(-1, len(count)) @ x, block.shape[:2], order="C")
            rows.append(form >> 0)
    return cp.Problem(cp.Maximize(sum(comb(n, i) * (unit(i, 0, 0) @ x) for i in range(n + 1))), rows)


def _beta(n: int, i: int, j: int, k: int, t: int) -> int:
    """Return the coefficient of block `k` (Schrijver 2005, equation 18)."""

    def choose(a: int, b: int) -> int:
        return comb(a, b) if 0 <= b <= a else 0

    return sum(
        (-1) ** (u - t)
        * choose(u, t)
        * choose(n - 2 * k, u - k)
        * choose(n - k - u, i - u)
        * choose(n - k - u, j - u)
        for u in range(n + 1)
    )


# --- Power --------------------------------------------------------------------------------------------

# Nine buses (Anderson, Fouad 1977; costs and limits of MATPOWER's case9, Zimmerman et al. 2011). A line:
# ends, resistance, reactance, charging. A generator: bus, least and largest power, costs of its square, of
# itself, and fixed. Powers are in MW; limits of flows and of reactive power are slack at the optimum.
_LINES = [
    (1, 4, 0.0, 0.0576, 0.0),
    (4, 5, 0.017, 0.092, 0.158),
    (5, 6, 0.039, 0.17, 0.358),
    (3, 6, 0.0, 0.0586, 0.0),
    (6, 7, 0.0119, 0.1008, 0.209),
    (7, 8, 0.0085, 0.072, 0.149),
    (8, 2, 0.0, 0.0625, 0.0),
    (8, 9, 0.032, 0.161, 0.306),
    (9, 4, 0.01, 0.085, 0.176),
]
_LOADS = {5: 90 + 30j, 7: 100 + 35j, 9: 125 + 50j}
_GENERATORS = [
    (1, 10, 250, 0.11, 5.0, 150.0),
    (2, 10, 300, 0.085, 1.2, 600.0),
    (3, 10, 270, 0.1225, 1.0, 335.0),
]
_BASE = 100.0  # MW


def nine_buses() -> cp.Problem:
    """Bound the cost of power, by products of voltages in place of voltages; the bound is exact here."""
    n = 9
    Y = np.zeros((n, n), dtype=complex)
    for a, b, r, x, charging in _LINES:
        y = 1 / (r + 1j * x)
        i, j = a - 1, b - 1
        Y[[i, j], [i, j]] += y + 0.5j * charging
        Y[i, j] = Y[j, i] = Y[i, j] - y
    W = cp.Variable((2 * n, 2 * n), PSD=True)  # products of real and imaginary parts
    rows, power = [], {}
    for bus in range(n):
        row = np.zeros((n, n), dtype=complex)
        row[bus] = Y[bus]
        real, imaginary = (row + row.conj().T) / 2, 1j * (row - row.conj().T) / 2
        used = [cp.trace(_real(part) @ W) for part in (real, imaginary)]
        load = _LOADS.get(bus + 1, 0j) / _BASE
        power[bus + 1] = used[0] + load.real
        square = W[bus, bus] + W[n + bus, n + bus]
        rows += [square >= 0.9**2, square <= 1.1**2]
        if all(bus + 1 != own[0] for own in _GENERATORS):
            rows += [used[0] == -load.real, used[1] == -load.imag]
    cost = 0.0
    for bus, least, most, quadratic, linear, fixed in _GENERATORS:
        p = power[bus]
        rows += [p >= least / _BASE, p <= most / _BASE]
        cost += quadratic * _BASE**2 * cp.square(p) + linear * _BASE * p + fixed
    return cp.Problem(cp.Minimize(cost), rows)


def _real(H: np.ndarray) -> np.ndarray:
    """Return the real form of a Hermitian matrix."""
    return np.block([[H.real, -H.imag], [H.imag, H.real]])


PUBLISHED = {
    "NPA, CHSH, level 1": Published(chsh, 2 * sqrt(2)),  # Tsirelson 1980
    "NPA, I3322, level 1": Published(lambda: i3322(1), 0.375),  # Navascues, Pironio, Acin 2008
    "NPA, I3322, level 2": Published(lambda: i3322(2), 0.250940, 2e-6),  # Pal, Vertesi 2010
    "Lasserre, cut of a cycle of 5, level 1": Published(lambda: cycle_cut(5, 1), 5 * (1 + cos(pi / 5)) / 2),
    "Lasserre, cut of a cycle of 5, level 2": Published(lambda: cycle_cut(5, 2), 4.0),
    "Lasserre, cut of a cycle of 9, level 2": Published(lambda: cycle_cut(9, 2), 8.0),
    "Schrijver, A(19, 6)": Published(lambda: code(19, 6), 1280, rounded=1),
    "Schrijver, A(20, 8)": Published(lambda: code(20, 8), 274, rounded=1),
    "optimal power flow, 9 buses": Published(nine_buses, 5296.69, 1e-6),
}


def solved(known: Published, options: dict[str, Any]) -> str:
    """Return the cell of a way to solve a problem."""
    times: list[float] = []
    while len(times) < ROUNDS and not (times and times[-1] > LONG):
        problem, begin = known.make(), time.process_time()
        problem.solve(**options)
        times.append(time.process_time() - begin)
    error = known.error(float(problem.value))
    return f"{statistics.median(times):.3g}" + (f", off by {error:.0e}" if error > known.digits else "")


def beside(known: Published) -> str:
    """Return the cell of CSDP."""
    problem = bo.from_cvxpy(known.make())
    if not problem.program().bounds.all_hard:  # squares of costs
        return ""
    runs = [by_csdp(problem, LIMIT) for _ in range(ROUNDS)]
    if any("seconds" not in run for run in runs):
        return str(runs[0]["status"])
    return f"{statistics.median(run['seconds'] for run in runs):.3g}"


def main() -> None:
    """Print the table, and save it."""
    warnings.simplefilter("ignore")
    for options in WAYS.values():
        chsh().solve(**options)  # what is imported once
    lines = [f"| problem | published | {' | '.join(WAYS)} | CSDP |", "|:--|--:|" + "--:|" * (len(WAYS) + 1)]
    print("\n".join(lines))
    for name, known in PUBLISHED.items():
        cells = [*(solved(known, options) for options in WAYS.values()), beside(known)]
        lines.append(f"| {name} | {known.value:.7g} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
