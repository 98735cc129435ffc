import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from steelyard.datasets import (
    biased_split,
    class_conditional_shift,
    class_prior_shift,
    full_distribution_shift,
    gaussian_pair,
    independent_component_shift,
    label_noise,
    load_table,
    mixed_tables,
    natural_split,
    rotate,
    sinc_toy,
    table_names,
)
from steelyard.errors import DataChangedError, DataNotFoundError, InputError, ParameterError


def test_sinc_toy_is_the_survey_problem():
    X, y, X_target, y_target = sinc_toy(20000, 20000, random_state=0)
    for rows, labels, mean, sd in ((X, y, 1, 0.5), (X_target, y_target, 2, 0.25)):
        assert rows.mean() == pytest.approx(mean, abs=0.02)
        assert rows.std() == pytest.approx(sd, abs=0.02)
        assert np.std(labels - np.sinc(rows[:, 0])) == pytest.approx(0.1, abs=0.005)
    X, y, *_ = sinc_toy(20000, pi=False, random_state=0)
    assert np.std(y - np.sin(X[:, 0]) / X[:, 0]) == pytest.approx(0.1, abs=0.005)


def test_gaussian_pair_ratio_integrates_to_one():
    pair = gaussian_pair(200_000, 10, 2, shift=0.5, scale=0.8, random_state=0)
    for eta in (0.0, 0.3):
        w = pair.ratio(pair.X, eta)
        plain = pair.ratio(pair.X)
        np.testing.assert_allclose(w, plain / (eta * plain + 1 - eta))
    assert pair.ratio(pair.X).mean() == pytest.approx(1, abs=0.02)
    assert pair.ratio(np.array([[1e3, 1e3]]))[0] == 0


def test_biased_split_follows_the_logistic_curve():
    X = np.random.default_rng(0).normal(size=(50_000, 3)) * [1, 10, 100] + 5
    direction = np.array([1.0, -1.0, 0.5])
    source, target = biased_split(X, direction=direction, slope=2.0, random_state=0)
    assert sorted([*source, *target]) == list(range(len(X)))
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ direction
    v = 2 * z / z.std()
    chosen = np.isin(np.arange(len(X)), source)
    for low, high in ((-2, -1), (-0.5, 0.5), (1, 2)):
        inside = (v > low) & (v < high)
        assert chosen[inside].mean() == pytest.approx((1 / (1 + np.exp(-v[inside]))).mean(), abs=0.02)
    with pytest.raises(InputError, match="another direction"):
        biased_split(np.ones((10, 2)))


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_label_noise_has_its_transition_matrix(kind):
    y = np.tile(np.arange(5), 20_000)
    noisy = label_noise(y, 0.4, kind, random_state=0)
    matrix = np.array([[np.mean(noisy[y == i] == j) for j in range(5)] for i in range(5)])
    expected = (
        0.6 * np.eye(5) + 0.1 * (1 - np.eye(5))
        if kind == "symmetric"
        else 0.6 * np.eye(5) + 0.4 * np.roll(np.eye(5), 1, axis=1)
    )
    np.testing.assert_allclose(matrix, expected, atol=0.015)
    with pytest.raises(ParameterError, match="symmetric"):
        label_noise(y, 0.4, "random")
    with pytest.raises(ParameterError, match="rate"):
        label_noise(y, 1.4)


def test_label_noise_of_small_types():
    flags = np.arange(10) % 2 == 0
    np.testing.assert_array_equal(label_noise(flags, 1.0, random_state=0), ~flags)
    y = np.repeat(np.arange(100, dtype=np.int8), 50)
    noisy = label_noise(y, 1.0, random_state=0)
    assert noisy.dtype == np.int8
    assert np.all(noisy != y)
    with pytest.raises(InputError, match="at least two classes"):
        label_noise(np.zeros(5, dtype=int), 0.5)


@pytest.mark.parametrize(("rho", "majority", "minority"), [(100, 0.802, 80.2), (200, 0.801, 160.2)])
def test_class_prior_shift_has_the_survey_weights(rho, majority, minority):
    y = np.repeat(np.arange(10), 4000)
    rows, weights = class_prior_shift(y, ratio=rho, random_state=0)
    counts = np.bincount(y[rows])
    assert sorted(set(counts)) == [4000 // rho, 4000]
    assert np.sum(counts == 4000) == 8
    assert sorted(set(weights.round(9))) == pytest.approx([majority, minority])
    assert weights.mean() == pytest.approx(1)
    assert len(set(rows)) == len(rows)
    with pytest.raises(ParameterError, match="rarest class"):
        class_prior_shift(y, ratio=rho, largest=5000)


def test_class_conditional_shift_moves_each_class_its_own_way():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 3)) * [1, 10, 100], rng.integers(0, 2, 1000)
    moved = class_conditional_shift(X, y, strength=2.0, random_state=0)
    steps = (moved - X) / X.std(axis=0)
    for c in (0, 1):
        np.testing.assert_allclose(steps[y == c], steps[y == c][0] * np.ones((np.sum(y == c), 1)), atol=1e-12)
        assert np.linalg.norm(steps[y == c][0]) == pytest.approx(2)
    assert np.abs(steps[y == 0][0] - steps[y == 1][0]).max() > 0.1


