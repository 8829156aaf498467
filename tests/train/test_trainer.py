"""The loop: how long, what is reported, and that an interrupted run ends like one that was not."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastdata.errors import BackendMissingError, OptionError
from fastdata.train import Progress, Scores, Trainer, TrainOptions, build_model, load_checkpoint

CPU = torch.device("cpu")


def _data(n=22, batch=4, *, seeded=True, drop_last=False):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(n, 3, 8, 8, generator=generator)
    labels = torch.randint(0, 3, (n,), generator=generator)
    order = torch.Generator() if seeded else None
    loader = DataLoader(TensorDataset(images, labels), batch, shuffle=True, drop_last=drop_last, generator=order)
    return _Seeded(loader) if seeded else loader


class _Seeded:
    """An order of its own for each epoch, as FastLoader's with a seed."""

    def __init__(self, loader):
        self.loader, self.epochs = loader, []

    def __len__(self):
        return len(self.loader)

    def set_epoch(self, epoch):
        self.epochs.append(epoch)
        self.loader.generator.manual_seed(epoch)

    def __iter__(self):
        return iter(self.loader)


def _model():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.LazyLinear(3),
    )


def _trainer(batches, device=CPU, **options):
    model = _model()
    model(torch.zeros(2, 3, 8, 8))  # the lazy layer learns its size
    options = TrainOptions(**{"lr": 0.05, "amp": "off", "report_every": 1, **options})
    torch.manual_seed(6)
    return Trainer(model, options, device=device, batches_per_epoch=len(batches))


def _equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.values(), other.values(), strict=True))


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("options", [{}, {"accumulate": 4, "clip": 0.5}, {"amp": "fp16", "accumulate": 2}])
def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(options, seeded):
    batches = _data(seeded=seeded)
    states = {}
    whole = _trainer(batches, epochs=3, **options)
    whole.fit(batches, report=lambda p: states.setdefault(p.step, copy.deepcopy(whole.state_dict())))
    assert sorted(states) == list(range(1, whole.steps + 1))
    wanted = whole.model.state_dict()
    for state in list(states.values())[:-1]:
        resumed = _trainer(batches, epochs=3, **options)
        torch.manual_seed(99)
        resumed.load_state_dict(state)
        resumed.fit(batches)
        assert resumed.step == whole.steps
        assert _equal(resumed.model.state_dict(), wanted)


def test_states_go_through_a_file_at_every_epochs_end(tmp_path):
    path = tmp_path / "run.pt"
    batches = _data()
    saved = []
    whole = _trainer(batches, epochs=3)
    whole.fit(batches, val=batches, checkpoint=path, report=lambda _: saved.append(path.exists()))
    assert saved == [False] * 7 + [True] * 14  # six steps and scores, then the first checkpoint is there
    wanted = whole.model.state_dict()
    half = _trainer(batches, epochs=3)

    class StopError(Exception):
        pass

    def stop(event):
        if isinstance(event, Progress) and event.step == 9:
            raise StopError

    with pytest.raises(StopError):
        half.fit(batches, checkpoint=path, report=stop)
    resumed = _trainer(batches, epochs=3)
    resumed.load_state_dict(load_checkpoint(path))
    assert (resumed.step, resumed.epoch) == (6, 1)
    resumed.fit(batches)
    assert _equal(resumed.model.state_dict(), wanted)
    resumed.fit(batches)  # nothing is left to do
    assert _equal(resumed.model.state_dict(), wanted)


def test_a_checkpoint_of_another_model_is_refused():
    batches = _data()
    state = _trainer(batches).state_dict()
    other = Trainer(build_model("small", 3), TrainOptions(amp="off"), device=CPU, batches_per_epoch=6)
    with pytest.raises(OptionError, match="of another model"):
        other.load_state_dict(state)


def test_a_resumed_run_goes_by_its_own_options_not_by_the_saved_ones():
    batches = _data()
    first = _trainer(batches, epochs=1, schedule="constant")
    first.fit(batches)
    resumed = _trainer(batches, epochs=2, schedule="constant", lr=0.002)
    resumed.load_state_dict(copy.deepcopy(first.state_dict()))
    events = []
    resumed.fit(batches, report=events.append)
    assert [event.step for event in events] == [7, 8, 9, 10, 11, 12]
    assert {event.lr for event in events} == {0.002}


def test_a_state_from_within_an_epoch_needs_epochs_of_the_same_length():
    batches, longer = _data(), _data(batch=2)
    first = _trainer(batches, steps=8)
    first.fit(batches)
    with pytest.raises(OptionError, match="within an epoch of 6 batches, this run has 11"):
        _trainer(longer, steps=20).load_state_dict(first.state_dict())


