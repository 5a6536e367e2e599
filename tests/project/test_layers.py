"""Problems as layers of JAX and PyTorch; skipped without those."""

import numpy as np
import pytest
from samples import turns

import bregopt as bo
from bregopt.layers import CorrelationStack, ProblemFunction


def data(seed=0, n=5):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, n))
    A = np.clip((B + B.T) / 2, -1, 1)
    np.fill_diagonal(A, 1.0)
    return A, np.eye(n) + 0.3 * B @ B.T / n


def semidefinite():
    """Return a semidefinite program with parameters of two shapes and an ordinary variable."""
    A, _ = data()
    X, u = bo.PSD(5, name="X"), bo.Variable(2, lower=0, name="u")
    q, c = bo.Parameter(name="q"), bo.Parameter(2, name="c")
    goal = bo.inner(A, X) + q * X[0, 1] + c[0] * u[0] + c[1] * u[1]
    rows = [bo.diag(X) == 1, X[0, 1] + q * u[0] >= 0.3, q * X[2, 3] - u[1] <= -0.3]
    return bo.Problem(bo.Minimize(goal), rows), [q, c], [X, u]


class TestFunction:
    def test_values_are_those_of_the_problem_and_parameters_keep_theirs(self):
        problem, parameters, variables = semidefinite()
        function = ProblemFunction(problem, parameters, variables)
        (X, u), _ = function.value(np.array(1.3), np.array([1.0, 0.5]))
        assert parameters[0].value is None
        parameters[0].value, parameters[1].value = 1.3, [1.0, 0.5]
        solution = problem.solve(tol=1e-9)
        assert pytest.approx(solution.X, abs=1e-6) == X
        assert u == pytest.approx(solution.u["u"], abs=1e-6)

    def test_bad_input_is_named(self):
        problem, parameters, variables = semidefinite()
        with pytest.raises(TypeError, match=r"problem is int; expected a bo.Problem"):
            ProblemFunction(1, parameters, variables)
        with pytest.raises(ValueError, match=r"parameters\[0\] is .* not in the problem; it has q, c"):
            ProblemFunction(problem, [bo.Parameter(name="r")], variables)
        with pytest.raises(TypeError, match="variables is \\[\\]"):
            ProblemFunction(problem, parameters, [])
        function = ProblemFunction(problem, parameters, variables)
        with pytest.raises(TypeError, match="got 1 values; expected 2"):
            function.batch([()])
        with pytest.raises(ValueError, match=r"the value of c has shape \(3,\); expected \(2,\)"):
            function.batch([(), (3,)])
        with pytest.raises(ValueError, match="different lengths"):
            function.batch([(3,), (4, 2)])
        assert function.batch([(3,), (2,)]) == 3

    def test_infeasible_problems_raise(self):
        X, b = bo.PSD(2), bo.Parameter(name="b")
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.diag(X) == 1, X[0, 1] == b])
        function = ProblemFunction(problem, [b], [X])
        with pytest.raises(bo.SolverError, match="the problem is infeasible"):
            function.value(np.array(2.0))


class TestStack:
    @pytest.mark.parametrize(("divergence", "n"), turns(["frobenius", "logdet", "von_neumann"], [1, 4, 30]))
    def test_values_and_products_are_those_of_single_matrices(self, divergence, n, rng):
        k = 0 if divergence == "frobenius" else 1
        A = np.array([data(seed, n)[k] for seed in range(3)])
        G = rng.normal(size=A.shape)
        stack = CorrelationStack(A.shape, divergence, {})
        (X,), state = stack.value(A)
        (gradient,), (change,) = stack.vjp([A], state, [G]), stack.jvp([A], state, [G])
        for k, one in enumerate(A):
            single = bo.nearest_correlation(one, divergence)
            assert X[k] == pytest.approx(single.derivative().optimum.X[0], abs=1e-8)
            assert gradient[k] == pytest.approx(single.vjp(G[k]), abs=1e-8)
            assert change[k] == pytest.approx(single.jvp(G[k]), abs=1e-8)

    @pytest.mark.parametrize(("n", "scale"), [(1, 1.0), (2, 1.0), (20, 1.0), (40, 1.0), (6, 1e3)])
    def test_one_matrix_goes_the_way_of_a_stack(self, n, scale):
        rng = np.random.default_rng(n)
        A, G = rng.normal(size=(2, n, n))
        A = scale * (A + A.T)
        np.fill_diagonal(A, 1.0)
        one, stack = CorrelationStack((n, n), "frobenius", {}), CorrelationStack((1, n, n), "frobenius", {})
        (X,), state = one.value(A)
        (Y,), _ = stack.value(A[None])
        expected = bo.nearest_correlation(A, tol=1e-12).X
        assert X.shape == (n, n)
        assert (X == Y[0]).all()
        assert X == pytest.approx(expected, abs=1e-5)
        assert X.diagonal() == pytest.approx(np.ones(n), abs=1e-12)
        if n > 1:
            assert one.vjp([A], state, [G])[0] == pytest.approx(
                stack.vjp([A[None]], state, [G[None]])[0][0], abs=0
            )

    def test_bad_input_of_one_matrix_is_refused(self):
        with pytest.raises(ValueError, match="A has shape"):
            CorrelationStack((2, 3), "frobenius", {})
        with pytest.raises(TypeError, match="no solver has an option 'tolerance'"):
            CorrelationStack((2, 2), "frobenius", {"tolerance": 1})
        with pytest.raises(ValueError, match="tol is 2"):
            CorrelationStack((2, 2), "frobenius", {"tol": 2})
        with pytest.raises(ValueError, match="no number off the diagonal"):
            CorrelationStack((2, 2), "frobenius", {}).value(np.array([[1.0, np.nan], [np.nan, 1.0]]))
        A = np.random.default_rng(0).normal(size=(40, 40))
        np.fill_diagonal(A, 1.0)
        with pytest.raises(bo.SolverError, match="A is user_limit"), pytest.warns(bo.ConvergenceWarning):
            CorrelationStack((40, 40), "frobenius", {"max_iter": 1}).value(A)

    def test_matrices_without_an_answer_or_a_derivative_are_named(self):
        stack = CorrelationStack((2, 2, 2), "logdet", {})
        with pytest.raises(ValueError, match="positive definite") as refused:
            stack.value(np.array([np.eye(2), [[1.0, 2.0], [2.0, 1.0]]]))
        assert refused.value.__notes__ == ["It is matrix 1 of the stack."]
        singular = np.array([np.eye(2), np.ones((2, 2))])
        stack = CorrelationStack(singular.shape, "frobenius", {})
        _, state = stack.value(singular)
        with pytest.raises(ValueError, match="matrix 1 of the stack has no derivative"):
            stack.vjp([singular], state, [singular])


