"""Inflated rows, the variance they save, and the regressor with what it refuses."""

import io
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.causal needs it")

from steelyard import Target
from steelyard._few_shot.kernel_regression import LeaveOneOutKernelRegressor
from steelyard.baselines import TargetOnlyRegressor
from steelyard.causal import Assumption, CausalTransferRegressor, inflate
from steelyard.causal.assumption import dependence, independence_p_value
from steelyard.causal.transfer import Synthetic, fit_augmented, leave_one_out_error, one_class, synthesize
from steelyard.datasets import independent_component_shift
from steelyard.errors import (
    ColumnMismatchError,
    InputError,
    MissingDomainError,
    MissingTargetError,
    NothingTransferredWarning,
    ParameterError,
)

pytestmark = pytest.mark.filterwarnings("ignore::steelyard.errors.NothingTransferredWarning")
QUICK = {"n_seeds": 1, "n_hidden": (5,), "weight_decay": (0.01,), "epochs": 4, "every": 2, "random_state": 0}


def tables(n_few=6, n_columns=3, seed=0):
    Z, domain, _ = independent_component_shift(9, 30, n_columns, random_state=seed)
    source, few = domain < 8, np.flatnonzero(domain == 8)[:n_few]
    return Z[source], domain[source], Z[few], Z[domain == 8]


def fitted(model, Z, domain, few):
    return model.fit(Z[:, :-1], Z[:, -1], domain=domain, target=Target(few[:, :-1], few[:, -1]))


def test_inflated_rows_are_all_combinations():
    S = np.random.default_rng(0).normal(size=(4, 3))
    inflated, rows = inflate(S)
    assert inflated.shape == (64, 3)
    assert len(np.unique(inflated, axis=0)) == 64
    np.testing.assert_array_equal(inflated, np.stack([S[rows[:, j], j] for j in range(3)], axis=1))
    for n in (50, 2**20):  # few enough to number all combinations, and too many
        part, rows = inflate(np.arange(8.0 * n).reshape(n, 8), max_synthetic=500, random_state=1)
        assert part.shape == (500, 8)
        assert len(np.unique(rows, axis=0)) == 500
        np.testing.assert_array_equal(part, rows * 8 + np.arange(8))
    assert len(inflate(np.eye(2), max_synthetic=3, random_state=0)[0]) == 3
    with pytest.raises(InputError, match="at least one row"):
        inflate(np.zeros((0, 3)))


def test_the_augmented_risk_is_unbiased_and_varies_less():
    """Theorem 6, with the true mechanism: the risk of a predictor over 500 draws of ten rows."""
    rng = np.random.default_rng(0)
    mixing = np.array([[1.0, 0.4], [-0.7, 1.0]])

    def rows_of(S):
        return np.sinh(S @ mixing.T)

    def losses(Z):
        return np.minimum((Z[:, 1] - 0.5 * Z[:, 0]) ** 2, 20)

    plain, augmented = [], []
    for _ in range(500):
        S = rng.uniform(-1.5, 1.5, size=(10, 2))
        plain.append(losses(rows_of(S)).mean())
        augmented.append(losses(rows_of(inflate(S)[0])).mean())
    truth = losses(rows_of(rng.uniform(-1.5, 1.5, size=(400_000, 2)))).mean()
    for found in (plain, augmented):
        assert abs(np.mean(found) - truth) < 3 * np.std(found) / np.sqrt(500)
    assert np.var(augmented) < 0.8 * np.var(plain)


def test_synthetic_rows_are_filtered_and_counted():
    Z, domain, few, _ = tables()
    model = fitted(CausalTransferRegressor(**QUICK), Z, domain, few)
    scaled = model.scale_.standardize(few)
    origin = np.indices((6, 6, 6)).reshape(3, -1).T
    svm = one_class(model.scale_.standardize(Z))
    (made,) = synthesize(model.mechanism_.networks, scaled, origin, svm)
    assert (svm.predict(made.rows) == 1).all()
    assert made.acceptance == pytest.approx(len(made.rows) / 216)
    diagonal = made.origin[(made.origin == made.origin[:, :1]).all(axis=1)][:, 0]
    same = made.rows[(made.origin == made.origin[:, :1]).all(axis=1)]
    np.testing.assert_allclose(same, scaled[diagonal], atol=1e-8)  # a row's own components give the row

    networks = model.mechanism_.networks
    with torch.no_grad():
        networks.bias2[:] = -800.0  # factors of zero: what they shrink cannot be brought back
    (nothing,) = synthesize(networks, scaled, origin, svm)
    assert nothing.n_dropped == 216
    assert len(nothing.rows) == 0


