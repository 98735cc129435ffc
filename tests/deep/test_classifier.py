"""The classifier: what scikit-learn expects of it, what it is for, and what it refuses."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from torch import nn

from steelyard import Target
from steelyard.deep import DynamicWeightedClassifier
from steelyard.errors import InputError, MissingTargetError, NotFiniteError


def net(n_classes=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, n_classes))


def rows(n, seed):
    """Three classes around their own axes; four labels in ten are drawn anew."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, 4)) + 2.5 * np.eye(4)[y]).astype(np.float32)
    names = np.array(["ant", "bee", "cat"])
    return X, names[np.where(rng.random(n) < 0.4, rng.integers(0, 3, n), y)], names[y]


@pytest.fixture(scope="module")
def data():
    X, noisy, _ = rows(1500, 0)
    clean_X, _, clean = rows(150, 1)
    return X, noisy, Target(clean_X, clean)


@pytest.fixture(scope="module")
def fitted(data):
    X, noisy, target = data
    return DynamicWeightedClassifier(net(), epochs=25, batch_size=100).fit(X, noisy, target=target)


def test_it_learns_what_the_labels_should_have_been(fitted):
    X, _, truth = rows(1000, 2)
    assert fitted.score(X, truth) > 0.88
    assert list(fitted.classes_) == ["ant", "bee", "cat"]
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (fitted.predict(X) == fitted.classes_[probabilities.argmax(axis=1)]).all()


def test_its_weights_point_at_the_wrong_labels(data, fitted):
    X, noisy, _ = data
    truth = rows(1500, 0)[2]
    wrong = noisy != truth
    assert fitted.weights_.shape == (len(X),)
    assert np.isfinite(fitted.weights_).all()
    assert fitted.weights_[wrong].mean() < 0.4 * fitted.weights_[~wrong].mean()
    assert len(fitted.log_) == 25


def test_the_same_again(data, fitted):
    X, noisy, target = data
    before = [np.array(part, copy=True) for part in (X, noisy, target.X, target.y)]
    module = net()
    start = [p.detach().clone() for p in module.parameters()]
    model = DynamicWeightedClassifier(module, epochs=25, batch_size=100)
    again = clone(model).fit(X, noisy, target=target)
    assert all(torch.equal(*pair) for pair in zip(again.module_.parameters(), fitted.module_.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in zip(start, module.parameters(), strict=True))  # the module is copied
    for old, new in zip(before, (X, noisy, target.X, target.y), strict=True):
        np.testing.assert_array_equal(old, new)
    assert set(model.get_params(deep=False)) >= {"module", "epochs", "transform", "random_state"}
    assert clone(model).get_params()["epochs"] == 25


def test_a_stopped_fit_goes_on(data, tmp_path):
    X, noisy, target = data
    path = tmp_path / "fit.pt"
    whole = DynamicWeightedClassifier(net(), epochs=3, checkpoint=path).fit(X, noisy, target=target)
    again = DynamicWeightedClassifier(net(), epochs=3, checkpoint=path).fit(X, noisy, target=target)
    assert again.log_ == whole.log_  # seconds and all: nothing was trained again
    np.testing.assert_array_equal(whole.predict_proba(X), again.predict_proba(X))


def test_columns_are_matched_by_name(data):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    X, noisy, target = data
    frame, clean = (pd.DataFrame(part, columns=list("abcd")) for part in (X, target.X))
    fits = [
        DynamicWeightedClassifier(net(), epochs=2, validation_share=0).fit(frame, noisy, target=Target(g, target.y))
        for g in (clean, clean[list("dcba")])
    ]
    np.testing.assert_array_equal(*(fit.predict_proba(frame) for fit in fits))
    with pytest.raises(InputError, match="feature names should match"):
        fits[0].predict(frame[list("dcba")])


def test_a_failed_fit_leaves_nothing(data):
    X, noisy, target = data
    model = DynamicWeightedClassifier(net(), epochs=1, validation_share=0).fit(X, noisy, target=target)
    with pytest.raises(InputError):
        model.fit(X, noisy, target=Target(target.X[:1], ["dog"]))
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_images_labels_in_a_column_and_other_precisions():
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 1, 4, 4))[:, :, ::-1], rng.integers(0, 2, (60, 1)).astype(bool)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).double()
    model = DynamicWeightedClassifier(module, epochs=2, batch_size=20).fit(X, y, target=Target(X[:20], y[:20]))
    assert model.predict(X).dtype == bool
    with pytest.raises(NotFiniteError, match="target holds NaN"):
        model.fit(X, y, target=Target(np.full((2, 1, 4, 4), np.nan), y[:2]))


@pytest.mark.parametrize("target", [None, Target(np.ones((5, 4))), np.ones((5, 4))])
def test_a_target_without_labels(data, target):
    X, noisy, _ = data
    with pytest.raises(MissingTargetError, match="few rows of the target with labels"):
        DynamicWeightedClassifier(net()).fit(X, noisy, target=target)


def test_other_mistakes(data):
    X, noisy, target = data
    with pytest.raises(InputError, match=r"classes that y lacks: \['dog'\]"):
        DynamicWeightedClassifier(net()).fit(X, noisy, target=Target(target.X[:1], ["dog"]))
    with pytest.raises(InputError, match="one score for each of 3 classes; 2 rows gave a tensor of shape"):
        DynamicWeightedClassifier(net(5)).fit(X, noisy, target=target)
    with pytest.raises(InputError, match=r"y must hold one label for each of 1500 rows; got the shape \(3,\)"):
        DynamicWeightedClassifier(net()).fit(X, noisy[:3], target=target)
    with pytest.raises(NotFiniteError, match="contains NaN in 8 of 1500 rows"):
        DynamicWeightedClassifier(net()).fit(np.where(X > 5, np.nan, X), noisy, target=target)
    with pytest.raises(InputError, match="minimum of 1 is required"):
        DynamicWeightedClassifier(net()).fit(X, noisy, target=Target(np.ones((0, 4)), []))
    with pytest.raises(NotFittedError):
        DynamicWeightedClassifier(net()).predict(X)
    with pytest.raises(InputError, match="y holds 1 missing labels"):
        DynamicWeightedClassifier(net()).fit(X[:3], np.array([0.0, 1.0, np.nan]), target=target)
    with pytest.raises(InputError, match="preset must be one of"):
        DynamicWeightedClassifier(net(), preset="theirs").fit(X, noisy, target=target)
    with pytest.raises(InputError, match="random_state must be a whole number"):
        DynamicWeightedClassifier(net(), random_state=None).fit(X, noisy, target=target)
