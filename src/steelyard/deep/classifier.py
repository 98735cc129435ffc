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

from steelyard._numerics.written import written, written_share
from steelyard._validation import check_count, check_new_rows, check_source, forget_fit, match_columns
from steelyard.deep._candidates import LabeledRows, Plan, Rows, choose, class_shares, step_budget
from steelyard.deep._loaders import read_rows
from steelyard.deep.dynamic import PRESETS
from steelyard.deep.training.config import OptimizerFactory
from steelyard.deep.training.data import TrainingData
from steelyard.deep.training.methods import weigh_every_row
from steelyard.deep.training.modes import evaluating
from steelyard.deep.training.set_aside import set_aside
from steelyard.errors import (
    InputError,
    MissingClassWarning,
    MissingTargetError,
    NotFiniteError,
    ParameterError,
    warn_user,
)
from steelyard.report.notebook import ShowsFit
from steelyard.target import Target
from steelyard.weights import effective_sample_size

KEPT_SHARE, ENOUGH_TO_KEEP = 0.25, 40  # of the clean rows, by default


class DynamicWeightedClassifier(ShowsFit, ClassifierMixin, BaseEstimator):
    """A network trained on noisy, imbalanced or shifted rows with the help of a few clean ones (survey, section 6).

    In each step the rows of a mini-batch are weighted so that their losses (or features) match those of clean rows; see
    `DynamicWeights`. The clean rows are also trained on. All rows are held in memory, and one process trains on one
    device; for more use `DynamicWeights` in a loop, or ``deep.lightning`` or ``deep.transformers``.

    Parameters
    ----------
    module : torch.nn.Module
        From rows to one score per class. It is copied; `module_` is the trained one.
    transform : {"loss", "features"}, default="loss"
        What represents a row in the matching: its loss, or the input of the last linear layer of the module.
    variant : {"IW", "SIW", "DIW1", "DIW2", "DIW3"}, default="DIW2"
        IW matches the inputs themselves, class by class, once. SIW matches once by a pretrained network, DIW1 in each
        step by that network, DIW2 in each step by the network that is trained; DIW3 is DIW2 after pretraining.
    preset : {"normalized", "authors", "median"}, default="normalized"
        Settings of the matching, see `DynamicWeights`. With "authors" losses are summed, otherwise averaged.
    epochs : int, default=None
        Number of epochs. None is 20, or more until there are 2,000 steps. If there are several, the first one has
        uniform weights.
    batch_size : int, default=None
        Training rows per step, and clean rows per step. None is a power of two near a twentieth of the rows, from 32 to
        256.
    validation_share : float, default=None
        Share of the clean rows that is kept aside, the same for every class, to choose the epoch and whether weights
        are used; they are not trained on. None is a quarter of 40 rows or more, and none of fewer. With 0 the last
        epoch of the training with weights is returned.
    optimizer : callable, default=None
        From a list of parameters to a `torch.optim.Optimizer`; None is Adam with a learning rate of 1e-3.
    device : str, default="cpu"
        Where to train, such as "cuda".
    random_state : int, default=0
        Seed of the order of the rows, of dropout and of the rows kept aside. The module comes with its own initial
        parameters.
    checkpoint : str or Path, default=None
        Written after each epoch; where the file exists, training resumes from it. Trainings without weights have files
        beside it, with longer names.
    progress : bool, default=True
        Show a progress bar on standard error if that is a terminal.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Labels, in the order of the module's scores.
    module_ : torch.nn.Module
        The trained module, in evaluation mode.
    chosen_ : {"weights", "no weights", "clean rows"}
        What `module_` was trained on: weighted rows; all rows without weights; the clean rows alone. The last two only
        where they have fewer errors on the rows kept aside, and a mean loss that is less by more than a standard error
        (of the differences row by row); a `WeightsNotUsedWarning` says so.
    kept_losses_ : dict
        Mean loss on the rows kept aside of each of the three; empty where none are.
    kept_epoch_ : int
        Number of the epoch after which `module_` is as it is, counted from 0.
    kept_rows_ : array of int
        Row numbers of the target that are kept aside.
    class_shares_ : array of shape (n_classes,) or None
        Shares of the classes among the clean rows, where they differ from those among the training rows (chi-squared
        test, 1 %) and losses are matched: then the weights of each class are scaled so that it has this share of them.
    epochs_, batch_size_ : int
        As given, or as chosen for the number of rows.
    weights_ : array of shape (n_rows,)
        Importance weights of the training rows by `module_` in evaluation mode, computed once at the end in batches of
        256 rows against all clean rows; rows with weights near zero may be mislabeled.
    log_ : list of dict
        One dict per epoch of the training of `module_`, see `steelyard.deep.training.History`.
    n_features_in_ : int
        Number of columns, where `X` is a table.

    Notes
    -----
    With rows kept aside three networks are trained for the same number of steps each: with weights, without, and on the
    clean rows alone. `fit` then takes two to three times as long as with ``validation_share=0``. If the clean rows
    alone are best, they are trained on once more, with the rows that had been kept aside, up to the same epoch.

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
    >>> rows, scores = model.label_issues()  # the rows whose labels are most likely wrong come first
    >>> bool(np.mean((y != clean)[100:][rows[:100]]) > 0.9)
    True
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        transform: str = "loss",
        variant: str = "DIW2",
        preset: str = "normalized",
        epochs: int | None = None,
        batch_size: int | None = None,
        validation_share: float | None = None,
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
        self.validation_share = validation_share
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
        source, clean, classes = self._labeled_rows(X, y, target)
        module = copy.deepcopy(self.module).to(self.device)
        self._check_scores(module, source[0], len(classes))
        self._warn_of_missing_classes(classes, clean[1])
        kept, others = self._set_aside(clean[1])
        rows = Rows(source, _at(clean, others), _at(clean, kept) if len(kept) else None)
        shares = class_shares(source[1], clean[1]) if self.transform == "loss" else None
        plan = self._plan(len(source[1]) + len(others), shares)
        chosen, losses = choose(module, rows, plan)
        networks = chosen.method.networks
        everything = TrainingData(*source, Target(*clean))
        weights = weigh_every_row(networks, everything, self.variant, self.transform, self.preset)
        self.classes_, self.module_, self.log_ = classes, chosen.module, chosen.history.epochs
        self.chosen_, self.kept_losses_, self.kept_epoch_ = chosen.name, losses, chosen.returned_epoch
        self.kept_rows_, self.epochs_, self.batch_size_ = kept, plan.epochs, plan.batch_size
        self.weights_, self.class_shares_ = weights.cpu().numpy(), shares
        self._label_scores = 1 - self._probabilities(source[0])[np.arange(len(weights)), source[1].cpu()]
        return self

    def label_issues(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Training rows in the order in which their labels are likely to be wrong, the most suspicious first.

        Returns
        -------
        rows : array of shape (n_rows,)
            Row numbers of the training rows.
        scores : array of shape (n_rows,)
            Score of each of these rows, descending: one minus the probability that `module_` gives to the label of the
            row. Above a half, all other labels together are more probable than this one.
        """
        check_is_fitted(self, "module_")
        order = np.argsort(-self._label_scores, kind="stable")
        return order, self._label_scores[order]

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
        return self._probabilities(self._rows(X, reset=False))

    def _probabilities(self, rows: Tensor) -> NDArray[np.float64]:
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

    def _found(self) -> dict[str, str]:
        """What the network was trained on, the losses of its first and last epoch, and the weights."""
        ends = (self.log_[0], self.log_[-1])
        losses = [written(float(epoch["loss"])) for epoch in ends]
        share = effective_sample_size(self.weights_) / len(self.weights_) if self.weights_.any() else 0.0
        return {
            "trained on": {"weights": "weighted rows", "no weights": "all rows, without weights"}.get(
                self.chosen_, self.chosen_
            ),
            "epochs": f"{len(self.log_)}, with loss {losses[0]} in the first and {losses[1]} in the last; kept after "
            f"epoch {self.kept_epoch_ + 1}",
            "weights": f"effective sample size {written_share(share)} of the rows",
        }

    def _labeled_rows(self, X: Any, y: Any, target: Target) -> tuple[LabeledRows, LabeledRows, NDArray[Any]]:
        """Training rows and clean rows with their class numbers, and the classes."""
        source = self._rows(X, reset=True)
        clean = self._rows(match_columns(target, X), reset=False, table="target")
        classes, labels = np.unique(_labels(y, len(source), "y"), return_inverse=True)
        clean_labels = _labels(target.y, len(clean), "target.y")
        unseen = sorted(set(clean_labels.tolist()) - set(classes.tolist()), key=str)
        if unseen:
            raise InputError(f"The target has classes that y lacks: {unseen}. Weights cannot replace missing rows.")
        y_source, y_clean = (
            torch.as_tensor(codes, dtype=torch.long, device=self.device)
            for codes in (labels, np.searchsorted(classes, clean_labels))
        )
        return (source, y_source), (clean, y_clean), classes

    def _check_scores(self, module: nn.Module, source: Tensor, n_classes: int) -> None:
        with evaluating(module), torch.no_grad():
            shape = tuple(module(source[:2]).shape)
        if shape != (len(source[:2]), n_classes):
            raise InputError(
                f"The module must give one score for each of {n_classes} classes; {len(source[:2])} rows gave a tensor "
                f"of shape {shape}."
            )

    def _warn_of_missing_classes(self, classes: NDArray[Any], clean_labels: Tensor) -> None:
        missing = classes[np.bincount(clean_labels.cpu().numpy(), minlength=len(classes)) == 0]
        if len(missing):
            effect = (
                "their training rows are weighted like all others"
                if self.transform == "loss" and self.variant != "IW"
                else "their training rows get the weight zero"
            )
            warn_user(
                f"No clean row has the classes {missing.tolist()}: {effect}. Add clean rows of every class that the "
                "target has.",
                MissingClassWarning,
            )

    def _set_aside(self, clean_labels: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        share = self.validation_share
        if share is None:
            share = KEPT_SHARE if len(clean_labels) >= ENOUGH_TO_KEEP else 0.0
        return set_aside(clean_labels.cpu(), share, check_count("random_state", self.random_state, 0))

    def _plan(self, n_rows: int, shares: NDArray[np.float64] | None) -> Plan:
        epochs, batch_size = step_budget(n_rows, self.epochs, self.batch_size)
        return Plan(
            variant=self.variant,
            transform=self.transform,
            preset=self.preset,
            epochs=epochs,
            batch_size=batch_size,
            class_shares=None if shares is None else torch.as_tensor(shares, dtype=torch.float32, device=self.device),
            optimizer=self.optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=1e-3)),
            seed=int(self.random_state),
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            progress=self.progress,
        )

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


def _at(labeled: LabeledRows, places: NDArray[np.int64]) -> LabeledRows:
    chosen = torch.as_tensor(places, device=labeled[1].device)
    return labeled[0][chosen], labeled[1][chosen]


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
