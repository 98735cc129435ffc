"""Values that an array would forget to be masked, or complex, or sparse."""

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge

from steelyard import ULSIF, OneStepRegressor, Target, WeightedRegressor, diagnose, iwcv_score
from steelyard.errors import InputError

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=60)


def masked(values):
    return np.ma.array(values, mask=np.arange(values.size).reshape(values.shape) == 0)


def fits(X, y, X_target, sample_weight=None):
    """Every kind of fit, by name."""
    target = Target(X_target)
    return {
        "ratio": lambda: ULSIF().fit(X, target=target, sample_weight=sample_weight),
        "weighted": lambda: WeightedRegressor(Ridge()).fit(X, y, target=target, sample_weight=sample_weight),
        "one step": lambda: OneStepRegressor().fit(X, y, target=target, sample_weight=sample_weight),
        "validation": lambda: iwcv_score(WeightedRegressor(Ridge()), X, y, target=target),
    }


@pytest.mark.parametrize("method", ["ratio", "weighted", "one step", "validation"])
@pytest.mark.parametrize(("make", "message"), [(masked, "1 value is masked"), (lambda v: v + 1j, "Complex data not")])
def test_masked_and_complex_values_are_refused(method, make, message):
    with pytest.raises(InputError, match=f"source.*: {message}"):
        fits(make(X), Y, X)[method]()
    with pytest.raises(InputError, match=f"target: {message}"):
        fits(X, Y, make(X))[method]()
    if method != "ratio":
        with pytest.raises(InputError, match=f"labels: {message}"):
            fits(X, make(Y), X)[method]()
    if method != "validation":
        with pytest.raises(InputError, match=f"sample_weight: {message}"):
            fits(X, Y, X, make(np.ones(60)))[method]()


def _labels_with(value):
    return np.array([value, *Y[1:]], dtype=object)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (masked(Y), "1 value is masked"),
        (Y + 1j, "Complex data not supported"),
        (np.where(np.arange(60) == 7, np.nan, Y), "source are missing or infinite: 1 of 60, the first at row 7"),
        (np.where(np.arange(60) == 7, np.inf, Y), "source are missing or infinite: 1 of 60, the first at row 7"),
        (_labels_with(None), "missing or infinite: 1 of 60"),
        (pd.Series(_labels_with(pd.NA)), "missing or infinite: 1 of 60"),
        (np.where(Y > 0, "yes", None), "source are missing or infinite"),
        (np.where(Y > 0, "yes", "no"), "text.*numbers; give both in the same form"),
        (np.column_stack([Y, Y]), "120 labels for 60 rows"),
    ],
)
def test_labels_that_a_diagnosis_cannot_compare_are_refused(labels, message):
    with pytest.raises(InputError, match=message) as caught:
        diagnose(X, labels, target=Target(X + 0.3, Y))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"text|target|masked|Complex"):
        diagnose(X, Y, target=Target(X + 0.3, labels))


def test_a_complex_column_is_named_in_one_line():
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] + 1j})
    with pytest.raises(InputError, match="column 'b': Complex data not supported") as caught:
        ULSIF().fit(frame, target=Target(frame))
    assert "\n" not in str(caught.value)


def test_a_transformer_does_not_forget_the_mask():
    model = WeightedRegressor(Ridge(), preprocess=SimpleImputer())
    with pytest.raises(InputError, match="1 value is masked"):
        model.fit(masked(X), Y, target=Target(X))


def test_a_mask_that_hides_nothing_does_no_harm():
    plain, hidden = (
        ULSIF(random_state=0).fit(rows, target=Target(rows + 0.1)).weights_ for rows in (X, np.ma.array(X))
    )
    np.testing.assert_array_equal(plain, hidden)


def test_sparse_columns_are_numbers():
    dense = pd.DataFrame(np.round(np.abs(X)), columns=["a", "b"])
    sparse = dense.astype(pd.SparseDtype(float, 0.0))
    for method, fit in fits(sparse, Y, sparse.iloc[:50]).items():
        np.testing.assert_equal(np.shape(fit()), np.shape(fits(dense, Y, dense.iloc[:50])[method]()), err_msg=method)
    ratios = [ULSIF(random_state=0).fit(table, target=Target(table.iloc[:50])) for table in (sparse, dense)]
    np.testing.assert_array_equal(ratios[0].weights_, ratios[1].weights_)
    aucs = [diagnose(table, target=table.iloc[:40] + 1, random_state=0).auc for table in (sparse, dense)]
    assert aucs[0] == aucs[1]
