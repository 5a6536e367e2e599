"""Ellipsoids around points and inside polytopes: John's conditions, closed forms, peers, invariances."""

import pickle
from math import factorial, gamma, log, pi

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import ask
from samples import examples

import bregopt as bo

UNITS = [1e-6, 1.0, 1e6]


def cloud(m, d, seed=0):
    return np.random.default_rng(seed).normal(size=(m, d))


def log_ball(d):
    return d / 2 * log(pi) - log(gamma(d / 2 + 1))


def johns_conditions(points, found, atol):
    """The weighted mean and covariance of the contact points are center and shape / d."""
    u = np.asarray(found.weights)
    assert u.min() >= 0
    assert u.sum() == pytest.approx(1)
    mean = u @ points
    np.testing.assert_allclose(mean, found.center, atol=atol * np.abs(points).max())
    covariance = (points - mean).T * u @ (points - mean)
    size = np.abs(found.shape).max()
    np.testing.assert_allclose(len(mean) * covariance, found.shape, atol=atol * size)
    assert (found.distances(points[found.contact]) > 1 - atol).all()


@pytest.mark.parametrize(("m", "d"), [(2, 1), (3, 2), (7, 2), (40, 3), (1200, 2), (900, 5), (2000, 8)])
def test_the_smallest_ellipsoid_meets_johns_conditions(m, d):
    points = cloud(m, d)
    found = bo.min_volume_ellipsoid(points, tol=1e-9)
    assert found.status == "optimal"
    assert found.gap <= 1e-9
    assert found.contains(points).all()
    assert len(found.contact) >= d + 1
    assert len(found.contact) <= d * (d + 3) / 2
    johns_conditions(points, found, 1e-5)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_closed_forms_of_points(d):
    simplex = np.concatenate([np.zeros((1, d)), np.eye(d)])
    found = bo.min_volume_ellipsoid(simplex)
    np.testing.assert_allclose(found.center, np.full(d, 1 / (d + 1)), atol=1e-9)
    np.testing.assert_allclose(found.weights, 1 / (d + 1), atol=1e-9)
    cube = np.array(np.meshgrid(*[[-1, 1]] * d)).reshape(d, -1).T
    found = bo.min_volume_ellipsoid(cube)
    np.testing.assert_allclose(found.shape, d * np.eye(d), atol=1e-6)
    ball = pi ** (d / 2) / gamma(d / 2 + 1)
    assert found.volume == pytest.approx(ball * d ** (d / 2), rel=1e-6)
    cross = np.concatenate([np.eye(d), -np.eye(d)]) * np.arange(1, d + 1)
    found = bo.min_volume_ellipsoid(cross)
    np.testing.assert_allclose(found.axes @ found.axes.T, np.diag(np.arange(d, 0, -1.0) ** 2), atol=1e-6)


def test_the_same_ellipsoid_as_cvxpy():
    points = cloud(25, 3, seed=4)
    A, b = cp.Variable((3, 3), PSD=True), cp.Variable(3)
    rows = [cp.norm(A @ x + b) <= 1 for x in points]
    found = bo.min_volume_ellipsoid(points)
    peer = ask(cp.Problem(cp.Minimize(-cp.log_det(A)), rows))
    peer.agrees(found.log_volume - log_ball(3), found.log_volume - found.log_volume_bound)


def test_a_given_center():
    points = cloud(60, 3, seed=2)
    origin = bo.min_volume_ellipsoid(points, center=np.zeros(3))
    both = bo.min_volume_ellipsoid(np.concatenate([points, -points]))
    np.testing.assert_allclose(origin.center, 0)
    assert origin.log_volume == pytest.approx(both.log_volume, abs=1e-5)
    assert origin.log_volume > bo.min_volume_ellipsoid(points).log_volume
    own = bo.min_volume_ellipsoid(points)
    again = bo.min_volume_ellipsoid(points, center=own.center)
    assert again.log_volume == pytest.approx(own.log_volume, abs=1e-5)
    shifted = bo.min_volume_ellipsoid(points + 5, center=np.full(3, 5.0))
    assert shifted.log_volume == pytest.approx(origin.log_volume, abs=1e-5)


