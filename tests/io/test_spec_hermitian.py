"""Problems with Hermitian matrices and with linear maps of atoms, written as specs and read again."""

import tomllib

import jsonschema
import numpy as np
import pytest
from samples import first, turns
from test_spec_writer import SCHEMA, again, numbers

import bregopt as bo
from bregopt.io.serialization import same_data

RNG = np.random.default_rng(5)
Z = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
S = Z @ Z.conj().T + np.eye(4)
H = (Z + Z.conj().T) / 2
WEIGHTS = np.abs(RNG.normal(size=(4, 4)) + 3)
WEIGHTS = WEIGHTS + WEIGHTS.T


def read_again(problem, folder):
    """Return the problem that a written one is read as; the text meets the schema."""
    problem.to_spec(folder / "a.toml")
    text = (folder / "a.toml").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator(SCHEMA).validate(tomllib.loads(text))
    return bo.load_spec(folder / "a.toml").problem


def rho_and_t():
    return bo.PSD(4, hermitian=True, name="rho"), bo.Variable(name="t")


def real_rows(rho, t):
    """Return rows of every kind of data, all of real numbers."""
    return {
        "trace": bo.trace(rho) == 1,
        "entries": rho[[0, 1], [1, 2]].real <= [0.5, 0.25],
        "parts": rho[2, 3].imag <= t + 1,
        "inner": bo.inner(H, rho) >= -9,
        "forms": bo.quad_form(Z, rho) <= 40,
        "soft": bo.soft(rho[0, 1].imag == 0.25, gamma=3.0),
        "soft bounds": bo.soft(bo.quad_form(Z[:2], rho) <= [1, 2], gamma=[1, 2.5], penalty="hinge"),
        "between": bo.between(rho[1, 0].imag, -1, 1),
        "cap": bo.lambda_max(rho) <= 0.75,
        "real part": rho.real >> -np.eye(4),
    }


def complex_rows(rho, t):
    """Return constraints on complex numbers and Hermitian matrices."""
    return {
        "number": rho[0, 1] == 0.1 + 0.05j,
        "imaginary": rho[0, 1] == -0.05j,
        "reduced": bo.partial_trace(rho, (2, 2), keep=0) == np.eye(2) / 2,
        "map": Z[:2] @ rho[:, :2] - t * np.ones((2, 2)) == np.full((2, 2), 0.1j),
        "scaled": (0.5 - 2j) * rho[0] == [1, 1j, 0.25, -1j],
        "ppt": bo.partial_transpose(rho, (2, 2), 1) >> 0,
        "ordered": rho << 0.75 * np.eye(4),
        "conjugate": S - rho.H >> 0,
        "product": bo.kron(np.array([[2, 1j], [-1j, 3]]), rho[:2, :2]) >> -np.eye(4),
        "named": (rho >> 0.01 * S / np.trace(S).real).named("above"),
    }


DIVERGENCES = {
    "frobenius": lambda rho: bo.frobenius_div(rho, H),
    "weighted": lambda rho: bo.frobenius_div(rho, H, weights=WEIGHTS),
    "logdet": lambda rho: 0.5 * bo.logdet_div(rho, S),
    "von_neumann": lambda rho: bo.von_neumann_div(rho, S),
}


@pytest.mark.parametrize(("name", "divergence"), turns(real_rows(*rho_and_t()), DIVERGENCES))
def test_programs_of_real_rows_are_the_same(tmp_path, name, divergence):
    rho, t = rho_and_t()
    goal = bo.Minimize(DIVERGENCES[divergence](rho) + bo.sum_squares(t))
    twin = again(bo.Problem(goal, [bo.trace(rho) == 1, real_rows(rho, t)[name]]), tmp_path)
    assert repr(twin.matrices[0]) == "PSD(4, name='rho', hermitian=True)"


