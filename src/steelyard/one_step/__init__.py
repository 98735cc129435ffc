"""One-step covariate shift adaptation: importance weights and predictor from one objective (survey, section 5)."""

from steelyard.one_step.classifier import OneStepClassifier
from steelyard.one_step.regressor import OneStepRegressor
from steelyard.one_step.risk_bound import RiskBound

__all__ = ["OneStepClassifier", "OneStepRegressor", "RiskBound"]
