"""Evaluation counts each valid sample once and leaves the model as it was."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fastdata.errors import OptionError
from fastdata.train import Amp, evaluate

CPU = torch.device("cpu")


class _Echo(torch.nn.Module):
    """Gives its input back as logits; notes in which mode it was called."""

    def __init__(self):
        super().__init__()
        self.modes = set()

    def forward(self, x):
        self.modes.add((self.training, torch.is_inference_mode_enabled()))
        return x


def _batches():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 10, generator=generator)
    return logits, torch.randint(0, 10, (50,), generator=generator)


def test_scores_are_the_means_over_all_samples_whatever_the_batches():
    logits, labels = _batches()
    for size in (50, 7, 1):
        scores = evaluate(_Echo(), zip(logits.split(size), labels.split(size), strict=True), amp=Amp("off", CPU))
        assert scores.samples == 50
        assert scores.loss == pytest.approx(float(functional.cross_entropy(logits, labels)), rel=1e-5)
        assert scores.top1 == pytest.approx(float((logits.argmax(1) == labels).float().mean()))
        five = (logits.argsort(1, descending=True)[:, :5] == labels[:, None]).any(1)
        assert scores.top5 == pytest.approx(float(five.float().mean()))


def test_entries_that_only_fill_up_do_not_count():
    logits, labels = _batches()
    valid = torch.ones(50, dtype=torch.bool)
    valid[[3, 20, 49]] = False
    logits[3] = torch.nan
    filled = evaluate(_Echo(), [(logits, labels, valid)], amp=Amp("off", CPU))
    alone = evaluate(_Echo(), [(logits[valid], labels[valid])], amp=Amp("off", CPU))
    assert filled.samples == alone.samples == 47
    assert (filled.top1, filled.top5) == (alone.top1, alone.top5)
    assert filled.loss == pytest.approx(alone.loss)


@pytest.mark.parametrize("training", [True, False])
def test_runs_in_eval_and_inference_mode_and_puts_the_mode_back(training):
    model = _Echo().train(training)
    evaluate(model, [_batches()], amp=Amp("off", CPU))
    assert model.modes == {(False, True)}
    assert model.training is training

    def breaks():
        yield _batches()
        raise KeyError

    with pytest.raises(KeyError):
        evaluate(model, breaks(), amp=Amp("off", CPU))
    assert model.training is training


def test_fewer_than_five_classes_and_mixed_precision():
    scores = evaluate(_Echo(), [(torch.eye(3), torch.arange(3))], amp=Amp("bf16", CPU))
    assert (scores.top1, scores.top5) == (1.0, 1.0)


@pytest.mark.parametrize("batches", [[], [(torch.eye(3), torch.arange(3), torch.zeros(3, dtype=torch.bool))]])
def test_nothing_to_evaluate_is_an_error(batches):
    with pytest.raises(OptionError, match="nothing to evaluate"):
        evaluate(_Echo(), batches, amp=Amp("off", CPU))
