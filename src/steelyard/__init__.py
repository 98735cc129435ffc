"""Learning under distribution shift: weigh the data you have so that it looks like the data you must predict."""

from steelyard._numerics.quadratic_programs import Certificate
from steelyard.balance import Balance, cross_fitted_balance
from steelyard.diagnostics import Findings, diagnose
from steelyard.model_selection.performance import Performance, target_performance
from steelyard.model_selection.search import ImportanceWeightedSearchCV, iwcv_score
from steelyard.one_step import OneStepClassifier, OneStepRegressor
from steelyard.ratio import KLIEP, KMM, LSIF, RULSIF, ULSIF, AutoRatio, ClassifierRatio, RatioCandidate
from steelyard.stacking import StackedClassifier, StackedRegressor
from steelyard.tables import TableBlocks
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
    "StackedClassifier",
    "StackedRegressor",
    "TableBlocks",
    "Target",
    "WeightedClassifier",
    "WeightedRegressor",
    "cross_fitted_balance",
    "diagnose",
    "effective_sample_size",
    "iwcv_score",
    "target_performance",
]
