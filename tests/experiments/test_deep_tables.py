"""The deep tables, tiny and on made-up images: in slices, rebuilt without training, with cells that were not run."""

import csv
import io

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from experiments import class_prior, images, images_choice, label_noise
from experiments.deep_table import course
from experiments.engine.cells import printed
from experiments.engine.command import reproduce_table
from experiments.engine.deep_runner import kept
from experiments.engine.summary import Row, Summary
from steelyard.datasets.images import Images
from steelyard.deep.nets import ResNet32
from steelyard.errors import ParameterError

TINY = {
    "label-noise": ["epochs=2", "rate=0.01", "rows=256", "clean_rows=60", "test_rows=50", "pretrain=1"],
    "images": [
        "rounds=1",
        "g_epochs=1",
        "f_epochs=1",
        "pretrain=1",
        "rows=256",
        "test_rows=50",
        "filters=2+3",
        "hidden=8+4",
    ],
    "images-choice": ["rounds=1", "g_epochs=1", "f_epochs=1", "pretrain=1", "rows=320"],
    "class-prior": ["epochs=2", "rate=0.01", "majority=60", "clean_per_class=1", "test_rows=50"],
}


@pytest.fixture(autouse=True)
def made_up_images(monkeypatch):
    """Every class is a bright square at a place of its own."""

    def load(name, part):
        rng = np.random.default_rng(len(part))
        y = np.tile(np.arange(10, dtype=np.uint8), 70)
        size, channels = (32, 3) if name == "cifar10" else (28, 1)
        X = rng.integers(0, 60, (700, channels, size, size)).astype(np.uint8)
        for c in range(10):
            X[y == c, :, 5 * (c // 5) + 6 : 5 * (c // 5) + 11, 5 * (c % 5) : 5 * (c % 5) + 5] += 150
        return Images(X, y)

    for module in (label_noise, class_prior, images):
        monkeypatch.setattr(module, "load_images", load)
    monkeypatch.setattr(label_noise, "NOISES", ("symmetric 0.4",))
    monkeypatch.setattr(label_noise, "IMAGES", {"Fashion-MNIST": "fashion_mnist"})


def run(name, folder, minutes=None, given=(), trials=2, only=()):
    console = Console(record=True, width=200, file=io.StringIO())
    reproduce_table(name, folder, trials, 1000, 0, 1, [*TINY[name], *given], console, minutes=minutes, only=only)
    return console.export_text()


def test_label_noise_whole_and_rebuilt(tmp_path):
    text = run("label-noise", tmp_path)
    assert "not run" not in text
    for method in label_noise.METHODS:
        arrays = kept(tmp_path, label_noise.EXPERIMENT, "Fashion-MNIST, symmetric 0.4", method)
        assert arrays["curves"].shape == (2, 3 if "SIW" in method or "DIW1" in method or "DIW3" in method else 2, 4)
        assert np.isfinite(arrays["curves"]).all()
        assert arrays["embedded"].shape == (50, 2)
        weights = arrays["weights"].astype(float)
        assert np.isnan(weights).all() == (method == "Clean")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "table6_label_noise_cells").iterdir()}
    again = run("label-noise", tmp_path)
    assert "0 to compute" in again
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "table6_label_noise_cells").iterdir()} == files
    page = (tmp_path / "table6_label_noise.md").read_text()
    assert "88.29 (0.18)" in page
    with (tmp_path / "table6_label_noise.csv").open() as lines:
        errors = {row["method"]: float(row["mean"]) for row in csv.DictReader(lines) if row["mean"]}
    for name, kind in {"IW": "IW", "SIWs": "SIW", "DIWs": "DIW"}.items():
        mean = np.mean([100 - error for method, error in errors.items() if method.startswith(kind)])
        assert f"| {name} | {mean:.2f} |" in page
    for picture in ("ablation", "curves", "weights", "embeddings", "denoising"):
        assert (tmp_path / f"label_noise_{picture}.png").stat().st_size > 5000


