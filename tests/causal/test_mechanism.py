"""Invertible networks: exact inverses, the same alone and among others; components that were there are found."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.causal needs it")

from steelyard.causal import NonlinearICA
from steelyard.causal.contrast import Classifiers, Start, contrast, learn
from steelyard.causal.mechanism import Mechanisms
from steelyard.errors import InputError, MissingDomainError


def mixed(seed, n_columns, n_domains=20, n_rows=200):
    """Two matrices with a leaky ReLU between them; normal components whose place and spread differ by domain."""
    rng = np.random.default_rng(seed)
    matrices = [
        np.linalg.qr(rng.normal(size=(n_columns, n_columns)))[0] * rng.uniform(0.7, 1.4, n_columns) for _ in range(2)
    ]
    domain = np.repeat(np.arange(n_domains), n_rows)
    place, spread = (rng.uniform(low, high, (n_domains, n_columns)) for low, high in ((-2, 2), (0.3, 1.5)))
    S = place[domain] + spread[domain] * rng.normal(size=(len(domain), n_columns))
    hidden = S @ matrices[0].T
    return np.where(hidden > 0, hidden, 0.4 * hidden) @ matrices[1].T, domain, S


def agreement(S, found):
    """Mean absolute rank correlation of true and found components, matched one to one."""
    d = S.shape[1]
    cross = np.abs(spearmanr(S, found).statistic[:d, d:])
    return cross[linear_sum_assignment(-cross)].mean()


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_rows_of_components_are_the_rows(dtype, within, linear):
    """At the start, and after training."""
    Z, domain, _ = mixed(0, 4, 9, 40)
    Z = torch.tensor((Z - Z.mean(axis=0)) / Z.std(axis=0), dtype=dtype)[None]
    starts = [Start(0, 10, 0.01, seed) for seed in range(8)]
    for epochs in (0, 30):
        networks = learn(Z, torch.tensor(domain)[None], starts, epochs=epochs, linear=linear)[-1].mechanisms
        with torch.no_grad():
            S = networks.components(Z.expand(8, -1, -1))
            assert (networks.rows(S) - Z).abs().max() < within
            assert (networks.components(networks.rows(S)) - S).abs().max() < 10 * within


def test_authors_start_inverts_in_float64():
    networks = Mechanisms(range(100), 4, rotations=False, dtype=torch.float64)
    Z = torch.randn(100, 50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        apart = (networks.rows(networks.components(Z)) - Z).abs().amax(dim=(1, 2))
    assert apart.median() < 1e-12
    assert apart.max() < 1e-8


def test_networks_are_the_same_alone_and_among_others():
    Z, domain, _ = mixed(1, 3, 7, 30)
    Z, domain = torch.tensor(Z, dtype=torch.float64), torch.tensor(domain)
    tables, labels = torch.stack([Z, Z.flip(0)]), torch.stack([domain, domain.flip(0)])
    starts = [Start(0, 5, 0.0, 3), Start(1, 8, 0.1, 4), Start(0, 8, 0.01, 5)]
    together = learn(tables, labels, starts, epochs=4, every=2)
    assert [checkpoint.epoch for checkpoint in together] == [2, 4]
    for number, start in enumerate(starts):
        alone = learn(tables, labels, [start], epochs=4, every=2)
        for single, many in zip(alone, together, strict=True):
            assert single.losses[0].item() == pytest.approx(many.losses[number].item(), rel=1e-9)
            for name, values in single.mechanisms.state_dict().items():
                torch.testing.assert_close(values[0], many.mechanisms.state_dict()[name][number], rtol=1e-8, atol=1e-9)


def test_contrast_by_hand_and_on_average():
    scores = torch.tensor([[[0.5, -1.0, 2.0], [0.0, 1.0, -2.0]]], dtype=torch.float64)
    labels, wrong = torch.tensor([[0, 2]]), torch.tensor([[1, 0]])
    by_hand = (np.log1p(np.exp(-0.5)) + np.log1p(np.exp(-1.0)) + np.log1p(np.exp(2.0)) + np.log1p(np.exp(0.0))) / 2
    ones = torch.ones(1, 2, dtype=torch.float64)
    assert contrast(scores, labels, ones, wrong).item() == pytest.approx(by_hand)
    every = [contrast(scores, labels, ones, torch.tensor([[a, b]])).item() for a in (1, 2) for b in (0, 1)]
    assert contrast(scores, labels, ones).item() == pytest.approx(np.mean(every))


def test_every_domain_counts_the_same_whatever_its_number_of_rows():
    Z = torch.tensor(np.random.default_rng(0).normal(size=(1, 40, 2)))
    domain, start = torch.tensor([[0] * 30 + [1] * 10]), Start(0, 5, 0.0, 3)
    (found,) = learn(Z, domain, [start], epochs=0)
    scores = Classifiers([start], 2, 2, Z.dtype).scores(found.mechanisms.components(Z))
    ones = torch.ones(1, 30, dtype=Z.dtype)
    of_domains = [
        contrast(scores[:, rows], domain[:, rows], ones[:, : rows.stop - rows.start]).item()
        for rows in (slice(0, 30), slice(30, 40))
    ]
    assert abs(of_domains[0] - of_domains[1]) > 1e-3
    assert found.losses.item() == pytest.approx(np.mean(of_domains), rel=1e-12)


@pytest.mark.parametrize("n_columns", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_components_of_a_known_mixing_are_found(seed, n_columns):
    Z, domain, S = mixed(seed, n_columns)
    ica = NonlinearICA(n_starts=6, epochs=60, random_state=seed).fit(Z, domain=domain)
    assert agreement(S, ica.transform(Z)) >= 0.9
    np.testing.assert_allclose(ica.inverse_transform(ica.transform(Z)), Z, atol=1e-8)


def test_ica_is_the_same_from_a_seed_and_says_what_it_needs():
    Z, domain, _ = mixed(2, 2, 5, 30)
    settings = {"n_starts": 2, "epochs": 2, "random_state": 7}
    first, second = (NonlinearICA(**settings).fit(Z, domain=domain).transform(Z) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(MissingDomainError, match="needs the domain of each row"):
        NonlinearICA().fit(Z)
    with pytest.raises(InputError, match="at least two"):
        NonlinearICA().fit(Z, domain=np.zeros(len(Z)))
    with pytest.raises(InputError, match="one value for each of 150 rows"):
        NonlinearICA().fit(Z, domain=domain[:-1])
    with pytest.raises(InputError, match="There are 2 components; got 3 columns"):
        NonlinearICA(**settings).fit(Z, domain=domain).inverse_transform(np.zeros((2, 3)))
    missing = np.where(np.arange(150) == 4, np.nan, domain)
    with pytest.raises(InputError, match="missing for 1 rows, the first of them row 4"):
        NonlinearICA().fit(Z, domain=missing)
    with pytest.raises(InputError, match="missing for 1 rows"):
        NonlinearICA().fit(Z, domain=np.where(np.arange(150) == 4, None, domain.astype(object)))
    mixed_kinds = domain.astype(object)
    mixed_kinds[0] = "Austria"
    with pytest.raises(InputError, match="have no order"):
        NonlinearICA().fit(Z, domain=mixed_kinds)
    domain[0] = 77
    with pytest.raises(InputError, match="Domain 77 has 1 rows"):
        NonlinearICA().fit(Z, domain=domain)
