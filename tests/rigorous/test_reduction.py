"""The optimum given that slack matrices have a bounded trace: known values, and those of exact arithmetic."""

import numpy as np
import pytest

import bregopt as bo

# Computed in rational numbers, to the digits shown.
HINF = [
    ("hinf1", 1e4, 2.032711),
    ("hinf1", 1e6, 2.0326008),
    ("hinf4", 1e4, 274.7708),
    ("hinf4", 1e6, 274.763886),
]


@pytest.mark.parametrize(("name", "bound", "value"), HINF)
def test_hinf(data, name, bound, value):
    solution = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz").solve(solver="path")
    proven = solution.verify(trace=bound)
    digit = 10.0 ** -len(str(value).partition(".")[2])
    assert proven.lower - digit <= value <= proven.upper + digit
    assert proven.relative_width <= 1e-6
    assert "trace of at most" in proven.given[-1]
    proven.certificate.check()


@pytest.mark.parametrize("bound", [10.0, 1e3])
def test_a_known_value(bound):
    """``Z = [[-y2, 1], [1, -y1]]`` of a trace of at most R: the largest ``y2`` is about ``-1 / R``."""
    X = bo.PSD(2)
    solution = bo.Problem(bo.Minimize(2 * X[0, 1]), [X[1, 1] == 0, X[0, 0] == 1]).solve(solver="path")
    value = -(bound - np.sqrt(bound**2 - 4)) / 2
    proven = solution.verify(trace=bound)
    assert proven.lower <= value + 1e-15 * bound
    assert value - 1e-15 * bound <= proven.upper
    assert proven.width <= 1e-6


def test_sums_that_are_no_doubles_are_enclosed():
    rng = np.random.default_rng(0)
    X = bo.PSD(4)
    rows = [bo.inner(M @ M.T, X) == 1 for M in rng.normal(size=(3, 4, 4))]
    problem = bo.Problem(bo.Minimize(bo.inner(np.diag([1.1, 2.2, 3.3, 4.7]), X)), rows)
    solution = problem.solve(solver="path")
    proven = solution.verify(trace=1e3)  # not active
    assert proven.lower <= solution.verify().upper
    assert solution.verify().lower <= proven.upper
    assert proven.relative_width <= 1e-6
    proven.certificate.check()


def test_refusals():
    X = bo.PSD(3)
    near = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), [bo.trace(X) == 1]).solve()
    with pytest.raises(ValueError, match="linear objectives"):
        near.verify(trace=1.0)
    linear = bo.Problem(bo.Minimize(X[0, 0]), [bo.trace(X) == 1]).solve(solver="path")
    with pytest.raises(ValueError, match="trace is"):
        linear.verify(trace=-1.0)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e-4])
@pytest.mark.parametrize("root", [1e-1, 1e-4, 1e-5])
def test_a_card_tells_the_trace_of_very_large_slacks(root, size):
    """``[[r, 1], [1, 1 / r]]`` is the slack of ``min 2 X01`` with ``X11 = r^2``, without limit in r."""
    X = bo.PSD(3)
    rows = [X[1, 1] == root**2, X[0, 0] == 1, X[2, 2] >= 1]
    costs = bo.Minimize(size * (2 * X[0, 1] + X[0, 0] + X[2, 2]))
    solution = bo.Problem(costs, rows).solve(solver="path", tol=1e-8)
    assert solution.status == "optimal"
    given = [line for line in repr(solution).splitlines() if line.strip().startswith("given")]
    assert len(given) == (root < 1e-3)
    for line in given:
        trace = float(line.split("of trace ")[1].split(";")[0])
        assert trace == pytest.approx(size * (root + 1 / root), rel=0.1)


def test_the_profile_is_that_of_single_bounds_and_is_drawn():
    X = bo.PSD(2)
    rows = [X[1, 1] == 0, X[0, 0] == 1]
    solution = bo.Problem(bo.Minimize(2 * X[0, 1]), rows).solve(solver="path")
    profile = solution.trace_profile([1e4, 1e2])
    assert profile.traces.tolist() == [1e2, 1e4]
    # min 2 x + R t with [[1 + t, x], [x, t]] psd: x^2 = t (1 + t), where the derivative vanishes.
    t = [2 / ((R**2 - 4) * (1 + np.sqrt(1 + 4 / (R**2 - 4)))) for R in profile.traces]
    exact = [R * own - 2 * np.sqrt(own * (1 + own)) for R, own in zip(profile.traces, t, strict=True)]
    assert (profile.lower <= np.add(exact, 1e-12)).all()
    assert (profile.upper >= np.subtract(exact, 1e-12)).all()
    np.testing.assert_allclose(profile.upper, exact, rtol=1e-4)
    for R, low, high in zip(profile.traces, profile.lower, profile.upper, strict=True):
        single = solution.verify(trace=R)
        assert (low, high) == (single.lower, single.upper)
    assert "trace of slacks" in repr(profile)
    pytest.importorskip("matplotlib")
    axes = profile.plot()
    assert axes.get_xscale() == "log"