def test_training_on_the_way_and_what_was_learnt(tmp_path):
    """Of two trials made up: 5 epochs of pretraining, then 70 whose accuracy rises to its best in the 40th."""
    data = "Fashion-MNIST, pair 0.3"
    epochs = np.arange(1, 71)
    curves = np.zeros((2, 75, 4))
    curves[:, 5:, 0] = 0.9 - 0.001 * np.abs(epochs - 40)
    curves[1, 5:, 0] += 0.01
    curves[:, -1, 1:3] = [0.95, 0.1], [0.95, 0.3]
    folder = tmp_path / "table6_label_noise_cells"
    folder.mkdir()
    wrong = np.array([0, 1, 1, 0, 0, 0, 1, 1], bool)
    weights = np.array([5.0, 0.1, 0.3, 0.1, 1.0, 2.0, np.nan, 0.0])
    arrays = {"curves": curves, "weights": weights, "wrong": np.packbits(wrong), "clean": [0]}
    np.savez(folder / "Fashion-MNIST_pair_0.3_SIW-L.npz", **arrays)
    row = Row(data, "SIW-L", 13.0, 0.0, 13.0, True, 1.0, 1.0, 2, None)
    summary = Summary([row], {}, {"epochs": 70, "cifar_epochs": 0}, tmp_path)
    title = f"{data}: SIW-L"
    section = course(label_noise.EXPERIMENT, summary, "Table 6", {data: 70})
    # 20 to 60 lie evenly about the 40th epoch, 20·21/41 away on average
    expected = [title, "87.50", "89.10", "88.50", f"{90.5 - 42 / 4.1 / 10:.2f}", "90.50", "40", "87.50"]
    assert [entry.text for entry in section.rows[0]] == expected
    assert len(section.header) == len(section.rows[0])
    learnt = label_noise._learnt(summary)
    assert [entry.text for entry in learnt.rows[0]] == [title, "95.0", "20.0", "66.7", "33.3", "1.00"]


def test_cifar_has_its_own_network_epochs_and_decay(monkeypatch):
    monkeypatch.setattr(label_noise, "IMAGES", {"CIFAR-10": "cifar10"})
    given = dict(pair.split("=") for pair in [*TINY["label-noise"], "cifar_epochs=8", "cifar_decay=0.01"])
    settings = label_noise.EXPERIMENT.settled(given)
    job = label_noise.job("CIFAR-10, symmetric 0.4", "DIW2-L", [0], settings, 0, "cpu")
    assert job.trials[0].method.epochs == 8
    assert isinstance(job.trials[0].method.networks["f"], ResNet32)
    assert [job.training.schedule(epoch) for epoch in (1, 2, 7)] == pytest.approx([1, 0.1, 0.001])
    optimizer = job.training.optimizer(job.trials[0].method.networks["f"].parameters())
    assert optimizer.defaults["weight_decay"] == 0.01


def test_cifar_has_its_own_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(label_noise, "IMAGES", {"Fashion-MNIST": "fashion_mnist", "CIFAR-10": "cifar10"})
    run("label-noise", tmp_path, given=["cifar_epochs=2"], trials=1, only=["CIFAR-10, symmetric 0.4: DIW2-L"])
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == {f"label_noise_cifar_{kind}.png" for kind in ("curves", "weights", "embeddings", "denoising")}
    assert kept(tmp_path, label_noise.EXPERIMENT, "CIFAR-10, symmetric 0.4", "DIW2-L")["curves"].shape == (1, 2, 4)


