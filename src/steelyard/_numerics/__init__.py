"""Numerical methods: kernels, losses, quadratic programs, merged rows and duplicates."""
