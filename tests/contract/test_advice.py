"""No message advises a parameter that the class which it comes from does not have."""

import inspect
import re
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import steelyard
from steelyard import (
    KLIEP,
    KMM,
    LSIF,
    RULSIF,
    ULSIF,
    AutoRatio,
    ClassifierRatio,
    ImportanceWeightedSearchCV,
    OneStepClassifier,
    OneStepRegressor,
    Target,
    WeightedClassifier,
    WeightedRegressor,
)
from steelyard._numerics.quadratic_programs import Certificate

RATIOS = [KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio]
ESTIMATORS = [
    *(cls(random_state=0) for cls in [*RATIOS, OneStepRegressor, OneStepClassifier]),
    WeightedRegressor(Ridge()),
    WeightedClassifier(LogisticRegression()),
    ImportanceWeightedSearchCV(Ridge(), {}),
]
# Parameters whose names are words of the language too; a message advises them as `name=` only.
WORDS = {"estimator", "ratio", "rule", "loss", "scoring", "centers"}


def parameters(cls):
    """What a message of the class may advise: parameters of its constructor and of its methods."""
    methods = [cls, *(function for _, function in inspect.getmembers(cls, inspect.isfunction))]
    return {name for function in methods for name in inspect.signature(function).parameters}


def parameters_of_the_package():
    return {name for estimator in ESTIMATORS for name in inspect.signature(type(estimator)).parameters}


def advised(message):
    """Every parameter that a message names, as `name=` or as a word; calls of other classes left out."""
    called = re.compile(r"[A-Za-z]\w*\((?:[^()]|\([^()]*\))*\)")
    text = message
    while called.search(text):
        text = called.sub("", text)
    words = set(re.findall(r"[a-z_]+", text)) & (parameters_of_the_package() - WORDS)
    return words | (set(re.findall(r"\b([a-z_]+)=", text)) - {"shape"})  # scikit-learn describes arrays by shape=


def hostile_tables():
    """Tables that cannot be fitted, or only with a warning."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    holes = X.copy()
    holes[3, 1] = np.nan
    text = np.column_stack([X[:, 0].astype(object), np.resize(["a", "b"], 60)])
    many = rng.normal(size=(2, 30))
    return {
        "text": (text, text),
        "missing values": (holes, X),
        "missing values in the target": (X, holes),
        "far away": (X, X + 1000),
        "hardly any overlap": (X, rng.normal(3.5, 0.1, size=(60, 2))),
        "duplicates of one row": (np.repeat(many[:1], 60, axis=0), np.repeat(many[1:], 60, axis=0)),
        "other columns": (X, X[:, :1]),
        "huge values": (X * 1e200, X * 1e200),
        "one target row": (X, X[:1]),
    }


TABLES = hostile_tables()


def messages(estimator, X, target):
    """Of the warnings and the error of a fit."""
    y = np.arange(len(X)) % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            estimator.fit(X, y, target=Target(target))
        except (steelyard.errors.SteelyardError, ValueError) as error:
            yield str(error)
    yield from (str(w.message) for w in caught if issubclass(w.category, steelyard.errors.SteelyardWarning))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_messages_name_parameters_that_the_class_has(estimator, name):
    allowed = parameters(type(estimator)) | (parameters(AutoRatio) if hasattr(estimator, "ratio") else set())
    for message in messages(estimator, *TABLES[name]):
        assert advised(message) <= allowed, message


@pytest.mark.parametrize("cls", [KLIEP, LSIF, ULSIF, RULSIF, AutoRatio, ClassifierRatio])
def test_too_few_rows_for_folds(cls):
    rows = np.random.default_rng(0).normal(size=(25, 1))
    with pytest.raises(steelyard.errors.InputError, match="more rows") as error:
        cls(random_state=0).fit(rows, target=rows[1:], sample_weight=np.eye(25)[0])
    assert advised(str(error.value)) <= parameters(cls)


@pytest.mark.parametrize("cls", [KLIEP, LSIF, KMM])
def test_a_solver_that_does_not_converge(cls, monkeypatch):
    require = Certificate.require
    said = []

    def unsolved(self, *arguments):
        with pytest.raises(steelyard.errors.ConvergenceError) as error:
            require(Certificate(0.0, 1.0, 1.0, 1.0, 9, False), *arguments)
        said.append(str(error.value))

    monkeypatch.setattr(Certificate, "require", unsolved)
    rng = np.random.default_rng(0)
    cls(random_state=0).fit(rng.normal(size=(40, 1)), target=rng.normal(size=(40, 1)))
    assert said
    assert all(advised(message) <= parameters(cls) for message in said)


@pytest.mark.parametrize("model", [WeightedRegressor(Ridge()), WeightedClassifier(LogisticRegression())])
def test_missing_values_are_to_be_imputed_by_the_class_at_hand(model):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    X[3, 0] = np.nan
    with pytest.raises(steelyard.errors.NotFiniteError, match=type(model).__name__):
        model.fit(X, y, target=Target(X[4:]))


def test_the_words_of_a_message_are_read():
    assert advised("Give width= and reg=, or more rows.") == {"width", "reg"}
    assert advised("use WeightedRegressor(..., preprocess=SimpleImputer()) for both") == set()
    assert advised("widen the grids of width and reg") == {"width", "reg"}
