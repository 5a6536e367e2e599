"""A wrong plug-in divergence, row family or route gets no valid certificate."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.divergences import DIVERGENCES, Frobenius
from bregopt.program import Answer, LinearMap, Nearness, Program, StopReason, Term
from bregopt.program.rows import DenseRows
from bregopt.routes import registry, routing
from bregopt.routes.base import Capabilities, Settings

INDEFINITE = np.array([[1.0, 0.8, -0.6], [0.8, 1.0, 0.7], [-0.6, 0.7, 1.0]])
assert np.linalg.eigvalsh(INDEFINITE)[0] < -0.1


@pytest.fixture(autouse=True)
def own_tables(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def correlation(n=3, X0=INDEFINITE):
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, X0)), [bo.diag(X) == 1])


def with_divergence(program, name):
    block = program.blocks[0]
    return replace(program, blocks=(replace(block, nearness=Nearness(name, block.nearness.X0)),))


class Undeclared:
    """The squared distance under another name, with no word on matrices outside the cone."""

    name: ClassVar[str] = "undeclared"

    def __init__(self, X0):
        self._own = Frobenius(X0)
        self.unit = self._own.unit

    def value(self, X):
        return self._own.value(X)

    def gradient(self, X):
        return self._own.gradient(X)

    def dual_term(self, W, mu, X):
        return self._own.dual_term(W, mu, X)


class Boastful(Undeclared):
    """Claims that any matrix is the minimizer."""

    def dual_term(self, W, mu, X):
        return float(np.vdot(W, X)) + mu * self.value(X)


class Enormous(Undeclared):
    """Claims a scale compared with which every gap is small."""

    def __init__(self, X0):
        super().__init__(X0)
        self.unit = 1e12


class TestDivergences:
    def test_an_unknown_divergence_is_checked_for_the_cone(self, monkeypatch):
        monkeypatch.setitem(DIVERGENCES, "undeclared", Undeclared)
        program = with_divergence(correlation().program(), "undeclared")
        found = certify(PrimalDualPoint(program, (INDEFINITE,), np.zeros(0), np.zeros(3)))
        assert found.primal_residual == pytest.approx(-np.linalg.eigvalsh(INDEFINITE)[0], rel=1e-6)
        assert not found.meets(0.1)

    def test_a_bound_above_the_objective_elsewhere_is_none(self, monkeypatch):
        monkeypatch.setitem(DIVERGENCES, "boastful", Boastful)
        program = with_divergence(correlation().program(), "boastful")
        optimum = correlation().solve().value
        found = certify(PrimalDualPoint(program, (np.eye(3),), np.zeros(0), np.zeros(3)))
        assert found.dual <= optimum
        assert not found.meets(1e-2)

    def test_a_scale_beyond_the_divergence_hides_no_gap(self, monkeypatch):
        monkeypatch.setitem(DIVERGENCES, "enormous", Enormous)
        program = with_divergence(correlation().program(), "enormous")
        assert not certify(PrimalDualPoint(program, (np.eye(3),), np.zeros(0), np.zeros(3))).meets(1e-2)

    def test_the_true_answer_is_certified_all_the_same(self, monkeypatch):
        monkeypatch.setitem(DIVERGENCES, "undeclared", Undeclared)
        sol = correlation().solve(tol=1e-9)
        program = with_divergence(correlation().program(), "undeclared")
        assert certify(PrimalDualPoint(program, (sol.X,), np.zeros(0), sol._raw.duals)).meets(1e-8)


@dataclass(frozen=True, eq=False)
class Foreign(DenseRows):
    """A stack of matrices from another package; truthful."""


class OtherAdjoint(Foreign):
    """Its adjoint is that of other rows, for which the multipliers prove a higher bound."""

    def adjoint(self, y):
        return 2 * super().adjoint(y)


class SmallActivity(Foreign):
    """Its rows seem to be met at every matrix."""

    def apply(self, X):
        return super().apply(X) / 2


class LargeNorms(Foreign):
    """Its norms make every violation look small."""

    def norms(self):
        return 1e9 * super().norms()


class LargeReach(Foreign):
    """It claims that its rows can be enormous."""

    def magnitude(self, s):
        return 1e9 * super().magnitude(s)


def with_family(program: Program, family: Any) -> Program:
    rows = family(np.array([np.diag(row) for row in np.eye(3)]))
    return replace(program, A=LinearMap(3, (3,), (Term(0, np.arange(3), rows),)))


def solved(program):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return routing.solve(program, "bregman")


class TestRowFamilies:
    def test_a_truthful_family_is_taken(self):
        found = solved(with_family(correlation().program(), Foreign))
        assert found.status == "optimal"
        assert found.value == pytest.approx(correlation().solve().value, rel=1e-5)

    @pytest.mark.parametrize("family", [OtherAdjoint, SmallActivity, LargeNorms, LargeReach])
    def test_a_family_that_contradicts_itself_is_refused(self, family):
        with pytest.raises(ValueError, match=f"{family.__name__} contradicts itself"):
            solved(with_family(correlation().program(), family))


class Claims:
    """A route that returns a given answer, and claims that it converged."""

    summary: ClassVar[str] = "claims"
    citation: ClassVar[str] = "none"
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "frobenius", "logdet", "von_neumann"})
    )
    Settings: ClassVar[type[Settings]] = Settings

    def refusal(self, program, settings):
        return None

    def choice(self, program, settings):
        return "claims"


def claiming(**parts):
    class Claim(Claims):
        name: ClassVar[str] = "claim"

        def solve(self, program, settings, start, progress):
            own = {"X": (np.eye(3),), "u": np.zeros(program.k), "y": np.zeros(program.m)}
            return Answer(**(own | {"stop": StopReason.CONVERGED, "iterations": 0} | parts))

    return Claim


def status_of(problem, **parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(solver=claiming(**parts)).status


class Disguised(bo.LowRank):
    """A low-rank matrix whose dense entries are those of another matrix."""

    __slots__ = ()

    def trace(self):
        return 3.0

    def diagonal(self):
        return np.ones(3)

    diag = diagonal

    def dense(self):
        return INDEFINITE

    def __array__(self, dtype=None, copy=None):
        return INDEFINITE


class TestRoutes:
    def test_the_optimum_is_certified(self):
        sol = correlation().solve(tol=1e-8)
        assert status_of(correlation(), X=(sol.X,), y=sol._raw.duals) == "optimal"

    @pytest.mark.parametrize(
        "X",
        [
            np.eye(3),  # feasible, and not the nearest
            INDEFINITE,  # at distance zero, outside the cone
            np.triu(np.ones((3, 3))),  # not symmetric
            0.999 * np.eye(3),  # violates its rows
            Disguised(np.eye(3)),
        ],
    )
    def test_other_matrices_are_not(self, X):
        assert status_of(correlation(), X=(X,)) not in ("optimal", "infeasible", "unbounded")

    def test_multipliers_of_the_wrong_sign_prove_nothing(self):
        X = bo.PSD(3)
        problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) <= 1])
        assert status_of(problem, y=np.ones(3)) not in ("optimal", "infeasible")

    def test_multipliers_outside_the_dual_cone_prove_nothing(self):
        X = bo.PSD(3)
        problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] + X[1, 1] + X[2, 2] + X[0, 1] == 3])
        assert status_of(problem, y=np.array([1.0])) != "optimal"

    def test_variables_outside_their_box_are_seen(self):
        X, u = bo.PSD(3), bo.Variable(nonneg=True)
        problem = bo.Problem(bo.Minimize(bo.trace(X) + u), [bo.trace(X) + u == 3, bo.diag(X) >= 1])
        found = status_of(problem, X=(1.5 * np.eye(3),), u=np.array([-1.5]), y=np.array([1.0, 0, 0, 0]))
        assert found != "optimal"

    @pytest.mark.parametrize("stop", [StopReason.INFEASIBLE, StopReason.UNBOUNDED])
    def test_words_are_no_proofs(self, stop):
        assert status_of(correlation(), stop=stop) not in ("infeasible", "unbounded", "optimal")
