"""What the classifier chooses by itself: steps, the epoch, whether weights are used, class weights; and bad input."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

import torch.nn.functional as F
from torch import nn

from steelyard import Target
from steelyard.deep import DynamicWeightedClassifier, _candidates
from steelyard.deep._candidates import CLEAN_ROWS, NO_WEIGHTS, WEIGHTS, Candidate, class_shares, step_budget
from steelyard.deep.training import checkpoint, fixed_weights
from steelyard.errors import InputError, MissingClassWarning, ParameterError, WeightsNotUsedWarning
from tests.deep.test_classifier import net, rows


def made(n=600, n_clean=80, seed=0):
    """Noisy rows, their right labels, and clean rows."""
    X, noisy, right = rows(n, seed)
    clean_X, _, clean = rows(n_clean, seed + 1)
    return X, noisy, right, Target(clean_X, clean)


def next_class(labels):
    names, codes = np.unique(labels, return_inverse=True)
    return np.roll(names, -1)[codes]


def fast(**options):
    return DynamicWeightedClassifier(net(), **{"epochs": 8, "batch_size": 50} | options)


@pytest.mark.parametrize(
    ("n_rows", "epochs", "batch_size"), [(1397, 96, 64), (60_000, 20, 256), (200, 334, 32), (5, 2000, 32)]
)
def test_the_budget_follows_the_number_of_rows(n_rows, epochs, batch_size):
    assert step_budget(n_rows, None, None) == (epochs, batch_size)
    assert epochs * max(1, n_rows // batch_size) >= 2000
    assert step_budget(n_rows, 3, None) == (3, batch_size)
    assert step_budget(n_rows, 3, 7) == (3, 7)


def test_what_is_given_rules_and_what_is_chosen_is_said():
    X, noisy, _, target = made()
    chosen = DynamicWeightedClassifier(net(), epochs=2, validation_share=0).fit(X, noisy, target=target)
    assert (chosen.epochs_, chosen.batch_size_, chosen.kept_epoch_) == (2, 32, 1)
    assert (chosen.kept_losses_, len(chosen.kept_rows_), chosen.chosen_) == ({}, 0, WEIGHTS)
    given = fast(validation_share=0).fit(X, noisy, target=target)
    assert (given.epochs_, given.batch_size_, len(given.log_)) == (8, 50, 8)
    with pytest.raises(ParameterError, match="batch_size must be a whole number"):
        fast(batch_size=2.5).fit(X, noisy, target=target)
    with pytest.raises(ParameterError, match="epochs must be a whole number"):
        fast(epochs=0).fit(X, noisy, target=target)
    with pytest.raises(ParameterError, match="share must be"):
        fast(validation_share=1.5).fit(X, noisy, target=target)


def test_the_kept_rows_choose_the_epoch():
    X, noisy, _, target = made()
    model = fast(epochs=15).fit(X, noisy, target=target)
    names, counts = np.unique(target.y[model.kept_rows_], return_counts=True)
    assert list(names) == ["ant", "bee", "cat"]
    assert all(abs(count - np.sum(target.y == name) / 4) <= 1 for name, count in zip(names, counts, strict=True))
    losses = [entry["kept_loss"] for entry in model.log_]
    assert model.kept_epoch_ == int(np.argmin(losses))
    assert model.chosen_ == WEIGHTS
    assert min(model.kept_losses_, key=model.kept_losses_.get) == WEIGHTS
    kept = torch.tensor(target.X[model.kept_rows_])
    codes = torch.tensor(np.searchsorted(model.classes_, target.y[model.kept_rows_]))
    with torch.no_grad():
        assert float(F.cross_entropy(model.module_(kept), codes)) == pytest.approx(min(losses), rel=1e-5)


def test_few_clean_rows_are_all_trained_on():
    X, noisy, _, target = made(n_clean=39)
    assert len(fast(epochs=2).fit(X, noisy, target=target).kept_rows_) == 0
    asked = fast(epochs=2, validation_share=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeightsNotUsedWarning)
        assert len(asked.fit(X, noisy, target=target).kept_rows_) == pytest.approx(8, abs=1)


def test_every_row_has_a_weight_and_wrong_labels_come_first():
    X, noisy, right, target = made(n=611)
    model = fast(epochs=15).fit(X, noisy, target=target)
    assert model.weights_.shape == (611,)
    assert np.isfinite(model.weights_).all()
    assert model.weights_.mean() == pytest.approx(1, abs=0.01)
    found, scores = model.label_issues()
    assert sorted(found) == list(range(611))
    assert (np.diff(scores) <= 0).all()
    assert roc_auc_score((noisy != right)[found], scores) > 0.95
    given = np.searchsorted(model.classes_, noisy[found])
    np.testing.assert_allclose(scores, 1 - model.predict_proba(X[found])[np.arange(611), given], atol=1e-6)


def test_labels_that_are_mostly_wrong_are_left_to_the_clean_rows():
    """The clean rows alone are trained on again, with those that were kept aside."""
    X, _, right, target = made(n_clean=200)
    turned = np.where(np.random.default_rng(5).random(600) < 0.8, next_class(right), right)
    model = fast(epochs=10)
    with pytest.warns(WeightsNotUsedWarning, match=r'trained on "clean rows": the mean loss of \d+ clean rows'):
        model.fit(X, turned, target=target)
    assert model.chosen_ == CLEAN_ROWS
    assert model.kept_losses_[CLEAN_ROWS] == min(model.kept_losses_.values())
    assert len(model.log_) == model.kept_epoch_ + 1
    assert "kept_loss" not in model.log_[0]
    test_X, _, test_y = rows(500, 9)
    assert model.score(test_X, test_y) > 0.85
    assert np.isfinite(model.weights_).all()


def test_no_weights_are_used_where_they_are_worse(monkeypatch):
    """Weights that leave three rows: the network without weights is better on the kept rows."""
    X, _, right, target = made()

    def three_rows(network, epochs, **_):
        return fixed_weights(network, (torch.arange(660) < 3).float(), epochs)

    monkeypatch.setattr(_candidates, "importance_weighting", three_rows)
    with pytest.warns(WeightsNotUsedWarning, match='trained on "no weights"'):
        model = fast().fit(X, right, target=target)
    assert model.chosen_ == NO_WEIGHTS
    assert len(model.log_) == 8


@pytest.mark.parametrize(("gain", "better"), [(0.02, False), (0.3, True), (-0.3, False)])
def test_a_difference_within_its_standard_error_changes_nothing(gain, better):
    """Losses that differ row by row by ±0.5 and by the gain on average: 20 rows have a standard error of 0.115."""
    weighted = np.full(20, 1.0)
    other = weighted - gain + 0.5 * np.tile([-1, 1], 10)
    candidates = [
        Candidate("", None, None, losses, np.arange(20) < n_errors) for losses, n_errors in ((other, 2), (weighted, 3))
    ]
    assert _candidates._is_better(*candidates) == better
    assert not _candidates._is_better(candidates[1], candidates[1])
    surer = replace(candidates[0], kept_errors=candidates[1].kept_errors)  # as many errors: only surer of itself
    assert not _candidates._is_better(surer, candidates[1])


def test_labels_that_are_wrong_in_one_direction_get_class_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4)).astype(np.float32)
    right = (X[:, 0] + X[:, 1] > 0).astype(int)
    given = np.where((right == 1) & (rng.random(1200) < 0.6), 0, right)
    target = Target(X[:100], right[:100])
    model = DynamicWeightedClassifier(net(2), epochs=20, batch_size=50).fit(X[100:], given[100:], target=target)
    np.testing.assert_allclose(model.class_shares_, [np.mean(right[:100] == 0), np.mean(right[:100] == 1)])
    weighted = np.bincount(given[100:], model.weights_) / model.weights_.sum()
    np.testing.assert_allclose(weighted, model.class_shares_, atol=1e-6)
    test_X = rng.normal(size=(2000, 4)).astype(np.float32)
    test_y = (test_X[:, 0] + test_X[:, 1] > 0).astype(int)
    assert model.score(test_X, test_y) > 0.93
    fair = DynamicWeightedClassifier(net(2), epochs=1, validation_share=0)
    assert fair.fit(X[100:], right[100:], target=target).class_shares_ is None


def test_shares_of_classes():
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    assert class_shares(y, y[::5]) is None
    np.testing.assert_allclose(class_shares(y, torch.tensor([0] * 10 + [1] * 10 + [2] * 20)), [0.25, 0.25, 0.5])
    # No clean row of class 0: it keeps the share it has, 0.6 beside 0.5 and 0.5.
    np.testing.assert_allclose(class_shares(y, torch.tensor([1, 2] * 20)), np.array([0.6, 0.5, 0.5]) / 1.6)


class Killed(Exception):
    """A stop in the middle."""


@pytest.mark.parametrize("saves", [3, 11, 20])
def test_a_fit_killed_in_any_of_its_trainings_resumes(tmp_path, monkeypatch, saves):
    X, noisy, _, target = made()
    whole = fast().fit(X, noisy, target=target)
    path, save, done = tmp_path / "fit.pt", checkpoint.save, []

    def killed(*arguments):
        save(*arguments)
        done.append(1)
        if len(done) == saves:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(Killed):
            fast(checkpoint=path).fit(X, noisy, target=target)
    again = fast(checkpoint=path).fit(X, noisy, target=target)
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(again.weights_, whole.weights_)
    assert (again.kept_losses_, again.kept_epoch_) == (whole.kept_losses_, whole.kept_epoch_)


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["loss", "features"])
def test_a_clean_set_without_one_class(transform):
    X, noisy, _, target = made()
    there = target.y != "cat"
    with pytest.warns(MissingClassWarning, match=r"No clean row has the classes \['cat'\]"):
        model = fast(transform=transform, validation_share=0).fit(
            X, noisy, target=Target(target.X[there], target.y[there])
        )
    assert np.isfinite(model.weights_).all()
    assert (model.weights_[noisy == "cat"].max() == 0) == (transform == "features")


@pytest.mark.parametrize("n_clean", [1, 2])
@pytest.mark.parametrize("transform", ["loss", "features"])
def test_fewer_clean_rows_than_classes(n_clean, transform):
    X, noisy, _, target = made()
    few = Target(target.X[:n_clean], target.y[:n_clean])
    with pytest.warns(MissingClassWarning):
        model = fast(transform=transform).fit(X, noisy, target=few)
    assert model.chosen_ == WEIGHTS
    assert np.isfinite(model.predict_proba(X)).all()


def test_losses_that_are_all_equal():
    """A network that gives every row the same scores, and cannot do otherwise."""

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return self.scores.expand(len(x), 3)

    X, noisy, _, target = made()
    model = DynamicWeightedClassifier(Constant(), epochs=1, batch_size=50, validation_share=0)
    model.fit(X, noisy, target=target)
    assert np.isfinite(model.weights_).all()
    assert np.ptp(model.predict_proba(X), axis=0).max() == 0
    with pytest.raises(InputError, match="Constant calls none"):
        DynamicWeightedClassifier(Constant(), transform="features", epochs=1).fit(X, noisy, target=target)
