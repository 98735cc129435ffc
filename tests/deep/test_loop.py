"""The training loop: against a loop by hand, killed and resumed, several runs at once, and what it refuses."""

import copy
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

import torch.nn.functional as F
from torch import nn

from steelyard import Target
from steelyard.deep import DynamicWeights
from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, methods, steps, train
from steelyard.deep.training.data import Batch
from steelyard.deep.training.phases import Phase, TrainingMethod
from steelyard.errors import (
    CheckpointError,
    InputError,
    MissingTargetError,
    NotFiniteError,
    ParameterError,
    WeightError,
)


def net(seed=0, *, dropout=False):
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(16), nn.Dropout(0.3)] if dropout else []
    return nn.Sequential(nn.Linear(4, 16), *middle, nn.ReLU(), nn.Linear(16, 3))


class Headed(nn.Module):
    def __init__(self, *, dropout=False):
        super().__init__()
        body = net(1, dropout=dropout)
        self.body, self.head = body[:-1], body[-1]

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.features(x))


def made_data(n=120, m=40, noise=0.4, seed=0):
    rng = np.random.default_rng(seed)
    X = torch.tensor(rng.normal(size=(n + m, 4)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 3, n + m))
    X += 3 * F.one_hot(y, 4)
    noisy = torch.tensor(np.where(rng.random(n) < noise, rng.integers(0, 3, n), y[:n]))
    return TrainingData(X[:n], noisy, Target(X[n:], y[n:]))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, weight_decay=1e-3)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-2)


def parameters_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_uniform_weights_are_a_plain_loop(reduction):
    made = made_data()
    ours, theirs = net(), net()
    run = TrainingRun(methods.baseline("uniform", ours, 5), made)
    history = train(run, TrainingConfig(partial(torch.optim.SGD, lr=1e-3), batch_size=120, reduction=reduction))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(theirs(made.X), made.y, reduction=reduction).backward()
        optimizer.step()
    torch.testing.assert_close(parameters_of(ours), parameters_of(theirs), rtol=1e-5, atol=1e-6)
    assert [entry["epoch"] for entry in history.epochs] == list(range(5))
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]


def test_every_row_is_seen_once_an_epoch_and_the_target_without_replacement():
    made, seen = made_data(n=100), []

    def begin(networks, made):
        def step(batch):
            seen.append(batch)
            losses = made.row_losses(networks["f"](batch.X), batch.y)
            return losses, torch.ones_like(losses)

        return step

    train(
        TrainingRun(TrainingMethod("look", {"f": net()}, [Phase("look", "f", 2, begin)]), made),
        TrainingConfig(sgd, batch_size=30),
    )
    assert len(seen) == 6
    for epoch in (seen[:3], seen[3:]):
        rows = torch.cat([batch.rows for batch in epoch])
        assert len(set(rows.tolist())) == 90
        for batch in epoch:
            assert torch.equal(batch.X, made.X[batch.rows])
            assert torch.equal(batch.y, made.y[batch.rows])
            assert len({tuple(row) for row in batch.X_target.tolist()}) == 30
    assert not torch.equal(seen[0].rows, seen[3].rows)


