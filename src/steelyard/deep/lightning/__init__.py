"""Dynamic importance weighting in a Lightning `Trainer`. Needs the extra ``lightning``."""

from steelyard.errors import DependencyError

try:
    import lightning.pytorch  # noqa: F401
except ModuleNotFoundError as error:
    raise DependencyError(
        "steelyard.deep.lightning needs Lightning. Install it: pip install 'steelyard[lightning]'."
    ) from error

from steelyard.deep.lightning.callback import DynamicWeightsCallback

__all__ = ["DynamicWeightsCallback"]
