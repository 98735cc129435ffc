"""
A mixed table with categories
=============================

Tables have categories beside numbers, and either may shift. Data frames are given as they are: the ratio encodes the
categories by itself, the balance is checked for every level, and the pipeline inside ``WeightedRegressor`` has its own.
The table is made up, and its label was chosen to show a gain: the number that shifts most, number 5, enters with its
square, which a linear model misses. With the square of another number weights gain little or nothing, or cost some.

It takes about three seconds; ``--full`` has 10,000 rows. It needs pandas (``pip install 'steelyard[tables]'``).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from steelyard import ClassifierRatio, Target, WeightedRegressor
from steelyard.datasets import mixed_tables

SOURCE, WEIGHTED = "#64748b", "#0f766e"
n_rows = 10_000 if "--full" in sys.argv else 1500
tables = mixed_tables(n_rows, n_rows, random_state=0)
source, target = pd.DataFrame(tables.source), pd.DataFrame(tables.target)
print(source.iloc[:3, [0, 1, 5, 7, 8, 9]].round(2).to_string(index=False), "\n")


def label(rows, seed):  # products and squares, which a linear model misses
    rng, x = np.random.default_rng(seed), rows["number 5"]
    return x * rows["category 2"].map({"a": 1.5, "b": -1.0, "c": 0.5}) + x**2 + rng.normal(0, 0.5, len(rows))


y, y_target = label(source, 0), label(target, 1)
numbers = StandardScaler(), make_column_selector(dtype_include="number")
categories = OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")
pipeline = make_pipeline(make_column_transformer(numbers, categories), Ridge())
plain = pipeline.fit(source, y).predict(target)
model = WeightedRegressor(pipeline, ClassifierRatio(random_state=0)).fit(source, y, target=Target(target))
for name, found in (("no weights", plain), ("weighted", model.predict(target))):
    print(f"{name:10} mean squared error on the target {np.mean((found - y_target) ** 2):.2f}")
print(f"Effective sample size: {model.effective_sample_size_:.0f} of {n_rows} rows.")

encoded = pd.get_dummies(pd.concat([source, target]), dtype=float)
means = [np.average(encoded[:n_rows], axis=0, weights=weights) for weights in (None, model.weights_)]
before, after = ((encoded[n_rows:].mean() - mean).abs() / encoded.std() for mean in means)
names = before.nlargest(16).index[::-1]
_, (left, right) = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
left.scatter(before[names], names, color=SOURCE, label="before weighting")
left.scatter(after[names], names, color=WEIGHTED, label="after weighting")
left.set(xlabel="standardized mean difference")
left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
right.scatter(tables.ratio, model.weights_, s=8, color=WEIGHTED, alpha=0.4, lw=0)
right.axline((1, 1), slope=1, color=SOURCE, lw=1, ls="--")
right.set(xscale="log", yscale="log", xlabel="true density ratio", ylabel="importance weight")
plt.show()