def test_the_learning_rate_follows_the_schedule_of_its_network():
    run = TrainingRun(methods.baseline("uniform", net(), 4), made_data())
    history = train(run, TrainingConfig(sgd, lr_schedule=lambda epoch: 0.1 ** (epoch // 2)))
    assert [entry["learning_rate"] for entry in history.epochs] == pytest.approx([0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("transform", ["loss", "features"])
def test_dynamic_weights_are_those_of_evaluation_mode(transform):
    """With dropout and batch-norm the weights do not see the noise, and the running means move once a step."""
    made, model = made_data(), Headed(dropout=True)
    model.train()
    weigher = DynamicWeights(transform, class_ratio=made.class_ratio)
    step = steps.dynamic({"f": model}, made, weigher)
    batch = Batch(torch.arange(60), made.X[:60], made.y[:60], made.X_target, made.y_target)
    before = model.body[1].running_mean.clone()
    model.eval()
    with torch.no_grad():
        if transform == "loss":
            both = [F.cross_entropy(model(X), y, reduction="none") for X, y in ((batch.X, batch.y), made_target(made))]
            labels = ()
        else:
            both = [model.features(X) for X in (batch.X, made.X_target)]
            labels = (batch.y, made.y_target)
    model.train()
    losses, weights = step(batch)
    torch.testing.assert_close(weights, weigher(*both, *labels), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        expected = before * 0.9 + 0.1 * model.body[0](batch.X).mean(dim=0)
    torch.testing.assert_close(model.body[1].running_mean, expected)
    assert losses.requires_grad
    assert all(module.training for module in model.modules())


def made_target(made):
    return made.X_target, made.y_target


def test_one_pass_serves_both_where_the_modes_agree():
    made, model = made_data(), Headed()
    calls = []
    model.body[0].register_forward_hook(lambda *_: calls.append(1))
    for transform in ("loss", "features"):
        step = steps.dynamic({"f": model}, made, DynamicWeights(transform))
        calls.clear()
        step(Batch(torch.arange(60), made.X[:60], made.y[:60], made.X_target, made.y_target))
        assert len(calls) == 2  # source and target


def test_a_step_with_the_authors_preset_is_their_formula():
    """Losses summed with weights as solved; the rest is plain gradient descent."""
    made, ours, theirs = made_data(), net(), net()
    train(
        TrainingRun(methods.importance_weighting(ours, 1, preset="authors"), made),
        TrainingConfig(partial(torch.optim.SGD, lr=1e-3), batch_size=120, reduction="sum"),
    )
    losses, validation = (
        F.cross_entropy(theirs(X), y, reduction="none") for X, y in ((made.X, made.y), (made.X_target, made.y_target))
    )
    weights = DynamicWeights(preset="authors")(losses, validation)
    (weights * losses).sum().backward()
    with torch.no_grad():
        for p in theirs.parameters():
            p -= 1e-3 * p.grad
    torch.testing.assert_close(parameters_of(ours), parameters_of(theirs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("variant", "transform"),
    [("IW", "features"), *((v, t) for v in list(methods.VARIANTS)[1:] for t in ("loss", "features"))],
)
def test_variants_do_what_their_options_say(variant, transform):
    made = made_data(n=200)
    start = Headed()
    method = methods.importance_weighting(start, 3, variant=variant, transform=transform, pretrain=2, warm_up=1)
    what = methods.VARIANTS[variant]
    frozen = None
    if "extractor" in method.networks:
        assert what.pretrained
        frozen = method.networks["extractor"]
    run = TrainingRun(method, made)
    history = train(run, TrainingConfig(adam, batch_size=100))
    names = [entry["phase"] for entry in history.epochs]
    assert names == ["pretrain"] * (2 * what.pretrained) + ["warm up"] + [variant] * 2
    assert [entry["learns"] for entry in history.epochs[: 2 * what.pretrained]] == (
        ["f" if what.extractor_changes else "extractor"] * (2 * what.pretrained)
    )
    assert history.weights.mean().item() == pytest.approx(1, abs=0.05)
    assert history.epochs[-1]["weight_sd"] > 0.05
    step = method.phases[-1].begin(method.networks, made)
    batch = Batch(torch.arange(100), made.X[:100], made.y[:100], made.X_target, made.y_target)
    first = step(batch)[1]
    with torch.no_grad():
        for p in start.parameters():
            p += 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first, step(batch)[1]) == (not what.extractor_changes)
    assert (frozen is not None) == (what.pretrained and not what.extractor_changes)


def test_dynamic_weights_find_the_mislabeled_rows():
    made = made_data(n=2000, m=100, noise=0.4)
    truth = made.X.argmax(dim=1) == made.y
    run = TrainingRun(methods.importance_weighting(net(), 15, warm_up=1), made)
    history = train(run, TrainingConfig(adam, batch_size=100))
    weights = torch.zeros(2000)
    weights[history.rows.flatten()] = history.weights.flatten()
    assert weights[truth].mean() > 3 * weights[~truth].mean()


def test_fixed_weights_follow_their_rows():
    made = made_data()
    weights = torch.rand(120, generator=torch.Generator().manual_seed(0))
    step = steps.fixed({"f": net()}, made, weights)
    rows = torch.tensor([5, 3, 99])
    assert torch.equal(step(Batch(rows, made.X[rows], made.y[rows], made.X_target, None))[1], weights[rows])


def test_weights_of_whole_numbers_as_inputs_keep_their_fractions():
    made = TrainingData(
        torch.arange(6)[:, None] % 3, torch.tensor([0, 1, 0, 1, 0, 1]), Target(torch.arange(3)[:, None])
    )
    model = nn.Sequential(nn.Embedding(3, 2), nn.Flatten())
    weights = torch.linspace(0.1, 1.9, 6, requires_grad=True)
    run = TrainingRun(methods.fixed_weights(model, weights, 1), made)
    history = train(run, TrainingConfig(sgd))
    torch.testing.assert_close(history.weights[0], weights.detach()[history.rows[0]])
    assert not history.weights.requires_grad


def test_fewer_clean_rows_than_a_batch():
    made = made_data()
    small = TrainingData(made.X, made.y, Target(made.X_target[:7], made.y_target[:7]))
    run = TrainingRun(methods.baseline("clean_only", net(), 2), small)
    history = train(run, TrainingConfig(sgd, batch_size=60))
    assert history.weights is None
    assert "weight_mean" not in history.epochs[0]


def test_random_weights_have_mean_one_and_clean_only_ignores_the_source():
    made = made_data()
    run = TrainingRun(methods.baseline("random", net(), 1), made)
    history = train(run, TrainingConfig(sgd, batch_size=60))
    torch.testing.assert_close(history.weights.mean(dim=1), torch.ones(2))
    assert 0.3 < history.epochs[0]["zero_share"] < 0.7
    other = TrainingData(made.X + 5, made.y, Target(made.X_target, made.y_target))
    found = []
    for each in (made, other):
        model = net()
        train(TrainingRun(methods.baseline("clean_only", model, 2), each), TrainingConfig(sgd, batch_size=40))
        found.append(parameters_of(model))
    assert torch.equal(*found)


def test_runs_side_by_side_are_the_runs_alone():
    made = made_data()
    together = [TrainingRun(methods.importance_weighting(net(k, dropout=True), 3), made, seed=k) for k in (1, 2)]
    train(together, TrainingConfig(adam, batch_size=40))
    for k, run in zip((1, 2), together, strict=True):
        alone = TrainingRun(methods.importance_weighting(net(k, dropout=True), 3), made, seed=k)
        train(alone, TrainingConfig(adam, batch_size=40))
        assert torch.equal(*(parameters_of(t.method.networks["f"]) for t in (run, alone)))
    assert not torch.equal(*(parameters_of(t.method.networks["f"]) for t in together))


def test_the_random_numbers_of_the_caller_go_on():
    torch.manual_seed(3)
    expected = torch.rand(3)
    model, made = net(), made_data()
    torch.manual_seed(3)
    train(TrainingRun(methods.baseline("random", model, 1), made), TrainingConfig(sgd))
    assert torch.equal(torch.rand(3), expected)


def test_a_network_that_does_not_learn_rests_in_evaluation_mode():
    f, g = net(dropout=True), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    run = TrainingRun(methods.one_step(f, g, rounds=1, g_epochs=1, f_epochs=1, pretrain=1), made_data())
    history = train(run, TrainingConfig(adam, batch_size=40))
    assert [(entry["phase"], entry["learns"]) for entry in history.epochs] == [
        ("domain classifier", "g"),
        ("g", "g"),
        ("f", "f"),
    ]
    assert not any(module.training for module in g.modules())
    assert all(module.training for module in f.modules())


# -- stopped and resumed ----------------------------------------------------------------------------------------------

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from steelyard.deep.training import TrainingConfig, TrainingRun, train
from steelyard.deep.training import methods
from test_loop import adam, made_data, net, parameters_of

folder = Path(sys.argv[1])
torch.set_num_threads(1)  # a fork would lose the others

def run(name, path, short=False):
    f, g = net(dropout=True), net(1)[:1].append(torch.nn.Linear(16, 1))
    if name == "DIW3":
        method = methods.importance_weighting(f, 12, variant="DIW3", pretrain=4)
    else:
        method = methods.one_step(f, g, rounds=4, g_epochs=1, f_epochs=2, pretrain=3)
    run = TrainingRun(method, made_data(n=300 if short else 3000, m=100), seed=7)
    config = TrainingConfig(adam, batch_size=50, lr_schedule=lambda epoch: 0.9**epoch)
    history = train(run, config, checkpoint_path=path)
    if path is not None:
        torch.save((parameters_of(f), [entry["loss"] for entry in history.epochs]), path.with_suffix(".done"))

def in_child(name, path):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            run(name, path)
            status = 0
        finally:
            os._exit(status)
    return pid

def finish(pid):
    assert os.waitpid(pid, 0)[1] == 0, "the training failed"

moments, epochs = random.Random(0), []
for name in ("DIW3", "one-step"):
    run(name, None, short=True)  # so that every child finds everything loaded and compiled
    whole, broken = folder / f"{name}_whole.pt", folder / f"{name}_broken.pt"
    started = time.perf_counter()
    finish(in_child(name, whole))
    length = time.perf_counter() - started
    kills = 0
    while kills < 10:
        pid = in_child(name, broken)
        time.sleep(length * moments.uniform(0.05, 0.4))
        os.kill(pid, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
            epochs.append(torch.load(broken)["state"]["epoch"] if broken.exists() else 0)
            kills += 1
        if broken.with_suffix(".done").exists():  # it got through: the next kills are of a training from the start
            broken.unlink(), broken.with_suffix(".done").unlink()
    finish(in_child(name, broken))
    a, b = (torch.load(path.with_suffix(".done")) for path in (whole, broken))
    assert torch.equal(a[0], b[0]), "parameters differ"
    assert a[1] == b[1], "logs differ"
print(*epochs)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="killing a training needs os.fork")
def test_killed_at_any_moment_and_resumed_the_parameters_are_the_same_to_the_bit(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    found = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        check=False,
    )
    assert found.returncode == 0, found.stderr
    epochs = [int(epoch) for epoch in found.stdout.split()]
    assert len(epochs) == 20
    assert len(set(epochs)) >= 5  # the kills were spread over the training


def resumable(path, *, model=None, epochs=3, seed=0, optimizer=adam, made=None):
    run = TrainingRun(methods.importance_weighting(model or net(), epochs), made or made_data(), seed=seed)
    return run, train(run, TrainingConfig(optimizer, batch_size=40), checkpoint_path=path)


def test_a_finished_training_is_not_trained_again(tmp_path):
    path = tmp_path / "run.pt"
    first_run, first = resumable(path)
    again_run, again = resumable(path)
    assert again.epochs == first.epochs
    assert torch.equal(*(parameters_of(t.method.networks["f"]) for t in (first_run, again_run)))
    assert torch.equal(again.weights, first.weights)
    assert again.finished
    assert list(tmp_path.iterdir()) == [path]


def test_a_deadline_ends_with_the_epoch_and_the_next_call_goes_on(tmp_path):
    made, whole = made_data(), net()
    train(TrainingRun(methods.importance_weighting(whole, 4), made), TrainingConfig(adam, batch_size=40))
    for _ in range(4):
        model = net()
        run = TrainingRun(methods.importance_weighting(model, 4), made, eval_sets={"source": (made.X, made.y)})
        history = train(
            run,
            TrainingConfig(adam, batch_size=40),
            checkpoint_path=tmp_path / "run.pt",
            checkpoint_seconds=60,
            deadline=0,
        )
        assert history.finished == (len(history.epochs) == 4)
    assert history.finished
    assert torch.equal(parameters_of(model), parameters_of(whole))
    assert history.epochs[-1]["accuracy"]["source"] == pytest.approx(
        (model(made.X).argmax(dim=1) == made.y).float().mean().item()
    )


def test_inputs_are_refreshed_before_every_epoch(tmp_path):
    """By a network that is linear, one step an epoch, as by hand; stopped and resumed the same to the bit."""
    made, by_hand = made_data(n=40), nn.Linear(4, 3)
    first, whole, broken = (copy.deepcopy(by_hand) for _ in range(3))
    rate = 0.1
    for epoch in range(3):
        loss = F.cross_entropy(by_hand(made.X * (1 + epoch)), made.y)
        with torch.no_grad():
            for p, gradient in zip(by_hand.parameters(), torch.autograd.grad(loss, by_hand.parameters()), strict=True):
                p -= rate * gradient
    config = TrainingConfig(partial(torch.optim.SGD, lr=rate), batch_size=40)

    def refreshed(model):
        copied = TrainingData(made.X.clone(), made.y, Target(made.X_target.clone(), made.y_target))
        return TrainingRun(
            methods.baseline("uniform", model, 3),
            copied,
            refresh_inputs=lambda e: (made.X * (1 + e), made.X_target * (1 + e)),
        )

    train(refreshed(whole), config)
    torch.testing.assert_close(parameters_of(whole), parameters_of(by_hand))
    while not train(refreshed(broken), config, checkpoint_path=tmp_path / "run.pt", deadline=0).finished:
        broken = copy.deepcopy(first)
    assert torch.equal(parameters_of(broken), parameters_of(whole))
    with pytest.raises(CheckpointError, match="refresh_inputs was True, is False"):
        train(TrainingRun(methods.baseline("uniform", first, 3), made), config, checkpoint_path=tmp_path / "run.pt")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epochs": 4}, "phases was"),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"optimizer": sgd}, "optimizers was"),
        ({"model": "wide"}, "parameters was"),
        ({"made": "other"}, "data was"),
        ({"optimizer": partial(torch.optim.Adam, lr=1e-2, betas=(0.8, 0.99))}, "optimizers was"),
    ],
)
def test_a_checkpoint_of_another_run(tmp_path, change, named):
    path = tmp_path / "run.pt"
    resumable(path)
    before = path.read_bytes()
    if "model" in change:
        change = {"model": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))}
    if "made" in change:
        change = {"made": made_data(seed=1)}
    with pytest.raises(CheckpointError, match=named):
        resumable(path, **change)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "make",
    [
        lambda k: methods.importance_weighting(net(), 2, preset=("normalized", "authors")[k]),
        lambda k: methods.importance_weighting(net(), 2, weight_mode=("evaluation", "batch")[k]),
        lambda k: methods.fixed_weights(net(), torch.ones(120) + k * torch.arange(120), 2),
        lambda k: methods.relative_weighting(
            net(), net()[:1].append(nn.Linear(16, 1)), 2, eta=(0.1, 0.9)[k], pretrain=1
        ),
        lambda k: methods.flattened_weighting(net(), net()[:1].append(nn.Linear(16, 1)), 2, flattening=k, pretrain=1),
    ],
    ids=["preset", "weight mode", "weights", "eta", "flattening"],
)
def test_a_checkpoint_of_other_options(tmp_path, make):
    path = tmp_path / "run.pt"
    train(TrainingRun(make(0), made_data()), TrainingConfig(sgd), checkpoint_path=path)
    with pytest.raises(CheckpointError, match="options was"):
        train(TrainingRun(make(1), made_data()), TrainingConfig(sgd), checkpoint_path=path)


def test_numbers_of_numpy_and_paths_as_text_resume(tmp_path):
    config = TrainingConfig(sgd, lr_schedule=lambda epoch: 0.5 * (1 + np.cos(epoch)), batch_size=60)
    logs = []
    for _ in range(2):
        run = TrainingRun(methods.baseline("uniform", net(), 3), made_data(), seed=np.int64(1))
        history = train(run, config, checkpoint_path=str(tmp_path / "run.pt"))
        logs.append(history.epochs)
    assert logs[0] == logs[1]


def test_the_same_objects_again_after_a_freeze(tmp_path):
    """As in a notebook: networks whose layers a phase froze go on from their checkpoint."""
    from steelyard.deep.nets import FiveLayerCNN, LeNet5

    X = torch.rand(40, 1, 28, 28)
    method = methods.one_step(LeNet5(), FiveLayerCNN(1), rounds=1, g_epochs=1, f_epochs=1, pretrain=1)
    for _ in range(2):
        run = TrainingRun(method, TrainingData(X, torch.arange(40) % 10, Target(X)))
        history = train(run, TrainingConfig(adam, batch_size=20), checkpoint_path=tmp_path / "run.pt")
        assert len(history.epochs) == 3


@pytest.mark.parametrize("keep", [0, 10, 500, -1])
def test_a_cut_checkpoint(tmp_path, keep):
    path = tmp_path / "run.pt"
    resumable(path)
    cut = path.read_bytes()[:keep]
    path.write_bytes(cut)
    with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
        resumable(path)
    assert path.read_bytes() == cut


def test_a_checkpoint_is_read_without_running_what_it_holds(tmp_path):
    path = tmp_path / "run.pt"
    resumable(path)
    held = torch.load(path, weights_only=True)
    assert set(json.loads(held["description"])) >= {"method", "phases", "seed", "data"}


# -- refused ----------------------------------------------------------------------------------------------------------


def test_losses_that_are_not_finite_are_named_with_their_step(tmp_path):
    path = tmp_path / "run.pt"
    made = made_data()

    def begin(networks, made):
        count = iter(range(100))

        def step(batch):
            losses = made.row_losses(networks["f"](batch.X), batch.y)
            return losses * (torch.inf if next(count) == 4 else 1), torch.ones_like(losses)

        return step

    method = TrainingMethod("bad", {"f": net()}, [Phase("bad", "f", 5, begin)])
    with pytest.raises(NotFiniteError, match=r'step 1 of epoch 1 \(phase "bad"\)'):
        train(TrainingRun(method, made), TrainingConfig(sgd, batch_size=40), checkpoint_path=path)
    assert torch.load(path, weights_only=True)["state"]["epoch"] == 1


def test_a_diverging_network_is_named_with_the_call():
    with pytest.raises(NotFiniteError, match="NaN or infinity in call"):
        train(
            TrainingRun(methods.importance_weighting(net(), 20), made_data()),
            TrainingConfig(partial(torch.optim.SGD, lr=1e20)),
        )


def test_a_network_on_another_device():
    with pytest.raises(InputError, match='Network "f" is on meta, the data on cpu'):
        train(TrainingRun(methods.baseline("uniform", net().to("meta"), 1), made_data()), TrainingConfig(sgd))


@pytest.mark.parametrize(
    "method",
    [
        methods.baseline("reweight", net(), 1),
        methods.baseline("clean_only", net(), 1),
        methods.importance_weighting(net(), 1),
        methods.importance_weighting(net(), 1, variant="IW"),
    ],
)
def test_methods_that_need_labels_of_the_target(method):
    made = made_data()
    with pytest.raises(MissingTargetError, match="needs target rows with labels"):
        train(TrainingRun(method, TrainingData(made.X, made.y, Target(made.X_target))), TrainingConfig(sgd))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((torch.ones(3, 2), torch.tensor([0, 1, 0]), torch.ones(0, 2)), "target has no rows"),
        ((torch.ones(3, 2), torch.tensor([0, 1, 0]), torch.ones(2, 3)), "must be equal"),
        ((torch.ones(3, 2), torch.tensor([0, 1, 0]), torch.ones(1, 2), torch.tensor([2])), r"source lacks: \[2\]"),
        ((torch.ones(3, 2), torch.tensor([0, 1]), torch.ones(1, 2)), "one label for each"),
        ((torch.ones(3, 2), torch.tensor([0.0, 1, 0]), torch.ones(1, 2)), r"whole numbers \(torch.long\)"),
        ((torch.ones(3, 2), torch.tensor([0, -1, 0]), torch.ones(1, 2)), "count from 0; got -1"),
        ((torch.ones(3, 2), torch.tensor([0, 1, 0], device="meta"), torch.ones(1, 2)), "their labels on meta"),
        ((torch.ones(3, 2), torch.tensor([0, 1, 0]), torch.ones(1, 2, device="meta")), "the target on meta"),
    ],
)
def test_data_that_cannot_be_trained_on(parts, message):
    with pytest.raises(InputError, match=message):
        TrainingData(*parts[:2], Target(*parts[2:]))


