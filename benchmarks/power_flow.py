"""Optimal power flow: the semidefinite bound of the cost of power, both hooks beside Clarabel and CSDP.

    OPENBLAS_NUM_THREADS=1 python benchmarks/power_flow.py [--only case9 case14]

The networks are those of PYPOWER, a package of its own; without it the table is not made. Products of
voltages are a matrix of twice as many rows as buses (Lavaei, Low 2012), with the limits of voltages, of
powers and of flows. "published" is the cost of the best flow of MATPOWER, which the bound does not exceed but
for the digits. CSDP solves the file that bregopt writes of the linear form, where squares and norms are
matrices of order 2 and 3; its time includes starting and reading it. "bregopt, as read" is the time of
`problem.solve` in our language, without reading CVXPY's. Times are CPU seconds, medians over three fresh
problems, or the only one that takes more than five seconds. The table goes to
benchmarks/results/power_flow.md.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from relaxations import by_csdp
from textbook import WAYS as ALL

import bregopt as bo

RESULTS = Path(__file__).parent / "results" / "power_flow.md"
WAYS = {name: options for name, options in ALL.items() if name != "SCS"}  # it takes minutes
ROUNDS, LONG, LIMIT = 3, 5.0, 120.0
PUBLISHED = {"case9": 5296.69, "case14": 8081.53, "case30": 576.89, "case57": 41737.79}
UNLIMITED = 9000.0  # flow in MVA from which a limit is none


class Network:
    """The admittances and limits of a case, in units of its base power.

    Parameters
    ----------
    case : dict
        As PYPOWER has it.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        self.base, self.bus, self.generators = float(case["baseMVA"]), case["bus"], case["gen"]
        self.costs, self.n = case["gencost"], len(case["bus"])
        place = {int(bus): k for k, bus in enumerate(self.bus[:, 0])}
        self.at = [place[int(bus)] for bus in self.generators[:, 0]]
        self.load = (self.bus[:, 2] + 1j * self.bus[:, 3]) / self.base
        self.Y = np.diag((self.bus[:, 4] + 1j * self.bus[:, 5]) / self.base)
        self.flows: list[tuple[int, np.ndarray, float]] = []  # bus, admittances of its current, limit
        for branch in case["branch"][case["branch"][:, 10] == 1]:
            self._add(place[int(branch[0])], place[int(branch[1])], branch)

    def _add(self, i: int, j: int, branch: np.ndarray) -> None:
        """Add a branch; its transformer is at the first bus."""
        y, charging = 1 / (branch[2] + 1j * branch[3]), 0.5j * branch[4]
        tap = (branch[8] or 1.0) * np.exp(1j * np.deg2rad(branch[9]))
        own = np.zeros((2, self.n), dtype=complex)
        own[0, i], own[0, j] = (y + charging) / abs(tap) ** 2, -y / tap.conj()
        own[1, i], own[1, j] = -y / tap, y + charging
        self.Y[i] += own[0]
        self.Y[j] += own[1]
        if 0 < branch[5] < UNLIMITED:
            self.flows += [(i, own[0], branch[5] / self.base), (j, own[1], branch[5] / self.base)]

    def powers(self, buses: Sequence[int], currents: np.ndarray, W: cp.Variable) -> tuple[Any, Any]:
        """Return the real and the reactive powers of currents at buses, as entries of the matrix."""
        n, parts = self.n, ([], [])
        for bus, current in zip(buses, currents, strict=True):
            row = sp.csr_array((n, n), dtype=complex).tolil()
            row[bus] = current
            for part, H in zip(parts, (row + row.conj().T, 1j * (row - row.conj().T)), strict=True):
                part.append(sp.block_array([[H.real, -H.imag], [H.imag, H.real]]).reshape(1, -1) / 2)
        real, reactive = (sp.vstack(part, format="csr") @ cp.vec(W, order="C") for part in parts)
        return real, reactive

    def problem(self, linear: bool = False) -> cp.Problem:
        """Return the bound of the cost; with `linear` squares and norms are matrices."""
        n, W, count = self.n, cp.Variable((2 * self.n, 2 * self.n), PSD=True), len(self.at)
        at = sp.csr_array((np.ones(count), (self.at, np.arange(count))), (n, count))
        p, q = self.powers(range(n), self.Y, W)
        squares = cp.diag(W)[:n] + cp.diag(W)[n:]
        rows: list[Any] = [squares >= self.bus[:, 12] ** 2, squares <= self.bus[:, 11] ** 2]
        alone = np.bincount(self.at).max() == 1
        if alone:  # the powers of generators are entries of the matrix
            without = np.setdiff1d(np.arange(n), self.at)
            made = p[self.at] + self.load[self.at].real, q[self.at] + self.load[self.at].imag
            rows += [p[without] == -self.load[without].real, q[without] == -self.load[without].imag]
        else:
            made = cp.Variable(count), cp.Variable(count)
            rows += [at @ made[0] - p == self.load.real, at @ made[1] - q == self.load.imag]
        for own, (most, least) in zip(made, ((8, 9), (3, 4)), strict=True):
            limits = self.generators[:, [least, most]] / self.base
            rows += [own >= limits[:, 0], own <= limits[:, 1]]
        rows += self._flow_limits(W, linear)
        return cp.Problem(cp.Minimize(self._cost(made[0], rows, linear)), rows)

    def _flow_limits(self, W: cp.Variable, linear: bool) -> list[Any]:
        if not self.flows:
            return []
        buses, currents, limits = zip(*self.flows, strict=True)
        p, q = self.powers(buses, np.array(currents), W)
        if not linear:
            return [cp.norm(cp.vstack([p, q]), 2, axis=0) <= np.array(limits)]
        rows: list[Any] = []
        for k, most in enumerate(limits):
            F = cp.Variable((3, 3), PSD=True)
            rows += [F[0, 1] == p[k], F[0, 2] == q[k], F[1, 2] == 0, cp.diag(F) == most]
        return rows

    def _cost(self, p: Any, rows: list[Any], linear: bool) -> Any:
        """Return the cost of the generators' powers."""
        quadratic, slope, fixed = self.costs[:, 4:7].T
        factors = np.sqrt(quadratic) * self.base
        others = slope * self.base @ p + fixed.sum()
        if not linear:
            return cp.sum_squares(cp.multiply(factors, p)) + others
        for k in np.flatnonzero(factors):
            T = cp.Variable((2, 2), PSD=True)
            rows += [T[0, 1] == factors[k] * p[k], T[1, 1] == 1]
            others += T[0, 0]
        return others


