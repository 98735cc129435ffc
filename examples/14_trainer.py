"""
Wrong labels in the Trainer of Transformers
===========================================

A mixin before ``Trainer`` computes dynamic weights. The sentences are of made-up words; four labels in ten are wrong.

It takes about eight seconds; ``--full`` has 100 epochs. It needs ``pip install 'steelyard[transformers]'``.
"""

import sys
import tempfile

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from steelyard.datasets import label_noise
from steelyard.deep.transformers import DynamicWeightsMixin

rng = np.random.default_rng(0)
truth = rng.integers(0, 5, 1700)  # a subject, which half of the words of a sentence belong to
of_subject, any_word = 8 * truth[:, None] + rng.integers(0, 8, (1700, 10)), rng.integers(0, 40, (1700, 10))
sentences = np.where(rng.random((1700, 10)) < 0.5, of_subject, any_word)


def rows(start, stop, labels):
    words = torch.tensor(sentences[start:stop])
    return [{"input_ids": row, "labels": int(label)} for row, label in zip(words, labels, strict=True)]


train = rows(0, 1000, label_noise(truth[:1000], 0.4, random_state=0))
clean = rows(1000, 1200, truth[1000:1200])  # two hundred labels were looked at twice
test = rows(1200, 1700, truth[1200:])


class WeightedTrainer(DynamicWeightsMixin, Trainer):  # all that is needed
    pass


def learn(trainer, **options):
    set_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=40, num_labels=5, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        arguments = TrainingArguments(
            folder,
            num_train_epochs=100 if "--full" in sys.argv else 30,
            per_device_train_batch_size=50,
            learning_rate=3e-3,
            use_cpu=True,
            **quiet,
        )
        fitted = trainer(model, arguments, train_dataset=train, **options)
        fitted.train()
        return (fitted.predict(test).predictions.argmax(axis=1) == truth[1200:]).mean()


plain, weighted = learn(Trainer), learn(WeightedTrainer, clean=clean)
print(f"plain: {plain:.1%} of the test sentences right; with dynamic weights: {weighted:.1%}")