@examples(12)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 30), st.sampled_from(UNITS))
def test_ellipsoids_follow_affine_maps(seed, d, more, unit):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(d + 2 + more, d))
    T, shift = rng.normal(size=(d, d)) + 2 * np.eye(d), rng.normal(size=d)
    if np.linalg.cond(T) > 1e3:
        return
    images = unit * (points @ T.T + shift)
    before, after = (bo.min_volume_ellipsoid(each, tol=1e-8) for each in (points, images))
    jump = np.linalg.slogdet(unit * T)[1]
    assert after.log_volume - jump == pytest.approx(before.log_volume, abs=1e-7)
    assert after.status == "optimal"
    assert after.contains(images).all()
    order = rng.permutation(len(points))
    twice = bo.min_volume_ellipsoid(np.concatenate([points[order], points]), tol=1e-8)
    assert twice.log_volume == pytest.approx(before.log_volume, abs=1e-7)


@examples(7)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_the_bound_of_a_rough_answer_is_true(seed, d):
    points = np.random.default_rng(seed).standard_t(3, size=(600, d))
    fine = bo.min_volume_ellipsoid(points, tol=1e-9)
    rough = bo.min_volume_ellipsoid(points, tol=0.3)
    assert rough.log_volume_bound <= fine.log_volume + 1e-9
    assert rough.log_volume >= fine.log_volume_bound
    assert rough.contains(points).all()


@pytest.mark.parametrize("offset", [1e3, 1e8])
def test_far_from_the_origin(offset):
    points = cloud(50, 3)
    near, far = bo.min_volume_ellipsoid(points), bo.min_volume_ellipsoid(points + offset)
    assert far.status == "optimal"
    assert far.log_volume == pytest.approx(near.log_volume, abs=1e-5)
    assert far.contains(points + offset).all()


def test_a_center_that_doubles_cannot_hold_is_said():
    with pytest.warns(bo.ConvergenceWarning, match="optimal_inaccurate"):
        found = bo.min_volume_ellipsoid(1e-3 * cloud(50, 3) + 1e8)
    assert found.status == "optimal_inaccurate"
    assert found.contains(1e-3 * cloud(50, 3) + 1e8).all()


@pytest.mark.parametrize(
    ("points", "dimension"),
    [
        (np.ones((5, 2)), 0),
        ([[0.0, 0], [1, 1], [2, 2]], 1),
        (np.eye(3), 2),
        (cloud(1, 2), 0),
        (cloud(40, 2) @ cloud(2, 5) + 3, 2),
        (cloud(40, 2) @ cloud(2, 5) * 1e-6 + 1e6, 2),
        (np.column_stack([cloud(9, 1), np.zeros(9)]), 1),
    ],
)
def test_points_in_a_subspace_are_refused_with_its_dimension(points, dimension):
    with pytest.raises(ValueError, match=f"an affine subspace of dimension {dimension}; expected"):
        bo.min_volume_ellipsoid(points)


def test_the_next_step_that_the_message_names():
    points = cloud(40, 2) @ cloud(2, 5) + 3
    origin = points.mean(axis=0)
    V = np.linalg.svd(points - origin, full_matrices=False)[2][:2]
    assert bo.min_volume_ellipsoid((points - origin) @ V.T).status == "optimal"
    with pytest.raises(ValueError, match="through the center of dimension 1"):
        bo.min_volume_ellipsoid([[1.0, 1], [2, 2]], center=[0, 0])
    assert bo.min_volume_ellipsoid([[1.0, 1], [2, 1]], center=[0, 0]).contact.tolist() == [0, 1]


