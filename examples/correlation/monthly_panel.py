"""Repair one matrix a month, and report the worst
===============================================

Repair the rank correlations of ten stocks and indices, one matrix a month, and
report the worst month.

The monthly prices come with matplotlib (sample data ``Stocks.csv``; source:
finance.yahoo.com). Amazon, Dell and Google were listed later than the others,
so they are missing from the first matrices. A sine of Kendall's rank
correlation estimates the correlation of heavy-tailed returns (Lindskog, McNeil,
Schmock 2003, Kendall's tau for elliptical distributions). A matrix of such
estimates need not be positive semidefinite.
"""

import matplotlib.cbook
import numpy as np
import pandas as pd

import bregopt as bo

WINDOW = 12  # months


def main():
    """Solve the panel with warm starts and print a summary, the change by year, and one report."""
    with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
        prices = pd.read_csv(
            file, comment="#", index_col="Date", parse_dates=True
        )
    monthly = prices.resample("ME").last()
    returns = np.log(monthly).diff().loc["1995":"2018"]
    windows = {
        returns.index[t]: returns.iloc[t - WINDOW : t]
        for t in range(WINDOW, len(returns))
    }
    tau = {
        day: own.corr(method="kendall", min_periods=WINDOW)
        for day, own in windows.items()
    }
    panel = np.sin(np.pi / 2 * pd.concat(tau))

    sols = bo.nearest_correlation(
        panel, min_eigenvalue=0.01, upper=0.99, warm_start="chain"
    )
    print(sols)
    table = sols.to_frame()
    table["assets"] = [len(sols[day].X) for day in sols.keys]
    by_year = table.groupby(table.index.year).agg(
        assets=("assets", "max"),
        largest=("distance", "max"),
        floor=("smallest_eigenvalue", "min"),
    )
    print(by_year.iloc[::4].round(4).to_string())

    worst = table.distance.idxmax()
    print(f"\n{worst:%B %Y}")
    print(sols[worst].report())


if __name__ == "__main__":
    main()
