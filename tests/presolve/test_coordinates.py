"""Rows that vanish: zero coefficients."""

import numpy as np
import pytest
from samples import turns

import bregopt as bo


@pytest.mark.parametrize(
    ("objective", "sense", "count"),
    turns([bo.frobenius_div, bo.logdet_div, bo.von_neumann_div, None], ["==", "<=", ">="], [1, 2]),
)
def test_rows_of_zeros_are_no_rows_or_cannot_be_met(objective, sense, count):
    """A dense row of zeros, in one matrix or two, as a Parameter may turn out."""
    blocks = [bo.PSD(3, name=f"X{b}") for b in range(count)]
    C, zero = np.diag([2.0, 1, 3]) + 0.1, bo.Parameter((3, 3), value=np.zeros((3, 3)))
    cost = sum((bo.trace(X) if objective is None else objective(X, C) for X in blocks), start=0)
    row = sum((bo.inner(zero, X) for X in blocks), start=0)
    rest = [X[0, 0] == 1 for X in blocks]

    def solved(bound):
        rows = {"==": row == bound, "<=": row <= bound, ">=": row >= bound}
        return bo.Problem(bo.Minimize(cost), [rows[sense], *rest]).solve()

    alone = bo.Problem(bo.Minimize(cost), rest).solve()
    met = {"==": 0.0, "<=": 1.0, ">=": -1.0}[sense]
    for bound in (0.0, met):
        assert solved(bound).status == "optimal"
        assert solved(bound).value == pytest.approx(alone.value, rel=1e-5)
    with pytest.raises(bo.InfeasibleRowError, match="its coefficients are zero"):
        solved({"==": 1e-9, "<=": -1.0, ">=": 1.0}[sense])
