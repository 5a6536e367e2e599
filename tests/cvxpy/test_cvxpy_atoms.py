"""Every public atom of CVXPY beside a psd matrix: read, or passed on; never another package's traceback."""

import inspect
import warnings

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
from bregopt.cvxpy import BREGOPT

A = np.array([[2.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.5]])
B = np.array([[1.0, 2.0], [0.5, -1.0]])
w = np.array([0.5, 1.0, 2.0])
Y = np.array([[0.7, 0.1], [0.1, 0.5]])


class Parts:
    """Variables of each kind; `rows` bounds all of them."""

    def __init__(self):
        self.X = cp.Variable((3, 3), PSD=True)
        self.P = cp.Variable((2, 2), PSD=True)
        self.S = cp.Variable((3, 3), symmetric=True)
        self.F = cp.Variable((2, 3))
        self.H = cp.Variable((2, 2), hermitian=True)
        self.D = cp.Variable((4, 4), PSD=True)
        self.N = cp.Variable((2, 2, 2))
        self.x = cp.Variable(3)
        self.s = cp.Variable(nonneg=True)
        self.p = cp.Variable(3, pos=True)

    def rows(self, used):
        """Return rows that bound the given expressions, away from zero."""
        kinds = {
            self.X: [cp.trace(self.X) == 2, self.X >> 0.1 * np.eye(3)],
            self.P: [cp.trace(self.P) == 1, self.P >> 0.1 * np.eye(2)],
            self.S: [self.S >> 0.2 * np.eye(3), cp.trace(self.S) <= 3],
            self.F: [self.F >= -1, self.F <= 1],
            self.H: [self.H >> 0, cp.real(cp.trace(self.H)) == 1],
            self.D: [cp.trace(self.D) == 1, self.D >> 0.1 * np.eye(4)],
            self.N: [self.N >= -1, self.N <= 1],
            self.x: [self.x >= 0.5, self.x <= 2],
            self.s: [self.s >= 0.5, self.s <= 2],
            self.p: [self.p >= 0.5, self.p <= 2],
        }
        return [row for variable in used for row in kinds[variable]]