def cells(name: str) -> list[str]:
    """Return the cells of a case."""
    case = getattr(importlib.import_module(f"pypower.{name}"), name)()
    network, found, values = Network(case), [], []
    for options in WAYS.values():
        times: list[float] = []
        while len(times) < ROUNDS and not (times and times[-1] > LONG):
            problem, begin = network.problem(), time.process_time()
            try:
                problem.solve(**options)
            except cp.SolverError:
                break
            times.append(time.process_time() - begin)
        said = "" if problem.status == cp.OPTIMAL else f", {problem.status}"
        found.append(f"{statistics.median(times):.3g}{said}" if times else "fails")
        values.append(float(problem.value) if problem.value is not None else np.nan)
    problems = [bo.from_cvxpy(network.problem()) for _ in range(ROUNDS)]
    seconds = []
    for own in problems:
        own.program()
        begin = time.process_time()
        own.solve(tol=1e-8)
        seconds.append(time.process_time() - begin)
    found.append(f"{statistics.median(seconds):.3g}")
    runs = [by_csdp(bo.from_cvxpy(network.problem(linear=True)), LIMIT) for _ in range(ROUNDS)]
    seconds = [run["seconds"] for run in runs if "seconds" in run]
    said = "" if runs[0]["status"] == "optimal" else f"{runs[0]['status']}"
    found.append(" ".join([f"{statistics.median(seconds):.3g}", said]).strip() if seconds else said)
    size = [str(network.n), f"{PUBLISHED[name]:.2f}", f"{values[0]:.2f}"]
    return [name, *size, *found]


def main() -> None:
    """Print the table, and save it if it has all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PUBLISHED, default=list(PUBLISHED))
    chosen = parser.parse_args().only
    if importlib.util.find_spec("pypower") is None:
        print("skipped: the networks are those of the package PYPOWER, which is not installed")
        return
    warnings.simplefilter("ignore")
    lines = [f"| case | buses | published | bound | {' | '.join(WAYS)} | bregopt, as read | CSDP |"]
    lines.append("|:--|" + "--:|" * (5 + len(WAYS)))
    for options in WAYS.values():  # what is imported once
        cp.Problem(cp.Minimize(cp.trace(cp.Variable((2, 2), PSD=True)))).solve(**options)
    for name in chosen:
        lines.append(f"| {' | '.join(cells(name))} |")
        print(lines[-1], flush=True)
    if chosen == list(PUBLISHED):
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
