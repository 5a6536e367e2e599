"""Derivatives of answers with convex terms, beside finite differences and a closed form."""

import numpy as np
import pytest

import bregopt as bo

STEP = 1e-5


def hermitian(rng, n, is_complex=False):
    M = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if is_complex else 0)
    return (M + M.conj().T) / 2


def entropies(rng):
    X, q = bo.PSD(3, hermitian=True), bo.Parameter(value=0.2, name="q")
    cost = bo.inner(hermitian(rng, 3, True), X) - 2 * bo.von_neumann_entr(X)
    return [q], bo.Problem(bo.Minimize(cost), [bo.trace(X) == 1, bo.inner(hermitian(rng, 3, True), X) == q])


def two_matrices(rng):
    A, B, q = bo.PSD(3), bo.PSD(3), bo.Parameter(value=0.3, name="q")
    cost = bo.quantum_rel_entr(A, B) + bo.inner(hermitian(rng, 3), A) - 0.2 * bo.von_neumann_entr(B)
    return [q], bo.Problem(bo.Minimize(cost), [bo.trace(A) == q, bo.trace(B) == 1])


def numbers(rng):
    x, a = bo.Variable(4), bo.Parameter(6, value=rng.standard_normal(6), name="a")
    w = bo.Parameter(value=0.7, name="w")
    cost = bo.sum(bo.logistic(rng.standard_normal((6, 4)) @ x + a)) + w * bo.log_sum_exp(x)
    return [a, w], bo.Problem(bo.Minimize(cost + 0.5 * bo.sum_squares(x)), [bo.sum(x) == 1])


def in_rows(rng):
    X, s = bo.PSD(3), bo.Parameter(value=0.9, name="s")
    rows = [bo.trace(X) == 1, bo.von_neumann_entr(X) >= s]
    return [s], bo.Problem(bo.Minimize(bo.inner(hermitian(rng, 3), X)), rows)


def on_the_boundary(rng):
    """The matrix of the linear cost is singular, that of the entropy definite."""
    Y, Z, t = bo.PSD(3), bo.PSD(2), bo.Parameter(value=0.2, name="t")
    cost = bo.quantum_rel_entr(np.diag([0.6, 0.4]), Z) + bo.inner(np.array([[1, 0.5], [0.5, 2]]), Z)
    D = np.array([[0, 0, 0.3], [0, 0, 0], [0.3, 0, 1]])
    rows = [bo.trace(Z) == 1, Y[0, 0] == t, Y[1, 1] == 1, Y[0, 1] == 0.1, Y[1, 2] == 0.05]
    return [t], bo.Problem(bo.Minimize(cost + bo.inner(D, Y)), rows)


def exponentials(rng):
    x, bound = bo.Variable(3), bo.Parameter(value=4.0, name="bound")
    rows = [bo.sum(bo.exp(x)) <= bound, bo.sum(bo.exp(-x)) <= 6.0]
    return [bound], bo.Problem(bo.Minimize(np.array([0.1, -0.2, 0.3]) @ x), rows)


def arguments_in_rows(rng):
    x, a = bo.Variable(3), bo.Parameter(3, value=[0.1, -0.2, 0.3], name="a")
    rows = [bo.log_sum_exp(x + a) <= 1.0, x[0] == 0.2]
    return [a], bo.Problem(bo.Minimize(bo.sum(bo.exp(-x))), rows)


def rare_faces(rng):
    """A die whose largest numbers have probabilities down to 1e-12: no bound acts."""
    p, mean = bo.Variable(6), bo.Parameter(value=1.005, name="mean")
    rows = [bo.sum(p) == 1, np.arange(1, 7) @ p == mean, p >= 0]
    return [mean], bo.Problem(bo.Maximize(bo.sum(bo.entr(p))), rows)


FAMILIES = [
    *(entropies, two_matrices, numbers, in_rows, on_the_boundary, exponentials),
    *(arguments_in_rows, rare_faces),
]


def refined(problem):
    """Return the numbers of the optimum, and its value."""
    sol = problem.solve(tol=1e-11)
    at = sol.derivative().optimum
    return np.concatenate([*(X.ravel() for X in at.X), at.u]), sol.value


def answer_of(tangent):
    parts = tangent.X if isinstance(tangent.X, tuple) else (tangent.X,)
    parts = [np.block([[X.real, -X.imag], [X.imag, X.real]]) if np.iscomplexobj(X) else X for X in parts]
    return np.concatenate([*(X.ravel() for X in parts), *(np.ravel(v) for v in tangent.u.values())])


