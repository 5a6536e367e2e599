"""Stress a correlation matrix in two processes
============================================

Stress a correlation matrix by 60 scenarios in two processes, and print the cost
of higher correlations.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import bregopt as bo

ASSETS, DAYS = 12, 250


def main():
    """Solve one problem at 60 values of its parameter, in order, each from the answer before."""
    rng = np.random.default_rng(0)
    market = rng.normal(size=(DAYS, 1))
    S = np.corrcoef(
        0.5 * market + rng.normal(size=(DAYS, ASSETS)), rowvar=False
    )

    X, average = bo.PSD(ASSETS, name="X"), bo.Parameter(name="average")
    i, j = np.triu_indices(ASSETS, 1)
    stressed = bo.Problem(
        bo.Minimize(bo.logdet_div(X, S)),
        [bo.diag(X) == 1, bo.sum(X[i, j]) / len(i) >= average],
    )
    scenarios = np.linspace(S[i, j].mean(), 0.8, 60)

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        answers = bo.solve_many(
            [(stressed, {average: value}) for value in scenarios],
            pool,
            warm_start="chain",
            chunk=15,
        )

    print(
        "average correlation  LogDet divergence  smallest eigenvalue  iterations"
    )
    for value, answer in list(zip(scenarios, answers, strict=True))[::12]:
        least = np.linalg.eigvalsh(answer.X)[0]
        print(
            f"{value:19.3f}  {answer.value:17.4f}  {least:19.4f}  {answer.iterations:10d}"
        )
    print(
        f"{sum(answer.status == 'optimal' for answer in answers)} of {len(answers)} certified"
    )


if __name__ == "__main__":
    main()
