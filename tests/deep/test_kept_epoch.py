"""The epoch that is best on clean rows set aside: which it is, what is kept of it, and that a stop changes nothing."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from steelyard.deep.training import TrainingConfig, TrainingRun, baseline, set_aside, train
from steelyard.errors import CheckpointError, InputError, ParameterError
from tests.deep.test_loop import made_data, net, parameters_of

CONFIG = TrainingConfig(lambda parameters: torch.optim.Adam(parameters, lr=0.05), batch_size=20)
EPOCHS = 12


def made_run(epochs=EPOCHS, kept=None, model=None):
    """Noisy rows that are learned by heart after a few epochs."""
    rows = made_data(n=30, m=60, seed=5)
    kept = (rows.X_target, rows.y_target) if kept is None else kept
    method = baseline("uniform", model or net(dropout=True), epochs)
    return TrainingRun(method, made_data(n=80, noise=0.6), seed=3, kept_rows=kept)


def kept_loss(model, run):
    X, y = run.kept_rows
    with torch.no_grad():
        return float(F.cross_entropy(model.eval()(X), y))


def test_the_epoch_of_the_least_loss_is_kept():
    run = made_run()
    history = train(run, CONFIG)
    losses = [entry["kept_loss"] for entry in history.epochs]
    assert history.kept_epoch == int(np.argmin(losses))
    assert 0 < history.kept_epoch < EPOCHS - 1  # otherwise this data would show nothing
    model = run.method.networks["f"]
    assert kept_loss(model, run) == pytest.approx(losses[-1], rel=1e-5)  # the network is that of the last epoch
    model.load_state_dict(history.kept_state)
    assert kept_loss(model, run) == pytest.approx(min(losses), rel=1e-5)


def test_the_kept_state_is_that_of_a_shorter_training():
    """Running means of batch-norm included; and kept rows change nothing else."""
    history = train(made_run(), CONFIG)
    short = made_run(history.kept_epoch + 1)
    train(short, CONFIG)
    for name, value in short.method.networks["f"].state_dict().items():
        assert torch.equal(value, history.kept_state[name])
    without = TrainingRun(baseline("uniform", net(dropout=True), EPOCHS), made_run().data, seed=3)
    bare, whole = train(without, CONFIG), made_run()
    train(whole, CONFIG)
    assert torch.equal(*(parameters_of(run.method.networks["f"]) for run in (without, whole)))
    assert (bare.kept_epoch, bare.kept_state) == (None, None)
    assert "kept_loss" not in bare.epochs[0]


@pytest.mark.parametrize("stopped_after", [1, EPOCHS - 1])
def test_a_stop_before_or_after_the_kept_epoch_changes_nothing(tmp_path, stopped_after):
    whole = made_run()
    expected = train(whole, CONFIG, checkpoint_path=tmp_path / "whole.pt")
    for call in range(EPOCHS):  # a deadline in the past: one epoch for each call
        resumed = made_run(model=net(seed=9, dropout=True))  # the start comes from the checkpoint
        if not call:
            resumed = made_run()
        deadline = 0.0 if call < stopped_after else None
        history = train(resumed, CONFIG, checkpoint_path=tmp_path / "part.pt", deadline=deadline)
        if history.finished:
            break
    assert call == stopped_after
    assert history.kept_epoch == expected.kept_epoch
    assert [e["kept_loss"] for e in history.epochs] == [e["kept_loss"] for e in expected.epochs]
    assert all(torch.equal(value, history.kept_state[name]) for name, value in expected.kept_state.items())
    assert torch.equal(*(parameters_of(run.method.networks["f"]) for run in (whole, resumed)))


def test_a_checkpoint_of_other_kept_rows(tmp_path):
    train(made_run(2), CONFIG, checkpoint_path=tmp_path / "run.pt")
    X, y = made_run().kept_rows
    with pytest.raises(CheckpointError, match="kept_rows was"):
        train(made_run(2, kept=(X[1:], y[1:])), CONFIG, checkpoint_path=tmp_path / "run.pt")


def test_kept_rows_from_a_loader_and_without_labels():
    X, y = made_run().kept_rows
    read = made_run(kept=DataLoader(TensorDataset(X, y), batch_size=7, shuffle=True)).kept_rows
    assert torch.equal(read[0], X)
    assert torch.equal(read[1], y)
    with pytest.raises(InputError, match="Labels of the kept rows must be whole numbers"):
        made_run(kept=(X, y.float()))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_share_of_every_class_is_set_aside(share):
    y = np.random.default_rng(0).permutation(np.repeat([3, 5, 8], [100, 40, 12]))
    kept, others = set_aside(y, share, random_state=1)
    assert sorted([*kept, *others]) == list(range(152))
    for label, count in zip((3, 5, 8), (100, 40, 12), strict=True):
        assert abs(np.sum(y[kept] == label) - share * count) <= 1
    assert abs(len(kept) - share * 152) <= 1
    assert not np.array_equal(kept, set_aside(y, share, random_state=2)[0])
    np.testing.assert_array_equal(kept, set_aside(torch.tensor(y), share, random_state=1)[0])


def test_no_class_is_set_aside_as_a_whole():
    y = np.array([0] * 9 + [1] + [2, 2])
    for seed in range(20):
        _, others = set_aside(y, 0.9, random_state=seed)
        assert set(y[others]) == {0, 1, 2}
    assert len(set_aside(y, 0.0, random_state=0)[0]) == 0
    with pytest.raises(ParameterError, match="share must be"):
        set_aside(y, 1.5)