@pytest.mark.parametrize("name", complex_rows(*rho_and_t()))
def test_programs_of_complex_rows_are_the_same(tmp_path, name):
    rho, t = rho_and_t()
    row = complex_rows(rho, t)[name]
    goal = bo.Minimize(bo.inner(H, rho) + bo.frobenius_div(rho, S))
    problem = bo.Problem(goal, [bo.trace(rho) <= 1, row])
    twin = read_again(problem, tmp_path)
    assert numbers(twin) == numbers(problem)
    assert type(twin.constraints[1]) is type(row)
    assert twin.constraints[1].title == row.title


def atoms(rho, t):
    """Return objectives and constraints with atoms of Hermitian variables and of complex expressions."""
    A = rho - S / 9
    return {
        "log_det": (-bo.log_det(rho), [bo.trace(rho) == 1]),
        "log_det of a map": (-bo.log_det(rho + np.eye(4)), [bo.trace(rho) == 1]),
        "nuclear": (bo.norm_nuc(A), [bo.trace(rho) == 1]),
        "nuclear bound": (bo.inner(H, rho), [bo.norm_nuc(A) <= 4, bo.trace(rho) == 1]),
        "nuclear of rows": (bo.norm_nuc(rho[:2] - 1j), [bo.trace(rho) == 1]),
        "spectral": (bo.sigma_max(A) + bo.sigma_max(rho[:2] - 1j), [bo.trace(rho) == 1]),
        "eigenvalues": (bo.lambda_max(A) - bo.lambda_min(rho), [bo.lambda_max(rho) <= t, t <= 1]),
        "largest": (bo.lambda_sum_largest(A, 2), [bo.lambda_sum_largest(rho, 2) <= 1, bo.trace(rho) == 1]),
        "largest bound": (bo.inner(H, rho), [bo.lambda_sum_largest(A, 3) <= 1, bo.trace(rho) <= 9]),
        "norms": (bo.norm2(rho[0] - 1j) + bo.sum_squares(rho[:, 1] - Z[0]), [bo.trace(rho) == 1]),
    }


def solvable(name):
    rho, t = rho_and_t()
    objective, rows = atoms(rho, t)[name]
    return bo.Problem(bo.Minimize(objective), rows)


@pytest.mark.parametrize("name", atoms(*rho_and_t()))
def test_values_of_atoms_are_the_same(tmp_path, name):
    problem = solvable(name)
    twin = read_again(problem, tmp_path)
    ours, theirs = problem.solve(tol=1e-7), twin.solve(tol=1e-7)
    assert ours.status == "optimal"
    assert theirs.value == pytest.approx(ours.value, rel=1e-6, abs=1e-6)
    given = Z @ Z.conj().T
    for one in (problem, twin):  # the value of the expression itself, at a matrix that is no optimum
        one.matrices[0].value = given
    assert twin.objective.expression.value == pytest.approx(problem.objective.expression.value, rel=1e-12)


def test_answers_and_duals_are_the_same(tmp_path):
    rho, _ = rho_and_t()
    rows = [bo.trace(rho) == 1, rho[0, 1] == 0.1 + 0.05j, bo.partial_transpose(rho, (2, 2), 1) >> 0]
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(rho, S)), rows)
    twin = read_again(problem, tmp_path)
    ours, theirs = problem.solve(), twin.solve()
    np.testing.assert_array_equal(ours.X, theirs.X)
    for one, other in zip(ours.duals, theirs.duals, strict=True):
        np.testing.assert_array_equal(one, other)
    document = tomllib.loads((tmp_path / "a.toml").read_text(encoding="utf-8"))
    assert document["variables"] == {"rho": {"psd": 4, "hermitian": True}}
    assert document["problem"] == {
        "minimize": "von_neumann_div(rho, X0_rho)",
        "subject_to": [
            "trace(rho) == 1.0",
            "rho[0, 1] == 0.1+0.05j",
            "partial_transpose(rho, [2, 2], which=[1]) >> 0",
        ],
    }
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["X0_rho"], S)