@pytest.mark.parametrize(("accumulate", "steps"), [(1, 6), (2, 3), (4, 2), (100, 1)])
def test_an_epoch_learns_every_batch_and_tells_the_data_which_epoch_it_is(accumulate, steps):
    batches = _data()
    trainer = _trainer(batches, epochs=2, accumulate=accumulate)
    events = []
    trainer.fit(batches, report=events.append)
    assert [event.step for event in events] == list(range(1, 2 * steps + 1))
    assert sum(event.images for event in events) == 2 * 22
    assert batches.epochs == [0, 1]
    assert trainer.steps == 2 * steps


def test_steps_may_end_within_an_epoch_or_span_several():
    for steps in (1, 5, 15):
        batches = _data()
        events = []
        trainer = _trainer(batches, steps=steps, report_every=4)
        trainer.fit(batches, val=batches, report=events.append)
        progress = [event for event in events if isinstance(event, Progress)]
        assert trainer.step == progress[-1].step == steps
        assert sum(isinstance(event, Scores) for event in events) == math.ceil(steps / 6)
        assert progress[-1].lr == pytest.approx(0.05 / 25 / 1e4, rel=1e-6) or steps == 1


def test_a_run_that_only_skips_ends_all_the_same():  # C133
    batches = _data()
    trainer = _trainer(batches, epochs=1, amp="fp16")
    trainer.model[0].weight.register_hook(lambda gradient: gradient * math.nan)
    events = []
    trainer.fit(batches, report=events.append)
    assert [event.skipped for event in events] == [1, 2, 3, 4, 5, 6]
    assert {event.lr for event in events} == {events[0].lr}


def test_the_share_of_waiting_and_the_seconds_are_those_of_the_loop():
    class Slow:
        def __iter__(self):
            for batch in _data():
                time.sleep(0.03)
                yield batch

    events = []
    trainer = _trainer(_data(), epochs=1, report_every=100)
    began = time.perf_counter()
    trainer.fit(Slow(), val=Slow(), report=events.append)
    total = time.perf_counter() - began
    progress = events[0]
    assert progress.images == 22
    assert progress.waiting * progress.seconds >= 6 * 0.03
    assert progress.waiting > 0.4
    assert progress.seconds < total - 6 * 0.03  # evaluation is not in it
    assert progress.images_per_second == pytest.approx(22 / progress.seconds)


def test_cudnns_switch_is_put_back():
    seen = []
    before = torch.backends.cudnn.benchmark
    _trainer(_data(), epochs=1).fit(_data(), report=lambda _: seen.append(torch.backends.cudnn.benchmark))
    assert set(seen) == {True}
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_and_weights_are_channels_last_when_asked(channels_last):
    seen = []
    trainer = _trainer(_data(), epochs=1, channels_last=channels_last)
    trainer.model.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    trainer.fit(_data())
    assert set(seen) == {channels_last}
    assert trainer.model[0].weight.is_contiguous(memory_format=torch.channels_last) is channels_last


def test_empty_data_and_unknown_lengths_are_named():
    with pytest.raises(OptionError, match="an epoch has no batch"):
        _trainer(_data(), steps=3).fit([])
    with pytest.raises(OptionError, match="how many steps"):
        Trainer(_model(), TrainOptions(), device=CPU, batches_per_epoch=None)


def test_training_never_imports_the_loader():
    code = (
        "import sys, fastdata.train; bad = {'fastdata.loader', 'fastdata.engine', 'fastdata.stores', 'torchvision'};"
        "sys.exit(str(bad & set(sys.modules)) if bad & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_models_by_name():
    assert build_model("small", 7)(torch.zeros(2, 3, 64, 64)).shape == (2, 7)
    assert build_model("resnet18", 3)(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
    with pytest.raises(OptionError, match="resnet18"):
        build_model("resnet-18", 3)
    with pytest.raises(OptionError, match="1 class or more"):
        build_model("small", 0)


def test_without_torchvision_the_error_has_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # import raises, as where it is not installed
    with pytest.raises(BackendMissingError, match=r"pip install 'fastdata-loader\[train\]'"):
        build_model("resnet18", 3)
    build_model("small", 3)


@pytest.mark.cuda
@pytest.mark.parametrize("amp", ["off", "bf16", "fp16"])
def test_training_on_a_gpu_learns(amp):
    device = torch.device("cuda")
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (96,), generator=generator)
    images = torch.randn(96, 3, 32, 32, generator=generator) * 0.3
    images[torch.arange(96), labels] += 1.0
    torch.manual_seed(0)
    options = TrainOptions(epochs=10, lr=0.1, amp=amp, clip=5.0, report_every=3)
    trainer = Trainer(build_model("small", 3), options, device=device, batches_per_epoch=3)
    events = []
    batches = list(zip(images.split(32), labels.split(32), strict=True))
    trainer.fit(batches, val=batches, report=events.append)
    assert [event for event in events if isinstance(event, Scores)][-1].top1 > 0.9
    assert trainer.amp.precision == amp
