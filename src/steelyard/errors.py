"""Every error and warning of the library, on one screen.

Each message says what came, what was needed and what to do about it.
"""


class SteelyardError(Exception):
    """Root of all errors raised on purpose by this library."""


class InputError(SteelyardError, ValueError):
    """A table, a weight vector or a label vector cannot be used as it came."""


class InputTypeError(InputError, TypeError):
    """Like `InputError`, where the kind of object is wrong rather than its values."""


class NotFiniteError(InputError):
    """A table holds NaN or infinity."""


class TableError(InputError):
    """A file cannot be read as a table."""


class ColumnMismatchError(InputError):
    """Source and target do not have the same columns."""


class ModelError(InputError):
    """A saved model is absent, damaged, or holds what no model should."""


class CheckpointError(InputError):
    """A checkpoint is damaged, or of another training than the one that should go on."""


class MissingTargetError(InputError):
    """A method was given no labeled rows of the target, and cannot do without."""


class MissingDomainError(InputError):
    """A method of several domains was not told which row is of which."""


class WeightError(InputError):
    """Row weights are negative, not finite, all zero or of the wrong length."""


class ParameterError(InputError):
    """A constructor parameter is out of range."""


class NoOverlapError(InputError):
    """Source and target share no region: no weighting of the source can look like the target."""


class NotWeightableError(InputTypeError):
    """The estimator takes no row weights, so importance weighting cannot reach it."""


class DependencyError(SteelyardError, ImportError):
    """An optional part was entered without the package it needs."""


class ConvergenceError(SteelyardError, RuntimeError):
    """A solver stopped before its tolerance was reached."""


class DataNotFoundError(SteelyardError, FileNotFoundError):
    """A data set is not on this machine."""


class DataChangedError(SteelyardError, ValueError):
    """A data file was found, but what it holds is not the published table."""


class OutputError(SteelyardError, OSError):
    """Results cannot be written where they should go."""


class CellError(SteelyardError, RuntimeError):
    """One cell of a reproduced table failed."""


class SteelyardWarning(UserWarning):
    """Root of all warnings given on purpose by this library."""


class NoTargetWarning(SteelyardWarning):
    """No target was given: every weight is 1 and nothing is corrected."""


class NoShiftWarning(SteelyardWarning):
    """The rows hold nothing to tell source and target apart: every weight is 1."""


class NothingTransferredWarning(SteelyardWarning):
    """Nothing of the source domains went into the result: it is that of the target's rows alone."""


class SmallEffectiveSampleWarning(SteelyardWarning):
    """A handful of rows carries nearly all the weight."""


class RawMeanWarning(SteelyardWarning):
    """The fitted ratio is far from the mean of one that theory demands."""


class UnseenCellsWarning(SteelyardWarning):
    """Target rows have combinations of discrete values that no source row has."""
