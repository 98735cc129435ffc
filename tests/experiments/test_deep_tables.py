"""The deep tables, tiny and on made-up images: in slices, rebuilt without training, with cells that were not run."""

import csv
import io

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")
pytest.importorskip("matplotlib", reason="matplotlib (needed by the pictures of the experiments) is not installed")

from experiments import EXPERIMENTS, class_prior, images, images_choice, label_noise
from experiments.deep_table import course
from experiments.engine.cells import Named, settings_key
from experiments.engine.command import Options, reproduce
from experiments.engine.curves import group_name, read_arrays
from experiments.engine.printed import number, printed, read_printed
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
    monkeypatch.setattr(label_noise, "NOISES", (("symmetric", 0.4),))
    monkeypatch.setattr(label_noise, "LABELS", {"fashion_mnist": "Fashion-MNIST"})


NOISY = label_noise.Data("fashion_mnist", "symmetric", 0.4)
CIFAR = label_noise.Data("cifar10", "symmetric", 0.4)
BOTH_KINDS = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def run(name, folder, minutes=None, given=(), trials=2, only=()):
    console = Console(record=True, width=200, file=io.StringIO())
    changed = [*TINY[name], *given]
    options = Options(folder, trials, 1000, jobs=1, changed=changed, minutes=minutes, only=only)
    reproduce(name, options, console)
    return console.export_text()


def kept(folder, name, data, method, given=()):
    """The arrays of a group of a tiny table."""
    experiment = EXPERIMENTS[name]
    settings = experiment.settled(dict(pair.split("=") for pair in [*TINY[name], *given]))
    return read_arrays(folder / experiment.folder, group_name(settings_key(settings), 0, data, method))


def stamps(folder):
    """When the files of a table that hold computed values were written."""
    return {name: (folder / name).stat().st_mtime_ns for name in ("trials.csv", "curves.npz")}


def test_label_noise_whole_and_rebuilt(tmp_path):
    text = run("label-noise", tmp_path)
    assert "not run" not in text
    pretrained = ("SIW", "DIW1", "DIW3")
    for method in label_noise.METHODS:
        arrays = kept(tmp_path, "label-noise", NOISY, method)
        assert arrays["curves"].shape == (2, 3 if method.name in pretrained else 2, 4)
        assert np.isfinite(arrays["curves"]).all()
        assert arrays["embedded"].shape == (50, 2)
        assert ("weight_counts" not in arrays) == (method.name == "Clean")
        if method.name != "Clean":
            assert np.isfinite(arrays["weight_quartiles"]).all()
            assert arrays["weight_counts"].sum() > 0
    folder = tmp_path / "label_noise"
    files = stamps(folder)
    again = run("label-noise", tmp_path)
    assert "0 to compute" in again
    assert stamps(folder) == files
    (path,) = folder.glob("variant_*.md")
    page = path.read_text()
    assert "88.29 (0.18)" in page
    with (folder / "table.csv").open() as lines:
        errors = [(row["method"], float(row["mean"])) for row in csv.DictReader(lines) if row["mean"]]
    for name, kind in {"IW": "IW", "SIWs": "SIW", "DIWs": "DIW"}.items():
        mean = np.mean([100 - error for method, error in errors if method.startswith(kind)])
        assert f"| {name} | {mean:.2f} |" in page
    for picture in ("ablation", "curves", "weights", "embeddings", "denoising"):
        assert (folder / f"{path.stem.removeprefix('variant_')}_{picture}.png").stat().st_size > 5000


def test_the_kept_epoch_beside_the_last_one(tmp_path):
    """A column where clean rows were kept aside; cells that were not run say so; without kept rows no column."""
    given = ["epochs=3", "kept_share=0.25"]
    text = run("label-noise", tmp_path, given=given, only=["Uniform", "DIW2-L"])
    assert "kept epoch" in text
    (path,) = (tmp_path / "label_noise").glob("variant_*.md")
    for method in label_noise.METHODS:
        arrays = kept(tmp_path, "label-noise", NOISY, method, given)
        line = next(x for x in path.read_text().splitlines() if x.startswith(f"| {method.label} |"))
        cells = [cell.strip(" *") for cell in line.split("|")[2:4]]
        if method.label not in ("Uniform", "DIW2-L"):
            assert arrays is None
            assert cells == ["not run", "not run"]
            continue
        accuracy = 100 * arrays["curves"][[0, 1], arrays["kept_epochs"], 0]
        assert cells[1] == f"{accuracy.mean():.2f} ({accuracy.std(ddof=1):.2f})"
        assert cells[0] == f"{100 * arrays['curves'][:, -1, 0].mean():.2f} " + cells[0][cells[0].index("(") :]
    assert "kept epoch" not in run("label-noise", tmp_path, only=["Uniform"])


