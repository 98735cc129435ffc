"""Fits to blocks, files and long tables: the same whatever the cut, and equal to fits written out by hand."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio, TableBlocks, Target
from steelyard._numerics.kernels import gaussian
from steelyard.datasets import gaussian_pair
from steelyard.errors import (
    ColumnMismatchError,
    InputError,
    InputTypeError,
    NoTargetWarning,
    NotFiniteError,
    TableError,
)
from steelyard.ratio import _base, _from_sums
from steelyard.ratio.candidates import KERNEL, LINEAR

PAIR = gaussian_pair(6000, 4000, 2, random_state=0)
RATIOS = {
    "ULSIF": lambda: ULSIF(random_state=0),
    "RULSIF": lambda: RULSIF(0.3, random_state=0),
    "LSIF": lambda: LSIF(random_state=0),
    "KLIEP": lambda: KLIEP(random_state=0),
    "ClassifierRatio": lambda: ClassifierRatio(random_state=0),
    "ClassifierRatio of trees": lambda: ClassifierRatio(DecisionTreeClassifier(max_depth=3), random_state=0),
    "AutoRatio": lambda: AutoRatio(random_state=0),
}
every_ratio = pytest.mark.parametrize("name", RATIOS)


class Blocks:
    """Blocks of different sizes, which can be iterated several times."""

    def __init__(self, rows, *cuts):
        self.rows, self.cuts = rows, cuts

    def __iter__(self):
        return iter(np.split(self.rows, self.cuts))


SOURCE, TARGET = Blocks(PAIR.X, 700, 1500, 1501), Blocks(PAIR.X_target, 600)


def weights(ratio):
    return ratio.weights_ if isinstance(ratio.weights_, np.ndarray) else np.concatenate(list(ratio.weights_))


@every_ratio
def test_the_cut_into_blocks_does_not_matter(name):
    one = RATIOS[name]().fit([PAIR.X], target=[PAIR.X_target])
    many = RATIOS[name]().fit(SOURCE, target=Target(TARGET))
    np.testing.assert_allclose(weights(many), weights(one), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(many.predict(PAIR.X), one.predict(PAIR.X), rtol=1e-8, atol=1e-12)
    assert weights(one).mean() == pytest.approx(1, abs=1e-9)
    assert [len(block) for block in many.weights_] == [700, 800, 1, 4499]
    assert many.balance_.mean_after == pytest.approx(one.balance_.mean_after)
    for attribute in ("scores_", "width_", "candidates_"):
        if hasattr(one, attribute):
            np.testing.assert_array_equal(getattr(one, attribute), getattr(many, attribute))


@every_ratio
def test_long_tables_in_memory_are_fitted_as_streams_are(name, monkeypatch):
    blocks = RATIOS[name]().fit(SOURCE, target=TARGET)
    monkeypatch.setattr(_base, "FOLDS_ABOVE", 5999)
    whole = RATIOS[name]().fit(PAIR.X, target=PAIR.X_target)
    assert isinstance(whole.weights_, np.ndarray)
    np.testing.assert_allclose(whole.weights_, weights(blocks), rtol=1e-8, atol=1e-12)
    assert whole.effective_sample_size_ == pytest.approx(
        (weights(blocks).sum() ** 2) / np.square(weights(blocks)).sum()
    )
    assert whole.balance_.columns == ("x0", "x1")
    monkeypatch.setattr(_base, "FOLDS_ABOVE", 6000)
    exact = RATIOS[name]().fit(PAIR.X, target=PAIR.X_target)
    assert np.abs(exact.weights_ - whole.weights_).max() > 0
    # In a stream, the weights of a classifier of one's own are not cross-fitted.
    assert np.corrcoef(exact.weights_, whole.weights_)[0, 1] > (0.85 if name.endswith("trees") else 0.97)


@every_ratio
def test_it_finds_the_true_ratio(name):
    fit = RATIOS[name]().fit(SOURCE, target=TARGET)
    truth = PAIR.ratio(PAIR.X)
    if name == "RULSIF":
        truth = truth / (0.3 * truth + 0.7)
    assert np.corrcoef(weights(fit), truth)[0, 1] > (0.85 if name.endswith("trees") else 0.9)
    assert fit.balance_.mean_after < 0.5 * fit.balance_.mean_before


def test_the_balance_and_the_effective_sample_size_are_those_of_the_weights():
    fit = ULSIF(random_state=0).fit(SOURCE, target=TARGET)
    w = weights(fit)
    unit = np.sqrt((PAIR.X.var(axis=0) + PAIR.X_target.var(axis=0)) / 2)
    after = (PAIR.X_target.mean(axis=0) - np.average(PAIR.X, axis=0, weights=w)) / unit
    np.testing.assert_allclose(fit.balance_.after, after, atol=1e-12)
    assert fit.effective_sample_size_ == pytest.approx(w.sum() ** 2 / np.square(w).sum())


@pytest.mark.parametrize("ratio", [RULSIF, LSIF, KLIEP])
def test_equals_the_fit_in_memory_for_fixed_width_reg_and_centers(ratio):
    fixed = {"width": 1.0, "centers": PAIR.X_target[:40], "random_state": 0}
    fixed |= {} if ratio is KLIEP else {"reg": 0.1}
    fixed |= {"eta": 0.3} if ratio is RULSIF else {}
    whole = ratio(**fixed).fit(PAIR.X, target=PAIR.X_target)
    blocks = ratio(**fixed).fit(SOURCE, target=TARGET)
    # The coefficients of LSIF and KLIEP are as exact as `tol`; those of RULSIF are in closed form.
    tol = 1e-9 if ratio is RULSIF else 1e-3
    np.testing.assert_allclose(blocks.predict(PAIR.X), whole.predict(PAIR.X), atol=tol)
    np.testing.assert_allclose(weights(blocks), whole.weights_, atol=tol)
    assert blocks.source_mean_ == pytest.approx(whole.source_mean_, rel=tol)
    assert blocks.raw_mean_ == pytest.approx(whole.raw_mean_, rel=tol)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_scores_equal_refitting_without_each_fold(eta, sampled):
    given = {"n_centers": 20} if sampled else {"centers": PAIR.X_target[:15]}
    fit = RULSIF(eta, width=[1.5, 0.7], reg=[1.0, 0.01], standardize=False, random_state=0, **given)
    fit.fit([PAIR.X], target=[PAIR.X_target])
    centers = fit.centers_ + fit.center_  # not scaled, only centered
    nearest = np.argmin(np.square(PAIR.X_target[:, None] - centers).sum(axis=2), axis=0)
    np.testing.assert_allclose(PAIR.X_target[nearest], centers, atol=1e-12)
    for w, width in enumerate(fit.widths_):
        a, t = gaussian(PAIR.X, centers, width), gaussian(PAIR.X_target, centers, width)
        for r, reg in enumerate(fit.regs_):
            scores = []
            for f in range(5):
                # Given centers always stay; a center that is a row is left out with its fold.
                used = nearest % 5 != f if sampled else np.ones(len(centers), dtype=bool)
                out_a, out_t = np.arange(len(a)) % 5 == f, np.arange(len(t)) % 5 == f
                A, T = a[np.ix_(~out_a, used)], t[np.ix_(~out_t, used)]
                H = (1 - eta) * A.T @ A / len(A) + eta * T.T @ T / len(T)
                beta = np.maximum(np.linalg.solve(H + reg * np.eye(used.sum()), T.mean(axis=0)), 0)
                g, h = a[np.ix_(out_a, used)] @ beta, t[np.ix_(out_t, used)] @ beta
                scores.append((1 - eta) * np.mean(g**2) / 2 + eta * np.mean(h**2) / 2 - np.mean(h))
            assert fit.scores_[w, r] == pytest.approx(np.mean(scores), abs=1e-10)


@pytest.mark.parametrize("eta", [0.8, 1.0])
def test_weights_of_blocks_have_mean_one_with_the_bound_in_force(eta):
    fit = RULSIF(eta, width=0.2, reg=0.00001, n_centers=200, random_state=0).fit(SOURCE, target=TARGET)
    ratio = fit.predict(PAIR.X)
    assert (ratio / fit.source_mean_).mean() == pytest.approx(1, abs=1e-9)
    mixture = eta * fit.predict(PAIR.X_target).mean() + (1 - eta) * ratio.mean()
    assert fit.raw_mean_ == pytest.approx(mixture, abs=1e-9)
    assert (ratio == 1 / eta).any()


def scikit_learn_odds(source, target, held_out):
    rows, domain = np.concatenate([source, target]), np.repeat([0, 1], [len(source), len(target)])
    scaler = StandardScaler().fit(np.concatenate([PAIR.X, PAIR.X_target]))  # of all rows, for every fold
    model = make_pipeline(PolynomialFeatures(2, include_bias=False), LogisticRegression(max_iter=10_000, tol=1e-10))
    return model.fit(scaler.transform(rows), domain).decision_function(scaler.transform(held_out))


def test_the_domain_classifier_is_that_of_scikit_learn_without_each_fold():
    fit = ClassifierRatio(random_state=0).fit(SOURCE, target=TARGET)
    every = scikit_learn_odds(PAIR.X, PAIR.X_target, PAIR.X)
    np.testing.assert_allclose(fit.classifier_.decision_function(PAIR.X), every, atol=1e-5)
    folds = [np.arange(len(rows)) % 5 for rows in (PAIR.X, PAIR.X_target)]
    odds = [np.empty(len(rows)) for rows in (PAIR.X, PAIR.X_target)]
    for f in range(5):
        train = PAIR.X[folds[0] != f], PAIR.X_target[folds[1] != f]
        for rows, fold, found in zip((PAIR.X, PAIR.X_target), folds, odds, strict=True):
            found[fold == f] = scikit_learn_odds(*train, rows[fold == f])
    domain = np.repeat([0, 1], [6000, 4000])
    balanced = np.repeat([1 / 6000, 1 / 4000], [6000, 4000]) * 5000
    line = LogisticRegression(C=1e9, tol=1e-10).fit(np.concatenate(odds)[:, None], domain, sample_weight=balanced)
    assert fit.slope_ == pytest.approx(line.coef_[0, 0], rel=1e-4)
    ratio = np.exp(line.decision_function(odds[0][:, None]))
    np.testing.assert_allclose(weights(fit), ratio / ratio.mean(), rtol=1e-3)


def test_the_parts_of_the_default_ratio_are_fitted_to_all_rows(monkeypatch):
    monkeypatch.setattr("steelyard.ratio.auto.SAMPLE_ROWS", 1000)
    rng = np.random.default_rng(3)
    X, X_target = rng.integers(0, 3, (6000, 6)) * 1.0, rng.integers(0, 3, (4000, 6)).clip(0, 2) * 1.0
    X_target[:, 0] = rng.choice(3, 4000, p=[0.5, 0.3, 0.2])
    fit = AutoRatio(random_state=0).fit([X], target=[X_target])
    assert fit.sample_size_ == 1000
    parts = {part.name: part.ratio for part in fit.parts_}
    assert LINEAR in parts
    rows, domain = np.concatenate([X, X_target]), np.repeat([0, 1], [6000, 4000])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-10))
    balanced = np.repeat([5000 / 6000, 5000 / 4000], [6000, 4000])
    model.fit(rows, domain, logisticregression__sample_weight=balanced)
    np.testing.assert_allclose(parts[LINEAR].log_odds(X), model.decision_function(X), atol=1e-6)
    smooth = AutoRatio(random_state=0).fit(SOURCE, target=TARGET)
    kernel = next(part.ratio for part in smooth.parts_ if part.name == KERNEL)
    alone = ULSIF(width=kernel.width_, reg=kernel.reg_, centers=kernel.centers_ * kernel.scale_ + kernel.center_)
    np.testing.assert_allclose(kernel.predict(PAIR.X), alone.fit(SOURCE, target=TARGET).predict(PAIR.X), atol=1e-8)


@pytest.fixture(scope="module")
def pd():
    return pytest.importorskip("pandas", reason="pandas is not installed (the extra tables)")


@pytest.fixture(scope="module")
def files(tmp_path_factory, pd):
    folder = tmp_path_factory.mktemp("tables")
    source, target = (pd.DataFrame(rows, columns=["a", "b"]) for rows in (PAIR.X, PAIR.X_target))
    source["id"], target["id"] = "row", "row"
    source.to_parquet(folder / "source.parquet", row_group_size=1000)
    target.to_csv(folder / "target.csv", index=False)
    (folder / "parts").mkdir()
    for i, start in enumerate(range(0, 6000, 2500)):
        source[["a", "b"]][start : start + 2500].to_parquet(folder / "parts" / f"{i}.parquet")
    source[["a", "b"]].to_parquet(folder / "numbers.parquet")
    target[["a", "b"]].to_csv(folder / "numbers.csv", index=False)
    return folder


def test_files_frames_and_batches_give_the_same_weights(files, pd):
    expected = weights(ULSIF(random_state=0).fit([PAIR.X], target=[PAIR.X_target]))
    frames = [
        [pd.DataFrame(part, columns=["a", "b"]) for part in np.split(rows, 3)]
        for rows in (PAIR.X, PAIR.X_target[:3999])
    ]
    target = TableBlocks(files / "target.csv", columns=["b", "a"])
    for source in (
        TableBlocks(files / "source.parquet", columns=["a", "b"]),
        files / "numbers.parquet",
        files / "parts",
        str(files / "parts"),
        frames[0],
        [pa.table(pd.DataFrame(PAIR.X, columns=["a", "b"]))],
        pd.DataFrame(PAIR.X, columns=["a", "b"]),
    ):
        for rows in (target, files / "numbers.csv"):
            fit = ULSIF(random_state=0).fit(source, target=rows)
            np.testing.assert_allclose(weights(fit), expected, rtol=1e-9)
            assert sorted(fit.feature_names_in_) == ["a", "b"]
    ratios = fit.predict(files / "numbers.parquet")
    np.testing.assert_allclose(np.concatenate(list(ratios)) / fit.source_mean_, expected, rtol=1e-9)


def test_long_data_frames_keep_their_names(pd, monkeypatch):
    monkeypatch.setattr(_base, "FOLDS_ABOVE", 5999)
    source, target = (pd.DataFrame(rows, columns=["a", "b"]) for rows in (PAIR.X, PAIR.X_target))
    fit = ULSIF(random_state=0).fit(source, target=target[["b", "a"]])
    assert fit.balance_.columns == ("a", "b")
    np.testing.assert_array_equal(fit.weights_, ULSIF(random_state=0).fit(PAIR.X, target=PAIR.X_target).weights_)


def test_a_memory_mapped_array_is_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(_base, "FOLDS_ABOVE", 1000)
    PAIR.X.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", dtype=np.float64, mode="r", shape=PAIR.X.shape)
    fit = ULSIF(random_state=0).fit(mapped, target=PAIR.X_target)
    np.testing.assert_allclose(fit.weights_, weights(ULSIF(random_state=0).fit(SOURCE, target=TARGET)), rtol=1e-9)


def test_a_reader_may_reuse_the_memory_of_its_blocks():
    class Reused:
        def __init__(self, rows):
            self.rows, self.memory = rows, np.empty((100, 2))

        def __iter__(self):
            for start in range(0, len(self.rows), 100):
                self.memory[:] = self.rows[start : start + 100]
                yield self.memory

    fit = ULSIF(random_state=0).fit(Reused(PAIR.X), target=Reused(PAIR.X_target))
    np.testing.assert_array_equal(fit.coef_, ULSIF(random_state=0).fit([PAIR.X], target=[PAIR.X_target]).coef_)


def test_memory_does_not_grow_with_the_number_of_rows():
    class Repeated:
        def __init__(self, rows, times):
            self.rows, self.times = rows, times

        def __iter__(self):
            for _ in range(self.times):
                yield self.rows + 0.0

    def peak(times):
        tracemalloc.start()
        fit = ULSIF(width=[2.0, 1.5], reg=0.1, n_centers=30, random_state=0)
        fit.fit(Repeated(PAIR.X, times), target=Repeated(PAIR.X_target, times))
        sum(block.sum() for block in fit.weights_)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(100) < 1.1 * peak(25)


def test_single_precision_blocks():
    fixed = {"width": 1.0, "reg": 0.1, "centers": PAIR.X_target[:40], "random_state": 0}
    double = ULSIF(**fixed).fit(SOURCE, target=TARGET)
    halves = (Blocks(rows.astype(np.float32), 700) for rows in (PAIR.X, PAIR.X_target))
    single = ULSIF(**fixed).fit(next(halves), target=next(halves))
    np.testing.assert_allclose(single.predict(PAIR.X), double.predict(PAIR.X), atol=1e-4)


@pytest.mark.parametrize("ratio", [ULSIF, LSIF])
def test_rows_added_part_by_part_give_the_fit_of_all_rows(ratio, monkeypatch):
    fixed = {"width": [1.5, 0.7], "reg": [1.0, 0.01], "centers": PAIR.X_target[:15], "random_state": 0}
    # The scale is that of the first rows; here it is given.
    monkeypatch.setattr(_from_sums, "mixture_scale", lambda *_, **__: (np.zeros(2), np.ones(2), True))
    fit = ratio(**fixed, standardize=False)
    fit.partial_fit(PAIR.X[:1234], target=PAIR.X_target[:999])
    fit.partial_fit(PAIR.X[1234:])
    fit.partial_fit(target=Target(PAIR.X_target[999:]))
    monkeypatch.setattr("steelyard.ratio._streaming.mixture_scale", lambda *_, **__: (np.zeros(2), np.ones(2), True))
    whole = ratio(**fixed, standardize=False).fit(SOURCE, target=TARGET)
    np.testing.assert_allclose(fit.scores_, whole.scores_, rtol=1e-9)
    np.testing.assert_allclose(fit.predict(PAIR.X), whole.predict(PAIR.X), atol=1e-8)
    assert fit.source_mean_ == pytest.approx(whole.source_mean_, rel=1e-9)
    assert fit.effective_sample_size_ == pytest.approx(whole.effective_sample_size_, rel=1e-9)


def test_forgetting_halves_the_count_of_a_row_after_its_half_life():
    fixed = {"width": 1.0, "reg": 0.1, "centers": PAIR.X_target[:15], "standardize": False, "random_state": 0}
    fit = ULSIF(**fixed)
    for X, rows in ((PAIR.X, PAIR.X_target[:50]), (None, PAIR.X_target[50:51]), (None, PAIR.X_target[51:400])):
        fit.partial_fit(X, target=rows, half_life=60)
    centers = fit.centers_ + fit.center_
    a, t = gaussian(PAIR.X, centers, 1.0), gaussian(PAIR.X_target[:400], centers, 1.0)
    mass = 0.5 ** (np.arange(400)[::-1] / 60)
    H, h = a.T @ a / len(a), mass @ t / mass.sum()
    np.testing.assert_allclose(fit.coef_, np.maximum(np.linalg.solve(H + 0.1 * np.eye(15), h), 0), atol=1e-9)


def test_a_target_that_drifts_is_followed():
    rng = np.random.default_rng(0)
    source = rng.normal(0, 1, (2000, 1))
    centers = np.linspace(-3, 3, 30)[:, None]
    first, later = rng.normal(-1, 0.5, (1000, 1)), rng.normal(1, 0.5, (1000, 1))
    follows, keeps = (ULSIF(centers=centers, random_state=0) for _ in range(2))
    for fit, half_life in ((follows, 100), (keeps, None)):
        fit.partial_fit(source, target=first, half_life=half_life)
        fit.partial_fit(target=later, half_life=half_life)
    new = rng.normal(1, 0.5, (1000, 1))
    assert follows.score(source, target=new) > 1.5 * keeps.score(source, target=new)


def test_a_fit_after_partial_fit_forgets_its_sums():
    fit = ULSIF(random_state=0).partial_fit(PAIR.X, target=PAIR.X_target)
    fit.fit(PAIR.X[:500], target=PAIR.X_target[:500])
    assert not hasattr(fit, "sums_")
    with pytest.raises(InputError, match="first call of partial_fit needs source rows X and target rows"):
        ULSIF().partial_fit(target=PAIR.X_target)
    with pytest.warns(NoTargetWarning):
        fit = ULSIF(random_state=0).partial_fit(PAIR.X)
    np.testing.assert_array_equal(fit.predict(PAIR.X[:3]), 1)
    assert fit.partial_fit(PAIR.X, target=PAIR.X_target).predict(PAIR.X).std() > 0


def test_bad_blocks():
    with pytest.raises(InputTypeError, match=r"source blocks can be iterated only once.*__iter__"):
        ULSIF().fit((rows for rows in [PAIR.X]), target=[PAIR.X_target])
    late = PAIR.X_target.copy()
    late[3000, 1] = np.nan
    with pytest.raises(NotFiniteError, match=r"target contains NaN in row 7,001 \(counted from 1\), column 1"):
        ULSIF().fit([PAIR.X], target=[PAIR.X_target, late])
    with pytest.raises(InputError, match="target: X has 1 features"):
        ULSIF().fit([PAIR.X], target=[PAIR.X_target[:, :1]])
    with pytest.raises(
        ColumnMismatchError, match=r"source: the block from row 6,001 on has 1 columns, the first block 2"
    ):
        ULSIF().fit([PAIR.X, PAIR.X[:, :1]], target=[PAIR.X_target])
    with pytest.raises(InputTypeError, match=r"from row 6,001 on holds float32, the first block float64"):
        ULSIF().fit([PAIR.X, PAIR.X.astype(np.float32)], target=[PAIR.X_target])
    with pytest.raises(InputError, match=r"source: the blocks hold 3 rows, at least 10 are needed"):
        ULSIF().fit([PAIR.X[:3]], target=[PAIR.X_target])
    with pytest.raises(InputTypeError, match="KMM needs its rows in memory and takes no blocks or paths"):
        KMM().fit([PAIR.X], target=[PAIR.X_target])
    with pytest.raises(InputTypeError, match="sample_weight needs tables in memory"):
        ULSIF().fit([PAIR.X], target=[PAIR.X_target], sample_weight=np.ones(6000))
    # An empty block is no error: a filter may leave nothing of a partition.
    fit = ULSIF(random_state=0).fit([PAIR.X, PAIR.X[:0]], target=[PAIR.X_target[:0], PAIR.X_target])
    np.testing.assert_allclose(weights(fit), weights(ULSIF(random_state=0).fit(SOURCE, target=TARGET)), rtol=1e-9)
    with pytest.warns(NoTargetWarning):
        assert [set(block) for block in ULSIF().fit([PAIR.X]).weights_] == [{1.0}]


def test_bad_files(files, tmp_path):
    (tmp_path / "short.parquet").write_bytes((files / "numbers.parquet").read_bytes()[:-2000])
    with pytest.raises(TableError, match=r"short.parquet: this cannot be read as a Parquet file"):
        ULSIF().fit(tmp_path / "short.parquet", target=files / "numbers.csv")
    with pytest.raises(TableError, match="there is no such file or folder"):
        ULSIF().fit(tmp_path / "none.parquet", target=files / "numbers.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=r"holds no Parquet files"):
        ULSIF().fit(tmp_path / "empty", target=files / "numbers.csv")
    with pytest.raises(InputError, match=r"column 'id' holds .*string.* every column must be numeric"):
        ULSIF().fit(files / "source.parquet", target=files / "numbers.csv")
    with pytest.raises(TableError, match=r"target.csv: 'row' in column 3 is not a number"):
        ULSIF().fit(files / "numbers.parquet", target=files / "target.csv")
    with pytest.raises(ColumnMismatchError, match=r"there are no columns \['c'\]"):
        ULSIF().fit(TableBlocks(files / "source.parquet", columns=["c"]), target=files / "numbers.csv")
    (tmp_path / "hole.csv").write_text("a,b\n" + "1,2\n" * 20 + "?,3\n")
    with pytest.raises(NotFiniteError, match=r"row 21 \(counted from 1\), column 'a'"):
        ULSIF().fit(files / "numbers.parquet", target=tmp_path / "hole.csv")
    (tmp_path / "other.csv").write_text("a,c\n" + "1,2\n" * 20)
    with pytest.raises(ColumnMismatchError, match=r"Missing: \['b'\]; only there: \['c'\]"):
        ULSIF().fit(files / "numbers.parquet", target=tmp_path / "other.csv")
