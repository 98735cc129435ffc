"""A PyTorch module as a scikit-learn classifier that is trained with dynamic importance weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from steelyard._validation import check_count, check_new_rows, check_source, forget_fit, match_columns
from steelyard.deep.dynamic import PRESETS
from steelyard.deep.training.loop import train
from steelyard.deep.training.methods import importance_weighting
from steelyard.deep.training.phases import Task
from steelyard.deep.training.run import Optimizer, Settings, Trial
from steelyard.deep.training.steps import evaluating
from steelyard.errors import InputError, MissingTargetError, NotFiniteError, ParameterError
from steelyard.target import Target


class DynamicWeightedClassifier(ClassifierMixin, BaseEstimator):
    """A network trained on noisy, imbalanced or shifted rows that a few clean ones put right (survey, section 6).

    In each step the rows of a mini-batch are weighted so that their losses (or features) look like those of clean
    rows; see `DynamicWeights`. The clean rows are learned from as well.

    Parameters
    ----------
    module : torch.nn.Module
        Rows to one score for each class. It is copied; `module_` is what was trained.
    transform : {"loss", "features"}, default="loss"
        "features" needs a module whose forward is ``head(features(x))``.
    variant : {"IW", "SIW", "DIW1", "DIW2", "DIW3"}, default="DIW2"
    preset : {"normalised", "authors"}, default="normalised"
    epochs : int, default=20
        The first of several has weights of one.
    batch_size : int, default=256
    optimizer : callable, default=None
        Parameters to an optimizer; None is Adam with a learning rate of 1e-3.
    device : str, default="cpu"
    random_state : int, default=0
        Of the order of the rows, and of dropout. The module brings its own start.
    checkpoint : path, default=None
        Written after each epoch; where it exists, the training goes on from there.
    progress : bool, default=True
        A bar on stderr, where that is a terminal.

    Attributes
    ----------
    classes_ : labels, in the order of the module's scores
    module_ : the trained module
    weights_ : array of shape (n_rows,)
        Weights of the training rows in the last epoch; those near zero are worth a look. NaN for the few that it left
        out, because they filled no batch.
    log_ : list of dict, one an epoch

    Examples
    --------
    >>> import numpy as np, torch
    >>> from steelyard import Target
    >>> from steelyard.deep import DynamicWeightedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2)).astype("float32")
    >>> clean = (X[:, 0] > 0).astype(int)
    >>> y = np.where(rng.random(600) < 0.3, 1 - clean, clean)  # three labels in ten are wrong
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    >>> model = DynamicWeightedClassifier(net, epochs=30, batch_size=64)
    >>> model = model.fit(X[100:], y[100:], target=Target(X[:100], clean[:100]))
    >>> bool(np.mean(model.predict(X) == clean) > 0.9)
    True
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        transform: str = "loss",
        variant: str = "DIW2",
        preset: str = "normalised",
        epochs: int = 20,
        batch_size: int = 256,
        optimizer: Optimizer | None = None,
        device: str = "cpu",
        random_state: int = 0,
        checkpoint: str | Path | None = None,
        progress: bool = True,
    ) -> None:
        self.module = module
        self.transform = transform
        self.variant = variant
        self.preset = preset
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.device = device
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def fit(self, X: Any, y: Any, *, target: Target | None = None) -> DynamicWeightedClassifier:
        """Train on rows and labels, with ``target=Target(X_clean, y_clean)``."""
        if not isinstance(target, Target) or target.y is None:
            raise MissingTargetError(
                "DynamicWeightedClassifier needs a few rows of the target with labels: fit(X, y, target=Target("
                "X_clean, y_clean))."
            )
        forget_fit(self)
        if self.preset not in PRESETS:
            raise ParameterError(f"preset must be one of {tuple(PRESETS)}; got {self.preset!r}.")
        here = self._rows(X, reset=True)
        there = self._rows(match_columns(target, X), reset=False, table="target")
        classes, labels = np.unique(_labels(y, len(here), "y"), return_inverse=True)
        goal_labels = _labels(target.y, len(there), "target.y")
        unseen = sorted(set(goal_labels.tolist()) - set(classes.tolist()), key=str)
        if unseen:
            raise InputError(f"The target has classes that y lacks: {unseen}. No weight can make up rows.")
        module = copy.deepcopy(self.module).to(self.device)
        _require_scores(module, here[:2], len(classes))
        codes = [
            torch.as_tensor(found, dtype=torch.long, device=self.device)
            for found in (labels, np.searchsorted(classes, goal_labels))
        ]
        task = Task(torch.cat([here, there]), torch.cat(codes), there, codes[1])
        method = importance_weighting(
            module,
            self.epochs,
            variant=self.variant,
            transform=self.transform,
            preset=self.preset,
            warm_up=min(1, self.epochs - 1),
        )
        optimizer = self.optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=1e-3))
        settings = Settings(optimizer, batch_size=self.batch_size, summed=not PRESETS[self.preset].normalized)
        trial = Trial(method, task, seed=check_count("random_state", self.random_state, 0))
        train(trial, settings, checkpoint_path=self.checkpoint, progress=self.progress)
        assert trial.rows is not None
        assert trial.weights is not None
        weights = torch.full((len(task.y),), torch.nan, device=self.device)
        weights[trial.rows.flatten()] = trial.weights.flatten()
        self.classes_, self.module_, self.log_ = classes, module.eval(), trial.log
        self.weights_ = weights[: len(here)].double().cpu().numpy()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes."""
        check_is_fitted(self, "module_")
        rows = self._rows(X, reset=False)
        with evaluating(self.module_), torch.no_grad():
            scores = torch.cat([self.module_(part) for part in torch.split(rows, 2000)])
        return torch.softmax(scores.double(), dim=1).cpu().numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row."""
        check_is_fitted(self, "module_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _rows(self, X: Any, *, reset: bool, table: str = "X") -> Tensor:
        """Rows as the module wants them; tables are checked column by column, images and the like as a whole."""
        module = self.module if reset or not hasattr(self, "module_") else self.module_
        dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        found = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        if np.ndim(found) <= 2:
            found = check_source(self, found) if reset else check_new_rows(self, found, table)
        rows = torch.as_tensor(np.ascontiguousarray(found)).to(self.device, dtype)
        if not len(rows):
            raise InputError(f"{table} holds no rows; at least one is needed.")
        if not bool(torch.isfinite(rows).all()):
            raise NotFiniteError(f"{table} holds NaN or infinity; fill or drop those rows.")
        return rows


def _labels(y: Any, n_rows: int, which: str) -> NDArray[Any]:
    """One label a row."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n_rows,):
        raise InputError(f"{which} must hold one label for each of {n_rows} rows; got the shape {labels.shape}.")
    missing = [label for label in labels.tolist() if label is None or label != label]
    if missing:
        raise InputError(f"{which} holds {len(missing)} missing labels; drop those rows.")
    return labels


def _require_scores(module: nn.Module, rows: Tensor, n_classes: int) -> None:
    with evaluating(module), torch.no_grad():
        found = tuple(module(rows).shape)
    if found != (len(rows), n_classes):
        raise InputError(
            f"The module must give one score for each of {n_classes} classes; {len(rows)} rows gave a tensor of shape "
            f"{found}."
        )
