"""Draw a graph of measurements
============================

Thirty measurements of cell nuclei are nearly all correlated. A sparse inverse
correlation matrix keeps the pairs that are related beyond all other
measurements. Each answer on the path of penalties has its own certificate.
"""

# sphinx_gallery_thumbnail_number = 2
import numpy as np
from sklearn.datasets import load_breast_cancer

import bregopt as bo

cancer = load_breast_cancer(as_frame=True)
S = cancer.data.corr()
path = bo.graphical_lasso_path(S, np.geomspace(0.8, 0.1, 10), tol=1e-6)
print(path)

# %%
# The partial correlations grow as the penalty falls.
path.plot()

# %%
# A penalty of 0.7 leaves few edges. The width of an edge is its partial
# correlation.
sol = bo.graphical_lasso(S, 0.7)
print(sol.n_edges, "edges,", len(sol.components), "components")
sol.plot()
