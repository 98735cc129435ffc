"""One-step covariate shift adaptation (survey, section 5)."""