@pytest.mark.parametrize("family", FAMILIES)
def test_changes_of_answer_and_value_are_those_of_finite_differences(family):
    rng = np.random.default_rng(0)
    parameters, problem = family(rng)
    derivative = problem.solve().derivative()
    for p in parameters:
        start = np.array(p.value, dtype=float)
        change = rng.standard_normal(start.shape)
        ends, values = [], []
        for sign in (1, -1):
            p.value = start + sign * STEP * change
            end, value = refined(problem)
            ends.append(end)
            values.append(value)
        p.value = start
        slope = (ends[0] - ends[1]) / (2 * STEP)
        found = answer_of(derivative.jvp(parameters={p: change}))
        np.testing.assert_allclose(found, slope[: len(found)], atol=1e-7 * max(1, np.abs(slope).max()))
        by_value = (values[0] - values[1]) / (2 * STEP)
        assert np.vdot(derivative.value()[p], change) == pytest.approx(by_value, rel=1e-6, abs=1e-8)
        weights = {name: rng.standard_normal(np.shape(u)) for name, u in derivative.u.items()}
        moved = derivative.jvp(parameters={p: change}).u
        along = sum(np.vdot(weights[name], moved[name]) for name in weights)
        if weights:  # of the adjoint, too
            found = derivative.vjp(u=weights).parameters[p]
            assert np.vdot(found, change) == pytest.approx(float(along), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("family", [entropies, two_matrices, on_the_boundary])
def test_vjp_is_the_adjoint_of_jvp(family):
    rng = np.random.default_rng(1)
    (p,), problem = family(rng)
    sol = problem.solve()
    derivative = sol.derivative()
    of = sol.X if isinstance(sol.X, tuple) else (sol.X,)
    G = tuple(hermitian(rng, len(X), np.iscomplexobj(X)) for X in of)
    data = tuple(hermitian(rng, len(X), np.iscomplexobj(X)) for X in of)
    single = len(of) == 1
    found = derivative.vjp(G[0] if single else G)
    for own, wanted in (
        (derivative.jvp(parameters={p: 1.0}), found.parameters[p]),
        (
            derivative.jvp(data[0] if single else data),
            sum(
                np.vdot(g, d).real for g, d in zip([found.data] if single else found.data, data, strict=True)
            ),
        ),
    ):
        moved = (own.X,) if single else own.X
        total = sum(np.vdot(g, X).real for g, X in zip(G, moved, strict=True))
        assert total == pytest.approx(float(wanted), rel=1e-8, abs=1e-12)


# At a rate of 1e-6 the least eigenvalue, 1e-12, has four digits, and some processors find no derivative.
@pytest.mark.parametrize("rate", [0.05, 1e-4])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_key_rate_by_error_rate(rate, scale):
    q, rho = bo.Parameter(value=rate, name="q"), bo.PSD(4)
    signs = np.diag([1.0, -1.0]), np.array([[0, 1.0], [1, 0]])
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rows = [bo.trace(rho) == 1, *(bo.inner((np.eye(4) - np.kron(s, s)) / 2, rho) == q for s in signs)]
    sol = bo.Problem(bo.Minimize(scale * bo.key_rate(rho, pinching=key)), rows).solve(tol=1e-9)
    slope = sol.derivative().value()[q]  # of log 2 - h(q)
    assert slope == pytest.approx(scale * np.log(rate / (1 - rate)), rel=1e-9)


def test_what_has_no_derivative_is_refused():
    p, q = bo.Variable(3), bo.Parameter(value=0.0, name="q")
    problem = bo.Problem(bo.Maximize(bo.sum(bo.entr(p))), [bo.sum(p) == 1, p[0] == q])
    with pytest.raises(ValueError, match="fixes a number at zero"):
        problem.solve().derivative()
    flat = bo.PSD(2)  # the rows and the pinched state leave the phase of one entry free
    rows = [bo.trace(flat) == 1, bo.inner(np.diag([1.0, -1.0]), flat) == 0.2]
    cost = bo.inner(np.eye(2), flat) + 0 * bo.von_neumann_entr(flat) - bo.entr(bo.trace(flat))
    with pytest.raises(ValueError, match="no derivative"):
        bo.Problem(bo.Minimize(cost), rows).solve().derivative().vjp(np.array([[0, 1.0], [1, 0]]))
