import io
import pickle
import sys

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.base import is_classifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, mean_absolute_error, mean_squared_error
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, KFold, RandomizedSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from steelyard import (
    RULSIF,
    ULSIF,
    ImportanceWeightedSearchCV,
    Target,
    WeightedClassifier,
    WeightedRegressor,
    iwcv_score,
)
from steelyard._numerics.weighted_means import simplest_within_one_standard_error, standard_error, weighted_mean
from steelyard._weight_parameter import weight_parameter
from steelyard.datasets import gaussian_pair, sinc_toy
from steelyard.errors import InputError, InputTypeError, NoOverlapError, NoTargetWarning, ParameterError
from steelyard.model_selection._scoring import row_scores
from steelyard.ratio._base import RatioEstimator
from steelyard.tables.rows import take_rows

RATIO = ULSIF(width=0.5, reg=1.0, random_state=0)


class TrueRatio(RatioEstimator):
    """The true ratio of the sinc toy, to tell selection from estimation."""

    def __init__(self, random_state=None, standardize=False):
        self.random_state = random_state
        self.standardize = standardize

    def _fit(self, source, target, rng):
        x = source.rows[:, 0] + self.center_[0]
        return np.exp(((x - 1) / 0.5) ** 2 / 2 - ((x - 2) / 0.25) ** 2 / 2) * 2


# A hundred and fifty rows give rough ratios, and the library says so; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")


@pytest.fixture(scope="module")
def toy():
    return sinc_toy(random_state=0)


def test_each_fold_is_the_weighted_mean_of_its_rows(toy):
    X, y, X_target, _ = toy
    weights = RATIO.fit(X, target=X_target).weights_
    model = WeightedRegressor(Ridge(), RATIO, flattening=0.5)
    values = iwcv_score(model, X, y, target=Target(X_target), ratio=RATIO, cv=KFold(4))
    for value, (train, test) in zip(values, KFold(4).split(X), strict=True):
        prediction = model.fit(X[train], y[train], target=Target(X_target)).predict(X[test])
        assert value == pytest.approx(-mean_squared_error(y[test], prediction, sample_weight=weights[test]))


def test_unweighted_estimators_can_be_compared_too(toy):
    X, y, X_target, _ = toy
    values = iwcv_score(Ridge(), X, y, target=X_target, ratio=RULSIF(1.0), cv=KFold(5))
    np.testing.assert_allclose(values, cross_val_score(Ridge(), X, y, scoring="neg_mean_squared_error"))


def test_iwcv_estimates_the_target_error_where_plain_cv_does_not():
    weighted, plain, truth = [], [], []
    for seed in range(1000, 1020):
        # A thousand rows: the target lies in the tail of the source, where three hundred leave a handful.
        X, y, X_target, y_target = sinc_toy(1000, 1000, random_state=seed)
        model = LinearRegression()
        weighted.append(-iwcv_score(model, X, y, target=X_target, ratio=ULSIF(random_state=0)).mean())
        plain.append(-cross_val_score(model, X, y, scoring="neg_mean_squared_error").mean())
        truth.append(mean_squared_error(y_target, model.fit(X, y).predict(X_target)))
    assert abs(np.mean(weighted) - np.mean(truth)) < 0.35 * np.mean(truth)
    assert np.mean(plain) < 0.5 * np.mean(truth)


@pytest.mark.parametrize(
    ("scoring", "metric"),
    [
        ("accuracy", lambda y, p, c, w: accuracy_score(y, c[p.argmax(1)], sample_weight=w)),
        ("neg_log_loss", lambda y, p, c, w: -log_loss(y, p, labels=c, sample_weight=w)),
        (
            "neg_brier_score",
            lambda y, p, c, w: -brier_score_loss(y, p, labels=c, sample_weight=w, scale_by_half=False),
        ),
    ],
)
def test_row_scores_average_to_the_metric_of_classifiers(scoring, metric):
    pair = gaussian_pair(200, 100, 2, random_state=0)
    y = np.array(["a", "b", "c"])[np.digitize(pair.X.sum(axis=1) + pair.X[:, 0] ** 2, [0, 1.5])]
    model = LogisticRegression().fit(pair.X, y)
    weights = np.random.default_rng(0).uniform(size=200)
    mean = weighted_mean(row_scores(scoring, model)(model, pair.X, y), weights)
    assert mean == pytest.approx(metric(y, model.predict_proba(pair.X), model.classes_, weights))


