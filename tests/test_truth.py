"""Problems of known truth: whatever a route claims of them is true, and the well posed ones end optimal."""

import pytest
import truth

SEED = 20261122  # of the draws here; the table of docs/certificates.md has seed 0


def check(route, tol, found):
    tally = truth.Tally.of(route, tol, found)
    assert tally.verdicts
    assert not tally.wrong
    assert len(tally.lost) <= 0.03 * tally.well_posed + (tally.well_posed < 34), tally.lost


@pytest.mark.parametrize("tol", truth.TOLS)
@pytest.mark.parametrize("route", ["path", "bregman", "psdboost", "lowrank"])
def test_claims_are_true(route, tol):
    check(route, tol, truth.cases(SEED, 1))


@pytest.mark.parametrize("route", ["BREGOPT", "method"])
def test_claims_through_cvxpy_are_true(route):
    check(route, 1e-6, truth.cases(SEED + 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("tol", truth.TOLS)
@pytest.mark.parametrize("route", truth.ROUTES)
def test_claims_are_true_of_many(route, tol):
    check(route, tol, truth.cases(SEED + 2, 20))