# The arguments of each atom; several if the atom has several forms.
ATOMS = {
    "AddExpression": lambda v: [v.X + A],
    "GeoMean": lambda v: [cp.geo_mean(cp.diag(v.X), approx=False)],
    "GeoMeanApprox": lambda v: [cp.geo_mean(cp.diag(v.X), approx=True)],
    "MatrixFrac": lambda v: [cp.atoms.MatrixFrac(v.x, v.X)],
    "MulExpression": lambda v: [A @ v.X, v.x @ A, A[:2] @ v.X @ A],
    "Pnorm": lambda v: [cp.pnorm(v.x, 3, approx=False)],
    "PnormApprox": lambda v: [cp.pnorm(v.x, 3, approx=True)],
    "Power": lambda v: [cp.power(v.x, 3, approx=False)],
    "PowerApprox": lambda v: [cp.power(v.x, 0.3, approx=True)],
    "Prod": lambda v: [cp.atoms.Prod(v.x)],
    "QuadForm": lambda v: [cp.quad_form(v.x, A)],
    "Sum": lambda v: [cp.sum(v.X, axis=0)],
    "Trace": lambda v: [cp.trace(A @ v.X), cp.real(cp.trace(v.H))],
    "abs": lambda v: [cp.abs(v.X), cp.abs(v.H)],
    "bmat": lambda v: [cp.bmat([[v.X, A], [A, v.X]])],
    "broadcast_to": lambda v: [cp.broadcast_to(v.x, (2, 3))],
    "ceil": lambda v: [cp.ceil(v.x)],
    "concatenate": lambda v: [cp.concatenate([v.X, v.S], axis=0)],
    "condition_number": lambda v: [cp.condition_number(v.S)],
    "conj": lambda v: [cp.conj(v.X), cp.real(cp.conj(v.H))],
    "conv": lambda v: [cp.conv(w, v.x)],
    "convolve": lambda v: [cp.convolve(w, v.x)],
    "cummax": lambda v: [cp.cummax(v.x)],
    "cumprod": lambda v: [cp.cumprod(v.x)],
    "cumsum": lambda v: [cp.cumsum(v.X, axis=0)],
    "cvar": lambda v: [cp.cvar(v.x, 0.5)],
    "deep_flatten": lambda v: [cp.atoms.deep_flatten([v.x, [v.s]])],
    "diag": lambda v: [cp.diag(v.X), cp.diag(v.x)],
    "diff": lambda v: [cp.diff(v.x)],
    "diff_pos": lambda v: [cp.diff_pos(v.x, 0.1)],
    "dist_ratio": lambda v: [cp.dist_ratio(v.x, w, 2 * w)],
    "dotsort": lambda v: [cp.dotsort(v.x, w)],
    "einsum": lambda v: [cp.einsum("ij,jk->ik", A, v.X)],
    "entr": lambda v: [cp.entr(v.x), cp.entr(cp.diag(v.X))],
    "exp": lambda v: [cp.exp(v.x)],
    "eye_minus_inv": lambda v: [cp.eye_minus_inv(v.X)],
    "floor": lambda v: [cp.floor(v.x)],
    "gen_lambda_max": lambda v: [cp.gen_lambda_max(v.S, v.X)],
    "geo_mean": lambda v: [cp.geo_mean(v.x)],
    "gmatmul": lambda v: [cp.gmatmul(A, v.p)],
    "harmonic_mean": lambda v: [cp.harmonic_mean(v.x)],
    "hermitian_wrap": lambda v: [cp.real(cp.hermitian_wrap(v.H))],
    "hstack": lambda v: [cp.hstack([v.X, A])],
    "huber": lambda v: [cp.huber(v.X)],
    "imag": lambda v: [cp.imag(v.H), cp.imag(v.X), cp.imag(1j * v.x)],
    "inv_pos": lambda v: [cp.inv_pos(v.x)],
    "inv_prod": lambda v: [cp.inv_prod(v.x)],
    "kl_div": lambda v: [cp.kl_div(v.x, w), cp.kl_div(w, v.x)],
    "kron": lambda v: [cp.kron(B, v.X), cp.kron(v.X, B)],
    "lambda_max": lambda v: [cp.lambda_max(v.S), cp.lambda_max(v.H)],
    "lambda_min": lambda v: [cp.lambda_min(v.S)],
    "lambda_sum_largest": lambda v: [cp.lambda_sum_largest(v.S, 2)],
    "lambda_sum_smallest": lambda v: [cp.lambda_sum_smallest(v.S, 2)],
    "length": lambda v: [cp.length(v.x)],
    "log": lambda v: [cp.log(v.x), cp.log(cp.diag(v.X))],
    "log1p": lambda v: [cp.log1p(v.x)],
    "log_det": lambda v: [cp.log_det(v.X), cp.log_det(v.S + A)],
    "log_normcdf": lambda v: [cp.log_normcdf(v.x)],
    "log_sum_exp": lambda v: [cp.log_sum_exp(v.x)],
    "loggamma": lambda v: [cp.loggamma(v.x)],
    "logistic": lambda v: [cp.logistic(v.x)],
    "matmul": lambda v: [cp.matmul(A, v.X)],
    "matrix_frac": lambda v: [cp.matrix_frac(v.x, v.X), cp.matrix_frac(np.eye(3), v.S)],
    "max": lambda v: [cp.max(v.X), cp.max(v.X, axis=0)],
    "maximum": lambda v: [cp.maximum(v.X, A), cp.maximum(v.x, w, 1)],
    "mean": lambda v: [cp.mean(v.X)],
    "min": lambda v: [cp.min(v.X)],
    "minimum": lambda v: [cp.minimum(v.X, A)],
    "mixed_norm": lambda v: [cp.mixed_norm(v.F, 2, 1)],
    "moveaxis": lambda v: [cp.moveaxis(v.N, 0, 2)],
    "multiply": lambda v: [cp.multiply(A, v.X)],
    "neg": lambda v: [cp.neg(v.X)],
    "norm": lambda v: [cp.norm(v.F, "nuc"), cp.norm(v.X, "fro"), cp.norm(v.F, 2), cp.norm(v.x)],
    "norm1": lambda v: [cp.norm1(v.X)],
    "norm2": lambda v: [cp.norm2(v.x)],
    "normNuc": lambda v: [cp.normNuc(v.F), cp.normNuc(v.X)],
    "norm_inf": lambda v: [cp.norm_inf(v.X)],
    "norm_nuc": lambda v: [cp.normNuc(v.F)],
    "one_minus_pos": lambda v: [cp.one_minus_pos(v.x)],
    "outer": lambda v: [cp.outer(v.x, w)],
    "partial_trace": lambda v: [cp.partial_trace(v.D, (2, 2), 0)],
    "partial_transpose": lambda v: [cp.partial_transpose(v.D, (2, 2), 0)],
    "permute_dims": lambda v: [cp.permute_dims(v.N, (2, 0, 1))],
    "perspective": lambda v: [cp.perspective(cp.square(v.x[0]), v.s)],
    "pf_eigenvalue": lambda v: [cp.pf_eigenvalue(v.X)],
    "pnorm": lambda v: [cp.pnorm(v.x, 4), cp.pnorm(v.x, 0.5)],
    "pos": lambda v: [cp.pos(v.X)],
    "power": lambda v: [cp.power(v.x, 2), cp.power(v.x, 0.5), cp.power(v.x, -1)],
    "prod": lambda v: [cp.prod(v.x)],
    "promote": lambda v: [cp.promote(v.s, (2, 2))],
    "psd_wrap": lambda v: [cp.quad_form(v.x, cp.psd_wrap(A)), cp.psd_wrap(v.X)],
    "ptp": lambda v: [cp.ptp(v.x)],
    "quad_form": lambda v: [cp.quad_form(v.x, A), cp.quad_form(w, v.X)],
    "quad_over_lin": lambda v: [cp.quad_over_lin(v.x, v.s), cp.quad_over_lin(v.X, 2)],
    "quantum_cond_entr": lambda v: [cp.quantum_cond_entr(v.D, [2, 2])],
    "quantum_rel_entr": lambda v: [cp.quantum_rel_entr(v.P, Y)],
    "real": lambda v: [cp.real(v.H), cp.real(v.X)],
    "rel_entr": lambda v: [cp.rel_entr(v.x, w), cp.rel_entr(w, v.x)],
    "reshape": lambda v: [cp.reshape(v.X, (9,), order="F"), cp.reshape(v.X, (9,), order="C")],
    "resolvent": lambda v: [cp.resolvent(v.X, 3.0)],
    "scalar_product": lambda v: [cp.scalar_product(v.x, w)],
    "scalene": lambda v: [cp.scalene(v.X, 1, 2)],
    "sigma_max": lambda v: [cp.sigma_max(v.F), cp.sigma_max(v.X)],
    "sign": lambda v: [cp.sign(v.x)],
    "skew_symmetric_wrap": lambda v: [cp.atoms.skew_symmetric_wrap(v.F[:, :2] - v.F[:, :2].T)],
    "sqrt": lambda v: [cp.sqrt(v.x)],
    "square": lambda v: [cp.square(v.x), cp.square(v.X)],
    "squeeze": lambda v: [cp.squeeze(v.F[:1])],
    "stack": lambda v: [cp.stack([v.X, v.S])],
    "std": lambda v: [cp.std(v.x)],
    "sum": lambda v: [cp.sum(v.X)],
    "sum_largest": lambda v: [cp.sum_largest(v.X, 3)],
    "sum_smallest": lambda v: [cp.sum_smallest(v.X, 3)],
    "sum_squares": lambda v: [cp.sum_squares(v.X - A), cp.sum_squares(v.x)],
    "swapaxes": lambda v: [cp.swapaxes(v.N, 0, 2)],
    "symmetric_wrap": lambda v: [cp.atoms.symmetric_wrap(v.F[:, :2] + v.F[:, :2].T)],
    "tr_inv": lambda v: [cp.tr_inv(v.S)],
    "trace": lambda v: [cp.trace(v.X @ A)],
    "transpose": lambda v: [cp.transpose(v.F), cp.transpose(v.F, (1, 0)), cp.transpose(v.F, (0, 1))],
    "tv": lambda v: [cp.tv(v.x), cp.tv(v.X)],
    "upper_tri": lambda v: [cp.upper_tri(v.X)],
    "var": lambda v: [cp.var(v.x)],
    "vdot": lambda v: [cp.vdot(A, v.X)],
    "vec": lambda v: [cp.vec(v.X, order="F")],
    "vec_to_upper_tri": lambda v: [cp.vec_to_upper_tri(v.x)],
    "von_neumann_entr": lambda v: [cp.von_neumann_entr(v.P)],
    "vstack": lambda v: [cp.vstack([v.X, A])],
    "xexp": lambda v: [cp.xexp(v.x)],
}
# CVXPY makes so many cones of these that Clarabel takes minutes: test_cvxpy_method.py has their values.
SLOW = ("quantum_cond_entr", "quantum_rel_entr", "von_neumann_entr")
HERE = [name for name in ATOMS if hasattr(cp.atoms, name)]


