"""What causal transfer chooses, by computations of its own: the rows it keeps, λ, and the candidates it averages."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.linear_model import Ridge
from sklearn.svm import OneClassSVM

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.causal needs it")

from steelyard import Target
from steelyard.causal import CausalTransferRegressor, inflate
from steelyard.datasets import independent_component_shift

# Without the fallback synthetic rows are used whether they help or not.
ONE_NETWORK = {"n_seeds": 1, "n_hidden": 5, "weight_decay": 0.01, "fallback": False, "random_state": 0}


def tables(n_few, n_columns, seed=0):
    Z, domain, _ = independent_component_shift(9, 30, n_columns, random_state=seed)
    source, few = domain < 8, np.flatnonzero(domain == 8)[:n_few]
    return Z[source], domain[source], Z[few], Z[domain == 8]


def fitted(model, Z, domain, few):
    return model.fit(Z[:, :-1], Z[:, -1], domain=domain, target=Target(few[:, :-1], few[:, -1]))


def test_synthetic_rows_are_those_that_a_one_class_svm_of_the_stated_settings_accepts():
    """ν = 0.1 and the kernel exp(−|z − z'|²/D), on the pooled standardized rows of the sources, labels included."""
    Z, domain, few, _ = tables(5, 4)
    model = fitted(CausalTransferRegressor(Ridge(), epochs=1, every=1, **ONE_NETWORK), Z, domain, few)
    made = model.mechanism_.rows(inflate(model.mechanism_.components(few))[0])
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    svm = OneClassSVM(kernel="rbf", nu=0.1, gamma=1 / 4).fit((Z - mean) / spread)
    accepted = made[svm.decision_function((made - mean) / spread) > 0]
    assert 0 < len(accepted) < len(made) == 5**4
    assert len(model.synthetic_) == len(accepted)
    assert cdist(accepted, model.synthetic_).min(axis=1).max() < 1e-6
    assert model.acceptance_.item() == pytest.approx(len(accepted) / len(made))


def test_about_nine_in_ten_rows_of_the_sources_are_accepted():
    """ν = 0.1 is the share of its own rows that a one-class SVM leaves outside. A row's own components make the row."""
    Z, domain, _, _ = tables(0, 2)
    few = Z[::4]
    model = CausalTransferRegressor(Ridge(), epochs=1, every=1, max_synthetic=len(few) ** 2, **ONE_NETWORK)
    model = fitted(model, Z, domain, few)
    accepted = cdist(few, model.synthetic_).min(axis=1) < 1e-6
    assert 0.75 < accepted.mean() < 1


@pytest.mark.parametrize("seed", [3, 5, 6])
def test_lambda_is_chosen_by_the_real_rows_of_the_target(seed):
    """By a refit without each of them. Their labels are noise, whereas those of synthetic rows are told by others."""
    Z, domain, few, new = tables(5, 3, seed)
    few[:, -1] = np.random.default_rng(seed).choice([-1, 1], 5) * Z[:, -1].std()
    model = fitted(CausalTransferRegressor(n_average=1, epochs=0, **ONE_NETWORK), Z, domain, few)
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    rows = (np.vstack([few, model.synthetic_]) - mean) / spread
    X, y, n = rows[:, :-1], rows[:, -1], len(rows)
    width = np.median(pdist(X))

    def kernel(rows):
        return np.exp(-(cdist(rows, X) ** 2) / (2 * width**2))

    K = kernel(X)

    def coefficients(reg, kept):
        return np.linalg.solve(K[kept].T @ K[kept] + reg * np.eye(n), K[kept].T @ y[kept])

    def score(reg):
        return np.mean([(K[i] @ coefficients(reg, np.arange(n) != i) - y[i]) ** 2 for i in range(5)])

    best = min(2.0 ** np.arange(-10, 11), key=score)
    expected = kernel(((new - mean) / spread)[:, :-1]) @ coefficients(best, np.arange(n))
    found = (model.predict(new[:, :-1]) - mean[-1]) / spread[-1]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_candidates_of_least_leave_one_out_error_are_averaged():
    """A network after some epochs is that of a training which ends there, so each candidate can be had alone."""
    Z, domain, few, new = tables(6, 3)
    settings, epochs = ONE_NETWORK | {"batch_size": 60}, [10, 20, 30, 40]
    alone = [fitted(CausalTransferRegressor(epochs=e, every=e, **settings), Z, domain, few) for e in epochs]
    errors = np.array([model.loo_.item() for model in alone])
    predictions = np.array([model.predict(new[:, :-1]) for model in alone])
    together = fitted(CausalTransferRegressor(epochs=40, every=10, n_average=2, **settings), Z, domain, few)
    np.testing.assert_allclose(together.loo_[:, 0], errors, rtol=1e-4)
    best, second, third, _ = np.argsort(errors)
    assert errors[third] > 1.02 * errors[second]  # rounding decides nothing
    expected = predictions[[best, second]].mean(axis=0)
    np.testing.assert_allclose(together.predict(new[:, :-1]), expected, atol=1e-3 * Z[:, -1].std())
