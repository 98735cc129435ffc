"""Causal mechanism transfer (section 7): many source domains, a handful of labelled rows of the target."""

from steelyard.causal.assumption import Assumption
from steelyard.causal.ica import NonlinearICA
from steelyard.causal.inflate import inflate
from steelyard.causal.transfer import CausalTransferRegressor

__all__ = ["Assumption", "CausalTransferRegressor", "NonlinearICA", "inflate"]
