"""Problems of known truth: all claims of a route are true, and well-posed problems end optimal."""

from pathlib import Path

import pytest
import truth

PAGE = Path(__file__).parents[1] / "docs" / "certificates.md"

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


def test_the_page_shows_the_table_of_the_test_bed():
    _, table = PAGE.read_text().split("<!-- made by: python tests/truth.py -->\n\n")
    heading, _, *lines = table.split("\n\n")[0].splitlines()
    assert heading == truth.HEADING
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:2] for row in cells] == [
        [route, f"{tol:.0e}"] for route in truth.ROUTES for tol in truth.TOLS
    ]
    assert all(row[6] == "0" for row in cells)
    tally = truth.Tally.of("lowrank", 1e-6, truth.cases(0, 1))
    assert str(tally).count("|") == heading.count("|")