@pytest.mark.parametrize("weights", [torch.zeros(120), -torch.ones(120), torch.full((120,), torch.nan), torch.ones(3)])
def test_weights_that_are_none(weights):
    with pytest.raises(WeightError):
        train(TrainingRun(methods.fixed_weights(net(), weights, 1), made_data()), TrainingConfig(sgd))


@pytest.mark.parametrize("reduction", ["mean", "column"])
def test_losses_that_are_not_one_number_per_row(reduction):
    made = made_data()
    wrong = {
        "mean": lambda scores, labels: F.cross_entropy(scores, labels),
        "column": lambda scores, labels: F.cross_entropy(scores, labels, reduction="none")[:, None],
    }[reduction]
    bad = TrainingData(made.X, made.y, Target(made.X_target, made.y_target), row_losses=wrong)
    for method in (methods.baseline("uniform", net(), 1), methods.fixed_weights(net(), torch.ones(120), 1)):
        with pytest.raises(InputError, match="one number per row"):
            train(TrainingRun(method, bad), TrainingConfig(sgd))


def test_a_target_that_is_not_a_target():
    with pytest.raises(InputError, match=r"target must be a steelyard\.Target of tensors; got Tensor"):
        TrainingData(torch.ones(3, 2), torch.tensor([0, 1, 0]), torch.ones(1, 2))


