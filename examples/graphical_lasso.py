"""The graph behind thirty measurements of cell nuclei: a sparse inverse correlation matrix.

The weight of the penalty is chosen by the extended Bayesian information criterion. Every answer on the path
is certified by its own dual point.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import bregopt as bo

cancer = load_breast_cancer(as_frame=True)
S = cancer.data.corr()
path = bo.graphical_lasso_path(S, np.geomspace(0.8, 0.1, 10), tol=1e-6)
print(path)

best = path[int(path.ebic(n_samples=len(cancer.data)).argmin())]
print(f"alpha {best.alpha:.3f}: {best.n_edges} edges, {len(best.components)} components, gap {best.gap:.1e}")
edges = sorted(best.to_networkx().edges(data="weight"), key=lambda edge: -abs(edge[2]))
for one, other, weight in edges[:5]:
    print(f"{weight:+.2f}  {one} - {other}")