def public_atoms():
    return {
        name
        for name, held in vars(cp.atoms).items()
        if not name.startswith("_") and callable(held) and not inspect.ismodule(held)
    }


def test_the_table_has_all_atoms():
    assert public_atoms() <= set(ATOMS)


def problems(name, form):
    """Yield DCP problems with a psd matrix, and an atom in the objective or in a constraint."""
    for number in range(len(ATOMS[name](Parts()))):
        v = Parts()
        e = ATOMS[name](v)[number]
        weight = np.ones(e.shape)
        scalar = e if e.size == 1 and e.shape == () else cp.sum(cp.multiply(weight, e))
        scalar = cp.real(scalar) if scalar.is_complex() else scalar
        rows = v.rows(dict.fromkeys([*scalar.variables(), v.X]))
        sign = -1.0 if scalar.is_concave() and not scalar.is_affine() else 1.0
        if form == "objective":
            yield cp.Problem(cp.Minimize(sign * scalar + cp.trace(A @ v.X)), rows)
        else:
            t = cp.Variable()
            yield cp.Problem(cp.Minimize(t + cp.trace(A @ v.X)), [*rows, sign * scalar <= t])


def outcome(problem, **options):
    """Return the status and value of a problem, or the class of its error."""
    try:
        problem.solve(**options)
    except Exception as error:  # CVXPY's own, some of which are not documented: Clarabel's are the same
        return type(error).__name__, None
    return problem.status, problem.value


