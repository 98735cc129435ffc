"""The Lightning callback: the steps of a loop written by hand, in one process and in two; what it asks for."""

import importlib
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")
pytest.importorskip("lightning", reason="Lightning is not installed; steelyard.deep.lightning needs it")

from torch.utils.data import DataLoader, TensorDataset

from steelyard.deep import DynamicWeights
from steelyard.deep.lightning import DynamicWeightsCallback
from steelyard.errors import DependencyError, InputError, InputTypeError, ParameterError
from tests.deep.glue_under_torchrun import data, fit_lightning, flat, lightning_module

SCRIPT = Path(__file__).with_name("glue_under_torchrun.py")
# Lightning advises on workers of loaders, and PyTorch warns of its scheduler.
pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def by_hand(rows_per_step, epochs=3, warm_up=0, preset="normalized", bfloat16=False):
    """The same fit with the whole batch of every step."""
    X, y, clean_X, clean_y = data()
    net = lightning_module()
    optimizer = net.configure_optimizers()
    dynamic = DynamicWeights(preset=preset)
    for epoch in range(epochs):
        for batch in zip(X.split(rows_per_step), y.split(rows_per_step), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                losses = net.row_losses(batch)
                weights = dynamic(losses, net.row_losses((clean_X, clean_y)).detach())
            loss = losses.mean() if epoch < warm_up else dynamic.reduce(weights * losses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return flat(net)


@pytest.mark.parametrize("preset", ["normalized", "authors"])
def test_its_steps_are_those_of_a_loop_by_hand(tmp_path, preset):
    module, _ = fit_lightning(tmp_path, 40, warm_up=1, dynamic=DynamicWeights(preset=preset))
    np.testing.assert_allclose(flat(module), by_hand(40, warm_up=1, preset=preset), rtol=0, atol=1e-6)
    assert (flat(module) - by_hand(40, warm_up=3)).abs().max() > 1e-2


@pytest.mark.parametrize("batch_size", [10, 11, 13])
def test_accumulated_batches_are_weighted_as_one(tmp_path, batch_size):
    """With 11 and 13 rows the last step of an epoch has three batches and one, and the last of these fewer rows."""
    module, _ = fit_lightning(tmp_path, batch_size, accumulate_grad_batches=4)
    np.testing.assert_allclose(flat(module), by_hand(4 * batch_size), rtol=0, atol=1e-5)


def test_mixed_precision(tmp_path):
    module, _ = fit_lightning(tmp_path, 20, accumulate_grad_batches=2, precision="bf16-mixed")
    np.testing.assert_allclose(flat(module), by_hand(40, bfloat16=True), rtol=0, atol=2e-2)
    assert (flat(module) - by_hand(40)).abs().max() > 1e-5


def test_two_processes_take_the_steps_of_one(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPT, tmp_path]
    done = subprocess.run([*map(str, command), "lightning"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for found, again in zip(first, second, strict=True):
        assert torch.equal(found, again)
        np.testing.assert_allclose(found, by_hand(40), rtol=0, atol=1e-5)


def test_evaluation_mode_warm_up_and_what_it_logs(tmp_path):
    *_, clean_X, clean_y = data()
    clean = DataLoader(TensorDataset(clean_X, clean_y), batch_size=8, shuffle=True)
    module, trainer = fit_lightning(tmp_path, 80, clean=clean, warm_up=1, epochs=2)
    weighted_step = [False, False, True]  # training and clean rows for the weights, then the gradient
    assert module.modes == [True, True, *weighted_step, *weighted_step]
    assert "training_step" not in vars(module)
    assert 0 < trainer.callback_metrics["effective_share"] < 1
    assert 0 < trainer.callback_metrics["weighted_loss"] < 2
    plain, _ = fit_lightning(tmp_path, 80, epochs=2, weighted=False)
    as_plain, _ = fit_lightning(tmp_path, 80, warm_up=2, epochs=2 + 1, limit_train_batches=2, max_steps=4)
    assert torch.equal(flat(plain), flat(as_plain))


def test_a_fit_that_fails_puts_the_step_back(tmp_path):
    clean = (torch.ones(3, 6), torch.full((3,), 7))
    with pytest.raises(IndexError):
        fit_lightning(tmp_path, 40, clean=clean)
    module = lightning_module()
    callback = DynamicWeightsCallback(clean)
    vars(module)["training_step"] = None
    callback.on_exception(None, module, IndexError())
    assert "training_step" not in vars(module)


def test_mistakes(tmp_path, monkeypatch):
    with pytest.raises(ParameterError, match="warm_up must leave epochs with weights; got 3 of 3"):
        fit_lightning(tmp_path, 40, warm_up=3)
    with pytest.raises(ParameterError, match="weights by losses"):
        DynamicWeightsCallback((torch.ones(2), torch.ones(2)), DynamicWeights("features"))
    module = lightning_module()
    callback = DynamicWeightsCallback((torch.ones(2), torch.ones(2)))
    module.automatic_optimization = False
    with pytest.raises(ParameterError, match="automatic optimization"):
        callback.on_fit_start(None, module)
    monkeypatch.setattr(type(module), "row_losses", None)
    with pytest.raises(InputTypeError, match=r"Net needs a method row_losses\(batch\)"):
        callback.on_fit_start(None, module)
    with pytest.raises(InputError, match="at least one is needed"):
        fit_lightning(tmp_path, 40, clean=[])


def test_without_the_package_it_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "steelyard.deep.lightning")
    with pytest.raises(DependencyError, match=r"pip install 'steelyard\[lightning\]'"):
        importlib.import_module("steelyard.deep.lightning")
