"""Model selection and evaluation for the target, without its labels."""