def test_many_equal_points():
    points = np.random.default_rng(0).integers(-1, 2, (1000, 3)).astype(float)
    found = bo.min_volume_ellipsoid(points)
    assert found.status == "optimal"
    np.testing.assert_allclose(found.shape, 3 * np.eye(3), atol=1e-4)
    np.testing.assert_allclose(found.center, 0, atol=1e-4)


@pytest.mark.parametrize(
    ("points", "options", "error", "match"),
    [
        (np.zeros((0, 2)), {}, ValueError, "points has shape"),
        ([1.0, 2.0], {}, ValueError, "points has 1 dimensions"),
        ([[0, np.nan], [1, 2], [2, 1]], {}, ValueError, "points has 1 NaN"),
        ([["a", "b"]], {}, TypeError, "points has dtype"),
        (np.eye(3)[:, :2] * 1j, {}, TypeError, "points is complex"),
        (np.eye(3)[:, :2], {"center": [0.0]}, ValueError, r"center has shape \(1,\)"),
        (np.eye(3)[:, :2], {"tol": 0}, ValueError, "tol is 0"),
        (np.eye(3)[:, :2], {"time_limit": -1}, ValueError, "time_limit"),
    ],
)
def test_bad_points(points, options, error, match):
    with pytest.raises(error, match=match):
        bo.min_volume_ellipsoid(points, **options)


def test_answers_keep_labels_and_stay_as_they_are():
    pandas = pytest.importorskip("pandas")
    points = pandas.DataFrame(cloud(20, 2), index=[f"p{k}" for k in range(20)], columns=["x", "y"])
    before = points.copy()
    found = bo.min_volume_ellipsoid(points)
    assert list(found.center.index) == list(found.shape.columns) == ["x", "y"]
    assert set(found.contact) == set(found.weights.index[found.weights > 0])
    assert found.contains(points).all()
    pandas.testing.assert_frame_equal(points, before)
    plain = bo.min_volume_ellipsoid(points.to_numpy())
    copy = pickle.loads(pickle.dumps(plain))
    for answer in (plain, copy):
        with pytest.raises(ValueError, match="read-only"):
            answer.center[0] = 3.0
    assert copy.contains(points).all()
    assert "optimal" in repr(plain)
    with pytest.raises(ValueError, match="points has 3 columns; expected 2"):
        plain.contains(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="other labels"):
        bo.min_volume_ellipsoid(points, center=pandas.Series([0.0, 0.0], index=["y", "x"]))


def test_a_time_limit_leaves_a_true_bound():
    points = cloud(3000, 12)
    with pytest.warns(bo.ConvergenceWarning):
        found = bo.min_volume_ellipsoid(points, time_limit=1e-9)
    assert found.contains(points).all()
    assert found.log_volume_bound <= bo.min_volume_ellipsoid(points).log_volume


# Ellipsoids inside polytopes


def box(d, unit=1.0):
    return np.concatenate([np.eye(d), -np.eye(d)]) / unit, np.ones(2 * d)


def inside(A, b, found):
    reach = np.sqrt(np.einsum("ij,jk,ik->i", A, np.asarray(found.shape), A))
    return (A @ np.asarray(found.center) + reach <= b + 1e-12 * (np.abs(b) + reach)).all()


@pytest.mark.parametrize("unit", UNITS)
def test_the_largest_ellipsoid_of_boxes(unit):
    sides = unit * np.array([1.0, 10.0, 1e-3])
    A, b = box(3, sides)
    found = bo.max_volume_inscribed_ellipsoid(A, b)
    assert found.status == "optimal"
    np.testing.assert_allclose(np.diag(found.shape), sides**2, rtol=1e-6)
    np.testing.assert_allclose(found.weights, 1 / 6, atol=1e-6)
    assert list(found.contact) == list(range(6))
    assert inside(A, b, found)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_the_largest_ellipsoid_of_simplices(d):
    A, b = np.concatenate([-np.eye(d), np.ones((1, d))]), np.append(np.zeros(d), 1.0)
    found = bo.max_volume_inscribed_ellipsoid(A, b, tol=1e-8)
    np.testing.assert_allclose(found.center, np.full(d, 1 / (d + 1)), atol=1e-6)
    # All simplices are affine images of the regular one, whose inscribed ball has this share of the volume.
    inradius = 1 / np.sqrt(2 * d * (d + 1))
    share = pi ** (d / 2) / gamma(d / 2 + 1) * inradius**d / (np.sqrt((d + 1) / 2**d) / factorial(d))
    assert found.volume == pytest.approx(share / factorial(d), rel=1e-7)