def test_rows_kept_aside_are_in_no_training():
    settings = EXPERIMENTS["label-noise"].settled(dict(pair.split("=") for pair in TINY["label-noise"]))
    plain, keeping = (
        label_noise.job(NOISY, label_noise.DIW2_L, [1000], chosen, 0, "cpu").trials[0]
        for chosen in (settings, settings | {"kept_share": 0.25})
    )
    assert plain.kept_rows is None
    assert (len(plain.data.y), len(plain.data.y_target)) == (256, 60)
    assert (len(keeping.data.y), len(keeping.data.y_target), len(keeping.kept_rows[1])) == (241, 45, 15)
    clean = {tuple(row.flatten().tolist()) for row in plain.data.X_target}
    aside, used = ({tuple(row.flatten().tolist()) for row in X} for X in (keeping.kept_rows[0], keeping.data.X))
    assert aside <= clean
    assert not aside & used


def test_settings_of_resnet_and_of_the_mode_reach_the_training(monkeypatch):
    monkeypatch.setattr(label_noise, "LABELS", BOTH_KINDS)
    given = {"cifar_dropout": "0.3", "weight_mode": "batch", "rows": "256", "clean_rows": "60", "test_rows": "50"}
    settings = EXPERIMENTS["label-noise"].settled(given)
    (trial,) = label_noise.job(CIFAR, label_noise.DIW2_L, [1000], settings, 0, "cpu").trials
    assert trial.method.networks["f"].dropout == 0.3
    assert trial.method.options["weight_mode"] == "batch"
    said = label_noise.used(settings)
    assert said.endswith(
        'Dropout of 0.3 after each stage of ResNet-32. Dynamic weights are made in the mode "batch" of batch-norm.'
    )
    assert label_noise.used(EXPERIMENTS["label-noise"].settled({})).endswith("which are trained on as well.")


def test_a_setting_added_later_keeps_the_key_of_stored_results():
    experiment = EXPERIMENTS["label-noise"]
    assert "kept_share" not in experiment.settled({})
    assert experiment.settled({"kept_share": "0"}) == experiment.settled({})
    assert experiment.settled({"kept_share": "0.25"})["kept_share"] == 0.25
    assert experiment.variant(experiment.settled({"kept_share": "0.25"})) == "kept_epoch"


def test_weights_are_summarized_as_they_are():
    """Against numpy and matplotlib, with known clean rows and rows without weights left out."""
    from matplotlib.cbook import boxplot_stats

    rng = np.random.default_rng(0)
    weights, wrong, clean = rng.exponential(size=400), rng.random(400) < 0.3, np.arange(20)
    weights[100:110] = np.nan
    found = label_noise.weight_arrays(weights, wrong, clean)
    used = np.isfinite(weights) & (np.arange(400) >= 20)
    both = weights[used & ~wrong], weights[used & wrong]
    for each, quartiles, light in zip(both, found["weight_quartiles"], found["weight_light"], strict=True):
        (box,) = boxplot_stats(each)
        np.testing.assert_allclose(quartiles, [box[k] for k in ("whislo", "q1", "med", "q3", "whishi")])
        assert light == np.mean(each < 0.2)
    top = np.quantile(np.concatenate(both), 0.995)
    assert found["weight_top"] == pytest.approx(top)
    assert found["weight_counts"].sum(axis=1).tolist() == [len(each) for each in both]
    edges = np.linspace(0, top, 60)
    assert found["weight_counts"][0, 0] == np.sum(both[0] < edges[1])
    assert found["weight_counts"][0, -1] == np.sum(both[0] >= edges[-2])
    assert label_noise.weight_arrays(np.full(400, np.nan), wrong, clean) == {}


