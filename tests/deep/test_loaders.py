"""A DataLoader wherever tensors are: the same fit as with the tensors, whatever its order; and what it must not be."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; steelyard.deep needs it")

from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from steelyard import Target
from steelyard.deep import DynamicWeightedClassifier, validation_batches
from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, baseline, importance_weighting, train
from steelyard.errors import InputError, InputTypeError, MissingTargetError


class Dicts(Dataset):
    """Rows as dicts, as Hugging Face has them; the names of the classes are text."""

    def __init__(self, X, names):
        self.X, self.names = X, names

    def __len__(self):
        return len(self.X)

    def __getitem__(self, k):
        return {"pixel_values": self.X[k], "labels": self.names[k]}


class Stream(IterableDataset):
    def __init__(self, X, y):
        self.rows = list(zip(X, y, strict=True))

    def __iter__(self):
        return iter(self.rows)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(230, 3, generator=generator)
    return X, (X[:, 0] > 0).long()


def classifier():
    torch.manual_seed(0)
    return DynamicWeightedClassifier(nn.Linear(3, 2), epochs=3, batch_size=50)


@pytest.fixture(scope="module")
def by_tensors(rows):
    X, y = rows
    return classifier().fit(X[30:], y[30:], target=Target(X[:30], y[:30]))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("form", ["tuples", "dicts", "dataset of a subset"])
def test_a_fit_from_loaders_is_that_from_tensors(rows, by_tensors, form, shuffle):
    X, y = rows
    dataset = TensorDataset(X, y) if form != "dicts" else Dicts(X, y)
    source, clean = (Subset(dataset, range(*ends)) for ends in ((30, 230), (30,)))
    model = classifier().fit(
        # The last rows fill no batch; the loader drops them, but never the same.
        DataLoader(source, batch_size=32, shuffle=shuffle, drop_last=shuffle),
        target=Target(DataLoader(clean, batch_size=7, shuffle=shuffle)),
    )
    np.testing.assert_array_equal(model.weights_, by_tensors.weights_)
    np.testing.assert_array_equal(
        model.predict_proba(DataLoader(dataset, batch_size=100, shuffle=shuffle)), by_tensors.predict_proba(X)
    )


def test_other_loaders_are_read_as_they_are(rows):
    X, y = rows
    names = [("ant", "bee")[k] for k in y.tolist()]
    target = Target(DataLoader(Dicts(X[:30], names[:30]), batch_size=8))
    chosen = [200, 3, 77, *range(100)]
    of_some = DataLoader(Dicts(X, names), batch_size=9, sampler=chosen)
    model = classifier().fit(of_some, target=target)
    again = classifier().fit(X[chosen], np.array(names)[chosen], target=Target(X[:30], names[:30]))
    assert list(model.classes_) == ["ant", "bee"]
    np.testing.assert_array_equal(model.weights_, again.weights_)
    some = DataLoader(Dicts(X, names), batch_size=9, sampler=SubsetRandomSampler(range(60)))
    assert classifier().fit(some, target=target).weights_.shape == (60,)
    streamed = classifier().fit(DataLoader(Stream(X, y), batch_size=64), target=Target(X[:30], y[:30]))
    assert streamed.weights_.shape == (230,)


def test_a_training_run_from_loaders_is_that_from_tensors(rows):
    X, y = rows

    def learned(data, eval_rows):
        torch.manual_seed(0)
        run = TrainingRun(importance_weighting(nn.Linear(3, 2), epochs=2), data, eval_sets={"all": eval_rows})
        return train(run, TrainingConfig(torch.optim.Adam, batch_size=40))

    source, clean = TensorDataset(X, y), TensorDataset(X[:30], y[:30])
    loaded = TrainingData(DataLoader(source, 32, shuffle=True), None, target=Target(DataLoader(clean, 8)))
    histories = [
        learned(loaded, DataLoader(source, 100)),
        learned(TrainingData(X, y, target=Target(X[:30], y[:30])), (X, y)),
    ]
    np.testing.assert_array_equal(*(history.row_weights() for history in histories))
    accuracies = [[epoch["accuracy"]["all"] for epoch in history.epochs] for history in histories]
    assert accuracies[0] == accuracies[1]


def test_target_rows_without_labels(rows):
    X, y = rows
    data = TrainingData(X, y, target=Target(DataLoader(TensorDataset(X[:30]), batch_size=8)))
    assert torch.equal(data.X_target, X[:30])
    assert data.y_target is None
    assert train(TrainingRun(baseline("uniform", nn.Linear(3, 2), 1), data), TrainingConfig(torch.optim.Adam)).finished


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        ([{"a": torch.ones(2), "b": torch.ones(2), "labels": torch.ones(2)}], InputTypeError, r"a dict of \['a', 'b'"),
        ([{"a": torch.ones(2), "b": torch.ones(2)}], InputTypeError, r"or dicts of X and \"labels\""),
        ([(torch.ones(2), torch.ones(2), torch.ones(2))], InputTypeError, r"a list of 3 \(Tensor, Tensor, Tensor\)"),
        ([(["a", "b"], torch.ones(2))], InputTypeError, r"X one tensor; got a list of 2 \(list, Tensor\)"),
        ([3.5], InputTypeError, "got a float"),
        ([], InputError, "X: the DataLoader gave no batch"),
        ([(torch.ones(2, 3),)], InputError, "y must hold one label for each of 2 rows"),
    ],
)
def test_loaders_of_other_forms(rows, batches, error, message):
    X, y = rows
    with pytest.raises(error, match=message):
        classifier().fit(DataLoader(batches, batch_size=None), target=Target(X, y))


def test_labels_twice_and_nowhere(rows):
    X, y = rows
    loader, unlabeled = DataLoader(TensorDataset(X, y)), DataLoader(TensorDataset(X))
    with pytest.raises(InputError, match="X: a DataLoader brings its own labels"):
        classifier().fit(loader, y, target=Target(X, y))
    with pytest.raises(InputError, match="target: a DataLoader brings its own labels"):
        classifier().fit(X, y, target=Target(loader, y))
    with pytest.raises(MissingTargetError):
        classifier().fit(X, y, target=Target(unlabeled))
    with pytest.raises(InputError, match="The source needs labels"):
        TrainingData(unlabeled, None, target=Target(X, y))


def test_validation_batches_start_again(rows):
    X, y = rows
    torch.manual_seed(0)
    batches = validation_batches(DataLoader(TensorDataset(X, y), batch_size=100, shuffle=True))
    passes = [torch.cat([next(batches)[0] for _ in range(3)]) for _ in range(2)]
    assert not torch.equal(*passes)
    for seen in passes:
        assert torch.equal(seen.sort(dim=0).values, X.sort(dim=0).values)
    for whole in ((X, y), {"x": X, "labels": y}, X):
        batches = validation_batches(whole)
        assert next(batches) is whole
        assert next(batches) is whole
    batches = validation_batches([(X[:2], y[:2]), (X[2:3], y[2:3])])
    assert [len(next(batches)[0]) for _ in range(4)] == [2, 1, 2, 1]


def test_a_sampler_of_several_processes_shuffles_anew_in_each_pass(rows):
    X, y = rows
    dataset = TensorDataset(X, y)
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0, shuffle=True)
    batches = validation_batches(DataLoader(dataset, batch_size=115, sampler=sampler))
    first, second = next(batches)[0], next(batches)[0]
    assert len(first) == len(second) == 115
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rows", [iter([torch.ones(2)]), 3, None])
def test_validation_rows_that_cannot_be_read_again(rows):
    with pytest.raises(InputTypeError, match="tensors or a DataLoader"):
        validation_batches(rows)


def test_validation_rows_that_are_empty():
    with pytest.raises(InputError, match="The list of validation rows gave no batch"):
        next(validation_batches([]))
