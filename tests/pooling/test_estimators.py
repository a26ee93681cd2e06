"""Nadaraya-Watson: the formula, for every kernel; scikit-learn's habits; the width that the data ask for."""

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import regard
from regard.pooling.estimators import NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.pooling.kernels import EDGE

ROOT = Path(__file__).parents[2]
KERNELS = ["gaussian", "boxcar", "triangular", "constant"]

# Quarters, whose squares and differences are exact: a point is on the edge of a boxcar, or it is not.
quarters = st.integers(-40, 40).map(lambda number: number / 4)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    points, queries = (draw(st.integers(1, 12)) for _ in range(2))
    return (draw(arrays(float, (points, features), elements=quarters)),
            draw(arrays(float, (points, outputs), elements=quarters)),
            draw(arrays(float, (queries, features), elements=quarters)))


def by_the_formula(kernel: str, width: float, queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Σ K(‖q − k‖ / σ) in the denominator, written down as it is in the books."""
    distances = cdist(queries, points) / width
    heights = {"gaussian": np.exp(-(distances**2) / 2), "boxcar": (distances <= 1).astype(float),
               "triangular": np.clip(1 - distances, 0, None), "constant": np.ones_like(distances)}[kernel]
    nearest = (distances == distances.min(1, keepdims=True)).astype(float)
    heights = np.where(heights.sum(1, keepdims=True) > 0, heights, nearest)
    return heights / heights.sum(1, keepdims=True)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=40)
@given(problem=problems(), width=st.sampled_from([0.5, 1.0, 3.0, 20.0]))
def test_a_prediction_is_the_formula(kernel: str, problem: tuple[np.ndarray, ...], width: float) -> None:
    points, seen, queries = problem
    model = NadarayaWatsonRegressor(kernel=kernel, width=width).fit(points, seen)
    weights = by_the_formula(kernel, width, queries, points)
    np.testing.assert_allclose(model.weights(queries), weights, atol=1e-9)
    np.testing.assert_allclose(model.predict(queries), weights @ seen, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=40)
@given(problem=problems(), width=st.sampled_from([0.5, 3.0]))
def test_probabilities_are_the_share_of_each_label(kernel: str, problem: tuple[np.ndarray, ...], width: float) -> None:
    points, seen, queries = problem
    labels = np.where(seen[:, 0] > 0, "warm", np.where(seen[:, 0] < -2, "cold", "mild"))
    model = NadarayaWatsonClassifier(kernel=kernel, width=width).fit(points, labels)
    shares = model.predict_proba(queries)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    assert list(model.classes_) == sorted(set(labels))
    weights = by_the_formula(kernel, width, queries, points)
    np.testing.assert_allclose(shares, weights @ (labels[:, None] == model.classes_), atol=1e-9)
    assert (model.predict(queries) == model.classes_[shares.argmax(1)]).all()


@pytest.mark.parametrize("model", [
    NadarayaWatsonRegressor(), NadarayaWatsonRegressor(kernel="triangular", width=[0.5, 2.0]),
    NadarayaWatsonClassifier(), NadarayaWatsonClassifier(kernel="boxcar", width=1.0),
], ids=repr)
def test_scikit_learn_takes_it_for_one_of_its_own(model: BaseEstimator) -> None:
    check_estimator(model, on_skip=None)  # what is not installed, pandas say, is not checked


def test_a_width_is_found_that_is_as_good_as_the_best_for_the_truth_behind_the_noise() -> None:
    draw = np.random.default_rng(0)
    points = draw.uniform(0, 10, (400, 1))
    queries = np.linspace(0.5, 9.5, 300)[:, None]
    for waves in (0.5, 3.0):  # a calm sea asks for a wide kernel, a rough one for a narrow one
        seen = np.sin(waves * points[:, 0]) + draw.normal(0, 0.3, 400)

        def lost(width: float, seen: np.ndarray = seen, waves: float = waves) -> float:
            said = NadarayaWatsonRegressor(width=width).fit(points, seen).predict(queries)
            return float(np.mean((said - np.sin(waves * queries[:, 0])) ** 2))

        widths = np.geomspace(0.01, 5, 60)
        losses = [lost(width) for width in widths]
        found = NadarayaWatsonRegressor().fit(points, seen).width_
        assert 0.5 < found / widths[np.argmin(losses)] < 2
        assert lost(found) < 1.2 * min(losses)


def test_leave_one_out_chooses_as_fitting_without_each_point_does() -> None:
    draw = np.random.default_rng(1)
    points, widths = draw.normal(size=(25, 2)), [0.05, 0.6, 5.0]
    seen = np.sin(2 * points[:, 0]) + draw.normal(0, 0.2, 25)
    for kernel in ("gaussian", "boxcar", "triangular"):
        losses = []
        for width in widths:
            others = [np.arange(25) != point for point in range(25)]
            said = [NadarayaWatsonRegressor(kernel=kernel, width=width).fit(points[other], seen[other])
                    .predict(points[~other])[0] for other in others]
            losses.append(np.mean((np.array(said) - seen) ** 2))
        model = NadarayaWatsonRegressor(kernel=kernel, width=widths).fit(points, seen)
        assert model.width_ == widths[np.argmin(losses)]


def test_a_classifier_finds_its_width_too() -> None:
    points, moons = make_moons(600, noise=0.2, random_state=0)
    model = NadarayaWatsonClassifier().fit(points[:300], moons[:300])
    assert model.score(points[300:], moons[300:]) > 0.95
    assert 0.03 < model.width_ < 0.5


def test_far_from_all_points_every_kernel_but_the_mean_gives_the_nearest() -> None:
    points, seen = np.arange(5.0)[:, None], np.arange(5.0) * 10
    for kernel in ("gaussian", "boxcar", "triangular"):
        model = NadarayaWatsonRegressor(kernel=kernel, width=0.5).fit(points, seen)
        assert model.predict([[1e6], [-300.0]]).tolist() == [40.0, 0.0]
        nearest = KNeighborsRegressor(n_neighbors=1).fit(points, seen)
        assert model.predict([[17.3]]) == nearest.predict([[17.3]])
    assert NadarayaWatsonRegressor(kernel="boxcar", width=0.1).fit(points, seen).predict([[1.5]]) == [15.0]  # of two


@pytest.mark.parametrize("kernel", KERNELS)
def test_where_the_data_lie_makes_no_difference(kernel: str) -> None:
    draw = np.random.default_rng(0)
    points, queries = (draw.uniform(size=(rows, 2)).round(3) for rows in (300, 50))
    seen = draw.normal(size=300)
    here = NadarayaWatsonRegressor(kernel=kernel, width=0.01).fit(points, seen).predict(queries)
    there = NadarayaWatsonRegressor(kernel=kernel, width=0.01).fit(points + 2.0**20, seen).predict(queries + 2.0**20)
    np.testing.assert_allclose(here, there, atol=1e-4)  # of points that far off, a double keeps 10 digits


@st.composite
def clusters(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Points, what was seen there, queries and a width: in clusters that may lie 10¹² from each other."""
    features, width = draw(st.integers(1, 5)), 10.0 ** draw(st.integers(-3, 3))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    points, queries = [], []
    for shift in draw(st.lists(st.sampled_from([0.0, 1e3, -1e6, 1e8, 1e12]), min_size=1, max_size=3, unique=True)):
        spread = width * draw(st.sampled_from([0.1, 1.0, 10.0, 1e3]))
        points.append(shift + spread * random.normal(size=(draw(st.integers(1, 12)), features)))
        queries.append(shift + spread * random.normal(size=(draw(st.integers(1, 4)), features)))
    X = np.concatenate(points)
    return X, random.normal(size=len(X)), np.concatenate(queries), width


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=100)
@given(problem=clusters())
def test_an_answer_depends_on_its_own_query_only(kernel: str, problem: tuple[np.ndarray, ...]) -> None:
    points, seen, queries, width = problem
    model = NadarayaWatsonRegressor(kernel=kernel, width=width).fit(points, seen)
    for ask in (model.predict, model.weights):
        alone = np.concatenate([ask(query[None]) for query in queries])
        np.testing.assert_allclose(ask(queries), alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=100)