def test_class_prior_in_slices_is_the_whole(tmp_path):
    """Stopped after every epoch and started again, the numbers are those of one run."""
    whole, slices = tmp_path / "whole", tmp_path / "slices"
    text = run("class-prior", whole)
    assert "not run" not in text
    first = run("class-prior", slices, minutes=1e-9)
    assert "0 stored, 28 to compute" in first
    calls = 1
    while " 0 to compute" not in run("class-prior", slices, minutes=1e-9):
        calls += 1
        assert calls < 40
    assert calls >= 28  # one epoch a call
    for data in class_prior.RATIOS:
        for method in class_prior.METHODS:
            one, other = (kept(folder, class_prior.EXPERIMENT, data, method) for folder in (whole, slices))
            for key in one:
                np.testing.assert_array_equal(one[key], other[key])
    assert not list((slices / "table4_class_prior_cells").glob("*.pt"))
    page = (slices / "table4_class_prior.md").read_text()
    assert "84.02 (1.82)" in page
    assert "w ≡ 1" in page


def test_images_whole_and_rebuilt(tmp_path):
    text = run("images", tmp_path)
    assert "not run" not in text
    for data in images.EXPERIMENT.data({}):
        for method in images.METHODS:
            arrays = kept(tmp_path, images.EXPERIMENT, data, method)
            assert arrays["curves"].shape == (2, 2 if method == "ERM" else 3, 1)
            assert np.isfinite(arrays["weights"].astype(float)).any()
    assert "0 to compute" in run("images", tmp_path)
    page = (tmp_path / "table3_images.md").read_text()
    assert "85.07 (0.08)" in page
    assert "a split of its 10,000 test images" in page
    for kind in ("fashion_mnist", "kmnist"):
        for picture in ("", "_curves", "_weights"):
            assert (tmp_path / f"images_{kind}{picture}.png").stat().st_size > 5000


def test_images_one_step_against_the_others(tmp_path):
    """Two trials: t = 3 with one degree of freedom is p = 1 − 2·arctan(3)/π = 0.205, t = −21 is 0.030."""
    data = "Fashion-MNIST (2, 4)"
    settings = images.EXPERIMENT.settled({"rounds": "1", "f_epochs": "2", "pretrain": "1"})
    errors = {"ERM": [10.0, 12.0], "EIWERM": [8.0, 8.9], "one-step": [9.0, 10.0]}
    (tmp_path / "table3_images_cells").mkdir()
    curves = np.array([0.5, 0.6, 0.7, 0.8, 0.9]).reshape(1, 5, 1)
    weights = np.array([np.nan, 3.0, 1.0])  # (3 + 1)² / (3² + 1²) = 1.6 of two rows
    for method in errors:
        np.savez(tmp_path / f"table3_images_cells/Fashion-MNIST_2_4_{method}.npz", curves=curves, weights=weights)
    summary = Summary([], {(data, m): np.array(each) for m, each in errors.items()}, settings, tmp_path)
    beside, alike = ([entry.text for entry in part.rows[0]] for part in images.comparisons(summary))
    assert beside == [data, "+1.50 (p = 0.2)", "-1.05 (p = 0.03)", "not run"]
    assert [entry.bold for entry in images.comparisons(summary)[0].rows[0][1:]] == [True, False, False]
    assert alike == [data, "60.00", "70.00, 80 %", "not run", "90.00, 80 %"]


def test_images_choice_is_by_rows_that_nothing_learns_from(tmp_path, monkeypatch):
    some = ["γ = 0.4", "η = 0.3", "G = 3.0", "G = ∞", "λ = 0.01", "512+128", "6+16", "sgd", "decay 0.001"]
    run("images-choice", tmp_path, only=some, trials=1)
    lines = (tmp_path / "table3_choice.md").read_text().splitlines()
    not_run = {line.split(" | ")[0].strip("| ") for line in lines if "not run" in line}
    computed = {name for name in images_choice.CANDIDATES if any(part in name for part in some)}
    assert not_run == images_choice.CANDIDATES.keys() - computed
    assert sum("**" in line for line in lines) >= 8  # the best of four methods, for angles once and every epoch
    from experiments.engine.cells import stream

    settings = images_choice.EXPERIMENT.settled(dict(pair.split("=") for pair in TINY["images-choice"]))
    candidate = next(name for name in images_choice.CANDIDATES if "γ = 0.6" in name)
    trial = images_choice._trial(stream(0, 1), candidate, 0, settings, "cpu")
    judged = {tuple(row.flatten().tolist()) for row in trial.watch["test"][0]}
    assert not judged & {tuple(row.flatten().tolist()) for row in trial.task.X}
    assert 1 < len(judged) <= 64


