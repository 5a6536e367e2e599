"""The shortest use of each public function and class, with the words that others have for it.

A part begins with ``# NAME`` or ``# NAME: WORD, WORD``. The page of the name begins with its lines, and the
search of the site finds it by its words. tests/project/test_docs.py runs this file.
"""

import tempfile
from pathlib import Path

import cvxpy as cp
import networkx
import numpy as np
import pandas

import bregopt as bo
import bregopt.cvxpy
import bregopt.learn
import bregopt.online

rng = np.random.default_rng(0)
A = np.array([[1.0, 0.9, -0.4], [0.9, 1.0, 0.3], [-0.4, 0.3, 1.0]])
S = np.eye(3) + 0.2
samples = rng.normal(size=(60, 3))
unit = samples / np.linalg.norm(samples, axis=1, keepdims=True)
sign = np.where(samples[:, 0] ** 2 > 0.5, 1, -1)
points, label = rng.normal(size=(40, 3)), np.arange(40) % 2
points[label == 1, 0] += 4
rectangles = unit[:, :2, None] * unit[:, None, :] / 2
pairs, same = points.reshape(20, 2, 3), np.where(rng.random(20) < 0.5, 1, -1)
graph = networkx.florentine_families_graph()
returns = pandas.DataFrame(samples, columns=["equities", "bonds", "gold"])
candidates = np.vander(np.linspace(-1, 1, 21), 3)
triplets = bregopt.learn.triplets_from_labels(points, label)
rho, H = np.eye(4) / 4, np.diag([0.0, 1.0, 1.0, 2.0])
folder = Path(tempfile.mkdtemp())

X, x, u = bo.PSD(3, name="X"), bo.Variable(3, name="x"), bo.Variable(4, lower=0.1, name="u")
R, v = bo.PSD(4, name="R"), np.ones(3)
prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
linear = bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.diag(X) == 1])
file, conic, spec = folder / "problem.dat-s", folder / "problem.cbf", folder / "problem.toml"
linear.to_spec(spec)

# bregopt.Problem
prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
sol = prob.solve()

# bregopt.Minimize
bo.Minimize(bo.inner(A, X))

# bregopt.Maximize
bo.Maximize(bo.inner(A, X))

# bregopt.PSD: semidefinite variable, sdpvar, hermitian_semidefinite
X = bo.PSD(3, name="X")
rho = bo.PSD(4, hermitian=True)

# bregopt.Variable
x = bo.Variable(3, nonneg=True, name="x")

# bregopt.Parameter: parametric problem, DPP
t = bo.Parameter(value=2.0, name="t")
bo.trace(X) <= t

# bregopt.LowRank
bo.LowRank(samples)  # the matrix samples @ samples.T, which is never formed

# bregopt.from_cvxpy
C = cp.Variable((3, 3), PSD=True)
ours = bo.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(C)), [C[0, 1] == 1]))

# bregopt.cvxpy.solve: CVXPY solver
cp.Problem(cp.Minimize(cp.trace(C)), [C[0, 1] == 1]).solve(method="bregopt")

# bregopt.diag
bo.diag(X) == 1

# bregopt.trace
bo.trace(X) == 1

# bregopt.inner: Frobenius inner product
bo.inner(A, X)

# bregopt.quad_form
bo.quad_form(v, X)  # v' X v

# bregopt.partial_trace: reduced density matrix, ptrace
bo.partial_trace(R, (2, 2), keep=0)

# bregopt.partial_transpose: PPT, Peres-Horodecki
bo.partial_transpose(R, (2, 2), 0) >> 0

# bregopt.kron
bo.kron(np.eye(2), X)

# bregopt.real
bo.real(rho[0, 1])

# bregopt.imag
bo.imag(rho[0, 1]) == 0

# bregopt.conj
bo.conj(rho)

# bregopt.sq_distance
bo.sq_distance(X, [0, 1], [1, 2]) <= 0.5  # two rows

# bregopt.sum
bo.sum(X, axis=0)

# bregopt.vstack
bo.vstack([x, x])

# bregopt.hstack
bo.hstack([x, x])