def test_a_spec_by_hand(tmp_path):
    np.savez(tmp_path / "data.npz", S=S, H=H)
    (tmp_path / "a.toml").write_text(
        """
        arrays = "data.npz"
        [variables]
        rho = { psd = 4, hermitian = true }
        [problem]
        minimize = "logdet_div(rho, S) + inner(H, rho)"
        subject_to = [
            "partial_trace(rho, [2, 2], keep=0) == 0.5 * [[1, 0.2j], [-0.2j, 1]]",
            "rho.H[0, 3].imag <= 0.1",
        ]
        """
    )
    read = bo.load_spec(tmp_path / "a.toml").problem
    rho = bo.PSD(4, hermitian=True, name="rho")
    reduced = bo.partial_trace(rho, [2, 2], keep=0) == 0.5 * np.array([[1, 0.2j], [-0.2j, 1]])
    own = bo.Problem(
        bo.Minimize(bo.logdet_div(rho, S) + bo.inner(H, rho)), [reduced, rho.H[0, 3].imag <= 0.1]
    )
    assert numbers(read) == numbers(own)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hermitian = true", "hermitian = 1", "hermitian is 1; expected true or false"),
        ("hermitian = true", "hermitian = false", "complex"),
        ('class = "ComplexExpression"', 'class = "Expression"', "difference"),
        ("shape = [2, 2]", "shape = [4]", "imag has shape"),
    ],
)
def test_damaged_specs_are_refused(tmp_path, old, new, message):
    rho, _ = rho_and_t()
    row = Z[:2] @ rho[:, :2] == np.full((2, 2), 0.1j)
    bo.Problem(bo.Minimize(bo.frobenius_div(rho, S)), [row]).to_spec(tmp_path / "a.toml")
    text = (tmp_path / "a.toml").read_text()
    assert old in text
    (tmp_path / "a.toml").write_text(text.replace(old, new, 1))
    with pytest.raises((TypeError, ValueError), match=message):
        bo.load_spec(tmp_path / "a.toml")


# --- Random problems --------------------------------------------------------------------------------


