"""The numerical constants of certificates and proofs.

No option changes them: a certificate is a function of a program and a point, and of nothing else. Those of
the first group decide what an answer proves. Those of the second group decide how much work a proof takes.
"""

from bregopt.arrays import EPS

# What an answer proves.

# Fraction of the objective's scale: gaps of smaller objectives are relative to it. With a thousandth, games
# of value zero end inaccurate; with a tenth, some gaps come out ten times too small (tests/library/truth.py).
NEGLIGIBLE_OBJECTIVE = 1e-2
# Round-off of the objective and of its bound, as a fraction of the objective's scale.
ROUND_OFF_OF_TERMS = 64 * EPS
# Fraction of a row's norm times the scale of X: the least size that its violation is relative to. A row that
# is zero at X is otherwise met to round-off and never to a relative tolerance.
ROW_NOISE = 1e-9
# Multiple of the scale of X, or of the costs, beyond which the relative residual is multiplied up: iterates
# that diverge may meet the rows, or the cone, in the limit only (tests/certify/test_false_proofs.py).
DIVERGENT = 1e3
# Times the size of X and of u: the bound of multipliers outside their domain holds for optima up to these
# sizes. Exact programs of condition 2^45 and more had an X 62 times as large as that of an answer with a
# small gap. An optimum that is approached but not attained is larger than any answer.
LARGEST_X, LARGEST_U = 256.0, 4.0
# Fraction of the mean eigenvalue: tolerated negative eigenvalue of a psd matrix, above the round-off of an
# eigendecomposition of order 1,000.
CONE_NOISE = 1e-12
# Largest relative violation of the conditions on a Farkas vector or a ray that may be round-off. Beyond it a
# problem may have a solution of size one over the violation (tests/library/near_boundary.py).
PROOF_NOISE = 64 * EPS
# Largest such violation of a vector that an exact proof may still mend (bregopt.rigorous).
MENDED = 1e-9
# Least demand of a Farkas vector beyond all supply, relative to its terms.
LEAST_DEMAND = 1e-9
# Least relative growth of the argument of a logarithm along a ray.
LOG_GROWTH = 1e-6
# Relative difference up to which two numbers of one row family, computed in two ways, are taken as equal.
FAMILY_NOISE = 1e-9
# Probability that all random vectors are too near orthogonal to the eigenvector that they should show.
FAILURE = 1e-12
# Relative error of a sum of products, times its length.
ROUND_OFF = 4 * EPS

# How much work a proof takes.

# Order up to which matrices are formed and all their eigenvalues are computed: 20 ms at most.
LARGEST_FORMED = 500
# Order up to which a sparse matrix may be formed for Cholesky's factorization: 200 MB.
LARGEST_DENSE = 5_000
# Entries of the profile after reordering, and their fraction of the n^2 entries, up to which a sparse matrix
# is factorized. The factor of a larger profile takes longer than a Cholesky factorization of the full matrix.
LARGEST_PROFILE, LARGEST_PROFILE_SHARE = 5e7, 0.1
# Number of vectors up to which they border the factorized matrix. Each costs a solve.
LARGEST_BORDER = 20
# First step below the estimate of an eigenvalue, as a fraction of the size of the matrix: for sparse and
# for dense factors, a little above the round-off of their proofs.
FIRST_STEP, FIRST_DENSE_STEP = 1e-13, 1e-10
# Factor of a step whose bound was not proven, and the number of steps.
STEP_GROWTH, PROOF_STEPS = 10.0, 12
# Steps up to this fraction of the size are not refined, and refinement stops at this ratio of a proven step
# to one that failed. A finer bound does not show in a gap of 1e-8.
FINE_STEP, FINE_RATIO = 1e-9, 1.5
# Factor of the weights of the border's vectors: it leaves room for the square of the border's error.
BORDER_WEIGHT = 0.9
# Largest error of the corner -I of the bordered matrix for which a factorization is accepted.
CORNER_ERROR = 0.01
# The weights of the border's vectors are reduced where that error is larger: to an error this factor below,
# and so many times.
WEIGHT_MARGIN, WEIGHT_TRIALS = 2.0, 2
# Steps of Lanczos's method for the estimate of the smallest eigenvalue.
LANCZOS_STEPS = 60
# Steps of Lanczos's method for the largest eigenvalue, and the factor of the estimate above which hardly any
# eigenvalue lies. One above costs accuracy, not rigor. The least value is a fraction of Gershgorin's bound.
TOP_STEPS, TOP_MARGIN, LEAST_TOP = 30, 1.1, 1e-3
# Random vectors of the Chebyshev polynomial: sparse products with eight cost three times those with one.
VECTORS = 8
# Degrees of the polynomial: the first at which its bound is computed, their growth, and the largest.
FIRST_DEGREE, DEGREE_GROWTH, LARGEST_DEGREE = 30, 1.3, 4_000
# The degree stops growing where the bound is this close to the estimate, relative to it, if the estimate is
# beyond this fraction of the bound asked for.
BOUND_DISTANCE, HOPELESS = 0.5, 0.8
# Fraction of the least inner product that may be round-off.
NOISE_SHARE = 0.1
# Multiplications in a Cholesky factorization in the time of one in a sparse product with a block.
DENSE_SPEED = 10.0
# Fraction of the time of a Cholesky factorization that is spent to see that it would fail, and least degree
# for that.
SKETCH, LEAST_DEGREE = 0.1, 100
# Least entry of the relative diagonal, as a fraction of its mean.
LEAST_SCALE = 1e-2
# Fraction of the bound asked for that leaves room for the error of a factorization.
ENOUGH_MARGIN = 0.02
# Times the size of the sparse part: heavier vectors are left out of the polynomial, whose degree grows with
# the root of the largest eigenvalue.
HEAVY_VECTOR = 2.0
# Entry above which the polynomial's vectors are scaled down, far from overflow.
LARGEST_ENTRY = 1e100
# Times relative to the eigendecomposition of the same matrix: of two Cholesky factorizations, and of n^3
# multiplications in eight sparse factors.
DENSE_PROOF_TIME, SPARSE_PROOF_TIME = 0.25, 40.0
# Number of bounds that are cached: the certificate of an answer repeats the best proof of its route, which a
# hundred stages may follow.
CACHED_BOUNDS = 100
# Rows of a family that are checked one by one.
CHECKED_ROWS = 50
# Steps of the projected gradient method that checks a divergence's bound on the minimum.
DESCENT_STEPS = 30
# Largest power of ten among the step lengths at which a recession function is checked.
LARGEST_CHECKED_STEP = 8