def test_row_scores_average_to_the_metric_of_regressors(toy):
    X, y, _, _ = toy
    model, weights = Ridge().fit(X, y), np.random.default_rng(0).uniform(size=len(X))
    for scoring, metric in (
        ("neg_mean_squared_error", mean_squared_error),
        ("neg_mean_absolute_error", mean_absolute_error),
    ):
        mean = weighted_mean(row_scores(scoring, model)(model, X, y), weights)
        assert mean == pytest.approx(-metric(y, model.predict(X), sample_weight=weights))
    own = row_scores(lambda model, X, y: -(np.abs(model.predict(X) - y) ** 3), model)
    assert own(model, X, y).shape == (len(X),)


def test_scores_that_are_no_means_are_refused(toy):
    X, y, X_target, _ = toy
    with pytest.raises(ParameterError, match=r"'r2' is not a mean over rows.*neg_mean_squared_error"):
        iwcv_score(Ridge(), X, y, target=X_target, scoring="r2")
    with pytest.raises(ParameterError, match="one score for each row"):
        iwcv_score(Ridge(), X, y, target=X_target, ratio=RATIO, scoring=lambda model, X, y: 1.0)


def test_a_fold_without_weight_is_an_error():
    with pytest.raises(NoOverlapError, match="Shuffle"):
        weighted_mean(np.ones(3), np.zeros(3))


def test_standard_error_equals_the_bootstrap():
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(size=400), rng.exponential(size=400)
    draws = rng.integers(0, 400, size=(4000, 400))
    means = (scores[draws] * weights[draws]).sum(axis=1) / weights[draws].sum(axis=1)
    assert standard_error(scores, weights) == pytest.approx(means.std(), rel=0.05)


# --- the search ---


def search_toy(search, toy, **kwargs):
    X, y, X_target, _ = toy
    return search.fit(X, y, target=Target(X_target), **kwargs)


def test_results_are_those_of_iwcv_score(toy):
    X, y, X_target, _ = toy
    grid = {"flattening": [0, 0.5, 1], "estimator__alpha": [0.1, 10]}
    plain = ImportanceWeightedSearchCV(WeightedRegressor(Ridge(), RATIO), grid, ratio=RATIO, cv=KFold(5), rule="best")
    search = search_toy(plain, toy)
    results = search.cv_results_
    assert len(results["params"]) == 6
    for i, params in enumerate(results["params"]):
        model = WeightedRegressor(Ridge(), RATIO).set_params(**params)
        values = iwcv_score(model, X, y, target=X_target, ratio=RATIO, cv=KFold(5))
        np.testing.assert_allclose([results[f"split{s}_test_score"][i] for s in range(5)], values)
        fold_weight = [search.validation_weights_[test].sum() for _, test in KFold(5).split(X)]
        assert results["mean_test_score"][i] == pytest.approx(np.average(values, weights=fold_weight))
    assert search.best_index_ == np.argmax(results["mean_test_score"])
    assert results["rank_test_score"][search.best_index_] == 1
    assert search.best_params_ == results["params"][search.best_index_]
    refitted = WeightedRegressor(Ridge(), RATIO).set_params(**search.best_params_).fit(X, y, target=Target(X_target))
    np.testing.assert_array_equal(search.predict(X_target), refitted.predict(X_target))