def test_course_of_training_and_labels_learned():
    """Of two trials made up: 5 epochs of pretraining, then 70 whose accuracy rises to its best in the 40th."""
    data, method = label_noise.Data("fashion_mnist", "pair", 0.3), label_noise.Weighting("SIW", "loss")
    epochs = np.arange(1, 71)
    curves = np.zeros((2, 75, 4))
    curves[:, 5:, 0] = 0.9 - 0.001 * np.abs(epochs - 40)
    curves[1, 5:, 0] += 0.01
    curves[:, -1, 1:3] = [0.95, 0.1], [0.95, 0.3]
    wrong = np.array([0, 1, 1, 0, 0, 0, 1, 1], bool)
    weights = np.array([5.0, 0.1, 0.3, 0.1, 1.0, 2.0, np.nan, 0.0])
    arrays = {"curves": curves, **label_noise.weight_arrays(weights, wrong, [0])}
    row = Row(data, method, 13.0, 0.0, 13.0, True, 1.0, 1.0, 2, None)
    summary = Summary([row], {}, {"epochs": 70, "cifar_epochs": 0}, arrays={(data, method): arrays})
    title = "Fashion-MNIST, pair 0.3: SIW-L"
    section = course(summary, "Table 6", lambda data: 70)
    # 20 to 60 lie evenly about the 40th epoch, 20·21/41 away on average
    expected = [title, "87.50", "89.10", "88.50", f"{90.5 - 42 / 4.1 / 10:.2f}", "90.50", "40", "87.50"]
    assert [entry.text for entry in section.rows[0]] == expected
    assert len(section.header) == len(section.rows[0])
    learned = label_noise._learned(summary)
    assert [entry.text for entry in learned.rows[0]] == [title, "95.0", "20.0", "66.7", "33.3", "1.00"]


def test_cifar_has_its_own_network_epochs_and_decay(monkeypatch):
    monkeypatch.setattr(label_noise, "LABELS", {"cifar10": "CIFAR-10"})
    given = dict(pair.split("=") for pair in [*TINY["label-noise"], "cifar_epochs=8", "cifar_decay=0.01"])
    settings = label_noise.EXPERIMENT.settled(given)
    job = label_noise.job(CIFAR, label_noise.DIW2_L, [0], settings, 0, "cpu")
    assert job.trials[0].method.epochs == 8
    assert isinstance(job.trials[0].method.networks["f"], ResNet32)
    assert [job.training.lr_schedule(epoch) for epoch in (1, 2, 7)] == pytest.approx([1, 0.1, 0.001])
    optimizer = job.training.optimizer(job.trials[0].method.networks["f"].parameters())
    assert optimizer.defaults["weight_decay"] == 0.01


def test_cifar_has_its_own_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(label_noise, "LABELS", BOTH_KINDS)
    given = ["cifar_epochs=2"]
    run("label-noise", tmp_path, given=given, trials=1, only=["CIFAR-10, symmetric 0.4: DIW2-L"])
    (page,) = (tmp_path / "label_noise").glob("variant_*.md")
    slug = page.stem.removeprefix("variant_")
    drawn = {path.name for path in (tmp_path / "label_noise").glob("*.png")}
    assert drawn == {f"{slug}_cifar_{kind}.png" for kind in ("curves", "weights", "embeddings", "denoising")}
    assert kept(tmp_path, "label-noise", CIFAR, label_noise.DIW2_L, given)["curves"].shape == (1, 2, 4)


def test_class_prior_in_slices_is_the_whole(tmp_path):
    """Stopped after every epoch and resumed, the numbers are those of one run."""
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
    for data in class_prior.DATA:
        for method in class_prior.METHODS:
            one, other = (kept(folder, "class-prior", data, method) for folder in (whole, slices))
            assert one.keys() == other.keys() == {"trials", "curves", "mae", "rmse", "mae_of_ones", "rmse_of_ones"}
            for key in one:
                np.testing.assert_array_equal(one[key], other[key])
    assert [path.name for path in (slices / "class_prior" / ".work").iterdir()] == ["lock"]
    pages = [next((folder / "class_prior").glob("*.md")).read_text() for folder in (whole, slices)]
    assert pages[0] == pages[1]
    assert "84.02 (1.82)" in pages[1]
    assert "w ≡ 1" in pages[1]