@given(problem=clusters())
def test_clusters_far_from_each_other_are_answered_to_nine_digits(
        kernel: str, problem: tuple[np.ndarray, ...]) -> None:
    points, seen, queries, width = problem
    exact = np.longdouble  # of 64 bits and more, where the machine has them
    apart = np.sqrt(((queries[:, None].astype(exact) - points.astype(exact)) ** 2).sum(-1)) / width
    # Far from all points the smallest error of a distance decides which of them is the nearest.
    close = apart.min(1) < 100
    queries, apart = queries[close], apart[close]
    if not len(queries):
        return
    heights = {"gaussian": np.exp((apart.min(1, keepdims=True) ** 2 - apart**2) / 2), "boxcar": 1.0 * (apart <= EDGE),
               "triangular": np.clip(1 - apart, 0, None), "constant": np.ones_like(apart)}[kernel]
    nearest = 1.0 * (apart == apart.min(1, keepdims=True))
    heights = np.where(heights.sum(1, keepdims=True) > 0, heights, nearest)
    weights = (heights / heights.sum(1, keepdims=True)).astype(float)
    model = NadarayaWatsonRegressor(kernel=kernel, width=width).fit(points, seen)
    np.testing.assert_allclose(model.weights(queries), weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.predict(queries), weights @ seen, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shift", [1e6, 1e8, 1e12])
def test_who_else_is_asked_makes_no_difference(shift: float) -> None:
    points, seen = np.concatenate([np.arange(5.0), shift + np.arange(5.0)])[:, None], np.arange(10.0)
    model, queries = NadarayaWatsonRegressor(width=0.5).fit(points, seen), [[1.0], [shift + 2.2]]
    heights = np.exp(-2 * (np.arange(5) - 1.0) ** 2)
    right = heights @ seen[:5] / heights.sum()
    for answer in (model.predict(queries[:1])[0], model.predict(queries)[0], (model.weights(queries) @ seen)[0]):
        assert answer == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar", "triangular"])
def test_the_narrowest_width_gives_the_nearest_point(kernel: str) -> None:
    points, seen = np.arange(5.0)[:, None], np.arange(5.0) * 10
    for width in (1e-100, 1e-150, 2e-154):
        model = NadarayaWatsonRegressor(kernel=kernel, width=width).fit(points, seen)
        assert model.predict([[1.0], [2.2], [1e12]]).tolist() == [10.0, 20.0, 40.0]
        assert (model.weights([[1.0], [2.2], [1e12]]) @ seen).tolist() == [10.0, 20.0, 40.0]


def test_numbers_whose_distance_cannot_be_squared_are_refused() -> None:
    model, words = NadarayaWatsonRegressor(width=1.0), r"X: 1e\+200 is beyond 1e\+140"
    with pytest.raises(ValueError, match=words):
        model.fit([[0.0], [-1e200]], [0.0, 1.0])
    with pytest.raises(ValueError, match=words):
        model.fit([[0.0], [1e140]], [0.0, 1.0]).predict([[1e200]])
    assert model.predict([[-1e140], [9e139]]).tolist() == [0.0, 1.0]


def test_points_at_the_same_place_share_it() -> None:
    points = np.repeat(np.arange(4.0), 5)[:, None]
    seen = points[:, 0] ** 2 + np.tile([-2.0, -1.0, 0.0, 1.0, 2.0], 4)
    model = NadarayaWatsonRegressor().fit(points, seen)
    np.testing.assert_allclose(model.predict(points[::5]), [0, 1, 4, 9], atol=0.5)
    assert NadarayaWatsonRegressor().fit(np.ones((6, 2)), np.arange(6.0)).predict([[3.0, 0.0]]) == [2.5]


@pytest.mark.parametrize("width", [1.0, [0.5, 1.0], "auto"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_one_point_is_all_there_is_to_say(kernel: str, width: float | list[float] | str) -> None:
    assert NadarayaWatsonRegressor(kernel=kernel, width=width).fit([[2.0]], [7.0]).predict([[5.0]]) == [7.0]


@pytest.mark.parametrize(("given", "words"), [
    ({"kernel": "gausian"}, "kernel: 'gausian' is none of gaussian, boxcar, triangular, constant"),
    ({"width": 0.0}, "width: 0.0 is no positive number"),
    ({"width": -1}, "width: -1.0 is no positive number"),
    ({"width": float("nan")}, "width: nan is no positive number"),
    ({"width": [1.0, float("inf")]}, "width: inf is no positive number"),
    ({"width": 1e200}, r"width: 1e\+200 is no positive number that could be squared"),
    ({"width": 1e-200}, "width: 1e-200 is no positive number that could be squared"),
    ({"width": 1e-154}, "width: 1e-154 is no positive number that could be squared"),
    ({"width": []}, "width: the list is empty"),
    ({"width": None}, "width: None is neither 'auto' nor a number"),
    ({"width": ["wide"]}, "width: 'wide' is neither 'auto' nor a number"),
    ({"width": [1.0, None]}, "width: None is neither 'auto' nor a number"),
    ({"width": "wide"}, "width: 'wide' is neither 'auto' nor a number"),
])
def test_a_setting_that_cannot_be_is_named(given: dict[str, object], words: str) -> None:
    model = NadarayaWatsonRegressor().set_params(**given)
    with pytest.raises(ValueError, match=words):
        model.fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("points", [np.empty((0, 2)), [[0.0, np.nan]], [[np.inf, 0.0]]])
def test_nothing_and_not_a_number_are_refused(points: object) -> None:
    model = NadarayaWatsonRegressor(width=1.0)
    with pytest.raises(ValueError, match=r"0 sample|NaN|infinity"):
        model.fit(points, [1.0])
    with pytest.raises(ValueError, match=r"0 sample|NaN|infinity"):
        model.fit([[0.0, 0.0]], [1.0]).predict(points)


def test_it_works_inside_a_pipeline_and_a_search() -> None:
    points, moons = make_moons(200, noise=0.2, random_state=0)
    search = GridSearchCV(make_pipeline(StandardScaler(), NadarayaWatsonClassifier()), {
        "nadarayawatsonclassifier__kernel": KERNELS, "nadarayawatsonclassifier__width": [0.2, 0.4]}, cv=3)
    assert search.fit(points, moons).best_params_["nadarayawatsonclassifier__kernel"] != "constant"
    assert clone(NadarayaWatsonRegressor(kernel="boxcar", width=[1.0, 2.0])).get_params() == {
        "kernel": "boxcar", "width": [1.0, 2.0]}


def test_regard_offers_both_by_name_and_draws_in_nothing_before() -> None:
    assert regard.NadarayaWatsonRegressor is NadarayaWatsonRegressor
    assert {"NadarayaWatsonRegressor", "NadarayaWatsonClassifier"} <= set(dir(regard))
    light = "import regard, sys; sys.exit(not {'torch', 'sklearn'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0


def test_without_scikit_learn_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "regard.pooling.estimators")
    with pytest.raises(ModuleNotFoundError, match=r"needs scikit-learn: pip install scikit-learn"):
        _ = regard.NadarayaWatsonRegressor


def test_the_page_of_the_documentation_says_what_comes_out() -> None:
    outcome = doctest.testfile(str(ROOT / "docs" / "pooling.md"), module_relative=False,
                               optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert outcome.attempted > 5
    assert outcome.failed == 0