class TestTorch:
    @pytest.fixture(autouse=True)
    def modules(self):
        self.torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
        import bregopt.torch

        self.layers = bregopt.torch

    def tensor(self, value):
        return self.torch.tensor(value, dtype=self.torch.float64, requires_grad=True)

    @pytest.mark.parametrize("divergence", ["frobenius", "logdet", "von_neumann"])
    def test_gradcheck_of_nearest_correlation(self, divergence):
        A, P = data()
        given = self.tensor(A if divergence == "frobenius" else P)
        assert self.torch.autograd.gradcheck(
            lambda t: self.layers.nearest_correlation(t, divergence), (given,)
        )

    def test_gradcheck_of_a_batch(self):
        A, B = data(1)[0], data(2)[0]
        given = self.tensor(np.array([A, B]))
        assert self.torch.autograd.gradcheck(self.layers.nearest_correlation, (given,))

    def test_gradcheck_of_a_semidefinite_program(self):
        problem, parameters, variables = semidefinite()
        layer = self.layers.Layer(problem, parameters, variables)
        assert self.torch.autograd.gradcheck(layer, (self.tensor(1.3), self.tensor([1.0, 0.5])))
        X, u = layer(self.tensor([1.3, 1.4, 1.5]), self.tensor([1.0, 0.5]))
        assert X.shape == (3, 5, 5)
        assert u.shape == (3, 2)

    def test_single_precision_is_refused(self):
        with pytest.raises(TypeError, match=r"tensor of A is torch.float32; expected torch.float64"):
            self.layers.nearest_correlation(self.torch.eye(2))
        with pytest.raises(ValueError, match="A has shape"):
            self.layers.nearest_correlation(self.torch.ones(2, dtype=self.torch.float64))


class TestJax:
    @pytest.fixture(autouse=True)
    def modules(self):
        self.jax = pytest.importorskip("jax", reason="JAX is not installed", exc_type=ImportError)
        import bregopt.jax

        self.layers = bregopt.jax
        before = self.jax.config.jax_enable_x64
        self.jax.config.update("jax_enable_x64", True)
        yield
        self.jax.config.update("jax_enable_x64", before)

    @pytest.mark.parametrize("divergence", ["frobenius", "logdet", "von_neumann"])
    def test_check_grads_of_nearest_correlation(self, divergence):
        from jax.test_util import check_grads

        A, P = data()
        given = self.jax.numpy.array(A if divergence == "frobenius" else P)
        check_grads(lambda a: self.layers.nearest_correlation(a, divergence), (given,), order=1)

    def test_check_grads_of_a_semidefinite_program(self):
        from jax.test_util import check_grads

        problem, parameters, variables = semidefinite()
        layer = self.layers.Layer(problem, parameters, variables)
        check_grads(layer, (self.jax.numpy.array(1.3), self.jax.numpy.array([1.0, 0.5])), order=1)

    def test_jit_vmap_and_batches_agree(self):
        np_ = self.jax.numpy
        stack = np_.array([data(1)[0], data(2)[0]])

        def f(a):
            return (self.layers.nearest_correlation(a) ** 3).sum()

        one_by_one = np_.array([self.jax.grad(f)(a) for a in stack])
        assert np.asarray(self.jax.grad(f)(stack)) == pytest.approx(np.asarray(one_by_one))
        assert np.asarray(self.jax.vmap(self.jax.grad(f))(stack)) == pytest.approx(np.asarray(one_by_one))
        assert np.asarray(self.jax.jit(self.jax.grad(f))(stack[0])) == pytest.approx(
            np.asarray(one_by_one[0])
        )
        _, change = self.jax.jvp(f, (stack,), (stack,))
        assert float(change) == pytest.approx(float((one_by_one * stack).sum()))

    def test_single_precision_is_refused(self):
        with pytest.raises(TypeError, match=r"array of A is float32; expected float64"):
            self.layers.nearest_correlation(self.jax.numpy.eye(2, dtype=np.float32))


def test_a_missing_extra_is_named(monkeypatch):
    import importlib
    import sys

    for name in ("jax", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, f"bregopt.{name}", raising=False)
        with pytest.raises(ImportError, match=rf"pip install 'bregopt\[{name}\]'"):
            importlib.import_module(f"bregopt.{name}")