def test_full_distribution_shift_changes_everything():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 2)), np.repeat(np.arange(4), 500)
    shifted, noisy, rows = full_distribution_shift(X, y, minority_share=0.25, random_state=0)
    assert sorted(set(np.bincount(y[rows]))) == [50, 500]
    assert 0.1 < np.mean(noisy != y[rows]) < 0.3
    assert np.abs(shifted - X[rows]).max() > 0.1


def test_independent_components_are_independent_and_mixing_is_shared():
    Z, domain, components = independent_component_shift(3, 4000, 3, random_state=0)
    for d in range(3):
        correlation = np.corrcoef(components[domain == d].T)
        assert np.abs(correlation - np.eye(3)).max() < 0.06
    # One linear map explains all domains once the known non-linearity is applied.
    features = components + np.tanh(components) / 2
    mixing, *_ = np.linalg.lstsq(features, Z, rcond=None)
    np.testing.assert_allclose(features @ mixing, Z, atol=1e-9)
    means = [components[domain == d].mean(axis=0) for d in range(3)]
    assert np.abs(means[0] - means[1]).max() > 0.3


def test_rotate_by_right_angles_is_exact():
    images = np.random.default_rng(0).uniform(size=(3, 9, 9))
    turned = rotate(images, np.array([0.0, 90.0, 180.0]))
    np.testing.assert_allclose(turned[0], images[0])
    np.testing.assert_allclose(turned[1], np.rot90(images[1]), atol=1e-9)
    np.testing.assert_allclose(turned[2], np.rot90(images[2], 2), atol=1e-9)
    with pytest.raises(InputError, match="One angle per image"):
        rotate(images, np.zeros(2))


# --- published tables ---

SIZES = {
    "auto_mpg": (392, 7),
    "bike_sharing_day": (731, 11),
    "parkinsons": (5875, 19),
    "wine_red": (1599, 11),
    "wine_white": (4898, 11),
    "australian": (690, 14),
    "breast_cancer": (683, 9),
    "diabetes": (768, 8),
    "heart": (270, 13),
    "sonar": (208, 60),
}


def test_all_tables_are_listed():
    assert set(table_names()) == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_published_tables(name, published_data):
    table = load_table(name)
    assert table.X.shape == SIZES[name]
    assert len(table.columns) == SIZES[name][1]
    assert np.isfinite(table.X).all()
    if name in ("australian", "breast_cancer", "diabetes", "heart", "sonar"):
        assert set(table.y) == {0.0, 1.0}
        z = (table.X - table.X.mean(axis=0)) / table.X.std(axis=0)
        assert LogisticRegression(max_iter=1000).fit(z, table.y).score(z, table.y) > 0.7


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("auto_mpg", (245, 147)), ("bike_sharing_day", (363, 368)), ("parkinsons", (2033, 3842)), ("wine", (1599, 4898))],
)
def test_natural_splits(name, sizes, published_data):
    source, target = natural_split(name)
    assert (len(source.y), len(target.y)) == sizes
    assert source.columns == target.columns
    assert not {"origin", "mnth", "season", "age"} & set(source.columns)


def test_absent_data_says_where_to_get_it(no_data):
    with pytest.raises(DataNotFoundError, match=r"heart.csv is not in .*UCI.*Statlog Heart.*STEELYARD_DATA"):
        load_table("heart")


def test_changed_data_is_an_error(no_data, published_data_copy):
    with pytest.raises(DataChangedError, match="does not hold the published table"):
        load_table("heart")


def test_a_shift_of_mixed_tables_that_no_draw_reaches_is_refused():
    with pytest.raises(ParameterError, match=r"size=0.2 is more than such tables can differ by.*Take a smaller size"):
        mixed_tables(50, 50, size=0.2, random_state=0)
    with pytest.raises(ParameterError, match="size must be a finite number ≥ 0; got -1"):
        mixed_tables(50, 50, size=-1)


def test_unknown_names():
    with pytest.raises(ParameterError, match="auto_mpg"):
        load_table("titanic")
    with pytest.raises(ParameterError, match="wine"):
        natural_split("heart")


def test_another_edition_is_an_error_by_name(no_data):
    (no_data / "wine_quality_red.csv").write_text('"fixed acidity";"quality"\n7.4;5\n')
    with pytest.raises(DataChangedError, match="cannot be read as the published table"):
        load_table("wine_red")


@pytest.fixture
def published_data_copy(no_data):
    """A file of the right name and columns, but of another edition."""
    header = "age,sex,class\n"
    (no_data / "heart.csv").write_text(header + "70,1,1\n50,0,0\n")


def test_cache_folder_is_the_default(monkeypatch, tmp_path):
    from steelyard.datasets import data_folder

    monkeypatch.delenv("STEELYARD_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "steelyard"