@pytest.mark.parametrize("sides", [3, 4, 7, 50])
def test_the_largest_ellipse_of_regular_polygons(sides):
    t = 2 * pi * np.arange(sides) / sides
    A = np.column_stack([np.cos(t), np.sin(t)])
    found = bo.max_volume_inscribed_ellipsoid(A, np.ones(sides) + A @ [3.0, -2.0], tol=1e-8)
    np.testing.assert_allclose(found.shape, np.eye(2), atol=1e-7)
    np.testing.assert_allclose(found.center, [3.0, -2.0], atol=1e-7)


@pytest.mark.parametrize(("m", "d", "seed"), [(6, 2, 0), (15, 3, 1), (30, 4, 2)])
def test_the_same_inscribed_ellipsoid_as_cvxpy(m, d, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, d))
    A = np.concatenate([A, -A.sum(axis=0)[None]])  # bounded
    b = rng.uniform(1, 3, m + 1)
    B, c = cp.Variable((d, d), PSD=True), cp.Variable(d)
    rows = [cp.norm(B @ a) + a @ c <= limit for a, limit in zip(A, b, strict=True)]
    found = bo.max_volume_inscribed_ellipsoid(A, b)
    peer = ask(cp.Problem(cp.Maximize(cp.log_det(B)), rows))
    peer.agrees(found.log_volume - log_ball(d), found.log_volume_bound - found.log_volume)
    peer.near(found.center, c.value, 1e-3)
    assert inside(A, b, found)
    # John: the weighted normals balance, and their outer products make the identity.
    lengths = np.sqrt(np.einsum("ij,jk,ik->i", A, found.shape, A))
    np.testing.assert_allclose(found.weights / lengths @ A, 0, atol=1e-6)
    normals = A @ np.linalg.cholesky(found.shape) / lengths[:, None]
    np.testing.assert_allclose((normals.T * found.weights) @ normals, np.eye(d) / d, atol=1e-6)


@examples(10)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from(UNITS))
def test_inscribed_ellipsoids_follow_affine_maps(seed, d, unit):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3 * d + 2, d))
    A = np.concatenate([A, -A.sum(axis=0)[None], *box(d)[:1]])
    b = rng.uniform(0.5, 2, len(A))
    T, shift = rng.normal(size=(d, d)) + 2 * np.eye(d), rng.normal(size=d)
    if np.linalg.cond(T) > 1e3:
        return
    before = bo.max_volume_inscribed_ellipsoid(A, b, tol=1e-8)
    image = A @ np.linalg.inv(unit * T)
    right = b + image @ (unit * shift)
    order = rng.permutation(len(A))
    factors = rng.uniform(1e-3, 1e3, len(A))
    after = bo.max_volume_inscribed_ellipsoid(
        (factors[:, None] * image)[order], (factors * right)[order], tol=1e-8
    )
    assert after.log_volume - np.linalg.slogdet(unit * T)[1] == pytest.approx(before.log_volume, abs=1e-7)
    assert after.status == before.status == "optimal"