# bregopt.bmat: block matrix, Schur complement
bo.bmat([[X, bo.vstack([x]).T], [bo.vstack([x]), np.eye(1)]]) >> 0

# bregopt.abs
bo.abs(x) <= 1

# bregopt.pos: hinge
bo.pos(1 - x)

# bregopt.square
bo.square(x)

# bregopt.maximum
bo.maximum(x, 0)

# bregopt.minimum
bo.minimum(x, 1) >= 0

# bregopt.max
bo.max(x) <= 1

# bregopt.min
bo.min(x) >= 0

# bregopt.norm1: lasso, l1
bo.norm1(x)

# bregopt.norm2: second-order cone, SOCP
bo.norm2(x) <= 1

# bregopt.norm_inf
bo.norm_inf(x) <= 1

# bregopt.sum_squares: least squares
bo.sum_squares(A @ x - v)

# bregopt.quad_over_lin
bo.quad_over_lin(x, u[0])

# bregopt.lambda_max: largest eigenvalue
bo.lambda_max(X) <= 2

# bregopt.lambda_min: smallest eigenvalue
bo.lambda_min(X) >= 0.1

# bregopt.lambda_sum_largest: Ky Fan norm
bo.lambda_sum_largest(X, 2)

# bregopt.sigma_max: spectral norm, operator norm
bo.sigma_max(X - A)

# bregopt.norm_nuc: nuclear norm, trace norm, matrix completion
bo.norm_nuc(X - A)

# bregopt.log
bo.Maximize(bo.sum(bo.log(u)))

# bregopt.log_det: logdet, determinant maximization, maxdet
bo.Maximize(bo.log_det(X))

# bregopt.key_rate: QKD, quantum key distribution
bo.Minimize(bo.key_rate(R, None, [np.diag([1.0, 0, 1, 0]), np.diag([0.0, 1, 0, 1])]))

# bregopt.quantum_rel_entr: quantum relative entropy, QICS
bo.Minimize(bo.quantum_rel_entr(R, np.eye(4) / 4))

# bregopt.von_neumann_entr: von Neumann entropy
bo.Maximize(bo.von_neumann_entr(R))

# bregopt.quantum_cond_entr: conditional entropy
bo.Maximize(bo.quantum_cond_entr(R, (2, 2), 0))

# bregopt.trace_logm
bo.Maximize(bo.trace_logm(R, np.eye(4) / 4))

# bregopt.entr: maximum entropy, Shannon entropy
bo.Maximize(bo.sum(bo.entr(u)))

# bregopt.rel_entr: Kullback-Leibler, relative entropy
bo.Minimize(bo.sum(bo.rel_entr(u, np.full(4, 0.25))))

# bregopt.kl_div
bo.Minimize(bo.sum(bo.kl_div(u, np.full(4, 0.25))))

# bregopt.exp: exponential cone
bo.sum(bo.exp(x)) <= 3

# bregopt.log_sum_exp: softmax, geometric program
bo.Minimize(bo.log_sum_exp(x))

# bregopt.logistic: logistic regression
bo.Minimize(bo.sum(bo.logistic(-x)))

# bregopt.logdet_div: Burg divergence, Stein's loss
bo.Minimize(bo.logdet_div(X, S))

# bregopt.von_neumann_div: quantum relative entropy, KL of matrices
bo.Minimize(bo.von_neumann_div(X, S))

# bregopt.frobenius_div
bo.Minimize(bo.frobenius_div(X, A))

# bregopt.bregman_div: Bregman divergence
bo.Minimize(bo.bregman_div(X, S, "logdet"))

# bregopt.between
bo.between(X[0, 1], -0.5, 0.5)

# bregopt.soft: slack, penalty
bo.soft(X[0, 1] <= 0.2, gamma=10)

# bregopt.cut_rows: lazy constraints, cutting planes, separation
rows = bo.cut_rows(lambda values: [])

# bregopt.verify: VSDP, rigorous bounds, interval arithmetic
print(bo.verify(linear, linear.solve()))

# bregopt.cross_check
print(bo.cross_check(prob))

# bregopt.nearest_correlation: nearPD, cov_nearest, corr_nearest, nearcorr, near_psd, Higham
sol = bo.nearest_correlation(A)
sol.X

