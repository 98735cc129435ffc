import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVR
from sklearn.utils.fixes import parse_version

from steelyard import (
    KMM,
    RULSIF,
    ULSIF,
    ImportanceWeightedSearchCV,
    Target,
    WeightedClassifier,
    WeightedRegressor,
    effective_sample_size,
)
from steelyard._weight_parameter import weight_parameter
from steelyard.datasets import gaussian_pair, sinc_toy
from steelyard.errors import InputError, InputTypeError, NotWeightableError, ParameterError
from steelyard.weights import flatten

# A hundred and fifty rows give rough ratios, and the library says so; that is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")


@pytest.fixture(scope="module")
def toy():
    return sinc_toy(random_state=0)


FIXED = ULSIF(width=0.5, reg=1.0, random_state=0)


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(),
        make_pipeline(PolynomialFeatures(3), StandardScaler(), Ridge()),
        RandomForestRegressor(20, random_state=0),
        HistGradientBoostingRegressor(max_iter=10, random_state=0),
        SVR(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_no_flattening_and_full_mixture_are_erm_bit_for_bit(estimator, toy):
    X, y, X_target, _ = toy
    erm = clone(estimator).fit(X, y).predict(X_target)
    for model in (
        WeightedRegressor(estimator, FIXED, flattening=0),
        WeightedRegressor(estimator, RULSIF(1.0, random_state=0)),
    ):
        np.testing.assert_array_equal(model.fit(X, y, target=Target(X_target)).predict(X_target), erm)
    weighted = WeightedRegressor(estimator, FIXED).fit(X, y, target=Target(X_target))
    # Before scikit-learn 1.9 weights reach a forest's leaves, of one row each, but not its bootstrap.
    if not isinstance(estimator, RandomForestRegressor) or parse_version(sklearn.__version__) >= parse_version("1.9"):
        assert not np.array_equal(weighted.predict(X_target), erm)


def test_no_flattening_is_erm_with_the_users_weights(toy):
    X, y, X_target, _ = toy
    forest = RandomForestRegressor(10, random_state=0)
    counts = np.random.default_rng(0).uniform(0.5, 2, len(X))
    erm = clone(forest).fit(X, y, sample_weight=counts).predict(X_target)
    model = WeightedRegressor(forest, FIXED, flattening=0).fit(X, y, target=Target(X_target), sample_weight=counts)
    np.testing.assert_array_equal(model.predict(X_target), erm)


@pytest.mark.parametrize("flattening", [0.3, 1.0])
def test_weights_reach_the_estimator(toy, flattening):
    """Against least squares written out: the weighted fit is that of the normal equations."""
    X, y, X_target, _ = toy
    counts = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model = WeightedRegressor(LinearRegression(), FIXED, flattening)
    model.fit(X, y, target=Target(X_target), sample_weight=counts)
    ratio = clone(FIXED).fit(X, target=X_target, sample_weight=counts)
    weights = ratio.weights_**flattening
    np.testing.assert_allclose(model.weights_, weights / np.average(weights, weights=counts), rtol=1e-12)
    A, w = np.column_stack([np.ones(len(X)), X]), counts * weights
    intercept, slope = np.linalg.solve(A.T @ (A * w[:, None]), A.T @ (w * y))
    assert model.estimator_.coef_[0] == pytest.approx(slope)
    assert model.estimator_.intercept_ == pytest.approx(intercept)
    assert model.effective_sample_size_ == pytest.approx(effective_sample_size(w))


def test_flatten_is_a_power_of_mean_one():
    weights = np.array([0.0, 1.0, 4.0])
    np.testing.assert_allclose(flatten(weights, 0.5), [0, 1, 2])
    np.testing.assert_array_equal(flatten(weights, 0), [1, 1, 1])
    np.testing.assert_allclose(flatten(weights, 1).mean(), 1)


def test_weighting_helps_on_the_toy():
    gains = []
    for seed in range(1000, 1010):
        X, y, X_target, y_target = sinc_toy(random_state=seed)
        errors = [
            np.mean(
                (WeightedRegressor(Ridge(), **kw).fit(X, y, target=Target(X_target)).predict(X_target) - y_target) ** 2
            )
            for kw in ({"flattening": 0}, {})
        ]
        gains.append(errors[1] / errors[0])
    assert np.mean(gains) < 0.6


# --- under which name does it take weights? ---


class ByKeyword(RegressorMixin, BaseEstimator):
    """Takes any keyword, but nothing says that it understands weights."""

    def fit(self, X, y, **anything):
        return self


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (Ridge(), "sample_weight"),
        (make_pipeline(StandardScaler(), Ridge()), "ridge__sample_weight"),
        (make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Ridge())), "pipeline__ridge__sample_weight"),
        (GridSearchCV(Ridge(), {"alpha": [1, 2]}), "sample_weight"),
        (GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1, 2]}), "ridge__sample_weight"),
        (TransformedTargetRegressor(), "sample_weight"),
        (TransformedTargetRegressor(make_pipeline(StandardScaler(), Ridge())), "ridge__sample_weight"),
        (VotingRegressor([("a", Ridge()), ("b", SVR())]), "sample_weight"),
        (StackingRegressor([("a", Ridge()), ("b", SVR())]), "sample_weight"),
        (BaggingRegressor(KNeighborsRegressor()), "sample_weight"),
        (MultiOutputRegressor(Ridge()), "sample_weight"),
        (KNeighborsRegressor(), None),
        (GaussianProcessRegressor(), None),
        (make_pipeline(StandardScaler(), KNeighborsRegressor()), None),
        (GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [1, 2]}), None),
        (TransformedTargetRegressor(KNeighborsRegressor()), None),
        (VotingRegressor([("a", Ridge()), ("b", KNeighborsRegressor())]), None),
        (MultiOutputRegressor(KNeighborsRegressor()), None),
        (AdaBoostClassifier(KNeighborsClassifier()), None),
        (AdaBoostRegressor(KNeighborsRegressor()), "sample_weight"),
        (StackingRegressor([("a", Ridge())], KNeighborsRegressor()), None),
        (ImportanceWeightedSearchCV(Ridge(), {}), None),
        (ByKeyword(), None),
    ],
    ids=lambda e: type(e).__name__ if isinstance(e, BaseEstimator) else str(e),
)
def test_weight_parameter(estimator, name):
    assert weight_parameter(estimator) == name


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Ridge())),
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1.0]}),
        TransformedTargetRegressor(make_pipeline(StandardScaler(), Ridge())),
        VotingRegressor([("a", Ridge()), ("b", SVR())]),
        BaggingRegressor(KNeighborsRegressor(), random_state=0),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("routing", [False, True])