def test_leaving_a_row_out_leaves_its_components_out():
    _, _, few, _ = tables()
    rng = np.random.default_rng(1)
    origin = np.array([[0, 1, 2], [3, 3, 4], [5, 4, 3], [1, 1, 1]])
    synthetic = Synthetic(rng.normal(size=(4, 3)), origin, 1.0, 0)
    errors = []
    for i in range(6):
        kept = [row for row, of in zip(synthetic.rows, origin, strict=True) if i not in of]
        rest = np.delete(few, i, axis=0)
        rows = np.vstack([rest, *kept]) if kept else rest
        model = Ridge().fit(rows[:, :-1], rows[:, -1])
        errors.append((model.predict(few[i : i + 1, :-1])[0] - few[i, -1]) ** 2)
    assert leave_one_out_error(Ridge(), few, synthetic) == pytest.approx(np.mean(errors))
    assert fit_augmented(LeaveOneOutKernelRegressor(), few, synthetic.rows).rows_.shape == (10, 2)


def test_regressor_contract():
    Z, domain, few, new = tables()
    before = Z.copy(), few.copy()
    model = CausalTransferRegressor(**QUICK)
    assert clone(model).get_params() == model.get_params()
    first = fitted(model, Z, domain, few).predict(new[:, :-1])
    second = fitted(clone(model), Z, domain.astype(str), few).predict(new[:, :-1])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(before[0], Z)
    np.testing.assert_array_equal(before[1], few)
    assert model.loo_.shape == model.acceptance_.shape == model.n_dropped_.shape == (2, 1)
    assert model.epochs_.tolist() == [2, 4]
    components = model.mechanism_.components(Z)
    np.testing.assert_allclose(model.mechanism_.rows(components), Z, atol=1e-8)
    assert model.assumption_.n_domains == 8
    assert model.assumption_.domains_needed == 7
    assert model.assumption_.enough_domains
    assert "8 domains; 7 or more" in str(model.assumption_)
    assert fitted(CausalTransferRegressor(Ridge(), **QUICK), Z, domain, few).predict(new[:, :-1]).shape == (30,)


@pytest.mark.parametrize(("terminal", "wanted"), [(True, True), (True, False), (False, True)])
def test_a_fit_logs_what_it_trains_and_shows_progress_in_a_terminal_alone(terminal, wanted, monkeypatch, caplog):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("steelyard._progress.LEAST_SECONDS", 0)
    Z, domain, few, _ = tables()
    with caplog.at_level("INFO", "steelyard"):
        fitted(CausalTransferRegressor(Ridge(), **QUICK, progress=wanted), Z, domain, few)
    assert "causal transfer: 1 networks are trained for 4 epochs" in caplog.text
    assert "leave-one-out errors of networks: 2 of 2" in caplog.text
    for description in ("training 1 networks", "leave-one-out errors"):
        assert (description in screen.getvalue()) == (terminal and wanted)


def test_fallback_is_the_target_alone():
    """Where leave-one-out says that transfer hurts, and where no synthetic row was accepted."""
    Z, domain, few, new = tables()
    distant = few + 1000 * Z.std(axis=0)  # unlike all source rows: nothing is accepted
    with pytest.warns(NothingTransferredWarning, match="no synthetic row resembles a source row"):
        away = fitted(CausalTransferRegressor(**QUICK, fallback=False), Z, domain, distant)
    assert not away.acceptance_.any()
    assert not away.transferred_
    scaled, asked = away.scale_.standardize(distant), new + 1000 * Z.std(axis=0)
    alone = (
        LeaveOneOutKernelRegressor().fit(scaled[:, :-1], scaled[:, -1]).predict(away.scale_.standardize(asked)[:, :-1])
    )
    np.testing.assert_allclose(
        away.predict(asked[:, :-1]), alone * away.scale_.spread[-1] + away.scale_.mean[-1], rtol=1e-9
    )
    rng = np.random.default_rng(0)
    noise = np.column_stack([few[:, :-1], rng.normal(size=6) * 1e-9])
    with pytest.warns(NothingTransferredWarning, match="transfer hurts"):
        flat = fitted(CausalTransferRegressor(**QUICK), Z, domain, noise)
    assert not flat.transferred_
    alone = TargetOnlyRegressor().fit(Z[:, :-1], Z[:, -1], target=Target(noise[:, :-1], noise[:, -1]))
    np.testing.assert_allclose(flat.predict(new[:, :-1]), alone.predict(new[:, :-1]), rtol=1e-9)


def test_what_it_refuses():
    Z, domain, few, _ = tables()
    model = CausalTransferRegressor(**QUICK)
    X, y = Z[:, :-1], Z[:, -1]
    good = Target(few[:, :-1], few[:, -1])
    with pytest.raises(MissingTargetError, match="rows of the target with labels"):
        model.fit(X, y, domain=domain)
    with pytest.raises(MissingTargetError, match="rows of the target with labels"):
        model.fit(X, y, domain=domain, target=Target(few[:, :-1]))
    with pytest.raises(MissingDomainError, match="domain of each row"):
        model.fit(X, y, target=good)
    with pytest.raises(InputError, match="needs at least two"):
        model.fit(X, y, domain=np.ones(len(y)), target=good)
    with pytest.raises(InputError, match="has one row"):
        model.fit(X, y, domain=domain, target=Target(few[:1, :-1], few[:1, -1]))
    few_rows = domain.copy()
    few_rows[:2] = 50
    with pytest.raises(InputError, match="has 2 rows; at least as many as columns"):
        model.fit(X, y, domain=few_rows, target=good)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.where(np.arange(len(y)) == 3, np.nan, y), domain=domain, target=good)