def test_rows_to_judge_by_are_turned_like_the_target():
    """Quartiles of the angles are those of 180° · Beta(4, 2), whose distribution function is 5t⁴ − 4t⁵."""
    rows, degrees = images_choice.drawn_like_the_target(20000, 2, 4, np.random.default_rng(0))
    t = degrees / 180
    shares = np.sort(5 * t**4 - 4 * t**5)
    assert np.abs(shares - (np.arange(20000) + 0.5) / 20000).max() < 0.02
    assert rows.min() >= 0
    assert rows.max() < 20000
    assert abs(rows.mean() - 10000) < 300


def test_angles_of_an_epoch_are_those_of_the_level():
    """Distribution functions of Beta(2, 4) and Beta(4, 2); the same for the same epoch, others for another."""
    upright = torch.rand(20000, 1, 2, 2)
    turns = images.Turns(upright, (2, 4), seed=5)
    degrees = turns.degrees(3)
    for angles, (a, b) in zip(degrees, ((2, 4), (4, 2)), strict=True):
        shares = np.sort(scipy.stats.beta(a, b).cdf(angles.double().numpy() / 180))
        assert np.abs(shares - (np.arange(20000) + 0.5) / 20000).max() < 0.015
    assert abs(np.corrcoef(*degrees)[0, 1]) < 0.03
    for there, again, other in zip(turns(3), turns(3), turns(4), strict=True):
        assert torch.equal(there, again)
        assert not torch.isclose(there, other).all(dim=(1, 2, 3)).any()


@pytest.mark.parametrize("method", ["ERM", "EIWERM", "one-step"])
def test_images_are_turned_anew_every_epoch(method):
    """The rows of the task after training are those of the last epoch, and so are the angles that are kept."""
    from steelyard.deep import train

    settings = images.EXPERIMENT.settled(dict(pair.split("=") for pair in [*TINY["images"], "angles=every epoch"]))
    job = images.job("Fashion-MNIST (2, 4)", method, [1000], settings, 0, "cpu")
    (trial,) = job.trials
    before = trial.task.X.clone()
    train(trial, job.training, progress=False)
    here, there = trial.renew(trial.method.epochs - 1)
    assert torch.equal(trial.task.X, here)
    assert torch.equal(trial.task.target_X, there)
    assert not torch.isclose(before, here).all(dim=(1, 2, 3)).any()
    angles = job.keep([trial])["angles"].astype(float)
    np.testing.assert_allclose(angles, trial.renew.degrees(trial.method.epochs - 1)[0].numpy(), atol=0.07)


def test_angles_are_drawn_once_or_every_epoch(tmp_path):
    with pytest.raises(ParameterError, match='angles are drawn "once" or "every epoch"; got "sometimes"'):
        run("images", tmp_path, given=["angles=sometimes"])


def test_turning_is_that_of_scipy():
    from steelyard.datasets import rotate

    rng = np.random.default_rng(0)
    upright = np.zeros((12, 28, 28))
    upright[:, 3:-3, 3:-3] = rng.random((12, 22, 22))  # beyond the edge scipy does not interpolate with zeros
    degrees = np.concatenate([[0.0, 90.0, 180.0], rng.uniform(0, 180, 9)])
    found = images.turned(torch.tensor(upright)[:, None], degrees)[:, 0].numpy()
    inner = np.hypot(*np.meshgrid(*[np.arange(28) - 13.5] * 2)) < 13
    np.testing.assert_allclose(found[:, inner], rotate(upright, degrees)[:, inner], atol=1e-9)


