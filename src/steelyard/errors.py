"""All errors and warnings of the library.

Each message says what was given, what was needed and what to do about it. Where that takes more room than a message
has, the message ends with the place of the class on the page of errors, which has an entry for every class.
"""

import sys
import warnings
from typing import ClassVar

# Packages whose lines are not those of a user: warnings point past them.
INNER_PACKAGES = frozenset({"steelyard", "sklearn", "joblib"})


class _Explained:
    """Mixed into the base classes: a message that ends with the place of its entry, where that says more."""

    more_in_docs: ClassVar[bool] = False

    def __str__(self) -> str:
        place = f" See errors.html#{type(self).__name__.lower()} in the documentation."
        return super().__str__() + place * self.more_in_docs

    @property
    def message(self) -> str:
        """The message without the place, for a longer message that goes on after it."""
        return super().__str__()


class SteelyardError(_Explained, Exception):
    """Base class of all errors that this library raises itself."""


class InputError(SteelyardError, ValueError):
    """A table, weights or labels cannot be used as given."""


class InputTypeError(InputError, TypeError):
    """Like `InputError`, for objects of the wrong type rather than with wrong values."""


class NotFiniteError(InputError):
    """A table contains NaN or infinity."""


class TableError(InputError):
    """A file cannot be read as a table."""


class ColumnMismatchError(InputError):
    """Source and target do not have the same columns."""


class ModelError(InputError):
    """A saved model is missing, damaged, or contains types that a model cannot have."""

    more_in_docs = True


class CheckpointError(InputError):
    """A checkpoint is damaged, or is the checkpoint of another run than the one to resume."""


class MissingTargetError(InputError):
    """A method that needs labeled target rows was given none."""


class MissingDomainError(InputError):
    """A method for several source domains was not given the domain of each row."""


class WeightError(InputError):
    """Sample weights are negative, not finite, all zero or of the wrong length."""


class ParameterError(InputError):
    """A constructor parameter is out of range."""


class NoOverlapError(InputError):
    """Source and target share no region, so importance weights cannot be estimated."""

    more_in_docs = True


class NotWeightableError(InputTypeError):
    """The estimator takes no sample weights, so importance weights cannot be used."""

    more_in_docs = True


class DependencyError(SteelyardError, ImportError):
    """An optional part of the library needs a package that is not installed."""


class ConvergenceError(SteelyardError, RuntimeError):
    """A solver did not converge to its tolerance."""

    more_in_docs = True


class ClusterError(SteelyardError, RuntimeError):
    """A Dask cluster that went away, or whose workers died again and again."""


class DataNotFoundError(SteelyardError, FileNotFoundError):
    """A file of a data set was not found."""


class DataChangedError(SteelyardError, ValueError):
    """A data file was found, but its content differs from the published data set."""


class OutputError(SteelyardError, OSError):
    """Results cannot be written to the given place."""


class SteelyardWarning(_Explained, UserWarning):
    """Base class of all warnings that this library gives itself."""


class NoTargetWarning(SteelyardWarning):
    """No target was given: every weight is 1 and no shift is corrected."""


class NoShiftWarning(SteelyardWarning):
    """All source and target rows are equal: every weight is 1."""


class NothingTransferredWarning(SteelyardWarning):
    """Nothing was transferred from the source domains: the result uses the labeled target rows alone."""

    more_in_docs = True


class WeightsNotUsedWarning(SteelyardWarning):
    """Clean rows kept aside favor a network that was trained without importance weights, and it is the one returned."""


class MissingClassWarning(SteelyardWarning):
    """No clean target row has a class that the source has."""


class SmallEffectiveSampleWarning(SteelyardWarning):
    """The effective sample size is small: a few rows carry nearly all the weight."""

    more_in_docs = True


class TruncationWarning(SteelyardWarning):
    """The low-rank factor of a kernel matrix reached the largest rank allowed before it was accurate."""

    more_in_docs = True


class RawMeanWarning(SteelyardWarning):
    """The fitted density ratio has a mean far from one, or source and target hardly overlap."""

    more_in_docs = True


class LearnerFailedWarning(SteelyardWarning):
    """A learner of a combination could not be fitted and was left out."""


class UnseenCellsWarning(SteelyardWarning):
    """Target rows have combinations of discrete values that no source row has."""

    more_in_docs = True


def warn_user(message: str, category: type[SteelyardWarning]) -> None:
    """Warn at the user's line: the innermost one outside of this package, scikit-learn and joblib.

    A fixed `stacklevel` would be right for one way to a warning alone: a ratio is fitted by a user, by a
    `WeightedRegressor`, by a search.

    Parameters
    ----------
    message : str
        What was given, what was needed and what to do about it.
    category : type
        The class of the warning.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] in INNER_PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
