"""Batches on several processes, in several pieces and in half precision: the same steps as with the whole batch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

import torch.nn.functional as F

from steelyard.deep import DynamicWeights
from steelyard.errors import InputError, ParameterError
from tests.deep.steps_under_torchrun import CASES, learn

SCRIPT = Path(__file__).with_name("steps_under_torchrun.py")


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What two processes of torchrun found, in the order of their ranks."""
    if not torch.distributed.is_available():
        pytest.skip("this build of PyTorch has no torch.distributed")
    folder = tmp_path_factory.mktemp("torchrun")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPT, folder]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("case", [name for name in CASES if name != "each alone"])
def test_two_processes_take_the_steps_of_one(processes, case):
    first, second = (found["learned"][case] for found in processes)
    whole = learn(**{key: value for key, value in CASES[case].items() if key != "n_micro"})
    assert torch.equal(first, second)
    print(case, "largest difference of a parameter:", float((first - whole).abs().max()))
    # Half precision rounds, and differently where the rows of a product are fewer.
    np.testing.assert_allclose(first, whole, rtol=0, atol=1e-5 if case != "bfloat16" else 1e-2)


def test_each_alone_they_take_other_steps(processes):
    """So the test above can fail."""
    alone, _ = (found["learned"]["each alone"] for found in processes)
    assert (alone - learn()).abs().max() > 1e-2


@pytest.mark.parametrize("n_micro", [2, 3, 60])
def test_accumulated_gradients_are_those_of_the_whole_batch(n_micro):
    np.testing.assert_allclose(learn(n_micro=n_micro), learn(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(learn(n_micro=n_micro, preset="authors"), learn(preset="authors"), rtol=0, atol=1e-5)


def test_a_process_without_rows_and_validation_rows_that_both_have(processes):
    first, second = (found["parts"] for found in processes)
    whole = DynamicWeights()(first["train"], first["validation"])
    np.testing.assert_array_equal(first["empty"], whole)
    assert second["empty"].shape == (0,)
    np.testing.assert_allclose(torch.cat([first["same"], second["same"]]), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "first", "second"),
    [
        ("settings", "disagree on the settings", None),
        ("class ratio", "disagree on the settings", None),
        ("calls", r"disagree on the number of batches weighted so far: \[1, 2\]", None),
        ("precision", "disagree on the type", "training batch is on|disagree on the type"),
        ("features", r"disagree on the number of features: \[2, 3\]", None),
        ("shape", 'reduction="none"', "batch of process 0 cannot be weighted"),
        ("not a number", "training losses hold NaN or infinity in call 1", None),
        ("reduced before", "its last call weighted none", None),
        ("reduced rows", "1 weighted losses on this process, but its last call weighted 2", None),
        ("other group", "", "Process 1 is not in the process group"),
    ],
)
def test_processes_that_do_not_fit_are_all_told(processes, case, first, second):
    told = [found["errors"][case] for found in processes]
    with pytest.raises(InputError, match=first) if first else pytest.raises(AssertionError):
        assert told[0]
        raise InputError(told[0])
    with pytest.raises(InputError, match=first if second is None else second):
        raise InputError(told[1])


def test_autocast_gives_weights_that_are_not_rounded():
    torch.manual_seed(0)
    net, x, y = torch.nn.Linear(4, 3), torch.randn(40, 4), torch.randint(3, (40,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = F.cross_entropy(net(x), y, reduction="none").to(torch.bfloat16)
        dynamic = DynamicWeights()
        weights = dynamic(losses, losses[:20])
        loss = dynamic.reduce(weights * losses)
    assert weights.dtype == loss.dtype == torch.float32
    np.testing.assert_array_equal(weights, DynamicWeights()(losses.double(), losses[:20].double()).float())
    assert weights.mean().item() == pytest.approx(1, abs=1e-6)
    loss.backward()
    assert net.weight.grad.dtype == torch.float32


def test_float16_sums_do_not_overflow():
    losses = torch.linspace(0, 4, 256, dtype=torch.float16) * 1000
    dynamic = DynamicWeights(preset="authors")
    total = dynamic.reduce(dynamic(losses, losses) * losses)
    assert torch.isfinite(total)
    assert total > torch.finfo(torch.float16).max


def test_a_gradient_scaler_changes_nothing():
    x, y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3

    def learn_scaled(scaler):
        torch.manual_seed(0)
        net, dynamic = torch.nn.Linear(4, 3), DynamicWeights()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(10):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                losses = F.cross_entropy(net(x), y, reduction="none")
                loss = dynamic.reduce(dynamic(losses, losses[:20].detach()) * losses)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return net.weight.detach()

    with_scaler, without = (learn_scaled(torch.amp.GradScaler("cpu", enabled=on)) for on in (True, False))
    assert torch.equal(with_scaler, without)  # the scale is a power of two


def test_rows_of_all_micro_batches():
    dynamic = DynamicWeights()
    assert dynamic.reduce(torch.tensor([2.0, 4.0]), n_rows=4) == 1.5
    assert DynamicWeights(preset="authors").reduce(torch.tensor([2.0, 4.0]), n_rows=4) == 6
    with pytest.raises(ParameterError, match="rows of all micro-batches; got 1 for 2"):
        dynamic.reduce(torch.ones(2), n_rows=1)