def test_the_weight_of_each_row_is_that_of_the_last_epoch():
    made = made_data(n=100)
    run = TrainingRun(methods.fixed_weights(net(), torch.linspace(0.1, 2, 100), 2), made)
    history = train(run, TrainingConfig(sgd, batch_size=30))
    found = history.row_weights()
    seen = torch.isfinite(found)
    assert seen.sum() == 90
    torch.testing.assert_close(found[seen], torch.linspace(0.1, 2, 100)[seen].double())
    without = train(TrainingRun(methods.baseline("clean_only", net(), 1), made), TrainingConfig(sgd))
    assert without.row_weights().isnan().all()


def test_other_mistakes():
    with pytest.raises(ParameterError, match=r"reduction must be one of \('mean', 'sum'\); got 'none'"):
        TrainingConfig(sgd, reduction="none")
    with pytest.raises(ParameterError, match="optimizer must be a function"):
        TrainingConfig(torch.optim.SGD(net().parameters(), lr=0.1))
    with pytest.raises(ParameterError, match="warm_up must leave epochs"):
        methods.importance_weighting(net(), 3, warm_up=3)
    with pytest.raises(ParameterError, match="epochs must be a whole number"):
        methods.baseline("uniform", net(), 2.5)
    with pytest.raises(InputError, match=r"g must have one output per row; 2 rows gave a tensor of shape \(2, 3\)"):
        train(TrainingRun(methods.one_step(net(), net(1), rounds=1), made_data()), TrainingConfig(sgd))
    shared = methods.baseline("uniform", net(), 1)
    with pytest.raises(ParameterError, match="Two runs have the same network"):
        train([TrainingRun(shared, made_data(), seed=k) for k in (0, 1)], TrainingConfig(sgd))
    with pytest.raises(ParameterError, match="variant must be one of"):
        methods.importance_weighting(net(), 1, variant="DIW4")
    with pytest.raises(ParameterError, match="name must be one of"):
        methods.baseline("boosting", net(), 1)
    with pytest.raises(ParameterError, match="same epochs"):
        train([TrainingRun(methods.baseline("uniform", net(), e), made_data()) for e in (1, 2)], TrainingConfig(sgd))
    with pytest.raises(ParameterError, match="at least one TrainingRun"):
        train([], TrainingConfig(sgd))