@pytest.mark.parametrize(
    ("A", "b", "flat"),
    [
        ([[1.0], [-1]], [1, -2], False),
        (box(2)[0], [1, 1, -1, 1], True),
        ([[0.0, 0], [1, 0]], [-1, 1], False),
        ([[1.0, 1], [-1, 0], [0, -1]], [-1e-3, 0, 0], False),
        ([[1e6, 1e6], [-1, 0], [0, -1e-6]], [-1.0, 0, 0], False),
    ],
)
def test_a_polytope_without_interior_has_a_proof(A, b, flat):
    A, b = np.array(A, dtype=float), np.array(b, dtype=float)
    found = bo.max_volume_inscribed_ellipsoid(A, b)
    assert found.status == "infeasible"
    assert ("flat" in found.stop_reason) == flat
    y = found.farkas
    assert y.min() >= 0
    assert y.sum() > 0
    assert np.abs(y @ A).max() <= 1e-10 * (y @ np.abs(A)).max()
    assert y @ b <= (1e-9 if flat else -1e-9) * (y @ np.abs(b))
    assert found.center is None
    with pytest.raises(ValueError, match="is infeasible and has no ellipsoid"):
        found.contains(np.zeros(2))


@pytest.mark.parametrize(
    ("A", "b"),
    [
        ([[1.0]], [3]),
        (np.eye(3), np.ones(3)),
        (box(3)[0][:5], np.ones(5)),
        ([[0.0, 0]], [1]),
        ([[1, -1e-5], [-1, -1e-5]], [0, 0]),
        ([[1e6, -1.0], [-1e6, -1.0]], [1, 1]),
        ([[1.0, 1], [-1, -1]], [1, 1]),
    ],
)
def test_an_unbounded_polytope_has_a_ray(A, b):
    A = np.array(A, dtype=float)
    found = bo.max_volume_inscribed_ellipsoid(A, b)
    assert found.status == "unbounded"
    assert found.volume == np.inf
    assert np.abs(found.ray).max() == 1
    assert (A @ found.ray <= 1e-10 * np.abs(A).max(axis=1)).all()


def test_thin_and_long_polytopes():
    A, b = box(3)
    b[3] = -1 + 1e-9
    thin = bo.max_volume_inscribed_ellipsoid(A, b, tol=1e-4)
    assert thin.status == "optimal"
    assert thin.volume == pytest.approx(4 / 3 * pi * 5e-10, rel=1e-4)
    long = bo.max_volume_inscribed_ellipsoid([[1, 1e-9], [-1, 1e-9], [0, -1]], [1, 1, 1])
    assert long.status == "optimal"
    np.testing.assert_allclose(long.center, [0, (1e9 - 2) / 3], atol=1e3)


def test_rows_that_say_nothing_or_twice_the_same():
    A, b = box(2)
    once = bo.max_volume_inscribed_ellipsoid(A, b)
    more = bo.max_volume_inscribed_ellipsoid(
        np.concatenate([A, A, np.zeros((1, 2)), 3 * A]), np.concatenate([b, b + 5, [0.0], 3 * b])
    )
    assert more.log_volume == pytest.approx(once.log_volume, abs=1e-6)
    assert more.weights.shape == (13,)
    assert more.weights[8] == 0


@pytest.mark.parametrize(
    ("A", "b", "error", "match"),
    [
        (np.zeros((0, 2)), [], ValueError, "A has shape"),
        (np.eye(2), [1.0], ValueError, r"b has shape \(1,\)"),
        (np.eye(2), [1.0, np.inf], ValueError, "b has 1 NaN or Inf"),
        (np.eye(2), ["a", "b"], TypeError, "b has dtype"),
    ],
)
def test_bad_polytopes(A, b, error, match):
    with pytest.raises(error, match=match):
        bo.max_volume_inscribed_ellipsoid(A, b)


def test_labels_of_polytopes():
    pandas = pytest.importorskip("pandas")
    A = pandas.DataFrame(box(2)[0], index=["right", "top", "left", "bottom"], columns=["x", "y"])
    found = bo.max_volume_inscribed_ellipsoid(A, pandas.Series(1.0, index=A.index))
    assert set(found.contact) == set(A.index)
    assert list(found.center.index) == ["x", "y"]
    with pytest.raises(ValueError, match="b is a Series with other labels"):
        bo.max_volume_inscribed_ellipsoid(A, pandas.Series(1.0, index=range(4)))


