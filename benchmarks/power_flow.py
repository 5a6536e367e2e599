"""Optimal power flow: the semidefinite bound of the cost of power, both hooks beside Clarabel and CSDP.

    OPENBLAS_NUM_THREADS=1 python benchmarks/power_flow.py [--only case9 case14]

The networks are those of PYPOWER, a package of its own; without it the table is not made. Products of
voltages are a matrix of twice as many rows as buses (Lavaei, Low 2012), with the limits of voltages, of
powers and of flows. "published" is the cost of the best flow of MATPOWER, which the bound does not exceed but
for the digits. CSDP solves the file that bregopt writes of the linear form, where squares and norms are
matrices of order 2 and 3; its time includes starting and reading it. Times are CPU seconds, medians over
three fresh problems. The table goes to benchmarks/results/power_flow.md.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from relaxations import by_csdp
from textbook import WAYS as ALL

import bregopt as bo

RESULTS = Path(__file__).parent / "results" / "power_flow.md"
WAYS = {name: options for name, options in ALL.items() if name != "SCS"}  # it takes minutes
ROUNDS, LIMIT = 3, 120.0
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

    def power(self, W: cp.Variable, bus: int, current: np.ndarray) -> tuple[Any, Any]:
        """Return the real and reactive power of a current at a bus, as entries of the matrix."""
        row = np.zeros((self.n, self.n), dtype=complex)
        row[bus] = current
        parts = (row + row.conj().T) / 2, 1j * (row - row.conj().T) / 2
        return tuple(cp.trace(np.block([[H.real, -H.imag], [H.imag, H.real]]) @ W) for H in parts)  # type: ignore[return-value]

    def problem(self, linear: bool = False) -> cp.Problem:
        """Return the bound of the cost; with `linear` squares and norms are matrices."""
        n, W = self.n, cp.Variable((2 * self.n, 2 * self.n), PSD=True)
        rows: list[Any] = []
        used = [self.power(W, bus, self.Y[bus]) for bus in range(n)]
        for bus in range(n):
            square = W[bus, bus] + W[n + bus, n + bus]
            rows += [square >= self.bus[bus, 12] ** 2, square <= self.bus[bus, 11] ** 2]
        cost: Any = 0.0
        produced = {bus: [0.0, 0.0] for bus in range(n)}
        for k, (bus, own) in enumerate(zip(self.at, self.generators, strict=True)):
            alone = self.at.count(bus) == 1
            p, q = (used[bus][0] + self.load[bus].real, used[bus][1] + self.load[bus].imag)
            if not alone:
                p, q = cp.Variable(), cp.Variable()
                produced[bus] = [produced[bus][0] + p, produced[bus][1] + q]
            rows += [p >= own[9] / self.base, p <= own[8] / self.base]
            rows += [q >= own[4] / self.base, q <= own[3] / self.base]
            cost += self._cost(k, p, rows, linear)
        for bus in range(n):
            if self.at.count(bus) != 1:
                rows += [
                    produced[bus][0] - used[bus][0] == self.load[bus].real,
                    produced[bus][1] - used[bus][1] == self.load[bus].imag,
                ]
        for bus, current, most in self.flows:
            p, q = self.power(W, bus, current)
            if linear:
                F = cp.Variable((3, 3), PSD=True)
                rows += [F[0, 1] == p, F[0, 2] == q, F[1, 2] == 0, cp.diag(F) == most]
            else:
                rows.append(cp.norm2(cp.hstack([p, q])) <= most)
        return cp.Problem(cp.Minimize(cost), rows)

    def _cost(self, k: int, p: Any, rows: list[Any], linear: bool) -> Any:
        """Return the cost of a generator's power."""
        quadratic, slope, fixed = self.costs[k, 4:7]
        factor = float(np.sqrt(quadratic) * self.base)
        if not linear or not factor:
            return cp.square(factor * p) + slope * self.base * p + fixed
        T = cp.Variable((2, 2), PSD=True)
        rows += [T[0, 1] == factor * p, T[1, 1] == 1]
        return T[0, 0] + slope * self.base * p + fixed


def cells(name: str) -> list[str]:
    """Return the cells of a case."""
    case = getattr(importlib.import_module(f"pypower.{name}"), name)()
    network, found, values = Network(case), [], []
    for options in WAYS.values():
        times = []
        for _ in range(ROUNDS):
            problem, begin = network.problem(), time.process_time()
            try:
                problem.solve(**options)
            except cp.SolverError:
                break
            times.append(time.process_time() - begin)
        said = "" if problem.status == cp.OPTIMAL else f", {problem.status}"
        found.append(f"{statistics.median(times):.3g}{said}" if times else "fails")
        values.append(float(problem.value) if problem.value is not None else np.nan)
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
    lines = [f"| case | buses | published | bound | {' | '.join(WAYS)} | CSDP |"]
    lines.append("|:--|" + "--:|" * (4 + len(WAYS)))
    for options in WAYS.values():  # what is imported once
        cp.Problem(cp.Minimize(cp.trace(cp.Variable((2, 2), PSD=True)))).solve(**options)
    for name in chosen:
        lines.append(f"| {' | '.join(cells(name))} |")
        print(lines[-1], flush=True)
    if chosen == list(PUBLISHED):
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
