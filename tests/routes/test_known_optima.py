"""SDPLIB: the published optima of all files in the data folder, and the DIMACS errors of our answers.

Borchers (1999), SDPLIB 1.2, a library of semidefinite programming test problems, Optimization Methods and
Software 11. Values are as printed there, or with more digits where later solvers agree on them.
"""

import warnings
from decimal import Decimal

import numpy as np
import pytest

import bregopt as bo

TOL = 1e-7

# In the sense of the file, maximize <F0, X>.
OPTIMA = {
    **{"arch0": "0.566517", "arch8": "7.05698"},
    **{"control1": "17.78463", "control3": "13.63327", "control4": "19.79423", "control5": "16.8836"},
    **{"control7": "20.6251"},
    **{"gpp100": "-44.943551", "gpp124-1": "-7.3430762", "gpp124-2": "-46.8623", "gpp124-3": "-153.014"},
    **{"gpp124-4": "-418.99", "gpp250-1": "-15.444917"},
    **{"maxG11": "629.1648", "mcp100": "226.1574", "mcp124-1": "141.9905", "mcp124-2": "269.8802"},
    **{"mcp124-3": "467.7501", "mcp124-4": "864.4119", "mcp250-1": "317.26434"},
    **{"theta1": "23.00000", "theta2": "32.87917", "theta3": "42.16698", "theta4": "50.32122"},
    **{"theta5": "57.23231", "thetaG11": "400.000"},
    **{"truss1": "-8.999996", "truss2": "-123.3804", "truss3": "-9.109996", "truss4": "-9.009996"},
    **{"truss5": "-132.6357", "truss6": "-901.001", "truss7": "-900.001", "truss8": "-133.1146"},
}
# No interior on one side: the optimum may not be attained, and few digits are known.
ILL_POSED = {
    **{"qap5": "-436", "qap7": "-425", "qap8": "-757", "qap9": "-1410", "qap10": "-1093"},
    **{"hinf1": "2.0326", "hinf2": "10.967", "hinf3": "56.9", "hinf4": "274.764", "hinf5": "363"},
    **{"hinf6": "449", "hinf7": "391", "hinf8": "116", "hinf9": "236.25"},
}
HARD = ("arch", "control", "truss")  # ill-conditioned
EMPTY = {"infp1": "unbounded", "infd1": "infeasible"}  # SDPA's primal is our dual
SLOW = {
    "arch8",
    "control3",
    "control4",
    "control5",
    "control7",
    "gpp250-1",
    "maxG11",
    "mcp250-1",
    "qap8",
    "qap9",
}
SLOW |= {
    "qap10",
    "theta2",
    "theta3",
    "theta4",
    "theta5",
    "thetaG11",
    "truss2",
    "truss5",
    "truss6",
    "truss7",
    "truss8",
}


def marked(names):
    """Return the names, marked where a solve is long."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


def tolerance(name):
    return 10 * TOL if name.startswith(HARD) else TOL


def solved(data, name):
    path = data / "sdplib" / f"{name}.dat-s.gz"
    if not path.exists():
        pytest.skip(f"no {name}.dat-s.gz in the data folder")
    problem = bo.read_sdpa(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem, problem.solve(solver="path", tol=tolerance(name))


def digit(printed):
    """Return the unit of the last printed digit."""
    return float(Decimal(1).scaleb(Decimal(printed).as_tuple().exponent))


def test_every_file_has_a_known_optimum(data):
    files = {path.name.removesuffix(".dat-s.gz") for path in (data / "sdplib").glob("*.dat-s.gz")}
    assert files <= OPTIMA.keys() | ILL_POSED.keys() | EMPTY.keys()


@pytest.mark.parametrize("name", marked(OPTIMA))
def test_published_optimum(data, name):
    problem, solution = solved(data, name)
    assert solution.status == "optimal"
    assert abs(solution.value - float(OPTIMA[name])) <= digit(OPTIMA[name]) + solution.error
    errors = np.abs(bo.dimacs_errors(problem, solution))
    assert errors.max() <= tolerance(name), errors


@pytest.mark.parametrize("name", marked(ILL_POSED))
def test_published_optimum_of_an_ill_posed_problem(data, name):
    problem, solution = solved(data, name)
    assert solution.status in ("optimal", "optimal_inaccurate")
    value, unit = float(ILL_POSED[name]), digit(ILL_POSED[name])
    assert abs(solution.value - value) <= unit
    errors = np.abs(bo.dimacs_errors(problem, solution))
    assert errors.max() <= 1e-3, errors
    if solution.status == "optimal":
        assert errors[:5].max() <= 10 * TOL, errors


@pytest.mark.parametrize("name", EMPTY)
def test_published_status_without_an_optimum(data, name):
    assert solved(data, name)[1].status == EMPTY[name]
