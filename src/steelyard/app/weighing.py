"""Importance weights of the rows of a file, of any length, into a CSV file."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

from steelyard._typing import FloatArray
from steelyard.app.atomic_files import check_file, csv_text, write_file, write_file_in_parts
from steelyard.app.inputs import match_unlabeled, read_pair, require_label, split_label
from steelyard.app.long_files import SAMPLE, any_long, encode_file
from steelyard.app.notes import reading_notes, unseen_combinations, unseen_levels
from steelyard.balance import Balance, balance_in_words, cross_fitted_balance
from steelyard.errors import SteelyardWarning, UnseenCellsWarning
from steelyard.ratio import RULSIF, AutoRatio
from steelyard.ratio.candidates import BOOSTED, mixture_in_words
from steelyard.tables import TableFile, TablePair, encode_pair, regular_files
from steelyard.target import Target
from steelyard.weights import effective_sample_size


def weigh_files(
    source: Path,
    target: Path,
    label: str | None,
    eta: float,
    seed: int,
    out: Path,
    progress: Progress,
    overwrite: bool = False,
    missing: Sequence[str] = (),
    client: Any = None,
) -> dict[str, Any]:
    """Write one importance weight per source row; return a summary of them. Long files go to a cluster, if any."""
    check_file(out, source, target, overwrite=overwrite)
    with progress, regular_files(source, target) as files:
        if any_long(*files):
            return weigh_long_files(
                files, label, eta, seed, out, progress, overwrite, missing, (source, target), client
            )
        frames = read_pair(files, progress, at_most=None, seed=seed, missing=missing, least=2)
        require_label(frames[0], label, files[0].name)
        task = progress.add_task("estimating importance weights", total=None, rows="")
        source_frame, target_frame = (split_label(frame, label)[0] for frame in frames)
        pair = encode_pair(*match_unlabeled(source_frame, target_frame, label, [file.name for file in files]))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", SteelyardWarning)
            warnings.simplefilter("ignore", UnseenCellsWarning)  # said below, by the names of the columns
            weights, method, balance = _weigh(pair, eta, seed)
        progress.remove_task(task)
    text = csv_text(["row", "weight"], ([i + 1, float(w)] for i, w in enumerate(weights)))
    write_file(out, text, source, target, overwrite=overwrite)
    notes = [
        *reading_notes(source_frame, target_frame),
        *unseen_levels(pair.source, pair.target, pair.encoding),
        *unseen_combinations(pair),
        *(str(warning.message) for warning in said),
    ]
    size = effective_sample_size(weights)
    return weights_summary(len(weights), method, size, float(weights.max()), balance, out, notes)


def weights_summary(
    n_rows: int, method: str, size: float, largest: float, balance: Balance, out: Path, notes: Sequence[str]
) -> dict[str, Any]:
    """What `steelyard weigh` says of the weights."""
    unbalanced = balance_in_words(balance.by_column())
    return {
        "rows": n_rows,
        "ratio": method,
        "effective_sample_size": size,
        "largest": largest,
        "mean_difference": {"before": balance.mean_before, "after": balance.mean_after},
        "balance": [asdict(column) for column in balance.by_column()],
        "out": str(out),
        "notes": [*notes, *([] if unbalanced is None else [unbalanced])],
    }


def weigh_long_files(
    files: Sequence[TableFile],
    label: str | None,
    eta: float,
    seed: int,
    out: Path,
    progress: Progress,
    overwrite: bool,
    missing: Sequence[str],
    inputs: Sequence[Path],
    client: Any,
) -> dict[str, Any]:
    """`weigh_files` in bounded memory: the columns are learned from a sample, the rows are encoded into a file.

    With a cluster that file is beside the output, where its workers can see it.
    """
    frames = read_pair(files, progress, at_most=SAMPLE, seed=seed, missing=missing, least=2)
    require_label(frames[0], label, files[0].name)
    source_sample, target_sample = (split_label(frame, label)[0] for frame in frames)
    samples = match_unlabeled(source_sample, target_sample, label, [file.name for file in files])
    pair = encode_pair(*samples)
    with (
        tempfile.TemporaryDirectory(dir=client and out.absolute().parent) as folder,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always", SteelyardWarning)
        warnings.simplefilter("ignore", UnseenCellsWarning)  # said below, by the names of the columns
        task, n_read = None, 0

        def advance(n_rows: int) -> None:
            nonlocal task, n_read
            task = progress.add_task("estimating importance weights", total=None, rows="") if task is None else task
            n_read += n_rows
            progress.update(task, rows=f"{n_read:,} rows read, over all passes")

        encoded = [
            encode_file(file, pair.encoding, sample, Path(folder), progress, missing, advance)
            for file, sample in zip(files, samples, strict=True)
        ]
        source, target = (
            each.rows(file.name, on_cluster=client is not None) for each, file in zip(encoded, files, strict=True)
        )
        ratio: Any = RULSIF(eta, random_state=seed) if eta > 0 else AutoRatio(random_state=seed)
        ratio.fit(source, target=target)
        largest = 0.0

        def lines() -> Iterator[str]:
            nonlocal largest
            yield "row,weight\n"
            row = 0
            for block in ratio.weights_ if client is None else (part.compute() for part in ratio.weights_.blocks):
                largest = max(largest, float(block.max()))
                yield "".join(f"{row + i},{weight!r}\n" for i, weight in enumerate(block.tolist(), 1))
                row += len(block)

        write_file_in_parts(out, lines(), *inputs, overwrite=overwrite)
    notes = [
        *reading_notes(*(each.missing.frame(file.name) for each, file in zip(encoded, files, strict=True))),
        *unseen_levels(pair.source, pair.target, pair.encoding),
        *unseen_combinations(pair),
        f"The columns were learned from an even sample of {SAMPLE:,} rows of each file"
        + ("." if eta > 0 else f", on which the estimators were compared; {_fitted_to_all_rows(ratio)}."),
        *(str(warning.message) for warning in said),
    ]
    method = f"RuLSIF, eta = {eta:g}" if eta > 0 else mixture_in_words(ratio.candidates_)
    balance = replace(ratio.balance_, columns=tuple(pair.encoding.feature_names))
    return weights_summary(encoded[0].n_rows, method, ratio.effective_sample_size_, largest, balance, out, notes)


def _weigh(pair: TablePair, eta: float, seed: int) -> tuple[FloatArray, str, Balance]:
    """Weights, the name of what estimated them, and the balance of the columns on held-out rows."""
    names, target = pair.encoding.feature_names, Target(pair.X_target)
    if eta > 0:
        relative = RULSIF(eta, random_state=seed).fit(pair.X, target=target)
        balance = cross_fitted_balance(RULSIF(eta, random_state=seed), pair.X, target=target, columns=names)
        return relative.weights_, f"RuLSIF, eta = {eta:g}", balance
    chosen = AutoRatio(random_state=seed).fit(pair.X, target=target)
    return chosen.weights_, mixture_in_words(chosen.candidates_), replace(chosen.balance_, columns=tuple(names))


def _fitted_to_all_rows(ratio: AutoRatio) -> str:
    """Which of the estimators that are averaged were fitted to all rows, in words."""
    names = [part.name for part in ratio.parts_ if part.ratio is not None]
    if BOOSTED not in names:
        return "the weights come from a fit to all rows" if names else "no row is weighted"
    if len(names) == 1:
        return "the boosted classifier keeps its fit to the sample"
    return "the boosted classifier keeps its fit to the sample, the rest is fitted to all rows"
