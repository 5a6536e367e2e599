"""What users of CVXPY expect of every solver: duals without a point, no traceback, one warning, numbers."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.transforms import indicator, scalarize

from bregopt.cvxpy import BREGOPT
from bregopt.cvxpy.problems import method

N = 3
C = np.diag([2.0, 1.0, 3.0]) + 0.2
WAYS = {"method": {"method": "bregopt"}, "solver": {"solver": BREGOPT}}
both = pytest.mark.parametrize("way", WAYS)
OLD = tuple(map(int, cp.__version__.split(".")[:2])) < (1, 7)


def psd():
    return cp.Variable((N, N), PSD=True)


# --- Duals of infeasible problems ----------------------------------------------------------------------


def one_row():
    X = psd()
    return [X[0, 0] == -1]


def one_row_beside_a_cone():
    X = cp.Variable((N, N), symmetric=True)
    return [X >> 0, X[0, 0] == -1]


def one_inequality():
    X = psd()
    return [cp.trace(X) <= -2]


def two_rows():
    X = psd()
    return [cp.trace(X) == 1, X[0, 0] >= 2]


def matrix_inequality():
    x = cp.Variable(2)
    return [x[0] * np.eye(2) + x[1] * np.array([[0, 1], [1, 0]]) >> 0, x[0] <= -1]


def box():
    X, t = psd(), cp.Variable()
    return [t >= 2, t <= 1, X[0, 0] == 1]


def norm():
    X = psd()
    return [cp.norm(X[0]) <= -1]


INFEASIBLE = [one_row, one_row_beside_a_cone, one_inequality, two_rows, matrix_inequality, box, norm]


@both
@pytest.mark.skipif(OLD, reason=f"CVXPY {cp.__version__} keeps no duals of infeasible problems")
@pytest.mark.parametrize("make", INFEASIBLE)
@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_duals_of_infeasible_problems_are_a_farkas_vector(make, way, sense):
    constraints = make()
    x = constraints[0].variables()[0]
    problem = cp.Problem(sense(cp.sum(x)), constraints)
    problem.solve(**WAYS[way])
    assert problem.status == "infeasible"
    assert problem.value == (np.inf if sense is cp.Minimize else -np.inf)
    assert all(c.dual_value is not None for c in constraints)
    assert _supremum(constraints) < 0


def _supremum(constraints):
    """Return the supremum of the combined constraints' left sides over the variables with their attributes.

    For a Farkas vector it is negative, although each term is nonnegative at a feasible point.
    """
    total, size = 0, max(np.abs(c.dual_value).max() for c in constraints)
    for c in constraints:
        v = c.dual_value / size
        if isinstance(c, cp.constraints.PSD):
            total = total + cp.trace(v @ c.args[0])
        elif isinstance(c, cp.constraints.Equality):
            total = total - cp.sum(cp.multiply(v, c.expr))
        else:
            total = total - cp.sum(cp.multiply(v, c.args[0] - c.args[1]))
    box = [cp.norm(variable, "inf") <= 1 for variable in total.variables()]
    problem = cp.Problem(cp.Maximize(total), box)
    problem.solve(solver="CLARABEL")
    return problem.value


# --- Never a traceback ---------------------------------------------------------------------------------


def indicated():
    X = psd()
    return cp.Problem(cp.Minimize(cp.trace(X) + indicator([X[0, 1] >= 1, cp.norm(X[2]) <= 2])))


def sparse_and_bounded():
    X = psd()
    try:
        Y = cp.Variable((N, N), sparsity=[(0, 1), (1, 2)], bounds=[-1, 2])
    except (TypeError, ValueError) as error:
        pytest.skip(f"this CVXPY has no such variable: {error}")
    return cp.Problem(cp.Minimize(cp.trace(X) + cp.sum(Y)), [X[0, 1] >= Y[0, 1] + 2])


def diagonal():
    Y = cp.Variable((N, N), diag=True)
    return cp.Problem(cp.Minimize(cp.trace(Y)), [Y - C >> 0])


def bounded_and_symmetric():
    if OLD:
        pytest.skip(f"CVXPY {cp.__version__} gives a variable one attribute only")
    Y = cp.Variable((N, N), symmetric=True, bounds=[-1, 2])
    return cp.Problem(cp.Minimize(cp.sum(Y)), [Y >> 0, cp.trace(Y) == 1])


def perspective_of(f):
    def make():
        X, x, s = psd(), cp.Variable(), cp.Variable(nonneg=True)
        cost = cp.trace(X) + cp.perspective(f(X, x), s)
        return cp.Problem(cp.Minimize(cost), [s <= 3, X[0, 1] == x, x >= 1])

    return make


def scalarized(combine):
    def make():
        X = psd()
        goals = [cp.Minimize(cp.trace(X)), cp.Minimize(cp.square(X[0, 1] - 2))]
        return cp.Problem(combine(goals), [X[0, 0] >= 1])

    return make


HABITS = {
    "indicator": indicated,
    "sparse and bounded": sparse_and_bounded,
    "diagonal": diagonal,
    "bounded": bounded_and_symmetric,
    "perspective of a square": perspective_of(lambda X, x: cp.square(x)),
    "perspective of an eigenvalue": perspective_of(lambda X, x: cp.lambda_max(X)),
    "weighted sum": scalarized(lambda goals: scalarize.weighted_sum(goals, [1, 2])),
    "largest": scalarized(lambda goals: scalarize.max(goals, [1, 2])),
    "targets": scalarized(lambda goals: scalarize.targets_and_priorities(goals, [1, 2], [0, 0])),
    "log sum exp": scalarized(lambda goals: scalarize.log_sum_exp(goals, [1, 2])),
}


@both
@pytest.mark.filterwarnings("ignore:bregopt does not take")
@pytest.mark.filterwarnings("ignore:Reading from a sparse CVXPY expression")
@pytest.mark.parametrize("name", HABITS)
def test_what_cvxpy_knows_is_solved(name, way):
    problem, reference = HABITS[name](), HABITS[name]()
    problem.solve(**WAYS[way], tol=1e-8)
    reference.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(reference.value, abs=1e-6)


@pytest.mark.parametrize("shape", [0, (0, 3), (2, 2)])
@pytest.mark.filterwarnings("ignore:Reading from a sparse CVXPY expression")
def test_variables_without_free_elements_are_read(shape):
    attributes = {"sparsity": [(), ()]} if shape == (2, 2) else {}
    try:
        X, z = psd(), cp.Variable(shape, **attributes)
    except ValueError as error:
        pytest.skip(f"CVXPY {cp.__version__} has no such variable: {error}")
    problem = cp.Problem(cp.Minimize(cp.trace(C @ X) + cp.sum(z)), [cp.trace(X) == 1, z <= 1])
    problem.solve(method="bregopt", strict=True)
    assert problem.value == pytest.approx(np.linalg.eigvalsh(C)[0], abs=1e-6)
    assert z.value.shape == z.shape
    assert not z.value.any()
    assert np.shape(problem.constraints[1].dual_value) == z.shape


@pytest.mark.parametrize("error", [AttributeError("no name"), ValueError("shapes"), KeyError(3), IndexError])
def test_unexpected_exceptions_of_the_reader_hand_the_problem_on(monkeypatch, error):
    def fails(problem):
        raise error

    problem = diagonal()
    monkeypatch.setattr(method, "lower", fails)
    with pytest.warns(UserWarning, match=r"BREGOPT \(path\) solved it: reading it failed by"):
        problem.solve(method="bregopt")
    assert problem.value == pytest.approx(
        cp.Problem(problem.objective, problem.constraints).solve("CLARABEL")
    )
    with pytest.raises(ValueError, match="reading it failed by"):
        diagonal().solve(method="bregopt", strict=True)


def test_unexpected_exceptions_of_the_conic_reader_hand_the_problem_on(monkeypatch):
    def fails(conic, cache=None):
        raise IndexError("48")

    monkeypatch.setattr("bregopt.cvxpy.outcomes.read_conic", fails)
    problem = diagonal()
    problem.solve(solver=BREGOPT)
    stats = problem.solver_stats.extra_stats
    assert (stats["route"], stats["reason"]) == ("CLARABEL", "reading it failed by IndexError('48')")
    assert problem.value == pytest.approx(diagonal().solve("CLARABEL"))


def test_a_parameter_without_a_value_is_an_error_of_the_user():
    X, P = psd(), cp.Parameter(name="P")
    with pytest.raises(ValueError, match="parameter P of the CVXPY problem has no value"):
        cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 0] >= P]).solve(method="bregopt")


# --- Warnings and statistics ---------------------------------------------------------------------------


def test_a_problem_that_is_handed_on_warns_once():
    X, P = psd(), cp.Parameter(value=1.0)
    power = cp.PowCone3D(X[0, 0], X[1, 1], X[0, 1], 0.3)
    problem = cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 0] >= P, X[0, 1] >= 1, power])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in (1.0, 2.0, 3.0):
            P.value = value
            problem.solve(method="bregopt")
            assert "PowCone3D" in problem.solver_stats.extra_stats["not_read"]
    assert len([each for each in caught if "does not take" in str(each.message)]) == 1


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("dual", [False, True])
def test_statistics_have_route_gap_and_bound(sense, dual):
    if dual:
        x = cp.Variable(2)
        sign = 1 if sense is cp.Minimize else -1
        objective, constraints = sense(sign * cp.sum(x) + 5), [cp.diag(cp.hstack([x, x])) - np.eye(4) >> 0]
    else:
        X = psd()
        objective, constraints = sense(cp.trace(C @ X) + 5), [cp.trace(X) == 1]
    problem = cp.Problem(objective, constraints)
    problem.solve(solver=BREGOPT)
    stats = problem.solver_stats.extra_stats
    assert stats["route"] == "path"
    assert stats["form"] == ("dual" if dual else "primal")
    assert 0 <= stats["gap"] <= 1e-8
    value = problem.value if sense is cp.Minimize else -problem.value
    assert value - 1e-6 <= stats["bound"] <= value + 1e-12 * abs(value)


def test_answers_of_clarabel_have_our_certificate(monkeypatch):
    X = psd()
    problem = cp.Problem(cp.Minimize(cp.trace(C @ X) + 1), [cp.trace(X) == 1])
    monkeypatch.setattr("bregopt.cvxpy.conic_solver.solve_conic", lambda *_: "nothing solved it")
    problem.solve(solver=BREGOPT)
    stats = problem.solver_stats.extra_stats
    assert (stats["route"], stats["reason"]) == ("CLARABEL", "nothing solved it")
    assert stats["gap"] <= 1e-8
    assert problem.value - 1e-6 <= stats["bound"] <= problem.value + 1e-9


def test_verbose_prints_the_steps_within_those_of_cvxpy(capsys):
    X = psd()
    problem = cp.Problem(cp.Minimize(cp.trace(C @ X)), [cp.trace(X) == 1])
    problem.solve(solver=BREGOPT, verbose=True)
    text = capsys.readouterr().out
    places = [text.index(part) for part in ("Compilation", "Numerical solver", "iteration", "Summary")]
    assert places == sorted(places)
    problem.solve(method="bregopt", verbose=True)
    assert capsys.readouterr().out.startswith("bregopt path")


def test_data_of_a_problem_are_solved_and_unpacked_by_hand():
    X = psd()
    problem = cp.Problem(cp.Minimize(cp.trace(C @ X)), [cp.trace(X) == 1])
    data, chain, inverse = problem.get_problem_data("BREGOPT")
    problem.unpack_results(chain.solve_via_data(problem, data), chain, inverse)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(np.linalg.eigvalsh(C)[0], abs=1e-7)
    assert problem.solver_stats.extra_stats["route"] == "path"


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("handed", ["nowhere", "to a proof"])
def test_a_cone_that_is_infeasible_in_the_limit_has_a_status(monkeypatch, handed):
    """No ``t`` has ``|(t, s)| <= t`` and ``s = 1``, but large ones nearly do: no proof exists."""
    X, t = cp.Variable((2, 2), PSD=True), cp.Variable()
    if handed == "to a proof":  # Clarabel's word counts where it is proven, which this one is not
        monkeypatch.setattr(
            "bregopt.cvxpy.conic_solver.certified", lambda *_: ("PrimalInfeasible", {"error": 0.0})
        )
    rows = [cp.norm2(cp.hstack([t, 1.0])) <= t, t == 3 * X[0, 0], X[0, 1] >= 0.5]
    problem = cp.Problem(cp.Minimize(X[1, 1]), rows)
    problem.solve(solver="BREGOPT")
    assert problem.status == ("infeasible_inaccurate" if handed == "nowhere" else "infeasible")
    stats = problem.solver_stats.extra_stats
    assert stats["route"] == ("path" if handed == "nowhere" else "CLARABEL")
    assert handed == "nowhere" or "no proof of what it found" in stats["reason"]
