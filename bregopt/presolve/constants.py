"""The numerical constants of the reductions.

No option changes them: a reduction is valid for every problem to which it applies, up to round-off, and the
answer is certified in the user's program. Each is relative to the size of the numbers that it is compared
with, unless its comment says otherwise.
"""

# Range space.

# Singular values of a factor that count as zero; the option `rank_tol` takes another value.
RANK_TOL = 1e-10
# Size of a sum, relative to that of its terms, below which a row is zero on the range. A row that is only
# round-off there would mislead any method.
CANCELLATION = 1e-13

# Faces.

# Size of a matrix on a face that counts as zero, far below the data that users round to 1e-8.
FACE_NOISE = 1e-12
# Bound of a row, relative to its norm times the bounds' largest trace, that counts as zero.
ZERO_BOUND = 1e-14
# Negative eigenvalue of C - A*(y) that is tolerated.
SLACK_NOISE = 1e-10
# Margin of the multiple of F that makes C - A*(y) psd outside the face.
MULTIPLE_MARGIN = 1e-3
# Number of random vectors that show that a row does not vanish on a face, and that a row is indefinite. Each
# fails with probability zero; several keep round-off from hiding it.
VANISHING_PROBES, DEFINITE_PROBES = 3, 10
# Weights of rows on the diagonal above which no linear program is solved for a face: it takes a second.
LARGEST_LINEAR_PROGRAM = 1_000_000

# Slacks that are tried for the multiples of revealed F, relative to the size of C - A*(y). A smaller slack
# needs larger multiples, which multiply the residuals of the rows and the round-off of F.
LIFTING_SLACKS = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6)

# Exposing vectors: combinations of equalities, of norm one, that multipliers reveal.

# Entries of the dense matrices of all equalities above which none is sought: the search takes a second. Of
# all rows, above which no answer is sought in other coordinates (bregopt.presolve.whitening).
LARGEST_EXPOSING = 1_000_000
# Ratio of successive eigenvalues that may separate the range of F from its null space, and how many are
# tried.
EXPOSING_GAP, EXPOSING_RANKS = 1.5, 6
# Steps of the first Newton method. The error falls to about its square, in some directions to half of it.
EXPOSING_PASSES = 6
# Least damping there, relative to the largest eigenvalue of the Gram matrix of the rows: above its round-off.
EXPOSING_DAMPING = 1e-13
# V'FV and b'w after these, for w of norm one, above which there is no exposing vector nearby.
EXPOSING_FAR = 1e-3
# Steps of the second one, which squares its error.
TURNS = 10
# Number of vanishing combinations that it uses: usually each gives more equations than there are unknowns.
TURN_COMBINATIONS = 5
# Entry of the combinations that vanish below which no step gains a digit.
TURNED = 1e-14
# Singular values of their equations that count as zero: directions in which U does not change.
TURN_RANK = 1e-5
# Size of combinations that vanish on the face, relative to the root of V'FV, until U is exact.
TURN_NOISE = 30.0
# Entry of a combination that vanishes on the face, and of F outside its range relative to its least
# eigenvalue there, that counts as round-off.
EXPOSING_NOISE = 1e-12
# Least positive eigenvalue of F, for w of norm one.
LEAST_EXPOSED = 1e-4

# Recession.

# Singular values of rows, of norm one, that count as zero.
RECEDING_RANK = 1e-11
# Entries of the dense matrices of all directions above which none is sought: the search takes a tenth of a
# second, as even good answers are searched that are large.
LARGEST_RECEDING = 200_000

# Independent rows.

# Distance of a unit row from the span of earlier ones up to which Newton's system loses digits.
NEARLY_DEPENDENT = 1e-3
# That distance up to which a row counts as dependent: round-off of the data alone.
DEPENDENT = 1e-11
# Inconsistency of a dependent row, relative to the largest bound, that is tolerated.
INCONSISTENCY = 1e-9
# Multiplications of the QR factorization above which the rows are left as they are: a second.
LARGEST_QR = 5e8
# Seconds that QR takes for each entry, at most: rows are left as they are if the time limit leaves less.
QR_SECONDS = 1e-7
# Fraction of nonzeros in the rows below which their Gram matrix is a sparse product.
SPARSE_FRACTION = 0.05

# Redundant equalities.

# Number of unknowns above which the new rows, which are dense, cost more than they save.
MOST_UNKNOWNS = 2_000
# Singular values of the equalities that are round-off of the data.
CONDENSED_RANK = 1e-11
# Numbers in a chunk of rows that QR factorizes at a time: 8 MB.
QR_CHUNK = 1_000_000

# Row recognition.

# Difference of two entries, relative to the row's largest, that counts as round-off of the data.
ENTRY_NOISE = 1e-12
# Fraction of nonzeros above which the vectors of rank-one rows are stored dense.
DENSE_FRACTION = 0.25

# Dual form.

# Number of entries and of terms of all rows above which the search for matrices that rows define is left
# out: it takes seconds.
LARGEST_LISTED = 10_000_000
# Operations of Newton's step in the dual, relative to those in the program, up to which the dual is solved.
DUAL_PAYS = 0.5

# Whitening and scaling: condition numbers of X0.

# Up to this one, Newton's method keeps the coordinates of the rows, in which these are sparse.
WHITENED_CONDITION = 1e6
# Up to this one, the reference keeps them. Its backends lose digits earlier.
REFERENCE_CONDITION = 1e3

# Chordal sparsity.

# Order from which a sparse pattern is looked for; below, a step takes less than the calls for cliques.
LEAST_CHORDAL_ORDER = 170
# Order above which none is looked for: the search and a program of so many cliques take ten seconds or more.
LARGEST_CHORDAL_ORDER = 50_000
# Terms of cost and rows up to which they are listed: a second, and 200 MB.
MOST_PATTERN_TERMS = 5_000_000
# Fraction of nonzeros up to which a pattern is sparse.
LARGEST_PATTERN = 0.25
# Operations of the search for cliques, relative to the cubed order, and at most (0.2 seconds): two percent of
# the time for the whole matrix.
SEARCH_SHARE, MOST_SEARCH = 1e-3, 5e6
# Least number of vertices that a clique is expected to have besides its separator.
LEAST_ELIMINATED = 10
# Fraction of the vertices from which those of degree 2 at most are eliminated alone: the cube of the number
# of others falls to half.
LEAST_FRINGE = 0.2
# Order up to which the interior-point method stacks matrices of equal order, `stack_order` of its tuning.
LARGEST_STACKED = 40
# Nanoseconds of a Newton step, by which cliques are merged and a decomposition is chosen. Stacked matrices:
# for each, times its order squared, and for each stack.
SMALL_CLIQUE_TIME, SMALL_SQUARE_TIME, GROUP_TIME = 4e4, 200.0, 2e5
# Larger matrices: for each, and times its order squared and cubed.
LARGE_CLIQUE_TIME, LARGE_SQUARE_TIME, ORDER_TIME = 2e5, 40.0, 0.17
# The system: times the squared number of terms in a clique, for each multiplication in the factorization of a
# sparse system, and times the cubed number of rows of a dense one.
TERM_TIME, FRONT_TIME, DENSE_TIME = 10.0, 0.35, 0.012
# Time of a step on cliques, relative to one on the whole matrix, below which they pay: estimates err as much.
DECOMPOSED_SHARE = 0.6
# Multiple of the identity, relative to the largest diagonal entry, that makes singular clique submatrices
# definite.
COMPLETION_NOISE = 1e-15