def test_drawings():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    around = bo.min_volume_ellipsoid(cloud(30, 2))
    ax = around.plot()
    outline = ax.lines[1].get_xydata()
    np.testing.assert_allclose(around.distances(outline), 1, atol=1e-9)
    shadow = bo.min_volume_ellipsoid(cloud(30, 4))
    edge = shadow.boundary((1, 3))
    center, shape = shadow.center[[1, 3]], shadow.shape[np.ix_([1, 3], [1, 3])]
    np.testing.assert_allclose(
        np.einsum("ij,ij->i", (edge - center) @ np.linalg.inv(shape), edge - center), 1
    )
    ax = shadow.plot((1, 3))
    inverse = np.linalg.inv(shape)
    drawn, touching = (ax.lines[k].get_xydata() - center for k in (0, 3))
    np.testing.assert_allclose(
        np.einsum("ij,jk,ik->i", drawn, inverse, drawn), shadow.distances(cloud(30, 4))
    )
    np.testing.assert_allclose(np.einsum("ij,jk,ik->i", touching, inverse, touching), 1, atol=1e-6)
    assert "distances in all" in ax.get_title()
    flat = shadow.plot((1, 3), projected=True)
    assert "projection" in flat.get_title()
    np.testing.assert_array_equal(flat.lines[0].get_xydata(), cloud(30, 4)[:, [1, 3]])
    polygon = bo.max_volume_inscribed_ellipsoid(*box(2)).plot().patches[0].get_xy()
    np.testing.assert_allclose(np.abs(polygon), 1)
    pyplot.close("all")


@pytest.mark.parametrize("center", [None, [1e-200, 0.0]])
def test_points_whose_squares_vanish_are_refused(center):
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) * (1e-200 if center is None else [0.0, 1.0])
    with pytest.raises(ValueError, match=r"points - \S+ has magnitude \S+ in column 0; expected 0 or 1e-70"):
        bo.min_volume_ellipsoid(points, center)


def test_polytopes_beyond_the_range_of_squares_are_refused():
    with pytest.raises(ValueError, match="b has magnitude 1e-300"):
        bo.max_volume_inscribed_ellipsoid([[1.0], [-1.0]], [1e-300, 1e-300])
    with pytest.raises(ValueError, match="A has magnitude 1e-300 in column 1"):
        bo.max_volume_inscribed_ellipsoid([[1.0, 0.0], [-1.0, 1e-300]], [1.0, 1.0])


def test_a_long_polytope_is_not_called_unbounded():
    """Both sides of the long direction count, however far they are."""
    A = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    found = bo.max_volume_inscribed_ellipsoid(A, [1.0, 1.0, 1e8, 1e8])
    assert found.status == "optimal"
    assert found.log_volume == pytest.approx(np.log(np.pi * 1e8 / 2), abs=1e-5)
    with pytest.raises(bo.SolverError, match="too long for its width"):
        bo.max_volume_inscribed_ellipsoid(A, [1.0, 1.0, 1e17, 1e17])


def test_rays_of_polytopes_with_near_and_far_sides():
    A, b = np.array([[0.0, -1.0, 2.0], [1.0, -1.0, 0.0]]), np.array([1e30, 0.0])
    found = bo.max_volume_inscribed_ellipsoid(A, b)
    assert found.status == "unbounded"
    assert np.abs(A @ found.ray).max() <= 1e-14
    A = np.array([[-1.0, 1, -1, 0], [1, 0, 1, 1], [1, -1, 0, 0], [1, 0, 0, 0]])
    found = bo.max_volume_inscribed_ellipsoid(A, [-5e3, 1e6, 1e6, 1e6])
    assert found.status == "unbounded"
    assert (A @ found.ray <= 1e-12).all()


def test_a_cone_has_rays():
    found = bo.max_volume_inscribed_ellipsoid([[-1.0, -1.0, 1.0, 0.0]], [0.0])
    assert found.status == "unbounded"
    assert np.isfinite(found.ray).all()