def test_cells_that_were_not_run_are_named(tmp_path):
    for _ in range(4):  # two epochs of each of two methods
        text = run("label-noise", tmp_path, minutes=1e-9)
        assert "goes on from there" in text
    page = (tmp_path / "table6_label_noise.md").read_text()
    assert page.count("not run") == len(label_noise.METHODS) - 2 + 3  # and the three kinds of methods


def test_fewer_trials_of_a_cell_are_said(tmp_path):
    """Two methods with one trial, then one of them with both: the pair is tested on what they share."""
    for _ in range(4):
        run("label-noise", tmp_path, minutes=1e-9, trials=1)
    for _ in range(2):
        text = run("label-noise", tmp_path, minutes=1e-9)
    assert text.count("1 of 2 trials") == 1
    assert text.count("not run") == len(label_noise.METHODS) - 2 + 3
    both = kept(tmp_path, label_noise.EXPERIMENT, "Fashion-MNIST, symmetric 0.4", "Clean")
    assert both["curves"].shape[0] == 2


def test_only_some_cells(tmp_path):
    text = run("images", tmp_path, only=["Kuzushiji-MNIST-10k (2, 5): ERM", "(2, 6): one-step"])
    page = (tmp_path / "table3_images.md").read_text()
    cells = 2 * 3 * len(images.METHODS) - 3
    # twice, and no two methods of the same images, which one-step is compared on with three others
    assert page.count("not run") == 2 * cells + 2 * 3 * 3
    assert "Fashion-MNIST (2, 6): one-step" in text
    with pytest.raises(ParameterError, match="--only two-step: nothing has that"):
        run("images", tmp_path, only=["two-step"])


def test_no_minutes_show_what_is_stored(tmp_path):
    run("label-noise", tmp_path, minutes=1e-9)
    assert run("label-noise", tmp_path, minutes=0).count("\n") == 1  # not a cell was finished, so there is no table
    run("label-noise", tmp_path, minutes=1e-9)
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "table6_label_noise_cells").iterdir()}
    page = (tmp_path / "table6_label_noise.md").read_text()
    (tmp_path / "table6_label_noise.md").unlink()
    assert "trials 1000" not in run("label-noise", tmp_path, minutes=0)
    assert (tmp_path / "table6_label_noise.md").read_text() == page
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "table6_label_noise_cells").iterdir()} == cells


def test_truth_is_the_survey_s_formula_and_ones_the_reference(tmp_path):
    """1 − μ + μ/ρ for majority rows, μ + ρ − μρ for minority rows, and w ≡ 1 is |w* − 1| away on average."""
    from steelyard.datasets import class_prior_shift

    for rho, far in ((100, 0.396), (200, 0.398)):
        y = np.repeat(np.arange(10), 4000)
        rows, truth = class_prior_shift(y, ratio=rho, random_state=0)
        values = sorted(set(np.round(truth, 6)))
        assert values == pytest.approx([1 - 0.2 + 0.2 / rho, 0.2 + rho - 0.2 * rho], rel=1e-6)
        assert np.abs(truth - 1).mean() == pytest.approx(far, abs=0.003)
        assert len(rows) == 8 * 4000 + 2 * 4000 // rho


def test_printed_numbers():
    assert printed("table6_label_noise.csv")["Fashion-MNIST, symmetric 0.4", "DIW2-L"].mean == pytest.approx(
        100 - 88.29
    )
    assert printed("table3_images.csv")["Kuzushiji-MNIST-10k (2, 6)", "RIWERM"].mean == pytest.approx(100 - 60.14)
    assert printed("table4_class_prior.csv")["ρ = 200", "DIW"].mean == pytest.approx(100 - 81.37)
    assert printed("table5_class_prior_weights.csv")["ρ = 100, RMSE", "IW"].mean == 10.19


def test_a_setting_that_is_not_there(tmp_path):
    with pytest.raises(ParameterError, match="has no setting 'momentum'"):
        run("class-prior", tmp_path, given=["momentum=1"])
