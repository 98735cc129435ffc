"""Data frames with text and missing values: the estimator reads them itself, the ratio has an encoding of its own."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from steelyard import (
    ULSIF,
    ImportanceWeightedSearchCV,
    Target,
    WeightedClassifier,
    WeightedRegressor,
    iwcv_score,
    target_performance,
)
from steelyard.errors import InputError, NoTargetWarning, NotFiniteError, ParameterError
from steelyard.tables import as_frame, encode_pair

pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
RATIO = ULSIF(width=1.0, reg=0.1, random_state=0)


def people(n, rng, *, cities, age):
    """Text, a number with missing values, and a column of pandas' type category."""
    ages = rng.normal(age, 10, n)
    return pd.DataFrame(
        {
            "city": rng.choice(["oslo", "rome", "wien"], n, p=cities),
            "age": np.where(rng.random(n) < 0.1, np.nan, ages),
            "group": pd.Categorical(rng.choice(["a", "b"], n)),
        }
    )


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    source = people(240, rng, cities=[0.6, 0.3, 0.1], age=40)
    target = people(200, rng, cities=[0.1, 0.3, 0.6], age=45)
    y = np.where((source["city"] == "wien") ^ (rng.random(240) < 0.2), "yes", "no")
    return source, y, target


def pipeline(model):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    text = OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("text", text, make_column_selector(dtype_exclude="number")),
        ]
    )
    return Pipeline([("columns", columns), ("model", model)])


READERS = {
    "pipeline": pipeline(LogisticRegression()),
    "search": GridSearchCV(pipeline(LogisticRegression()), {"model__C": [0.1, 1.0]}, cv=3),
}


