"""Stress a correlation matrix in two processes
============================================

How far must a correlation matrix move if the average correlation rises? This
example solves one problem at 60 values of a parameter. ``solve_many`` takes any
executor.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

ASSETS, DAYS = 12, 250


def main():
    """Solve in order, each problem from the answer before."""
    rng = np.random.default_rng(0)
    market = rng.normal(size=(DAYS, 1))
    returns = 0.5 * market + rng.normal(size=(DAYS, ASSETS))
    S = np.corrcoef(returns, rowvar=False)

    X, average = bo.PSD(ASSETS, name="X"), bo.Parameter(name="average")
    i, j = np.triu_indices(ASSETS, 1)
    stressed = bo.Problem(
        bo.Minimize(bo.logdet_div(X, S)),
        [bo.diag(X) == 1, bo.sum(X[i, j]) / len(i) >= average],
    )
    values = np.linspace(S[i, j].mean(), 0.8, 60)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        answers = bo.solve_many(
            [(stressed, {average: value}) for value in values],
            pool,
            warm_start="chain",
            chunk=15,
        )

    certified = sum(answer.status == "optimal" for answer in answers)
    print(f"{certified} of {len(answers)} certified")
    _, axes = plt.subplots(1, 2, figsize=(6.6, 2.8), layout="constrained")
    axes[0].plot(values, [answer.value for answer in answers])
    axes[0].set_ylabel("LogDet divergence")
    axes[1].plot(values, [np.linalg.eigvalsh(a.X)[0] for a in answers])
    axes[1].set_ylabel("smallest eigenvalue")
    for ax in axes:
        ax.set_xlabel("average correlation")


if __name__ == "__main__":
    main()
