"""Labels given by a small network that saw few rows: how many are wrong, where, and always the same ones."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from steelyard.datasets import instance_dependent_noise, load_images
from steelyard.errors import DataNotFoundError, InputError, ParameterError

X, Y = load_digits(return_X_y=True)


def test_the_seed_decides():
    first = instance_dependent_noise(X, Y, n_seen=40, random_state=3)
    assert first.dtype == Y.dtype
    assert first.shape == Y.shape
    np.testing.assert_array_equal(first, instance_dependent_noise(X, Y, n_seen=40, random_state=3))
    np.testing.assert_array_equal(first, instance_dependent_noise(X.reshape(-1, 8, 8), Y, n_seen=40, random_state=3))
    assert np.mean(first != instance_dependent_noise(X, Y, n_seen=40, random_state=4)) > 0.05


def test_with_more_rows_seen_fewer_labels_are_wrong_and_never_all_right():
    shares = [np.mean(instance_dependent_noise(X, Y, n_seen=n, random_state=0) != Y) for n in (20, 60, 600)]
    assert shares[0] > 0.3
    assert shares[0] > shares[1] > shares[2] > 0


def test_wrong_labels_depend_on_the_row():
    """Another learner tells them from right ones by the row, which it cannot where the same labels flip by chance."""
    given = instance_dependent_noise(X, Y, n_seen=40, random_state=0)
    wrong = given != Y
    chance = np.random.default_rng(0).permutation(wrong)
    train = np.arange(len(X)) % 2 == 0

    def found(labels):
        model = LogisticRegression(max_iter=200).fit(X[train] / 16, labels[train])
        return roc_auc_score(labels[~train], model.decision_function(X[~train] / 16))

    assert found(wrong) > 0.75
    assert found(chance) < 0.6


def test_fashion_mnist_has_its_share_of_wrong_labels():
    try:
        images = load_images("fashion_mnist", "test")
    except DataNotFoundError as error:
        pytest.skip(str(error))
    wrong = [np.mean(instance_dependent_noise(images.X, images.y, random_state=s) != images.y) for s in (0, 1)]
    assert all(0.25 <= share <= 0.4 for share in wrong)


def test_what_it_refuses():
    with pytest.raises(InputError, match="got 1797 rows and 3 labels"):
        instance_dependent_noise(X, Y[:3])
    with pytest.raises(InputError, match="n_seen must be at most the number of rows, 100; got 300"):
        instance_dependent_noise(X[:100], Y[:100])
    with pytest.raises(ParameterError, match="n_seen must be a whole number"):
        instance_dependent_noise(X, Y, n_seen=0)
