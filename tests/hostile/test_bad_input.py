"""Bad input: a named error that says what came, what was needed and what to do, or a warning and a defined result."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge

from steelyard import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio, Target, WeightedRegressor, errors
from steelyard.datasets import gaussian_pair
from steelyard.errors import (
    ColumnMismatchError,
    InputError,
    InputTypeError,
    NoOverlapError,
    NoShiftWarning,
    NotFiniteError,
    ParameterError,
    RawMeanWarning,
    SmallEffectiveSampleWarning,
    SteelyardError,
    SteelyardWarning,
    WeightError,
)

ALL = [
    KLIEP(random_state=0),
    KMM(random_state=0),
    LSIF(random_state=0),
    RULSIF(random_state=0),
    ULSIF(random_state=0),
    ClassifierRatio(random_state=0),
    AutoRatio(random_state=0),
]
every = pytest.mark.parametrize("ratio", ALL, ids=lambda r: type(r).__name__)
PAIR = gaussian_pair(60, 50, 3, random_state=0)


def fit(ratio, X=PAIR.X, target=PAIR.X_target, **kwargs):
    return clone(ratio).fit(X, target=target, **kwargs)


def spoiled(rows, row, column, value):
    rows = rows.copy()
    rows[row, column] = value
    return rows


@every
@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_nan_and_infinity_name_table_column_and_rows(ratio, value, kind):
    with pytest.raises(NotFiniteError, match=rf"source contains {kind} .*column 1, first at rows \[7\].*preprocess"):
        fit(ratio, spoiled(PAIR.X, 7, 1, value))
    with pytest.raises(NotFiniteError, match=rf"target contains {kind} .*column 2, first at rows \[3\]"):
        fit(ratio, target=spoiled(PAIR.X_target, 3, 2, value))


def test_nan_names_the_column_of_a_frame():
    pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")
    frame = pd.DataFrame(spoiled(PAIR.X, 7, 1, np.nan), columns=["age", "height", "weight"])
    with pytest.raises(NotFiniteError, match="column 'height'"):
        fit(ULSIF(), frame, pd.DataFrame(PAIR.X_target, columns=["age", "height", "weight"]))


def test_values_whose_sum_overflows_are_still_finite():
    big = PAIR.X.copy()
    big[:, 0] = 1.7e308
    weights = ULSIF(width=1.0, reg=0.1, random_state=0)
    # Finite, but beyond what a variance can hold: refused by name rather than NaN.
    with pytest.raises(InputError, match="Column 0 has values whose squares are out of range"):
        weights.fit(big, target=PAIR.X_target)


@every
def test_empty_tables_and_single_rows(ratio):
    for rows in (np.empty((0, 3)), PAIR.X[:1]):
        with pytest.raises(InputError, match=r"source: .*minimum of 2 is required"):
            fit(ratio, rows)
        with pytest.raises(InputError, match=r"target: .*minimum of 2 is required"):
            fit(ratio, target=rows)
    with pytest.raises(InputError, match="0 feature"):
        fit(ratio, np.empty((5, 0)))


@every
def test_different_numbers_of_columns(ratio):
    with pytest.raises(InputError, match=r"target: X has 2 features, but \w+ is expecting 3 features"):
        fit(ratio, target=PAIR.X_target[:, :2])


def test_names_must_match_and_frames_do_not_mix_with_arrays():
    pd = pytest.importorskip("pandas", reason="pandas (extra 'tables') is not installed")
    frame = pd.DataFrame(PAIR.X, columns=["a", "b", "c"])
    target = pd.DataFrame(PAIR.X_target, columns=["a", "b", "c"])
    plain = fit(ULSIF(random_state=0), frame, target)
    reordered = fit(ULSIF(random_state=0), frame, target[["c", "a", "b"]])
    np.testing.assert_array_equal(plain.weights_, reordered.weights_)
    with pytest.raises(ColumnMismatchError, match=r"Missing from the target: \['b'\]; only in the target: \['z'\]"):
        fit(ULSIF(), frame, target.rename(columns={"b": "z"}))
    with pytest.raises(ColumnMismatchError, match="source is a table with column names, the target has none"):
        fit(ULSIF(), frame, PAIR.X_target)
    with pytest.raises(ColumnMismatchError, match="target is a table with column names, the source has none"):
        fit(ULSIF(), PAIR.X, target)


def test_polars_frames():
    pl = pytest.importorskip("polars", reason="polars (extra 'tables') is not installed")
    frame = pl.DataFrame(PAIR.X, schema=["a", "b", "c"])
    target = pl.DataFrame(PAIR.X_target, schema=["a", "b", "c"])
    ours = fit(ULSIF(random_state=0), frame, target.select("c", "b", "a")).weights_
    np.testing.assert_array_equal(ours, fit(ULSIF(random_state=0)).weights_)


@every
def test_text_sparse_and_complex(ratio):
    with pytest.raises(InputError, match=r"source: .*Every column must be numeric"):
        fit(ratio, np.array([["a", "b", "c"]] * 10, dtype=object))
    with pytest.raises(InputTypeError, match=r"source: .*[Ss]parse.*toarray"):
        fit(ratio, sparse.csr_array(PAIR.X))
    with pytest.raises(InputTypeError, match=r"target: .*[Ss]parse"):
        fit(ratio, target=sparse.csr_array(PAIR.X_target))
    with pytest.raises(InputError, match=r"source: Complex data not supported"):
        fit(ratio, PAIR.X + 1j)


@pytest.mark.parametrize("ratio", [ULSIF(random_state=0), ClassifierRatio(random_state=0)])
def test_errors_name_the_table_they_are_about(ratio):
    fitted = fit(ratio)
    with pytest.raises(NotFiniteError, match="The table to predict contains NaN"):
        fitted.predict(spoiled(PAIR.X, 0, 0, np.nan))


@every
def test_huge_counts_are_counts(ratio):
    np.testing.assert_allclose(fit(ratio, sample_weight=np.full(60, 1e308)).weights_, fit(ratio).weights_, atol=1e-12)


def test_disjoint_tables_do_not_matter_to_a_ratio_of_one():
    assert np.all(fit(RULSIF(1.0), PAIR.X, PAIR.X_target + 1000).weights_ == 1)


@every
def test_weights_of_rows(ratio):
    for weights, text in (
        (np.zeros(60), "Every sample_weight is zero"),
        (np.r_[-1.0, np.ones(59)], "Negative values .* -1.0 at row 0"),
        (np.r_[np.nan, np.ones(59)], "NaN"),
        (np.ones(59), r"expected shape \(60,\), got \(59,\)"),
        (np.ones((60, 1)), "1D"),
        (["a"] * 60, "one number per row"),
    ):
        with pytest.raises(WeightError, match=text):
            fit(ratio, sample_weight=weights)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (RULSIF(-0.1), r"eta must be a finite number ≥ 0 and ≤ 1; got -0.1"),
        (RULSIF(1.5), "eta must be"),
        (RULSIF("a"), "eta must be"),
        (ULSIF(width=0), r"width must be a finite number > 0; got 0"),
        (ULSIF(width=[]), "width must be"),
        (ULSIF(reg=-1), "reg must be"),
        (ULSIF(reg=[1, np.nan]), "reg must be"),
        (ULSIF(n_centers=0), r"n_centers must be a whole number ≥ 1; got 0"),
        (ULSIF(n_centers=2.5), "n_centers must be"),
        (ULSIF(random_state="seed"), "random_state must be"),
        (LSIF(reg=0), "reg must be"),
        (LSIF(tol=0), "tol must be"),
        (KLIEP(tol=-1), "tol must be"),
        (KMM(width=-1), "width must be"),
        (KMM(w_max=0), "w_max must be"),
        (KMM(w_max=np.inf), "w_max must be a finite number"),
        (ULSIF(random_state=-1), "random_state must be"),
        (KMM(w_max=0.01, slack=0.1), "Raise w_max or slack"),
        (KMM(slack=-1), "slack must be"),
        (KMM(reg=-1), "reg must be"),
        (KMM(max_rank=0), "max_rank must be"),
        (ClassifierRatio(n_folds=1), "n_folds must be"),
        (ClassifierRatio(Ridge()), "needs a classifier"),
    ],
    ids=str,
)
def test_parameters_out_of_range(ratio, text):
    with pytest.raises((ParameterError, InputTypeError), match=text):
        fit(ratio)


@every
def test_constant_columns_carry_nothing(ratio):
    constant = [np.column_stack([rows, np.full(len(rows), 7.0)]) for rows in (PAIR.X, PAIR.X_target)]
    np.testing.assert_allclose(fit(ratio, *constant).weights_, fit(ratio).weights_, atol=1e-6)


@every
def test_nothing_but_constant_columns(ratio):
    with pytest.warns(NoShiftWarning, match="every weight is 1"):
        weights = fit(ratio, np.full((20, 2), 3.0), np.full((10, 2), 3.0)).weights_
    assert np.all(weights == 1)


ONE_ROW = np.full((20, 3), 0.1)


@every
@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_a_target_of_one_cell_draws_the_weight_to_the_rows_near_it(ratio):
    weights = fit(ratio, target=ONE_ROW).weights_
    distance = np.square(PAIR.X - ONE_ROW[0]).sum(axis=1)
    assert np.average(distance, weights=weights) < distance.mean()


@every
@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_a_source_of_one_cell_has_weights_of_one(ratio):
    np.testing.assert_allclose(fit(ratio, ONE_ROW).weights_, 1)


@every
def test_disjoint_supports(ratio):
    with pytest.raises(NoOverlapError, match=r"share no region.*standardized units apart.*drop columns"):
        fit(ratio, PAIR.X, PAIR.X_target + 1000)


@pytest.mark.parametrize(
    "ratio",
    [
        KLIEP(width=0.05, standardize=False),
        KMM(width=0.05, standardize=False),
        LSIF(width=0.05, reg=0.1, standardize=False),
        ULSIF(width=0.05, reg=0.1, standardize=False),
        RULSIF(width=0.05, reg=0.1, standardize=False),
    ],
    ids=lambda r: type(r).__name__,
)
def test_no_source_row_within_reach_of_the_kernel(ratio):
    with pytest.raises(NoOverlapError, match=r"largest mean kernel value of a source row|out of reach"):
        fit(ratio, PAIR.X, PAIR.X_target + 8)


def test_few_effective_rows_is_a_warning():
    pair = gaussian_pair(300, 300, 1, shift=3.5, scale=0.2, random_state=0)
    with pytest.warns(
        SmallEffectiveSampleWarning, match=r"effective sample size .* is \d+\.\d with n = 300 rows.*Flatten"
    ):
        fit(KMM(random_state=0), pair.X, pair.X_target)


def test_a_bad_raw_mean_is_a_warning():
    with pytest.warns(RawMeanWarning, match="where it should be 1"):
        fit(ULSIF(width=0.3, reg=10.0, random_state=0))


@every
@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_many_more_columns_than_rows(ratio):
    pair = gaussian_pair(15, 12, 300, shift=0.05, scale=1.0, random_state=0)
    weights = fit(ratio, pair.X, pair.X_target).weights_
    assert np.isfinite(weights).all()
    assert weights.mean() == pytest.approx(1)


def test_labels_of_the_wrong_length():
    with pytest.raises(InputError, match=r"source: .*inconsistent numbers of samples: \[60, 59\]"):
        WeightedRegressor(Ridge()).fit(PAIR.X, np.ones(59), target=Target(PAIR.X_target))


def test_labels_missing():
    with pytest.raises(InputError, match="requires y to be passed"):
        WeightedRegressor(Ridge()).fit(PAIR.X, None, target=Target(PAIR.X_target))


def test_every_error_is_of_the_tree():
    for name, item in vars(errors).items():
        if isinstance(item, type) and item.__module__ == errors.__name__ and not name.startswith("_"):
            assert issubclass(item, (SteelyardError, SteelyardWarning)), name
            assert item.__doc__, name
    for error in (InputError, ParameterError, WeightError, NoOverlapError, NotFiniteError):
        assert issubclass(error, ValueError)