@pytest.mark.parametrize("constant", [5.0, 0.1, 0.0])
def test_constant_columns_and_many_combinations(constant):
    """0.1 many times over has a standard deviation of 1e-17, which is none."""
    Z, domain, few, new = tables(n_few=20)
    Z, few, new = (np.insert(rows, 0, constant, axis=1) for rows in (Z, few, new))
    model = fitted(CausalTransferRegressor(Ridge(), **QUICK, max_synthetic=300, fallback=False), Z, domain, few)
    assert model.scale_.spread[0] == 1
    assert 0 < len(model.synthetic_) <= 300
    assert not model.n_dropped_.any()
    found, alone = model.predict(new[:, :-1]), TargetOnlyRegressor(Ridge())
    alone = alone.fit(Z[:, :-1], Z[:, -1], target=Target(few[:, :-1], few[:, -1])).predict(new[:, :-1])
    assert np.abs(found - alone).max() < 5 * Z[:, -1].std()
    flat = np.column_stack([Z[:, :-1], np.full(len(Z), constant)])
    model = fitted(CausalTransferRegressor(Ridge(), **QUICK, max_synthetic=50, fallback=False), flat, domain, few)
    assert np.isfinite(model.loo_).all()


def test_frames_are_matched_by_their_columns():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    Z, domain, few, new = tables()
    names = ["a", "b"]
    X, X_target = pd.DataFrame(Z[:, :-1], columns=names), pd.DataFrame(few[:, :-1], columns=names)
    expected = fitted(CausalTransferRegressor(**QUICK), Z, domain, few).predict(new[:, :-1])
    model = CausalTransferRegressor(**QUICK)
    for target in (X_target, X_target[["b", "a"]]):
        found = model.fit(X, pd.Series(Z[:, -1]), domain=pd.Series(domain), target=Target(target, few[:, -1]))
        np.testing.assert_allclose(found.predict(pd.DataFrame(new[:, :-1], columns=names)), expected)
    with pytest.raises(ColumnMismatchError):
        model.fit(X, Z[:, -1], domain=domain, target=Target(X_target.rename(columns={"a": "c"}), few[:, -1]))


def test_settings_are_looked_at_before_anything_is_trained(monkeypatch):
    def never(*args, **settings):
        raise AssertionError("networks were trained")

    monkeypatch.setattr("steelyard.causal.transfer.learn", never)
    Z, domain, few, _ = tables()
    for bad in ({"n_average": 0}, {"max_synthetic": 0}, {"n_hidden": ()}, {"weight_decay": -1}):
        with pytest.raises(ParameterError):
            fitted(CausalTransferRegressor(**(QUICK | bad)), Z, domain, few)


def test_one_width_and_other_networks():
    Z, domain, few, new = tables()
    for options in (
        {"n_hidden": 4, "weight_decay": 0.1},
        {"linear": True},
        {"rotations": False},
        {"standardize": False},
    ):
        model = fitted(CausalTransferRegressor(**(QUICK | options)), Z, domain, few)
        assert np.isfinite(model.predict(new[:, :-1])).all()


def test_twenty_rows_of_twelve_columns():
    Z, domain, few, new = tables(n_few=20, n_columns=12)
    model = fitted(CausalTransferRegressor(**QUICK, max_synthetic=100, fallback=False), Z, domain, few)
    assert np.isfinite(model.predict(new[:, :-1])).all()


def test_dependence_is_said_with_many_domains():
    """Components (u, u²) in each of twelve domains."""
    assert "no more than expected by chance" in str(Assumption(12, 5, dict.fromkeys(range(12), 0.5)))
    rng = np.random.default_rng(0)
    p_values = {}
    for k in range(12):
        u = rng.normal(size=30)
        p_values[k] = independence_p_value(np.column_stack([u, u**2]), random_state=k)
    report = Assumption(12, 5, p_values)
    assert report.p_value < 1e-6
    assert "dependent in 12 of 12 domains, more than expected by chance" in str(report)


def test_independence_test_has_its_level_and_some_power():
    rng = np.random.default_rng(0)
    independent = [independence_p_value(rng.normal(size=(19, 3)), n_permutations=60, random_state=k) for k in range(80)]
    assert np.mean(np.array(independent) < 0.1) < 0.2
    x = rng.normal(size=(40, 1))
    dependent = np.hstack([x, x**2 + 0.1 * rng.normal(size=(40, 1)), rng.normal(size=(40, 1))])
    assert independence_p_value(dependent, random_state=0) < 0.02
    kernels, found = dependence(dependent[:, :2])
    n = len(x)
    assert found == pytest.approx(np.trace(kernels[0] @ kernels[1]) / n**2)