# bregopt.nearest_covariance: cov_nearest, nearPD, nearest covariance, fix covariance
sol = bo.nearest_covariance(4 * A)

# bregopt.pairwise_correlation: pairwise.complete.obs, missing data, DataFrame.corr
found = bo.pairwise_correlation(returns)

# bregopt.shrink_correlation: Ledoit-Wolf, shrinkage, shrinking
sol = bo.shrink_correlation(A)

# bregopt.nearest_psd: nearPD, nearest positive definite, isPD, semidefinite projection
sol = bo.nearest_psd(A, [lambda X: bo.trace(X) == 3])

# bregopt.factor_correlation: factor model, corr_nearest_factor, factor analysis
model = bo.factor_correlation(A, k=1)

# bregopt.graphical_lasso: glasso, sparse inverse covariance, precision matrix, partial correlation
sol = bo.graphical_lasso(S, alpha=0.1)

# bregopt.graphical_lasso_path: EBIC, regularization path, huge
path = bo.graphical_lasso_path(S, [0.3, 0.1])

# bregopt.learn_kernel: kernel learning, low-rank kernel
sol = bo.learn_kernel(bo.LowRank(points), similar=[[0, 2]], dissimilar=[[0, 1]], gamma=1.0)

# bregopt.soft_margin: large margin, LMNN
sol = bo.soft_margin((points[:20] - points[20:], points[::2] - points[1::2]))

# bregopt.max_det_completion: matrix completion, maximum entropy completion
sol = bo.max_det_completion(S, [[0, 1], [1, 2]])

# bregopt.covariance_selection: Gaussian graphical model, Dempster
sol = bo.covariance_selection(S, [[0, 1], [1, 2]])

# bregopt.min_balanced_cut: min-bisection, minimum bisection, METIS, graph partitioning, spectral clustering
found = bo.min_balanced_cut(graph)

# bregopt.max_cut: maximum cut, Goemans-Williamson, MaxCut, Ising, BiqMac
found = bo.max_cut(graph)

# bregopt.partition: k-way partition, graph partitioning, KaHIP, METIS, k-cut
found = bo.partition(graph, 3)

# bregopt.qubo: QUBO, binary quadratic, BQP, D-Wave
found = bo.qubo(A)

# bregopt.communities: modularity, Louvain, Leiden, community detection
found = bo.communities(graph)

# bregopt.lovasz_theta: theta function, Shannon capacity, independent set
sol = bo.lovasz_theta(graph)

# bregopt.min_volume_ellipsoid: MVEE, Loewner-John, minimum volume ellipsoid, Khachiyan
found = bo.min_volume_ellipsoid(points)

# bregopt.max_volume_inscribed_ellipsoid: John ellipsoid, MVIE
found = bo.max_volume_inscribed_ellipsoid(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4))

# bregopt.d_optimal: optimal design, experimental design, D-optimality
design = bo.d_optimal(candidates)

# bregopt.a_optimal: A-optimality
design = bo.a_optimal(candidates)

# bregopt.e_optimal: E-optimality
design = bo.e_optimal(candidates)

# bregopt.water_filling: waterfilling, channel capacity
found = bo.water_filling([1.0, 2.0, 3.0], power=2.0)

# bregopt.mimo_capacity: MIMO
found = bo.mimo_capacity(A, power=2.0)

# bregopt.solve_many: batch, multiprocessing, joblib, parallel, n_jobs
answers = bo.solve_many([prob, linear], progress=False)

# bregopt.RowChunks: out of core, larger than memory
rows = bo.RowChunks(samples, 1.0, "<=", gamma=1.0)
sol = rows.solve(np.eye(3))

# bregopt.TripletChunks
sol = bo.TripletChunks(triplets, points).solve()

# bregopt.online.MEG: matrix exponentiated gradient, Tsuda
learner = bregopt.online.MEG().fit(unit, np.ones(60))

# bregopt.online.BurgGradient
learner = bregopt.online.BurgGradient().fit(unit**2, np.ones(60))

