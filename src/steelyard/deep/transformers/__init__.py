"""Dynamic importance weighting in a Hugging Face `Trainer`. Needs the extra ``transformers``."""

from steelyard.errors import DependencyError

try:
    import transformers  # noqa: F401
except ModuleNotFoundError as error:
    raise DependencyError(
        "steelyard.deep.transformers needs Transformers. Install it: pip install 'steelyard[transformers]'."
    ) from error

from steelyard.deep.transformers.mixin import DynamicWeightsMixin

__all__ = ["DynamicWeightsMixin"]