def test_images_whole_and_rebuilt(tmp_path):
    text = run("images", tmp_path)
    assert "not run" not in text
    for data, method in images.EXPERIMENT.groups({}):
        arrays = kept(tmp_path, "images", data, method)
        assert arrays["curves"].shape == (2, 2 if method == images.ERM else 3, 1)
        assert arrays["weights_by_angle"][1].sum() > 0
        assert 0 < arrays["effective_share"] <= 1
    assert "0 to compute" in run("images", tmp_path)
    (page,) = (tmp_path / "images").glob("variant_*.md")
    assert "85.07 (0.08)" in page.read_text()
    assert "a split of its 10,000 test images" in page.read_text()
    slug = page.stem.removeprefix("variant_")
    for kind in ("fashion_mnist", "kmnist"):
        for picture in ("", "_curves", "_weights"):
            assert (tmp_path / "images" / f"{slug}_{kind}{picture}.png").stat().st_size > 5000


def test_images_one_step_against_the_others():
    """Two trials: t = 3 with one degree of freedom is p = 1 − 2·arctan(3)/π = 0.205, t = −21 is 0.030."""
    data = images.Data("fashion_mnist", 2, 4)
    settings = images.EXPERIMENT.settled({"rounds": "1", "f_epochs": "2", "pretrain": "1"})
    errors = {"ERM": [10.0, 12.0], "EIWERM": [8.0, 8.9], "one-step": [9.0, 10.0]}
    curves = np.array([0.5, 0.6, 0.7, 0.8, 0.9]).reshape(1, 5, 1)
    weights = np.array([np.nan, 3.0, 1.0])  # (3 + 1)² / (3² + 1²) = 1.6 of two rows
    kept = {"curves": curves, **images.weight_arrays(weights, np.array([10.0, 20.0, 170.0]))}
    groups = {(data, Named(method)): np.array(each) for method, each in errors.items()}
    summary = Summary([], groups, settings, arrays=dict.fromkeys(groups, kept))
    beside, alike = ([entry.text for entry in part.rows[0]] for part in images.comparisons(summary))
    title = "Fashion-MNIST (2, 4)"
    assert beside == [title, "+1.50 (p = 0.2)", "-1.05 (p = 0.03)", "not run"]
    assert [entry.bold for entry in images.comparisons(summary)[0].rows[0][1:]] == [True, False, False]
    assert alike == [title, "60.00", "70.00, 80 %", "not run", "90.00, 80 %"]


def test_images_choice_is_by_rows_that_nothing_learns_from(tmp_path, monkeypatch):
    some = ["γ = 0.4", "η = 0.3", "G = 3.0", "G = ∞", "λ = 0.01", "512+128", "6+16", "sgd", "decay 0.001"]
    run("images-choice", tmp_path, only=some, trials=1)
    (page,) = (tmp_path / "images_choice").glob("*.md")
    lines = page.read_text().splitlines()
    not_run = {line.split(" | ")[0].strip("| ") for line in lines if "not run" in line}
    labels = {candidate.label for candidate in images_choice.CANDIDATES}
    computed = {label for label in labels if any(part in label for part in some)}
    assert not_run == labels - computed
    assert sum("**" in line for line in lines) >= 8  # the best of four methods, for angles once and every epoch
    from experiments.engine.cells import stream

    settings = images_choice.EXPERIMENT.settled(dict(pair.split("=") for pair in TINY["images-choice"]))
    candidate = next(each for each in images_choice.CANDIDATES if each.name == "EIWERM" and each.own == 0.6)
    trial = images_choice._trial(stream(0, 1), candidate, 0, settings, "cpu")
    validation = {tuple(row.flatten().tolist()) for row in trial.eval_sets["test"][0]}
    assert not validation & {tuple(row.flatten().tolist()) for row in trial.data.X}
    assert 1 < len(validation) <= 64


def test_validation_rows_are_turned_like_the_target():
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
    """The rows after training are those of the last epoch, and so are the angles by which weights are kept."""
    from steelyard.deep.training import train

    settings = images.EXPERIMENT.settled(dict(pair.split("=") for pair in [*TINY["images"], "angles=every epoch"]))
    job = images.job(images.Data("fashion_mnist", 2, 4), Named(method), [1000], settings, 0, "cpu")
    (trial,) = job.trials
    before = trial.data.X.clone()
    history = train(trial, job.training, progress=False)
    here, there = trial.refresh_inputs(trial.method.epochs - 1)
    assert torch.equal(trial.data.X, here)
    assert torch.equal(trial.data.X_target, there)
    assert not torch.isclose(before, here).all(dim=(1, 2, 3)).any()
    angles = trial.refresh_inputs.degrees(trial.method.epochs - 1)[0].double().numpy()
    weights = np.asarray(history.row_weights())
    expected = images.weight_arrays(weights, angles)
    counts = np.histogram(angles[np.isfinite(weights)], images.ANGLE_EDGES)[0]
    np.testing.assert_array_equal(expected["weights_by_angle"][1], counts)
    found = job.keep([history])
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


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
        assert "the same command resumes" in text
    (page,) = (tmp_path / "label_noise").glob("*.md")
    assert page.read_text().count("not run") == len(label_noise.METHODS) - 2 + 3  # and the three kinds of methods


