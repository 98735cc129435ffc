"""Numerical building blocks: kernels, losses, quadratic programs, merged rows."""
