"""Coefficients against the densratio package, at fixed width and reg."""

import numpy as np
import pytest

from steelyard import RULSIF

densratio = pytest.importorskip("densratio", reason="densratio (in the dev extra) is not installed")


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("width", "reg"), [(0.5, 0.01), (1.0, 0.1), (2.0, 1.0)])
def test_coefficients_equal_densratio(eta, width, reg):
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(120, 2)), rng.normal(0.5, 0.7, size=(90, 2))
    peer = densratio.RuLSIF(target, source, sigma=[width], lambda_=[reg], alpha=eta, kernel_num=30, verbose=False)
    fit = RULSIF(
        eta, width=width, reg=reg, centers=np.asarray(peer.kernel_info.centers), standardize=False, random_state=0
    ).fit(source, target=target)
    np.testing.assert_allclose(fit.coef_, np.asarray(peer.theta).ravel(), rtol=0, atol=1e-8)
