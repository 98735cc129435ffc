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
from steelyard.deep._loaders import read_rows
from steelyard.deep.dynamic import PRESETS
from steelyard.deep.training.config import OptimizerFactory, TrainingConfig, TrainingRun
from steelyard.deep.training.data import TrainingData
from steelyard.deep.training.loop import train
from steelyard.deep.training.methods import importance_weighting
from steelyard.deep.training.modes import evaluating
from steelyard.errors import InputError, MissingTargetError, NotFiniteError, ParameterError
from steelyard.target import Target


class DynamicWeightedClassifier(ClassifierMixin, BaseEstimator):
    """A network trained on noisy, imbalanced or shifted rows with the help of a few clean ones (survey, section 6).

    In each step the rows of a mini-batch are weighted so that their losses (or features) match those of clean rows; see
    `DynamicWeights`. The clean rows are also trained on. All rows are held in memory, and one process trains on one
    device; for more use `DynamicWeights` in a loop, or ``deep.lightning`` or ``deep.transformers``.

    Parameters
    ----------
    module : torch.nn.Module
        From rows to one score per class. It is copied; `module_` is the trained one.
    transform : {"loss", "features"}, default="loss"
        What represents a row in the matching: its loss, or its features, which need a module whose forward is
        ``head(features(x))``.
    variant : {"IW", "SIW", "DIW1", "DIW2", "DIW3"}, default="DIW2"
        IW matches the inputs themselves, class by class, once. SIW matches once by a pretrained network, DIW1 in each
        step by that network, DIW2 in each step by the network that is trained; DIW3 is DIW2 after pretraining.
    preset : {"normalized", "authors"}, default="normalized"
        "normalized": the kernel width is the median distance, weights have mean one, losses are averaged. "authors": as
        in the code that the authors released, with weights as solved and losses summed.
    epochs : int, default=20
        Number of epochs. If there are several, the first one has uniform weights.
    batch_size : int, default=256
        Training rows per step, and clean rows per step.
    optimizer : callable, default=None
        From a list of parameters to a `torch.optim.Optimizer`; None is Adam with a learning rate of 1e-3.
    device : str, default="cpu"
        Where to train, such as "cuda".
    random_state : int, default=0
        Seed of the order of the rows and of dropout. The module comes with its own initial parameters.
    checkpoint : str or Path, default=None
        Written after each epoch; where the file exists, training resumes from it.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Labels, in the order of the module's scores.
    module_ : torch.nn.Module
        The trained module, in evaluation mode.
    weights_ : array of shape (n_rows,)
        Importance weights of the training rows in the last epoch; rows with weights near zero may be mislabeled. NaN
        for the few rows that this epoch left out because they did not fill a batch.
    log_ : list of dict
        One dict per epoch, see `steelyard.deep.training.History`.
    n_features_in_ : int
        Number of columns, where `X` is a table.

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
        preset: str = "normalized",
        epochs: int = 20,
        batch_size: int = 256,
        optimizer: OptimizerFactory | None = None,
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

    def fit(self, X: Any, y: Any = None, *, target: Target | None = None) -> DynamicWeightedClassifier:
        """Train on rows and labels that may be noisy or shifted, with clean rows of the target.

        Parameters
        ----------
        X : array-like, table, tensor of shape (n_rows, ...), or DataLoader
            Training rows: a table, or images and other arrays that the module accepts. A `DataLoader` of rows and
            labels is read once, into memory, in the order of its dataset where it shuffles; the batches of the
            training are those of `batch_size`.
        y : array-like of shape (n_rows,), default=None
            Their labels; None with a `DataLoader`.
        target : Target
            ``Target(X_clean, y_clean)`` or ``Target(loader)``: a few target rows with correct labels.

        Returns
        -------
        self : DynamicWeightedClassifier
        """
        if isinstance(target, Target):
            target = Target(*read_rows(target.X, target.y, "target"))
        if not isinstance(target, Target) or target.y is None:
            raise MissingTargetError(
                "DynamicWeightedClassifier needs a few rows of the target with labels: fit(X, y, target=Target("
                "X_clean, y_clean))."
            )
        X, y = read_rows(X, y, "X")
        forget_fit(self)
        if self.preset not in PRESETS:
            raise ParameterError(f"preset must be one of {tuple(PRESETS)}; got {self.preset!r}.")
        source = self._rows(X, reset=True)
        clean = self._rows(match_columns(target, X), reset=False, table="target")
        classes, labels = np.unique(_labels(y, len(source), "y"), return_inverse=True)
        clean_labels = _labels(target.y, len(clean), "target.y")
        unseen = sorted(set(clean_labels.tolist()) - set(classes.tolist()), key=str)
        if unseen:
            raise InputError(f"The target has classes that y lacks: {unseen}. Weights cannot replace missing rows.")
        module = copy.deepcopy(self.module).to(self.device)
        with evaluating(module), torch.no_grad():
            shape = tuple(module(source[:2]).shape)
        if shape != (len(source[:2]), len(classes)):
            raise InputError(
                f"The module must give one score for each of {len(classes)} classes; {len(source[:2])} rows gave a "
                f"tensor of shape {shape}."
            )
        y_source, y_target = (
            torch.as_tensor(codes, dtype=torch.long, device=self.device)
            for codes in (labels, np.searchsorted(classes, clean_labels))
        )
        data = TrainingData(torch.cat([source, clean]), torch.cat([y_source, y_target]), Target(clean, y_target))
        method = importance_weighting(
            module,
            self.epochs,
            variant=self.variant,
            transform=self.transform,
            preset=self.preset,
            warm_up=min(1, self.epochs - 1),
        )
        optimizer = self.optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=1e-3))
        config = TrainingConfig(optimizer, batch_size=self.batch_size, reduction=PRESETS[self.preset].reduction)
        run = TrainingRun(method, data, seed=check_count("random_state", self.random_state, 0))
        history = train(run, config, checkpoint_path=self.checkpoint, progress=self.progress)
        self.classes_, self.module_, self.log_ = classes, module.eval(), history.epochs
        self.weights_ = history.row_weights()[: len(source)].numpy()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, by softmax of the module's scores.

        Parameters
        ----------
        X : array-like, table, tensor of shape (n_rows, ...), or DataLoader
            Rows to predict; labels in a `DataLoader` are not looked at.

        Returns
        -------
        probabilities : array of shape (n_rows, n_classes)
            In the order of `classes_`.
        """
        check_is_fitted(self, "module_")
        rows = self._rows(X, reset=False)
        with evaluating(self.module_), torch.no_grad():
            scores = torch.cat([self.module_(part) for part in torch.split(rows, 2000)])
        return torch.softmax(scores.double(), dim=1).cpu().numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like, table, tensor of shape (n_rows, ...), or DataLoader
            Rows to predict; labels in a `DataLoader` are not looked at.

        Returns
        -------
        labels : array of shape (n_rows,)
        """
        check_is_fitted(self, "module_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _rows(self, X: Any, *, reset: bool, table: str = "X") -> Tensor:
        """Rows as a tensor for the module; tables are checked column by column, other arrays as a whole."""
        X, _ = read_rows(X, None, table)
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
    """Labels as an array of shape (n_rows,), none missing."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n_rows,):
        raise InputError(f"{which} must hold one label for each of {n_rows} rows; got the shape {labels.shape}.")
    missing = [label for label in labels.tolist() if label is None or label != label]
    if missing:
        raise InputError(f"{which} holds {len(missing)} missing labels; drop those rows.")
    return labels
