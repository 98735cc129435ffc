"""Causal mechanism transfer (survey, section 7): many source domains and a few labeled target rows.

Needs PyTorch: ``pip install 'steelyard[deep]'``.
"""

from steelyard.errors import DependencyError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise DependencyError("steelyard.causal needs PyTorch. Install it: pip install 'steelyard[deep]'.") from error

from steelyard.causal.assumption import Assumption
from steelyard.causal.ica import NonlinearICA
from steelyard.causal.inflate import inflate
from steelyard.causal.transfer import CausalTransferRegressor

__all__ = ["Assumption", "CausalTransferRegressor", "NonlinearICA", "inflate"]