# bregopt.online.MatrixBurgGradient
learner = bregopt.online.MatrixBurgGradient().fit(unit, np.ones(60))

# bregopt.online.OnlineLogDetMetric: LEGO, POLA
learner = bregopt.online.OnlineLogDetMetric().fit(pairs, np.ones(20))

# bregopt.online.huber
learner = bregopt.online.MEG(loss=bregopt.online.huber(0.5)).fit(unit, np.ones(60))

# bregopt.online.MatrixWinnow: Warmuth, Winnow subspaces
learner = bregopt.online.MatrixWinnow(rank=1).fit(unit, sign)

# bregopt.online.GeneralMatrixWinnow
learner = bregopt.online.GeneralMatrixWinnow().fit(rectangles, sign)

# bregopt.online.KernelWinnow
learner = bregopt.online.KernelWinnow().fit(samples, sign)

# bregopt.online.PairWinnow
learner = bregopt.online.PairWinnow(radius=10.0).fit(pairs, same)

# bregopt.online.OnlineToBatch
learner = bregopt.online.OnlineToBatch(bregopt.online.MatrixWinnow()).fit(unit, sign)

# bregopt.online.OnlinePCA: principal component analysis, IncrementalPCA, streaming PCA
learner = bregopt.online.OnlinePCA(2).fit(unit)

# bregopt.learn.LogDetMetricLearner: ITML, metric-learn, Mahalanobis, metric learning
learner = bregopt.learn.LogDetMetricLearner(random_state=0).fit(points, label)

# bregopt.learn.VonNeumannMetricLearner
learner = bregopt.learn.VonNeumannMetricLearner(random_state=0).fit(points, label)

# bregopt.learn.SoftMarginMetricLearner: LMNN, triplet loss, PSDBoost
learner = bregopt.learn.SoftMarginMetricLearner(random_state=0).fit(points, label)

# bregopt.learn.PairDefiniteBoost: DefiniteBoost
learner = bregopt.learn.PairDefiniteBoost().fit(pairs, same)

# bregopt.learn.KernelLearner: kernel learning
learner = bregopt.learn.KernelLearner(random_state=0).fit(points, label)

# bregopt.learn.GraphicalLasso
model = bregopt.learn.GraphicalLasso(alpha=0.1).fit(samples)

# bregopt.learn.GraphicalLassoCV
model = bregopt.learn.GraphicalLassoCV(cv=3).fit(samples)

# bregopt.learn.StabilitySelection: stability selection, bootstrap
model = bregopt.learn.StabilitySelection(random_state=0).fit(samples)

# bregopt.learn.NearestCorrelation
model = bregopt.learn.NearestCorrelation().fit(samples)

# bregopt.learn.GridSearchCV: hyperparameters, cross-validation
search = bregopt.learn.GridSearchCV(
    bregopt.learn.LogDetMetricLearner(random_state=0), {"gamma": [0.1, 1]}, cv=2
)

# bregopt.learn.pairs_from_labels
similar, dissimilar = bregopt.learn.pairs_from_labels(label, 50, random_state=0)

# bregopt.learn.triplets_from_labels
triplets = bregopt.learn.triplets_from_labels(points, label)

# bregopt.learn.percentile_bounds
upper, lower = bregopt.learn.percentile_bounds(points)

# bregopt.learn.idealized_bounds: idealised_bounds
bounds = bregopt.learn.idealized_bounds(points, similar, dissimilar)

# bregopt.solvers: list of solvers
bo.solvers()

# bregopt.tuning
bo.tuning("path")

# bregopt.write_sdpa: SDPA, SDPLIB, dat-s
bo.write_sdpa(linear, file)

# bregopt.read_sdpa: SDPA, SDPLIB, CSDP, dat-s
prob = bo.read_sdpa(file)

# bregopt.dimacs_errors
bo.dimacs_errors(linear, linear.solve())

# bregopt.write_cbf: Conic Benchmark Format, CBLIB, MOSEK
bo.write_cbf(linear, conic)

# bregopt.read_cbf: Conic Benchmark Format, CBLIB, MOSEK
prob = bo.read_cbf(conic)

# bregopt.load_spec: TOML
prob = bo.load_spec(spec)