def test_weights_arrive_under_that_name(estimator, routing, toy):
    X, y, X_target, _ = toy
    with sklearn.config_context(enable_metadata_routing=routing):
        weighted = WeightedRegressor(estimator, FIXED).fit(X, y, target=Target(X_target)).predict(X_target)
        plain = WeightedRegressor(estimator, FIXED, flattening=0).fit(X, y, target=Target(X_target)).predict(X_target)
    assert np.abs(weighted - plain).max() > 1e-3


@pytest.mark.parametrize("flattening", [0, 0.5, 1])
def test_an_estimator_without_weights_is_refused_by_name(flattening, toy):
    X, y, X_target, _ = toy
    with pytest.raises(NotWeightableError, match=r"KNeighborsRegressor takes no sample weights.*sample_weight"):
        WeightedRegressor(KNeighborsRegressor(), flattening=flattening).fit(X, y, target=Target(X_target))


# --- the target arrives whole ---


class Spy(ULSIF):
    """Remembers how many target rows it was shown."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y=None, *, target=None, sample_weight=None):
        Spy.seen.append((len(X), len(target.X)))
        return super().fit(X, y, target=target, sample_weight=sample_weight)


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("how", ["GridSearchCV", "cross_val_score", "ImportanceWeightedSearchCV"])
def test_target_of_as_many_rows_as_x_arrives_whole_in_every_fold(routing, how, toy):
    X, y, X_target, _ = toy
    assert len(X) == len(X_target)
    Spy.seen.clear()
    model = WeightedRegressor(Ridge(), Spy(width=0.5, reg=1.0, random_state=0))
    with sklearn.config_context(enable_metadata_routing=routing):
        if how == "GridSearchCV":
            GridSearchCV(model, {"flattening": [0.5, 1]}, cv=3).fit(X, y, target=Target(X_target))
        elif how == "cross_val_score":
            cross_val_score(model, X, y, cv=3, params={"target": Target(X_target)})
        else:
            ImportanceWeightedSearchCV(model, {"flattening": [0.5, 1]}, cv=3).fit(X, y, target=X_target)
    assert {target for _, target in Spy.seen} == {len(X)}
    assert {source for source, _ in Spy.seen} >= {len(X) * 2 // 3}


def test_preprocessing_inside_gives_the_weights_of_scaled_data():
    pair = gaussian_pair(300, 300, 2, random_state=0)
    unit = np.array([100.0, 0.01])
    X, X_target = pair.X * unit + [50, 0], pair.X_target * unit + [50, 0]
    y = pair.X[:, 0] ** 2 + pair.X[:, 1]
    ratio = ULSIF(width=1.0, reg=0.1, centers=None, standardize=False, random_state=0)
    scaler = StandardScaler().fit(X)
    scaled, scaled_target = scaler.transform(X), scaler.transform(X_target)
    outermost = WeightedRegressor(Ridge(), ratio).fit(scaled, y, target=Target(scaled_target))
    inside = WeightedRegressor(Ridge(), ratio, preprocess=StandardScaler()).fit(X, y, target=Target(X_target))
    searched = ImportanceWeightedSearchCV(
        WeightedRegressor(Ridge(), ratio, preprocess=StandardScaler()), {"flattening": [1.0]}, ratio=ratio
    ).fit(X, y, target=Target(X_target))
    means = [
        np.average(scaled, axis=0, weights=weights)
        for weights in (outermost.weights_, inside.weights_, searched.best_estimator_.weights_)
    ]
    np.testing.assert_allclose(means[1], means[0], atol=1e-6)
    np.testing.assert_allclose(means[2], means[0], atol=1e-6)
    np.testing.assert_allclose(searched.validation_weights_, outermost.weights_, atol=1e-6)
    np.testing.assert_allclose(inside.predict(X_target), outermost.predict(scaled_target), atol=1e-8)


# --- classification ---


@pytest.fixture(scope="module")
def classes():
    pair = gaussian_pair(300, 200, 2, random_state=1)
    labels = np.array(["low", "mid", "high"])[np.digitize(pair.X.sum(axis=1), [-0.5, 0.8])]
    return pair.X, labels, pair.X_target


@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(20, random_state=0)])
def test_string_labels_of_three_classes(estimator, classes):
    X, y, X_target = classes
    model = WeightedClassifier(estimator, FIXED).fit(X, y, target=Target(X_target))
    assert list(model.classes_) == ["high", "low", "mid"]
    probability = model.predict_proba(X_target)
    assert probability.shape == (200, 3)
    np.testing.assert_array_equal(model.predict(X_target), model.classes_[probability.argmax(axis=1)])
    assert hasattr(model, "decision_function") == hasattr(estimator, "decision_function")
    erm = WeightedClassifier(estimator, FIXED, flattening=0).fit(X, y, target=Target(X_target))
    np.testing.assert_array_equal(erm.predict_proba(X_target), clone(estimator).fit(X, y).predict_proba(X_target))


def test_decision_function_is_that_of_the_fit(classes):
    X, y, X_target = classes
    model = WeightedClassifier(LogisticRegression(), FIXED).fit(X, y, target=Target(X_target))
    np.testing.assert_array_equal(model.decision_function(X_target), model.estimator_.decision_function(X_target))


# --- tables with names and text ---


def test_frames_are_matched_by_name_and_text_is_for_preprocess(toy):
    pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100), "c": rng.choice(["x", "y"], 100)})
    target = pd.DataFrame({"c": rng.choice(["x", "y"], 80), "b": rng.normal(size=80), "a": rng.normal(0.5, 1, 80)})
    y = frame["a"] ** 2
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["a", "b"]), ("text", OneHotEncoder(sparse_output=False), ["c"])]
    )
    model = WeightedRegressor(Ridge(), KMM(random_state=0), preprocess=columns).fit(frame, y, target=Target(target))
    assert model.predict(target[["a", "b", "c"]]).shape == (80,)
    reordered = clone(model).fit(frame, y, target=Target(target[["a", "b", "c"]]))
    np.testing.assert_array_equal(model.weights_, reordered.weights_)
    with pytest.raises(InputError, match=r"source: .*numeric"):
        WeightedRegressor(Ridge()).fit(frame, y, target=Target(target))
    sparse = clone(model).set_params(preprocess=OneHotEncoder())
    with pytest.raises(InputTypeError, match="sparse_output=False"):
        sparse.fit(frame, y, target=Target(target))


def test_frames_of_mixed_number_types():
    pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")
    rng = np.random.default_rng(0)

    def frame(n, shift):
        return pd.DataFrame(
            {"whole": rng.integers(0, 9, n), "real": rng.normal(shift, 1, n), "flag": rng.random(n) < 0.5}
        )

    source, target = frame(100, 0.0), frame(80, 0.5)
    model = WeightedRegressor(Ridge(), FIXED).fit(source, source["real"], target=Target(target))
    plain = WeightedRegressor(Ridge(), FIXED).fit(
        source.to_numpy(dtype=float), source["real"], target=Target(target.to_numpy(dtype=float))
    )
    np.testing.assert_array_equal(model.weights_, plain.weights_)


def test_inner_pipeline_may_ask_for_columns_by_name():
    pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    target = pd.DataFrame(rng.normal(0.3, 1, size=(60, 2)), columns=["a", "b"])
    inner = make_pipeline(ColumnTransformer([("keep", "passthrough", ["b"])]), Ridge())
    model = WeightedRegressor(inner, FIXED).fit(frame, frame["b"] * 2, target=Target(target))
    assert model.predict(target).shape == (60,)
    assert list(model.feature_names_in_) == ["a", "b"]


def test_a_ratio_that_is_none(toy):
    X, y, X_target, _ = toy
    with pytest.raises(InputTypeError, match="got Ridge"):
        WeightedRegressor(Ridge(), Ridge()).fit(X, y, target=Target(X_target))


@pytest.mark.parametrize("value", [-0.1, 1.1, "all", None])
def test_flattening_out_of_range(value, toy):
    X, y, X_target, _ = toy
    with pytest.raises(ParameterError, match="flattening must be a finite number"):
        WeightedRegressor(Ridge(), flattening=value).fit(X, y, target=Target(X_target))
