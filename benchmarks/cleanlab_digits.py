"""The digits experiment with cleanlab's filtering: ``python -m benchmarks.cleanlab_digits`` writes its stored figures.

cleanlab (AGPL) is installed in the benchmark environment alone; `experiments.digits` reads the file that this module
writes. It is given what the classifier is given: the same network, the same steps of Adam, the clean rows, and a
quarter of them kept aside to choose the epoch of every training.
"""

from __future__ import annotations

import argparse
import copy
import csv
import io
import json
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from torch import nn

from experiments import digits
from experiments.digits import Draw
from experiments.engine.cells import Settings
from experiments.engine.files import replace_file
from steelyard.deep._candidates import step_budget
from steelyard.deep.training import TrainingConfig, TrainingData, TrainingRun, baseline, set_aside, train
from steelyard.target import Target

N_FOLDS = 5
COLUMNS = ["settings", "seed", "data", "trial", *(each.name for each in digits.PEERS), "cleanlab_version"]


def fitted(
    start: nn.Module, draw: Draw, rows: np.ndarray, n_steps: int, batch: int, seed: int, keep: bool
) -> nn.Module:
    """The network after `n_steps` steps on some training rows and the clean ones, in its kept epoch."""
    kept, others = set_aside(draw.y_clean, 0.25 if keep else 0.0, seed)
    X = torch.tensor(np.concatenate([draw.X[rows], draw.X_clean[others]]))
    y = torch.tensor(np.concatenate([draw.given[rows], draw.y_clean[others]])).long()
    kept_rows = (torch.tensor(draw.X_clean[kept]), torch.tensor(draw.y_clean[kept]).long()) if keep else None
    model = copy.deepcopy(start)
    method = baseline("uniform", model, max(1, round(n_steps / (len(y) // batch))))
    run = TrainingRun(method, TrainingData(X, y, Target(X)), seed=seed, kept_rows=kept_rows)
    found = train(run, TrainingConfig(lambda p: torch.optim.Adam(p, lr=1e-3), batch_size=batch), progress=False)
    if found.kept_state is not None:
        model.load_state_dict(found.kept_state)
    return model.eval()


def figures(name: str, trial: int, settings: Settings, seed: int, keep: bool = True) -> dict[str, float]:
    """Test error after training without the rows that cleanlab finds, and the AUC of its scores."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    draw = digits.draw(name, trial, settings, seed)
    start = digits.network(draw, trial, settings)
    n = len(draw.given)
    epochs, batch = step_budget(n + len(draw.y_clean), None, None)
    n_steps = epochs * ((n + len(draw.y_clean)) // batch)
    probabilities = np.zeros((n, draw.n_classes))
    for train_rows, rows in StratifiedKFold(N_FOLDS, shuffle=True, random_state=trial).split(draw.X, draw.given):
        model = fitted(start, draw, train_rows, n_steps, batch, trial, keep)
        with torch.no_grad():
            probabilities[rows] = torch.softmax(model(torch.tensor(draw.X[rows])).double(), dim=1).numpy()
    issues = find_label_issues(draw.given, probabilities)
    model = fitted(start, draw, np.flatnonzero(~issues), n_steps, batch, trial, keep)
    quality = get_label_quality_scores(draw.given, probabilities)
    return {
        digits.PEER.name: digits.wrong(model, draw),
        digits.PEER_RANKING.name: float(roc_auc_score(draw.given != draw.right, -quality)),
    }


def main() -> None:
    """Measure the trials that are reported, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-trial", type=int, default=digits.EXPERIMENT.trials.start)
    parser.add_argument("--trials", type=int, default=len(digits.EXPERIMENT.trials))
    parser.add_argument("--out", default=str(digits.PEER_FILE))
    parser.add_argument("--last-epoch", action="store_true", help="no row is kept aside: the last epoch")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings = digits.EXPERIMENT.settled({})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for data in (digits.PAIR, digits.SYMMETRIC):
        for trial in range(chosen.first_trial, chosen.first_trial + chosen.trials):
            found = figures(data.name, trial, settings, 0, not chosen.last_epoch)
            numbers = [repr(found[each.name]) for each in digits.PEERS]
            writer.writerow([json.dumps(settings, sort_keys=True), 0, data.name, trial, *numbers, version("cleanlab")])
            print(data.name, trial, *numbers, flush=True)
    replace_file(Path(chosen.out), text.getvalue().encode())


if __name__ == "__main__":
    main()