def test_plain_grid_search_answers_flattening_zero_even_with_the_true_weights():
    """The reason this search exists: scored on the source, no weighting can win."""
    plain, weighted = [], []
    for seed in range(1000, 1020):
        X, y, X_target, _ = sinc_toy(random_state=seed)
        model, grid = WeightedRegressor(Ridge(0.01), TrueRatio()), {"flattening": [0, 0.25, 0.5, 0.75, 1]}
        grid_search = GridSearchCV(model, grid).fit(X, y, target=Target(X_target))
        plain.append(grid_search.best_params_["flattening"])
        search = ImportanceWeightedSearchCV(model, grid, ratio=TrueRatio()).fit(X, y, target=Target(X_target))
        weighted.append(search.best_params_["flattening"])
    assert plain == [0] * 20
    assert np.mean(np.array(weighted) >= 0.5) >= 0.8


def test_ratio_eta_and_method_can_be_searched(toy):
    grid = [
        {"ratio": [RULSIF(random_state=0)], "ratio__eta": [0.1, 0.5]},
        {"ratio": [RATIO], "flattening": [0.5]},
    ]
    search = search_toy(ImportanceWeightedSearchCV(WeightedRegressor(Ridge()), grid, ratio=RATIO, n_jobs=2), toy)
    assert search.cv_results_["param_ratio__eta"].mask.tolist() == [False, False, True]
    assert len(search.cv_results_["mean_test_score"]) == 3


def test_one_standard_error_rule_prefers_the_plainest(toy):
    grid = {"flattening": [0, 0.1, 0.5, 1.0]}
    model = WeightedRegressor(Ridge(), RATIO)
    best = search_toy(ImportanceWeightedSearchCV(model, grid, ratio=RATIO, rule="best"), toy)
    plain = search_toy(ImportanceWeightedSearchCV(model, grid, ratio=RATIO), toy)
    results = plain.cv_results_
    limits = results["mean_test_score"].max() - results["se_of_difference"]
    allowed = [i for i in range(4) if results["mean_test_score"][i] >= limits[i]]
    assert plain.best_index_ == min(allowed)  # less flattening is plainer, and the grid rises
    assert plain.best_index_ <= best.best_index_
    # Where nothing differs between source and target, the rule answers ERM.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 1)), rng.normal(size=100)
    same = ImportanceWeightedSearchCV(model, grid, ratio=RATIO)
    assert same.fit(X, y, target=rng.normal(size=(100, 1))).best_params_["flattening"] == 0


def label_plus(model, X, y):
    """A score that every candidate has, and a little more for each unit of its penalty."""
    return 100 * np.asarray(y) + model.estimator.alpha


def test_the_rule_compares_candidates_on_the_same_rows(toy):
    """Scores vary by tens between rows; the difference of two candidates does not, so the better one is chosen."""
    grid = {"estimator__alpha": [1.0, 2.0, 3.0], "flattening": [0, 1]}
    model = WeightedRegressor(Ridge(), RATIO)
    search = search_toy(ImportanceWeightedSearchCV(model, grid, ratio=RATIO, scoring=label_plus), toy)
    assert search.best_params_ == {"estimator__alpha": 3.0, "flattening": 0}
    assert search.cv_results_["se_of_difference"].max() < 1e-6 < search.cv_results_["se_test_score"].min()


def test_candidates_of_equal_weights_are_chosen_by_their_score(toy):
    grid = {"alpha": [1e3, 1.0, 1e-6]}
    search = search_toy(ImportanceWeightedSearchCV(Ridge(), grid, ratio=RATIO), toy)
    assert search.best_index_ == np.argmax(search.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    ("terminal", "shown", "seconds"), [(True, True, 0), (True, False, 0), (False, True, 0), (True, True, 99)]
)
def test_progress_of_a_search_shows_in_a_terminal_alone(terminal, shown, seconds, toy, monkeypatch, caplog):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("steelyard._progress.LEAST_SECONDS", seconds)
    search = ImportanceWeightedSearchCV(WeightedRegressor(Ridge(), RATIO), {"flattening": [0, 1]}, progress=shown, cv=3)
    with caplog.at_level("INFO", "steelyard"):
        search_toy(search.set_params(ratio=RATIO), toy)
    assert ("comparing candidates" in screen.getvalue()) == (terminal and shown and seconds == 0)
    assert "comparing candidates: 6 of 6" in caplog.text