class Drawn:
    """A random problem of a real, a Hermitian and an ordinary variable, with parameters."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.n = int(self.rng.integers(1, 4))
        names = self.rng.permutation(["a b", "rho", "kron", "X", "é"]).tolist()
        self.rho = bo.PSD(self.n, hermitian=True, name=names[0])
        self.X = bo.PSD(2, name=names[1])
        self.u, self.t = bo.Variable(2, name=names[2]), bo.Parameter(value=1.5, name=names[3])

    def numbers(self, *shape):
        A = self.rng.normal(size=shape)
        return A if self.rng.random() < 0.25 else A + 1j * self.rng.normal(size=shape)

    def hermitian(self):
        A = self.numbers(self.n, self.n)
        return A @ A.conj().T + np.eye(self.n)

    def matrix(self):
        """Return a Hermitian expression."""
        C = self.numbers(self.n, self.n)
        of_u = self.u[0] * np.eye(self.n) - self.t * np.ones((self.n, self.n))
        kinds = [
            lambda: self.rho - self.hermitian(),
            lambda: C @ self.rho @ C.conj().T + of_u,
            lambda: self.rho.T + self.rho.real,
            lambda: bo.partial_transpose(bo.kron(self.rho, np.eye(2)), (self.n, 2), 0),
            lambda: bo.partial_trace(bo.kron(np.array([[2, 1j], [-1j, 1]]), self.rho), (2, self.n), 1),
        ]
        return self.rng.choice(kinds)()

    def row(self):
        i, j = self.rng.integers(self.n, size=2)
        F, c = self.matrix(), complex(self.numbers())
        kinds = [
            lambda: self.rho[i, j] == c,
            lambda: c * F[0] - self.u[1] == self.numbers(F.shape[1]),
            lambda: F >> self.u[0] * np.eye(F.shape[0]),
            lambda: F << 9 * np.eye(F.shape[0]),
            lambda: F[0, 0].real <= self.t,
            lambda: bo.soft(F[0].imag >= self.X[0, 1], self.t, "hinge"),
            lambda: bo.quad_form(self.numbers(2, self.n), self.rho) >= self.u,
            lambda: bo.inner(self.hermitian(), self.rho) + bo.trace(self.X) == 3,
            lambda: bo.lambda_max(self.rho) <= self.t,
        ]
        return self.rng.choice(kinds)()

    def problem(self):
        goals = [
            lambda: bo.frobenius_div(self.rho, self.hermitian()),
            lambda: self.t * bo.von_neumann_div(self.rho, self.hermitian()),
            lambda: 0.5 * bo.logdet_div(self.rho, self.hermitian()) + bo.trace(self.X),
            lambda: bo.inner(self.hermitian(), self.rho) + bo.sum(self.X),
        ]
        rows = [self.row() for _ in range(self.rng.integers(1, 5))]
        return bo.Problem(bo.Minimize(self.rng.choice(goals)()), [bo.trace(self.rho) <= 5, *rows])


@pytest.mark.parametrize("seed", first(15, range(80)))
def test_random_programs_are_the_same(tmp_path, seed):
    problem = Drawn(seed).problem()
    twin = read_again(problem, tmp_path)
    assert numbers(twin) == numbers(problem)
    assert [c.title for c in twin.constraints] == [c.title for c in problem.constraints]


# --- Linear maps of atoms ----------------------------------------------------------------------------


def maps(X, u):
    """Return convex expressions that are linear maps of atoms, of arrays of one and of two axes."""
    A, B = np.abs(Z[:2, :3]), np.abs(Z[1:, 2:])
    return {
        "left": A @ bo.abs(X),
        "right": bo.abs(X) @ B,
        "both": A @ bo.abs(X - 1) @ B,
        "vector": bo.square(X) @ np.ones(3),
        "row vector": np.ones(3) @ bo.maximum(X, 0.1),
        "sums": bo.sum(bo.square(X), axis=0),
        "summed": bo.sum(bo.square(X), axis=1) @ A[0],
        "row": bo.maximum(X, 0.1)[0],
        "entry": bo.abs(X)[1, 2],
        "sum": bo.sum(bo.abs(X)),
        "weights": np.abs(H.real[:3, :3]) * bo.abs(X),
        "transposed": 2 * bo.abs(X)[[0, 2]][:, [1, 1]],
        "repeated": bo.abs(u) + np.zeros((2, 4)),
        "rows of a vector": A[:, :2] @ bo.abs(u)[1:3],
    }


@pytest.mark.parametrize("name", maps(bo.PSD(3), bo.Variable(4)))
def test_linear_maps_of_atoms_are_written(tmp_path, name):
    X, u = bo.PSD(3, name="X"), bo.Variable(4, name="u")
    total, bounded = (maps(X, u)[name] for _ in range(2))
    goal = bo.Minimize(bo.sum(total) + bo.frobenius_div(X, np.ones((3, 3))))
    problem = bo.Problem(goal, [bounded <= 40, bo.trace(X) == 1])
    twin = read_again(problem, tmp_path)
    assert numbers(twin) == numbers(problem)


def test_a_map_of_another_shape_is_refused(tmp_path):
    X = bo.PSD(3, name="X")
    bo.Problem(bo.Minimize(bo.trace(X)), [bo.abs(X)[0] <= 1]).to_spec(tmp_path / "a.toml")
    text = (tmp_path / "a.toml").read_text()
    (tmp_path / "a.toml").write_text(text.replace("shape=[3]", "shape=[4]"))
    with pytest.raises(ValueError, match=r"matrix of linear_map has shape \(3, 9\); expected 4 x 9"):
        bo.load_spec(tmp_path / "a.toml")


@pytest.mark.parametrize("labels", [["a", "b c", "é"], [7, 8, 9]])
def test_labels_of_rows_are_kept(tmp_path, labels):
    pandas = pytest.importorskip("pandas")
    X = bo.PSD(3, name="X")
    rows = [bo.diag(X) >= pandas.Series([1.0, 2, 3], index=labels)]
    upper = pandas.DataFrame(np.ones((3, 3)), index=labels, columns=labels)
    rows.append(bo.soft(X <= upper, 2.0).named("all"))
    twin = again(bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), rows), tmp_path)
    for one, other in zip(twin.constraints, rows, strict=True):
        assert [list(axis) for axis in one.axes] == [list(axis) for axis in other.axes]
    assert same_data(twin.constraints[0].axes, (labels,))
