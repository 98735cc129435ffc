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

from steelyard.deep.dynamic import PRESETS
from steelyard.deep.loop import Optimiser, Settings, Trial, train
from steelyard.deep.methods import importance_weighting
from steelyard.deep.plan import Task
from steelyard.deep.steps import evaluating
from steelyard.errors import InputError, MissingTargetError, NotFiniteError
from steelyard.target import Target


class DynamicWeightedClassifier(ClassifierMixin, BaseEstimator):
    """A network trained on noisy, imbalanced or shifted rows that a few clean ones put right (survey, section 6).

    In each step the rows of a mini-batch are weighted so that their losses (or features) look like those of clean
    rows; see `DynamicWeights`. The clean rows are learnt from as well.

    Parameters
    ----------
    module : torch.nn.Module
        Rows to one score for each class. It is copied; `module_` is what was trained.
    transform : {"loss", "features"}, default="loss"
        "features" needs a module whose forward is ``head(features(x))``.
    variant : {"IW", "SIW", "DIW1", "DIW2", "DIW3"}, default="DIW2"
    preset : {"normalised", "authors"}, default="normalised"
    epochs : int, default=20
        The first has weights of one.
    batch_size : int, default=256
    optimiser : callable, default=None
        Parameters to an optimiser; None is Adam with a learning rate of 1e-3.
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
        optimiser: Optimiser | None = None,
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
        self.optimiser = optimiser
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
        self.classes_, labels = np.unique(np.asarray(y), return_inverse=True)
        here = self._rows(X, "X")
        if len(here) != len(labels):
            raise InputError(f"X has {len(here)} rows and y {len(labels)} labels.")
        there, goal = self._rows(target.X, "target"), self._encode(np.asarray(target.y))
        self.module_ = copy.deepcopy(self.module).to(self.device)
        self._require_scores(here[:2])
        y_here = torch.as_tensor(labels, dtype=torch.long, device=self.device)
        task = Task(torch.cat([here, there]), torch.cat([y_here, goal]), there, goal)
        method = importance_weighting(
            self.module_,
            self.epochs,
            variant=self.variant,
            transform=self.transform,
            preset=self.preset,
            warm_up=min(1, self.epochs - 1),
        )
        optimiser = self.optimiser or (lambda parameters: torch.optim.Adam(parameters, lr=1e-3))
        settings = Settings(optimiser, batch_size=self.batch_size, summed=not PRESETS[self.preset].normalised)
        trial = Trial(method, task, seed=self.random_state)
        path = None if self.checkpoint is None else Path(self.checkpoint)
        train(trial, settings, checkpoint_path=path, progress=self.progress)
        self.module_.eval()
        self.log_ = trial.log
        assert trial.rows is not None
        assert trial.weights is not None
        weights = torch.full((len(task.y),), torch.nan, device=self.device)
        weights[trial.rows.flatten()] = trial.weights.flatten()
        self.weights_ = weights[: len(here)].double().cpu().numpy()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes."""
        check_is_fitted(self)
        rows = self._rows(X, "X")
        with evaluating(self.module_), torch.no_grad():
            scores = torch.cat([self.module_(part) for part in torch.split(rows, 2000)])
        return torch.softmax(scores.double(), dim=1).cpu().numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _rows(self, X: Any, which: str) -> Tensor:
        rows = torch.as_tensor(np.asarray(X) if not isinstance(X, Tensor) else X).to(self.device, torch.float32)
        if rows.ndim < 2 or not len(rows):
            raise InputError(f"{which} must hold at least one row, of one axis or more; got {tuple(rows.shape)}.")
        if not bool(torch.isfinite(rows).all()):
            raise NotFiniteError(f"{which} holds NaN or infinity; fill or drop those rows.")
        return rows

    def _encode(self, labels: NDArray[Any]) -> Tensor:
        unseen = sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str)
        if unseen:
            raise InputError(f"The target has classes that y lacks: {unseen}. No weight can make up rows.")
        places = np.searchsorted(self.classes_, labels)
        return torch.as_tensor(places, dtype=torch.long, device=self.device)

    def _require_scores(self, rows: Tensor) -> None:
        with evaluating(self.module_), torch.no_grad():
            found = tuple(self.module_(rows).shape)
        if found != (len(rows), len(self.classes_)):
            raise InputError(
                f"The module must give one score for each of {len(self.classes_)} classes; {len(rows)} rows gave a "
                f"tensor of shape {found}."
            )