def test_classifier_search_with_text_labels():
    pair = gaussian_pair(200, 100, 2, random_state=0)
    y = np.where(pair.X.sum(axis=1) > 0.5, "yes", "no")
    model = WeightedClassifier(DecisionTreeClassifier(max_depth=2, random_state=0), RATIO)
    search = ImportanceWeightedSearchCV(model, {"flattening": [0, 1]}, ratio=RATIO, scoring="neg_log_loss")
    search.fit(pair.X, y, target=pair.X_target)
    assert set(search.classes_) == {"yes", "no"}
    assert search.predict_proba(pair.X_target).shape == (100, 2)
    assert search.score(pair.X, y) < 0


def test_without_a_target_it_is_plain_cross_validation(toy):
    X, y, _, _ = toy
    with pytest.warns(NoTargetWarning):
        values = iwcv_score(Ridge(), X, y, target=None, cv=KFold(5))
    np.testing.assert_allclose(values, cross_val_score(Ridge(), X, y, scoring="neg_mean_squared_error"))


def test_unknown_rule(toy):
    with pytest.raises(ParameterError, match="one-standard-error"):
        search_toy(ImportanceWeightedSearchCV(WeightedRegressor(Ridge()), {}, rule="median"), toy)


def test_a_candidate_without_a_score_never_wins(toy):
    X, y, X_target, _ = toy

    def scoring(model, X, y):
        return np.full(len(y), np.nan if model.flattening == 1 else 0.0)

    search = ImportanceWeightedSearchCV(
        WeightedRegressor(Ridge(), RATIO), {"flattening": [0, 1]}, ratio=RATIO, scoring=scoring
    )
    assert search.fit(X, y, target=X_target).best_params_ == {"flattening": 0}
    search.set_params(param_grid={"flattening": [1]})
    with pytest.raises(InputError, match="score of NaN"):
        search.fit(X, y, target=X_target)


def test_a_fold_without_weight_does_not_stop_a_search():
    X = np.r_[np.linspace(-1, 1, 40), np.full(10, 50.0) + np.arange(10)][:, None]
    model = WeightedRegressor(Ridge(), RATIO)
    ratio = ULSIF(width=0.02, reg=1.0, random_state=0)  # the last ten rows are out of its reach
    search = ImportanceWeightedSearchCV(model, {"flattening": [0]}, ratio=ratio, cv=KFold(5))
    search.fit(X, X[:, 0], target=np.linspace(-1, 1, 30)[:, None])
    assert np.isnan(search.cv_results_["split4_test_score"][0])
    assert np.isfinite(search.best_score_)


def test_labels_in_a_column():
    pair = gaussian_pair(100, 80, 2, random_state=0)
    y = (pair.X.sum(axis=1) > 0).astype(int)
    tree = DecisionTreeClassifier(random_state=0)
    flat = iwcv_score(tree, pair.X, y, target=pair.X_target, ratio=RATIO, cv=KFold(5))
    column = iwcv_score(tree, pair.X, y[:, None], target=pair.X_target, ratio=RATIO, cv=KFold(5))
    np.testing.assert_array_equal(flat, column)
    with pytest.raises(InputError, match="requires y"):
        iwcv_score(tree, pair.X, None, target=pair.X_target)


def test_searches_refuse_sparse_preprocessing_with_what_to_set(toy):
    X, y, X_target, _ = toy
    model = WeightedRegressor(Ridge(), RATIO, preprocess=OneHotEncoder(handle_unknown="ignore"))
    with pytest.raises(InputTypeError, match="sparse_output=False"):
        ImportanceWeightedSearchCV(model, {"flattening": [1]}, ratio=RATIO).fit(X, y, target=X_target)


def test_candidates_that_tie_under_the_rule():
    means, share = np.array([0.3, 0.2, 0.25, 0.25, 0.1]), np.array([1.0, 1.0, 1.0, 1.0, 0.5])
    assert simplest_within_one_standard_error(means, 0.11, share).tolist() == [1]
    means[1] = 0.25
    assert simplest_within_one_standard_error(means, 0.16, share).tolist() == [1, 2, 3]
    assert simplest_within_one_standard_error(means, 0.0, share).tolist() == [4]


