"""Repair one matrix a month
=========================

The data are rank correlations of ten stocks and indices: one matrix for each
month, from twelve monthly returns. Many are indefinite. One call repairs all of
them, and starts each from the answer of the month before.
"""

import matplotlib.cbook
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bregopt as bo

# %%
# The prices come with matplotlib (source: finance.yahoo.com). Amazon, Dell and
# Google were listed later than the others, so the first matrices lack them.
# A sine of Kendall's rank correlation estimates the correlation of heavy-tailed
# returns (Lindskog, McNeil and Schmock 2003).
MONTHS = 12
with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
    prices = pd.read_csv(file, comment="#", index_col="Date", parse_dates=True)
monthly = prices.resample(pd.offsets.MonthEnd()).last()
returns = np.log(monthly).diff().loc["1995":"2018"]
tau = {
    returns.index[t]: returns.iloc[t - MONTHS : t].corr(
        method="kendall", min_periods=MONTHS
    )
    for t in range(MONTHS, len(returns))
}
panel = np.sin(np.pi / 2 * pd.concat(tau))

# %%
# The keys of the frame are the months. An asset without returns in a month is
# left out of that matrix alone.
sols = bo.nearest_correlation(
    panel, min_eigenvalue=0.01, upper=0.99, warm_start="chain"
)
print(sols)

# %%
# One table has a row for each month.
table = sols.to_frame()
print(table.iloc[::60].to_string())

# %%
# The month that changed most, with its report.
worst = table.distance.idxmax()
print(f"{worst:%B %Y}")
print(sols[worst].report())

# %%
# Distances from the given matrices, month by month.
_, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(table.index, table.distance)
ax.set_ylabel("distance moved (Frobenius)")
ax.set_ylim(0)
ax.spines[["top", "right"]].set_visible(False)
