"""The mixin for the Trainer of Transformers: the steps of a loop written by hand, in one process and in two."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")
for package in ("transformers", "accelerate"):
    pytest.importorskip(package, reason=f"{package} is not installed; steelyard.deep.transformers needs it")

import torch.nn.functional as F

from steelyard.deep import DynamicWeights
from steelyard.deep.transformers import DynamicWeightsMixin
from steelyard.errors import DependencyError, InputError, ParameterError
from tests.deep.glue_under_torchrun import bert, data, fit_transformers, flat

SCRIPT = Path(__file__).with_name("glue_under_torchrun.py")
# Transformers and accelerate warn of their own plans.
pytestmark = pytest.mark.filterwarnings("ignore")


def by_hand(rows_per_step, epochs=3, preset="normalized", smoothing=0.0):
    """The same fit with the whole batch of every step."""
    X, y, clean_X, clean_y = data()
    model = bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    dynamic = DynamicWeights(preset=preset)

    def losses_of(X, y):
        return F.cross_entropy(model(input_ids=X).logits, y, reduction="none", label_smoothing=smoothing)

    for _ in range(epochs):
        for batch in zip(X.split(rows_per_step), y.split(rows_per_step), strict=True):
            losses = losses_of(*batch)
            weights = dynamic(losses, losses_of(clean_X, clean_y).detach())
            optimizer.zero_grad()
            dynamic.reduce(weights * losses).backward()
            optimizer.step()
    return flat(model)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_its_steps_are_those_of_a_loop_by_hand(tmp_path, smoothing):
    model, trainer = fit_transformers(tmp_path, 40, label_smoothing_factor=smoothing)
    np.testing.assert_allclose(flat(model), by_hand(40, smoothing=smoothing), rtol=0, atol=1e-5)
    plain, _ = fit_transformers(tmp_path, 40, weighted=False)
    assert (flat(model) - flat(plain)).abs().max() > 1e-3
    assert trainer.state.global_step == 12


@pytest.mark.parametrize("batch_size", [10, 11, 13])
def test_accumulated_batches_are_weighted_as_one(tmp_path, batch_size):
    """With 11 and 13 rows the last step of an epoch has three batches and one, and the last of these fewer rows."""
    for counts_items in (True, False):
        model, _ = fit_transformers(tmp_path, batch_size, gradient_accumulation_steps=4, counts_items=counts_items)
        np.testing.assert_allclose(flat(model), by_hand(4 * batch_size), rtol=0, atol=1e-5)


def test_mixed_precision(tmp_path):
    model, _ = fit_transformers(tmp_path, 20, gradient_accumulation_steps=2, bf16=True)
    assert (flat(model) - by_hand(40)).abs().max() > 1e-6
    np.testing.assert_allclose(flat(model), by_hand(40), rtol=0, atol=5e-2)


def test_two_processes_take_the_steps_of_one(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPT, tmp_path]
    done = subprocess.run([*map(str, command), "transformers"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for found, again in zip(first, second, strict=True):
        assert torch.equal(found, again)
        np.testing.assert_allclose(found, by_hand(40), rtol=0, atol=1e-5)


def test_warm_up_is_the_plain_trainer_and_so_is_evaluation(tmp_path):
    plain, trainer = fit_transformers(tmp_path, 20, weighted=False, gradient_accumulation_steps=2, max_steps=4)
    same, ours = fit_transformers(
        tmp_path, 20, gradient_accumulation_steps=2, max_steps=4, mixed={"warm_up": 1, "clean": data_rows()}
    )
    assert torch.equal(flat(plain), flat(same))
    losses = [t.evaluate(t.train_dataset)["eval_loss"] for t in (trainer, ours)]
    assert losses[0] == losses[1]
    longer, _ = fit_transformers(tmp_path, 20, gradient_accumulation_steps=2, max_steps=5, mixed={"warm_up": 1})
    plain, _ = fit_transformers(tmp_path, 20, weighted=False, gradient_accumulation_steps=2, max_steps=5)
    assert (flat(plain) - flat(longer)).abs().max() > 1e-4


def data_rows():
    """The clean rows as a dataset, with an entry that the model does not take."""
    _, _, X, y = data()
    return [{"input_ids": row, "labels": label, "text": "of this row"} for row, label in zip(X, y, strict=True)]


def test_clean_rows_as_a_dataset(tmp_path):
    """All of them in every batch, so their order does not matter."""
    model, _ = fit_transformers(tmp_path, 40, clean=data_rows())
    np.testing.assert_allclose(flat(model), by_hand(40), rtol=0, atol=1e-5)


def test_losses_of_your_own(tmp_path):
    class Regression(DynamicWeightsMixin):
        def row_losses(self, outputs, inputs):
            return (outputs["logits"][:, 0] - inputs["labels"]).square()

    class Whole(DynamicWeightsMixin):
        def row_losses(self, outputs, inputs):
            return outputs["loss"]

    model, _ = fit_transformers(tmp_path, 40, mixin=Regression)
    assert torch.isfinite(flat(model)).all()
    with pytest.raises(InputError, match="row_losses must return one loss per row"):
        fit_transformers(tmp_path, 40, mixin=Whole)


def test_mistakes(tmp_path):
    with pytest.raises(ParameterError, match="warm_up must leave epochs with weights; got 3 of 3"):
        fit_transformers(tmp_path, 40, mixed={"warm_up": 3})
    with pytest.raises(ParameterError, match="weights by losses"):
        fit_transformers(tmp_path, 40, mixed={"dynamic": DynamicWeights("features")})
    outputs, labels = {"logits": torch.ones(20, 5, 2)}, torch.zeros(20, 5, dtype=torch.long)
    with pytest.raises(InputError, match=r"labels of shape \(20, 5\). For another task override row_losses"):
        DynamicWeightsMixin.row_losses(None, outputs, {"labels": labels})


def test_without_the_package_it_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "steelyard.deep.transformers")
    with pytest.raises(DependencyError, match=r"pip install 'steelyard\[transformers\]'"):
        importlib.import_module("steelyard.deep.transformers")