@pytest.fixture(autouse=True)
def quiet():
    """Ignore warnings of CVXPY on deprecated atoms, arrays of three dimensions and inaccurate answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def end_alike(name, references, form, **options):
    """Check that the problems of an atom end as the references, by options of CVXPY's ``solve``."""
    # New problems, as CVXPY compiles some atoms from the current values of their variables.
    for problem, (status, value) in zip(problems(name, form), references, strict=True):
        found, ours = outcome(problem, **options)
        if value is None:  # CVXPY does not compile it; what is read as written need not be
            assert found in (status, "optimal")
            continue
        assert found.removesuffix("_inaccurate") == status.removesuffix("_inaccurate")
        assert ours == pytest.approx(value, rel=1e-4, abs=1e-4)


def is_affine(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return all(e.is_affine() for e in ATOMS[name](Parts()))


@pytest.mark.parametrize("name", [name for name in HERE if name not in SLOW])
def test_each_atom_ends_as_clarabel_does(name):
    # The epigraph has the value of the objective, and CVXPY compiles both to the cones of the epigraph.
    references = [outcome(problem, solver=cp.CLARABEL) for problem in problems(name, "constraint")]
    end_alike(name, references, "constraint", solver=BREGOPT)
    end_alike(name, references, "constraint", method="bregopt")
    if not is_affine(name):  # an affine atom has one reading in objectives and constraints
        end_alike(name, references, "objective", method="bregopt")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HERE if name not in SLOW])
def test_each_atom_in_an_objective_ends_as_clarabel_does(name):
    references = [outcome(problem, solver=cp.CLARABEL) for problem in problems(name, "objective")]
    end_alike(name, references, "objective", solver=BREGOPT)
    end_alike(name, references, "objective", method="bregopt")


@pytest.mark.parametrize("form", ["objective", "constraint"])
@pytest.mark.parametrize("name", SLOW)
def test_entropies_of_matrices_are_read_or_refused_with_the_reason(name, form):
    for problem in problems(name, form):
        if form == "objective" or name == "von_neumann_entr":
            assert bo.from_cvxpy(problem).program().blocks
        else:
            with pytest.raises(bo.UnsupportedProblemError, match="quantum"):
                bo.from_cvxpy(problem)


def test_duals_of_matrix_inequalities_beside_convex_terms_are_stationary():
    n = 3
    x, t, R = cp.Variable(n), cp.Variable(), cp.Variable((n, n), symmetric=True)
    column = cp.reshape(x, (n, 1), order="F")
    corner = cp.bmat([[R + np.eye(n), column], [column.T, cp.reshape(t, (1, 1), order="F")]])
    rows = [cp.trace(R) <= 1, corner >> 0, t <= 0.5]
    problem = cp.Problem(cp.Minimize(cp.log_sum_exp(x) + cp.sum_squares(x - w)), rows)
    problem.solve(method="bregopt", tol=1e-8)
    Z = rows[1].dual_value
    assert np.linalg.eigvalsh(Z).min() >= -1e-6
    softmax = np.exp(x.value) / np.exp(x.value).sum()
    assert 2 * Z[:n, n] == pytest.approx(softmax + 2 * (x.value - w), abs=1e-5)
    assert Z[:n, :n] == pytest.approx(rows[0].dual_value * np.eye(n), abs=1e-5)
    assert Z[n, n] == pytest.approx(float(rows[2].dual_value), abs=1e-5)
    assert np.linalg.norm(Z) > 0.1


@pytest.mark.parametrize("n", [3, 4])
def test_a_sum_of_exponentials_whose_arguments_are_in_other_rows_is_read(n):
    X, x = cp.Variable((n, n), PSD=True), cp.Variable(n)
    rows = [cp.trace(X) <= 3, cp.abs(x) <= 2, X + 2 * np.eye(n) - 0.1 * cp.diag(x) >> 0]
    rows += [cp.max(x) <= 1.5] if n == 4 else []
    cost = 1.5 * cp.log_sum_exp(x) + cp.norm(X - np.eye(n) / 2 - 0.1, "fro")
    problem = cp.Problem(cp.Minimize(cost), rows)
    problem.solve(solver=BREGOPT)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(1.5 * (np.log(n) - 2), abs=1e-6)  # X may be its target
