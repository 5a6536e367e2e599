"""Convex functions of terms: derivatives against finite differences, and values at the boundary."""

import math
from fractions import Fraction

import numpy as np
import pytest

from bregopt.program.convex_functions import (
    Exponential,
    Logarithm,
    Logistic,
    LogSumExp,
    NegativeEntropy,
    NumbersRelativeEntropy,
    SquaredDistance,
    hmat,
    hvec,
)
from bregopt.program.matrix_entropies import EntropySum, LogDeterminant, RelativeEntropy, TraceLog, _Spectrum

N = 3


def definite(rng, hermitian, n=N):
    G = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)) * hermitian
    M = G @ G.conj().T / n + 0.1 * np.eye(n)
    return M if hermitian else M.real


def of_matrices(hermitian):
    rng = np.random.default_rng(1)
    A, B = hvec(definite(rng, hermitian)), hvec(definite(rng, hermitian))
    yield EntropySum((N, N), (1.0, -0.5), hermitian), np.concatenate([A, B])
    yield RelativeEntropy((N, N), hermitian), np.concatenate([A, B])
    yield TraceLog(definite(rng, hermitian), hermitian), A
    yield LogDeterminant((N,), hermitian), A


def of_numbers():
    y = np.random.default_rng(2).random(6) + 0.2
    yield from ((kind(6), y) for kind in (NegativeEntropy, Logarithm, Exponential, Logistic))
    yield NumbersRelativeEntropy(3), y
    yield LogSumExp(2, 3), y
    yield SquaredDistance(np.full(6, 0.4), np.array([0.4, 0.4, 0.5, 0.5, 9.0, 9.0])), y


CASES = [*of_matrices(False), *of_matrices(True), *of_numbers()]


@pytest.mark.parametrize(("f", "y"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_derivatives_are_those_of_finite_differences(f, y):
    local, step = f.at(y), 1e-6
    weight = np.random.default_rng(3).random(f.count) + 0.5
    H = np.zeros((len(y), len(y)))
    for k in range(len(y)):
        e = step * np.eye(len(y))[k]
        above, below = f.at(y + e), f.at(y - e)
        slope = (above.value - below.value) / (2 * step)
        assert local.gradient[k] == pytest.approx(slope[f.owner[k]], abs=1e-6)
        others = np.delete(slope, f.owner[k])
        assert not others.any()
        H[k] = (above.gradient - below.gradient) * weight[f.owner] / (2 * step)
    L = np.random.default_rng(4).standard_normal((len(y), 5))
    np.testing.assert_allclose(local.curvature(weight, L), L.T @ H @ L, atol=1e-6 * np.abs(H).max() * 25)


HOMOGENEOUS = [case for case in CASES if case[0].name in ("rel_entr", "quantum_rel_entr")]


@pytest.mark.parametrize(("f", "y"), HOMOGENEOUS, ids=lambda case: getattr(case, "name", ""))
def test_functions_of_degree_one(f, y):
    np.testing.assert_allclose(f.at(3 * y).value, 3 * f.at(y).value, rtol=1e-12)
    np.testing.assert_allclose(f.at(y).gradient @ y, f.at(y).value.sum(), rtol=1e-12)  # Euler


@pytest.mark.parametrize("hermitian", [False, True])
def test_second_derivatives_at_equal_eigenvalues(hermitian):
    """The divided differences are limits there; a small perturbation changes them little."""
    rng = np.random.default_rng(5)
    Y, C = np.eye(N) + 0j * hermitian, definite(rng, hermitian)
    Y = Y if hermitian else Y.real
    f = TraceLog(C, hermitian)
    d = len(hvec(Y))
    at = f.at(hvec(Y)).curvature(np.ones(1), np.eye(d))
    near = f.at(hvec(Y + 1e-7 * definite(rng, hermitian))).curvature(np.ones(1), np.eye(d))
    np.testing.assert_allclose(at, near, atol=1e-5)


@pytest.mark.parametrize("hermitian", [False, True])
def test_vectors_keep_inner_products(hermitian):
    rng = np.random.default_rng(6)
    A, B = definite(rng, hermitian), definite(rng, hermitian)
    assert hvec(A) @ hvec(B) == pytest.approx(np.vdot(A, B).real)
    np.testing.assert_allclose(hmat(hvec(A), N, hermitian), A)


def test_values_on_the_boundary_and_outside():
    assert EntropySum((2,), (1.0,), False).value(hvec(np.diag([1.0, 0.0])))[0] == 0
    assert EntropySum((2,), (1.0,), False).value(hvec(np.diag([1.0, -1.0])))[0] == np.inf
    np.testing.assert_array_equal(NegativeEntropy(2).value(np.array([0.0, -1.0])), [0, np.inf])
    np.testing.assert_array_equal(
        NumbersRelativeEntropy(2).value(np.array([0.0, 1.0, 1.0, 0.0])), [0, np.inf]
    )
    for f, y in CASES:
        if f.name not in ("exp", "logistic", "log_sum_exp", "square"):
            assert f.at(-y) is None
            inside = f.interior(-y)
            assert f.at(inside) is not None
            reach = f.reach(inside, -y - inside)
            assert 0 < reach <= 1
            assert f.at(inside + 0.99 * reach * (-y - inside)) is not None
            assert f.at(inside + 1.01 * reach * (-y - inside)) is None


@pytest.mark.parametrize("ratio", [1 - 1e-12, 0.999, 0.4, 0.3, 1e-3, 1e-12, 1e-17, 1e-40])
def test_divided_differences_of_any_two_eigenvalues(ratio):
    """``log(a / b) / (a - b)`` is a mean of ``1 / t``, also where ``b`` is below the round-off of ``a``."""
    t = 1 - Fraction(ratio)
    series = float(sum((t**k / (k + 1) for k in range(1, 60)), Fraction(1)))
    exact = series if ratio > 0.6 else -math.log(ratio) / (1 - ratio)
    found = _Spectrum(np.diag([2 * ratio, 2.0])).differences
    np.testing.assert_allclose(found, [[0.5 / ratio, exact / 2], [exact / 2, 0.5]], rtol=1e-14)