# --- what scikit-learn has no public name for ---


def test_rows_of_every_kind_of_table():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    values, rows = np.arange(12.0).reshape(6, 2), np.array([4, 0, 1])
    frame, chunks = {"a": values[:, 0], "b": values[:, 1]}, pa.chunked_array([values[:3, 0], values[3:, 0]])
    for chosen in (rows, rows.tolist()):
        np.testing.assert_array_equal(take_rows(values, chosen), values[rows])
        np.testing.assert_array_equal(take_rows(csr_array(values), chosen).toarray(), values[rows])
        assert take_rows(values.tolist(), chosen) == values[rows].tolist()
        pd.testing.assert_frame_equal(take_rows(pd.DataFrame(frame), chosen), pd.DataFrame(frame).iloc[rows])
        pd.testing.assert_series_equal(take_rows(pd.Series(values[:, 0]), chosen), pd.Series(values[:, 0]).iloc[rows])
        assert take_rows(pl.DataFrame(frame), chosen).equals(pl.DataFrame(frame)[rows.tolist()])
        assert take_rows(pl.Series(values[:, 0]), chosen).to_list() == values[rows, 0].tolist()
        assert take_rows(pa.table(frame), chosen).equals(pa.table(frame).take(rows))
        assert take_rows(chunks, chosen).to_pylist() == take_rows(pa.array(values[:, 0]), chosen).to_pylist()
    mask = np.isin(np.arange(6), rows)
    for table in (pd.DataFrame(frame), pl.DataFrame(frame), pa.table(frame), values.tolist(), values):
        np.testing.assert_array_equal(np.asarray(take_rows(table, mask)), values[mask])


def test_every_search_of_scikit_learn_is_recognized():
    for search in (RandomizedSearchCV(Ridge(), {"alpha": [1, 2]}), HalvingGridSearchCV(Ridge(), {"alpha": [1, 2]})):
        assert weight_parameter(search) == "sample_weight"
    assert weight_parameter(RandomizedSearchCV(KNeighborsRegressor(), {"n_neighbors": [1, 2]})) is None


def test_a_search_delegates_to_its_best_estimator_and_can_be_stored():
    pair = gaussian_pair(120, 60, 2, random_state=0)
    frame = pytest.importorskip("pandas").DataFrame(pair.X, columns=["a", "b"])
    y = np.where(pair.X.sum(axis=1) > 0.5, "yes", "no")
    search = ImportanceWeightedSearchCV(LogisticRegression(), {"C": [0.1, 1]}, ratio=RATIO)
    assert not hasattr(search, "classes_")
    search.fit(frame, y, target=type(frame)(pair.X_target, columns=["a", "b"]))
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(search, name)(frame), getattr(search.best_estimator_, name)(frame))
    assert not hasattr(search, "transform")
    assert search.score(frame, y) == search.best_estimator_.score(frame, y)
    assert search.n_features_in_ == 2
    assert search.feature_names_in_.tolist() == ["a", "b"]
    assert is_classifier(search)
    assert set(search.get_params(deep=False)) == {
        "estimator",
        "param_grid",
        "ratio",
        "scoring",
        "cv",
        "rule",
        "n_jobs",
        "progress",
    }
    assert "ImportanceWeightedSearchCV" in search._repr_html_()
    stored = pickle.loads(pickle.dumps(search))
    assert stored.score(frame, y) == search.score(frame, y)
    scaled = ImportanceWeightedSearchCV(
        StandardScaler(), {"with_mean": [True, False]}, ratio=RATIO, scoring=lambda model, X, y: np.zeros(len(y))
    ).fit(pair.X, y, target=pair.X_target)
    np.testing.assert_array_equal(scaled.transform(pair.X), scaled.best_estimator_.transform(pair.X))
    np.testing.assert_array_equal(scaled.inverse_transform(pair.X), scaled.best_estimator_.inverse_transform(pair.X))
