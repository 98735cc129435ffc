"""Learning under distribution shift: weigh the data you have so that it looks like the data you must predict."""

from steelyard.balance import Balance, cross_fitted_balance
from steelyard.diagnose import Findings, diagnose
from steelyard.onestep import OneStepClassifier, OneStepRegressor
from steelyard.performance import Performance, target_performance
from steelyard.qp import Certificate
from steelyard.ratio import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio, RatioCandidate
from steelyard.select import ImportanceWeightedSearchCV, iwcv_score
from steelyard.target import Target
from steelyard.weighted import WeightedClassifier, WeightedRegressor
from steelyard.weights import effective_sample_size

__version__ = "0.1.0"

__all__ = [
    "KLIEP",
    "KMM",
    "LSIF",
    "RULSIF",
    "ULSIF",
    "AutoRatio",
    "Balance",
    "Certificate",
    "ClassifierRatio",
    "Findings",
    "ImportanceWeightedSearchCV",
    "OneStepClassifier",
    "OneStepRegressor",
    "Performance",
    "RatioCandidate",
    "Target",
    "WeightedClassifier",
    "WeightedRegressor",
    "cross_fitted_balance",
    "diagnose",
    "effective_sample_size",
    "iwcv_score",
    "target_performance",
]