class Spy(ClassifierMixin, BaseEstimator):
    """Remembers the table that it was fitted on."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        Spy.seen.append(X)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        Spy.seen.append(X)
        return np.full(len(X), self.classes_[0])


@pytest.mark.parametrize("name", READERS)
def test_a_pipeline_reads_the_frame_and_the_ratio_its_encoding(name, tables):
    source, y, target = tables
    model = WeightedClassifier(READERS[name], RATIO).fit(source, y, target=Target(target))
    pair = encode_pair(as_frame(source), as_frame(target))
    np.testing.assert_allclose(model.weights_, clone(RATIO).fit(pair.X, target=pair.X_target).weights_)
    wien = (source["city"] == "wien").to_numpy()
    assert model.weights_[wien].mean() > 1.5 * model.weights_[~wien].mean()
    assert model.predict(target).shape == (200,)
    assert model.predict_proba(target).shape == (200, 2)
    assert list(model.feature_names_in_) == ["city", "age", "group"]
    plain = clone(READERS[name]).fit(source, y)
    erm = WeightedClassifier(READERS[name], RATIO, flattening=0).fit(source, y, target=target)
    np.testing.assert_array_equal(erm.predict_proba(target), plain.predict_proba(target))


def test_weights_and_predictions_are_those_of_an_encoding_by_hand(tables):
    """Indicators by pandas, the median of both tables where an age is missing, and a column that says where it was."""
    source, y, target = tables
    both = pd.concat([source, target], ignore_index=True)
    age = both["age"].fillna(both["age"].median())
    parts = [pd.get_dummies(both["city"]), age, both["age"].isna(), pd.get_dummies(both["group"])]
    rows = pd.concat(parts, axis=1).to_numpy(dtype=float)
    weights = clone(RATIO).fit(rows[:240], target=rows[240:]).weights_
    model = WeightedClassifier(READERS["pipeline"], RATIO).fit(source, y, target=Target(target))
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-6)
    by_hand = clone(READERS["pipeline"]).fit(source, y, model__sample_weight=weights)
    np.testing.assert_allclose(model.predict_proba(target), by_hand.predict_proba(target), rtol=1e-6)


def test_missing_values_are_imputed_for_the_ratio_alone():
    """As by hand: the ratio sees medians and where values were missing, the trees see NaN."""
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(200, 1)), rng.normal(0.5, 1, size=(150, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=200)
    X[rng.random(200) < 0.2], T[rng.random(150) < 0.1] = np.nan, np.nan
    both = np.concatenate([X, T])
    rows = np.column_stack([np.where(np.isnan(both), np.nanmedian(both), both), np.isnan(both)])
    weights = clone(RATIO).fit(rows[:200], target=rows[200:]).weights_
    trees = HistGradientBoostingRegressor(max_iter=10)
    model = WeightedRegressor(trees, RATIO).fit(X, y, target=Target(T))
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-6)
    np.testing.assert_allclose(model.predict(T), clone(trees).fit(X, y, sample_weight=weights).predict(T))


def test_the_estimator_gets_the_frame_itself(tables):
    source, y, target = tables
    Spy.seen.clear()
    WeightedClassifier(Pipeline([("spy", Spy())]), RATIO).fit(source, y, target=Target(target)).predict(target)
    assert Spy.seen[0] is source
    assert Spy.seen[1] is target


def test_columns_of_the_target_in_another_order(tables):
    source, y, target = tables
    model = WeightedClassifier(READERS["pipeline"], RATIO)
    weights = model.fit(source, y, target=Target(target)).weights_
    np.testing.assert_array_equal(weights, model.fit(source, y, target=Target(target[target.columns[::-1]])).weights_)
    with pytest.raises(InputError, match="feature names"):
        model.predict(target.rename(columns={"city": "town"}))
    with pytest.raises(InputError, match="different columns"):
        model.fit(source, y, target=Target(target.drop(columns="city")))


def test_missing_values_reach_an_estimator_that_accepts_them(tables):
    rng = np.random.default_rng(1)
    X, T = rng.normal(size=(200, 2)), rng.normal(0.5, 1, size=(150, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=200)
    X[rng.random(X.shape) < 0.1], T[rng.random(T.shape) < 0.1] = np.nan, np.nan
    trees = HistGradientBoostingRegressor(max_iter=10)
    erm = WeightedRegressor(trees, RATIO, flattening=0).fit(X, y, target=Target(T))
    np.testing.assert_array_equal(erm.predict(T), clone(trees).fit(X, y).predict(T))
    weighted = WeightedRegressor(trees, RATIO).fit(X, y, target=Target(T))
    assert np.std(weighted.weights_) > 0.1
    assert not np.array_equal(weighted.predict(T), erm.predict(T))
    with pytest.warns(NoTargetWarning):
        assert np.all(WeightedRegressor(trees).fit(X, y).weights_ == 1)
    only_in_target = WeightedRegressor(trees, RATIO).fit(np.nan_to_num(X), y, target=Target(T))
    assert only_in_target.predict(T).shape == (150,)
    passed_on = WeightedRegressor(trees, RATIO, preprocess=StandardScaler()).fit(X, y, target=Target(T))
    assert passed_on.predict(T).shape == (150,)
    assert iwcv_score(trees, X, y, target=T, ratio=RATIO).shape == (5,)
    infinite = X.copy()
    infinite[7, 1] = np.inf
    with pytest.raises(NotFiniteError, match=r"'x1' of the source contains infinity, first at row 7"):
        WeightedRegressor(trees, RATIO).fit(infinite, y, target=Target(T))


def test_categories_reach_histogram_gradient_boosting(tables):
    source, y, target = (table.astype({"city": "category"}) if hasattr(table, "columns") else table for table in tables)
    model = WeightedClassifier(HistGradientBoostingClassifier(max_iter=5), RATIO).fit(source, y, target=Target(target))
    assert model.predict(target).shape == (200,)


@pytest.mark.parametrize("estimator", [LogisticRegression(), VotingClassifier([("a", LogisticRegression())])])
def test_an_estimator_that_reads_neither_raises_the_usual_errors(estimator, tables):
    source, y, target = tables
    for model in (WeightedClassifier(estimator), ImportanceWeightedSearchCV(estimator, {}, ratio=RATIO)):
        with pytest.raises(InputError, match=r"source: .*numeric"):
            model.fit(source, y, target=Target(target))
        with pytest.raises(NotFiniteError, match="source contains NaN"):
            model.fit(source[["age"]], y, target=Target(target[["age"]]))
    with pytest.raises(NotFiniteError, match="source contains NaN"):
        iwcv_score(estimator, source[["age"]], y, target=Target(target[["age"]]), ratio=RATIO)


def test_sparse_rows_are_refused_by_pipelines_too(tables):
    from scipy.sparse import csr_array

    with pytest.raises(InputError, match="Sparse input is not supported"):
        WeightedClassifier(READERS["pipeline"]).fit(csr_array(np.eye(5)), [0, 1, 0, 1, 0], target=Target(np.eye(5)))


@pytest.mark.filterwarnings("ignore")
def test_an_estimator_that_accepts_missing_values_passes_the_checks_of_scikit_learn():
    trees = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2)
    failed, own = (
        {r["check_name"]: repr(r["exception"]) for r in check_estimator(e, on_fail=None) if r["status"] == "failed"}
        for e in (WeightedRegressor(trees), trees)
    )
    assert {name: error for name, error in failed.items() if name not in own} == {}


# --- selection ---


@pytest.mark.parametrize("polars", [False, True])
def test_search_and_scores_read_the_same_tables(polars, tables):
    source, y, target = tables
    if polars:
        pl = pytest.importorskip("polars")
        source, target = pl.from_pandas(source[["city", "age"]]), pl.from_pandas(target[["city", "age"]])
        columns = ColumnTransformer([("city", OneHotEncoder(handle_unknown="ignore"), ["city"])])
        model = WeightedClassifier(make_pipeline(columns, LogisticRegression()), RATIO)
    else:
        model = WeightedClassifier(READERS["pipeline"], RATIO)
    search = ImportanceWeightedSearchCV(model, {"flattening": [0, 1]}, ratio=RATIO).fit(source, y, target=target)
    pair = encode_pair(as_frame(source), as_frame(target))
    np.testing.assert_allclose(search.validation_weights_, clone(RATIO).fit(pair.X, target=pair.X_target).weights_)
    assert search.predict(target).shape == (200,)
    assert iwcv_score(model, source, y, target=Target(target), ratio=RATIO).shape == (5,)
    found = target_performance(search, source, y, target=target)
    assert 0.5 < found.target.mean < 1
    assert found.scoring == "accuracy"


# --- target performance takes what importance-weighted cross-validation takes ---


@pytest.mark.parametrize("cv", [3, KFold(3), StratifiedKFold(4, shuffle=True, random_state=0), None])
def test_splitters(cv, tables):
    source, y, target = tables
    model = clone(READERS["pipeline"]).fit(source, y)
    assert len(iwcv_score(model, source, y, target=target, ratio=RATIO, cv=cv)) == (
        5 if cv is None else cv if isinstance(cv, int) else cv.get_n_splits()
    )
    found = target_performance(model, source, y, target=target, cv=cv)
    assert found.target.low < found.target.mean < found.target.high


def test_the_folds_are_those_of_the_splitter(tables):
    source, y, target = tables
    model = clone(READERS["pipeline"]).fit(source, y)
    splits = list(KFold(2).split(source))
    first, second = (target_performance(model, source, y, target=target, cv=cv) for cv in (KFold(2), splits))
    assert first == second
    with pytest.raises(ParameterError, match="hold out each row once"):
        target_performance(model, source, y, target=target, cv=ShuffleSplit(3))


def test_lists_columns_of_labels_and_functions():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(60, 2)), rng.normal(0.3, 1, size=(50, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    model = Ridge().fit(X, y)

    def score(model, X, y):
        return -np.abs(np.ravel(y) - model.predict(X))

    by_array = target_performance(model, X, y, target=T, scoring=score)
    assert target_performance(model, X.tolist(), y.tolist(), target=Target(T.tolist()), scoring=score) == by_array
    assert target_performance(model, X, y[:, None], target=T, scoring=score) == by_array
    assert by_array.scoring == "the row score"
    named = target_performance(model, X, y, target=T, scoring="neg_mean_absolute_error")
    assert named.target == by_array.target


def test_without_a_target_the_score_is_that_on_the_source():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    model = Ridge().fit(X, X[:, 0] + X[:, 1] ** 2)
    with pytest.warns(NoTargetWarning, match="target_performance got no target"):
        found = target_performance(model, X, X[:, 0], target=None)
    assert found.target == found.source
    assert found.effective_sample_size == 60


def test_a_model_with_preprocessing_is_evaluated_on_preprocessed_rows(tables):
    """The transformer drops a column that would tell source and target apart."""
    source, y, target = (table.copy() for table in tables)
    source["file"], target["file"] = "a", "b"
    keep = ColumnTransformer([("city", OneHotEncoder(sparse_output=False), ["city"])])
    model = WeightedClassifier(LogisticRegression(), RATIO, preprocess=keep).fit(source, y, target=Target(target))
    with_file = target_performance(model, source, y, target=target)
    without = WeightedClassifier(LogisticRegression(), RATIO, preprocess=clone(keep))
    without.fit(source[["city"]], y, target=Target(target[["city"]]))
    again = target_performance(without, source[["city"]], y, target=target[["city"]])
    assert with_file.effective_sample_size == pytest.approx(again.effective_sample_size, rel=0.2)


def test_a_search_with_preprocessing_is_evaluated_as_its_best_estimator(tables):
    source, y, target = tables
    keep = ColumnTransformer([("city", OneHotEncoder(sparse_output=False), ["city"])])
    model = WeightedClassifier(LogisticRegression(), RATIO, preprocess=keep)
    search = ImportanceWeightedSearchCV(model, {"flattening": [0, 1]}, ratio=RATIO).fit(source, y, target=target)
    assert target_performance(search, source, y, target=target) == target_performance(
        search.best_estimator_, source, y, target=target
    )


# --- how results print ---


def test_a_performance_prints_in_three_lines(tables):
    source, y, target = tables
    model = clone(READERS["pipeline"]).fit(source, y)
    found = target_performance(model, source, y, target=target, level=0.9)
    assert str(found) == repr(found)
    accuracy = accuracy_score(y, model.predict(source))
    on_target, on_source, size = str(found).splitlines()
    assert on_source.startswith(f"accuracy on the source: {accuracy:.3g} (90 % interval 0.")
    assert on_target.startswith(f"accuracy on the target: {found.target.mean:.3g} (90 % interval 0.")
    assert float(size.removeprefix("effective sample size: ")) == pytest.approx(found.effective_sample_size, rel=0.01)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 1))
    errors = target_performance(Ridge().fit(X, X[:, 0]), X, 300 * X[:, 0], target=X + 0.1)
    assert str(errors).startswith("mean squared error on the target: ")
    low, high = str(errors).split("interval ")[1].split(")")[0].split(" to ")
    low, high = (float(end.replace(",", "")) for end in (low, high))
    assert (low, high) == pytest.approx((-errors.target.high, -errors.target.low), rel=0.01)
    assert "e+" not in str(errors)
