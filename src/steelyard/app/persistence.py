"""A fitted model in a folder: ``model.skops`` for the estimators, ``model.json`` for what people and programs read.

skops loads named types only. The list below is what `compare` can fit; a file that wants more is refused, so that a
model from elsewhere cannot run code. ``model.skops`` holds the SHA-256 of the ``model.json`` that it was saved with, so
that the estimators of one run are never taken with the class names of another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from steelyard._typing import FloatArray
from steelyard.app.atomic_files import read_file
from steelyard.errors import ModelError
from steelyard.stacking.held_out import class_probabilities
from steelyard.tables import Frame
from steelyard.tables.encoding import Encoding
from steelyard.tables.missing import is_number

FORMAT = 4
FILES = ("model.skops", "model.json")
TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "steelyard._numerics.losses.Squared",
    "steelyard.one_step.classifier.OneStepClassifier",
    "steelyard.one_step.regressor.OneStepRegressor",
    "steelyard.one_step._base.OneStepRatio",
    "steelyard.one_step.risk_bound.FittedNumbers",
    "steelyard.stacking.estimators.StackedClassifier",
    "steelyard.stacking.estimators.StackedRegressor",
    "steelyard.stacking.learners.LogisticLearner",
    "steelyard.stacking.rbf.RBFClassifier",
    "steelyard.stacking.rbf.RBFRegressor",
)
READ = {"label", "classes", "columns", "missing"}  # what is not for people only
ABOUT = {*READ, "method", "plain_method", "kept_plain", "measure", "performance"}
TRUSTED_TEXT = ("skrub._string_encoder.StringEncoder", "skrub._to_str.ToStr")


@dataclass(frozen=True, eq=False)
class TableModel:
    """A model for tables: how columns become numbers, the chosen estimator, and the plain one beside it."""

    encoding: Encoding
    model: Any
    plain: Any
    label: str
    classes: tuple[str, ...]  # as they are written in the table; empty for regression
    about: dict[str, Any]  # method, scores, files: for people

    @property
    def kinds(self) -> dict[str, str]:
        """How to read a CSV file for this model: what is a number, and what is text although it may look like one."""
        named = {code.name: "category" if code.kind == "text" else code.kind for code in self.encoding.codes}
        kinds = {name: kind for name, kind in named.items() if kind in ("number", "category")}
        if not self.classes:
            kinds[self.label] = "number"
        elif not all(is_number(name) for name in self.classes) and set(self.classes) != {"false", "true"}:
            kinds[self.label] = "category"
        return kinds

    @property
    def missing(self) -> tuple[str, ...]:
        """Signs of missing values in the files of the fit, in addition to the usual ones."""
        return self.encoding.missing

    def encode(self, frame: Frame, table: str = "table") -> FloatArray:
        """Rows of a table as numbers; `table` is its name in errors."""
        return self.encoding.transform(frame, table)

    def predict(self, rows: FloatArray, *, plain: bool = False) -> NDArray[Any]:
        """A number, or the name of a class, for each encoded row; `plain` uses ERM instead of the chosen model."""
        found = (self.plain if plain else self.model).predict(rows)
        return np.array(self.classes, dtype=object)[found.astype(int)] if self.classes else np.asarray(found)

    def probabilities(self, rows: FloatArray) -> FloatArray:
        """Probabilities of the classes (columns) for each encoded row."""
        return class_probabilities(self.model, rows)


def model_files(model: TableModel) -> dict[str, bytes]:
    """The two files, by name."""
    import skops.io

    import steelyard

    described = {
        "format": FORMAT,
        "steelyard": steelyard.__version__,
        "label": model.label,
        "classes": list(model.classes),
        "missing": list(model.missing),
        **model.about,
        "columns": model.encoding.to_dict(),
    }
    description = (json.dumps(described, indent=2, ensure_ascii=False) + "\n").encode()
    # The digest is in this file, not that of model.skops in the other: skops writes dates and addresses, and model.json
    # stays the same for the same fit.
    estimators = {
        "model": model.model,
        "plain": model.plain,
        "text": model.encoding.text_encoders,
        "description": hashlib.sha256(description).hexdigest(),
    }
    return {"model.skops": skops.io.dumps(estimators), "model.json": description}


def load_model(folder: Path) -> TableModel:
    """The model that `steelyard fit` left in a folder."""
    import skops.io

    described, description, saved = _read(folder)
    try:
        wanted = skops.io.get_untrusted_types(data=saved)
        strange = sorted(set(wanted) - {*TRUSTED, *TRUSTED_TEXT})
        if strange:
            raise ModelError(
                f"{folder / 'model.skops'} holds types that no model of steelyard has: {strange}. Not loaded."
            )
        estimators = skops.io.loads(saved, trusted=list(wanted))
        if estimators["description"] != hashlib.sha256(description).hexdigest():
            raise ModelError(
                f"{folder}: model.json is not the one that model.skops was saved with. They are of two runs, or "
                "one of them was changed. Run steelyard fit again."
            )
        encoding = Encoding.from_dict(described["columns"], estimators["text"], described["missing"])
        return TableModel(
            encoding,
            estimators["model"],
            estimators["plain"],
            described["label"],
            tuple(described["classes"]),
            {key: value for key, value in described.items() if key not in {"format", *READ}},
        )
    except ModelError:
        raise
    except ModuleNotFoundError as error:
        raise ModelError(f"{folder}: the model needs {error.name}. Install it: pip install {error.name}.") from error
    except (OSError, KeyError, TypeError, ValueError, AttributeError, BadZipFile) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}). Run steelyard fit again.") from error


def _read(folder: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """What model.json says, and the bytes of model.json and model.skops."""
    try:
        saved, description = (read_file(folder, name) for name in FILES)
        described = json.loads(description)
        known = described["format"] == FORMAT
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelError(
            f"There is no {error.filename}. Give the folder that steelyard fit wrote with --out."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder}: the model cannot be read ({error}). Run steelyard fit again.") from error
    if not known:
        raise ModelError(
            f"{folder}: the model has format {described['format']!r}; this version reads {FORMAT}. "
            "Run steelyard fit again."
        )
    if not set(described) >= ABOUT:
        raise ModelError(f"{folder / 'model.json'} lacks {sorted(ABOUT - set(described))}. Run steelyard fit again.")
    return described, description, saved