def test_fewer_trials_of_a_cell_are_said(tmp_path):
    """Two methods with one trial, then one of them with both: the pair is tested on what they share."""
    for _ in range(4):
        run("label-noise", tmp_path, minutes=1e-9, trials=1)
    for _ in range(2):
        text = run("label-noise", tmp_path, minutes=1e-9)
    assert text.count("1 of 2 trials") == 1
    assert text.count("not run") == len(label_noise.METHODS) - 2 + 3
    both = kept(tmp_path, "label-noise", NOISY, label_noise.Weighting("Clean"))
    assert both["curves"].shape[0] == 2
    assert both["trials"].tolist() == [1000, 1001]


def test_only_some_cells(tmp_path):
    text = run("images", tmp_path, only=["Kuzushiji-MNIST-10k (2, 5): ERM", "(2, 6): one-step"])
    (page,) = (tmp_path / "images").glob("*.md")
    cells = 2 * 3 * len(images.METHODS) - 3
    # twice, and no two methods of the same images, which one-step is compared on with three others
    assert page.read_text().count("not run") == 2 * cells + 2 * 3 * 3
    assert "Fashion-MNIST (2, 6): one-step" in text
    with pytest.raises(ParameterError, match="--only two-step: no cell has that"):
        run("images", tmp_path, only=["two-step"])


def test_two_settings_of_a_table_lie_side_by_side(tmp_path):
    """Curves, trials, rows of the table and pages of both; either is rebuilt without the other."""
    every = ["transform=loss"], ["transform=features"]
    method = Named("DIW")
    for given in every:
        run("class-prior", tmp_path, given=given, trials=1, only=["ρ = 100: DIW"])
    folder = tmp_path / "class_prior"
    curves = [kept(tmp_path, "class-prior", class_prior.Data(100), method, given)["curves"] for given in every]
    assert not np.array_equal(*curves)
    pages = {path: path.read_bytes() for path in folder.glob("*.md")}
    assert len(pages) == 2
    with (folder / "table.csv").open() as lines:
        assert len({row["settings"] for row in csv.DictReader(lines)}) == 2
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for given in every:
        run("class-prior", tmp_path, given=given, trials=1, minutes=0)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_no_minutes_show_what_is_stored(tmp_path):
    run("label-noise", tmp_path, minutes=1e-9)
    assert run("label-noise", tmp_path, minutes=0).count("\n") == 1  # not a cell was finished, so there is no table
    run("label-noise", tmp_path, minutes=1e-9)
    folder = tmp_path / "label_noise"
    files = stamps(folder)
    (path,) = folder.glob("*.md")
    page = path.read_text()
    path.unlink()
    assert "trials 1000" not in run("label-noise", tmp_path, minutes=0)
    assert path.read_text() == page
    assert stamps(folder) == files


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
    assert printed(label_noise.EXPERIMENT)[NOISY, label_noise.DIW2_L].mean == pytest.approx(100 - 88.29)
    rotated = images.Data("kmnist", 2, 6)
    assert printed(images.EXPERIMENT)[rotated, Named("RIWERM")].mean == pytest.approx(100 - 60.14)
    rare = class_prior.Data(200)
    assert printed(class_prior.EXPERIMENT)[rare, Named("DIW")].mean == pytest.approx(100 - 81.37)
    distances = read_printed("class_prior_weights.csv")
    (row,) = [r for r in distances if (r["ratio"], r["measure"], r["method"]) == ("100", "rmse", "IW")]
    assert number(row).mean == 10.19


def test_a_setting_that_is_not_there(tmp_path):
    with pytest.raises(ParameterError, match="has no setting 'momentum'"):
        run("class-prior", tmp_path, given=["momentum=1"])
