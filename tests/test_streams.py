"""The calls that CudaStreams makes to torch, where no GPU can answer them; and gpu_check without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fastdata.errors import LoaderError
from fastdata.prefetch import CudaPrefetcher
from fastdata.streams import CudaStreams, PlainStreams, open_streams

GPU_CHECK = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu_check.py"


class Recorder:
    """Stands for torch.cuda's streams, events and contexts; writes down what is asked of them."""

    def __init__(self):
        self.calls, self.made, self.capturing = [], 0, False

    def stream(self, name):
        recorder = self

        class Stream:
            def __repr__(self):
                return name

            def wait_stream(self, other):
                recorder.calls.append(("wait_stream", name, repr(other)))

            def wait_event(self, event):
                recorder.calls.append(("wait_event", name, event.number))

        return Stream()

    def event(self, *, blocking):
        recorder = self
        self.made += 1

        class Event:
            number = self.made

            def record(self, stream):
                recorder.calls.append(("record", self.number, repr(stream)))

            def query(self):
                recorder.calls.append(("query", self.number))
                return False

            def synchronize(self):
                recorder.calls.append(("synchronize", self.number))

        assert blocking
        return Event()


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    main = recorder.stream("main")

    class Use:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            recorder.calls.append(("enter", repr(self.stream)))

        def __exit__(self, *_):
            recorder.calls.append(("exit", repr(self.stream)))

    def record_stream(tensor, stream):
        recorder.calls.append(("record_stream", tensor.item() if tensor.device.type == "cpu" else 0, repr(stream)))

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: recorder.stream(f"side of {device}"))
    monkeypatch.setattr(torch.cuda, "Event", recorder.event)
    monkeypatch.setattr(torch.cuda, "stream", Use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: recorder.calls.append(("current", device)) or main)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: recorder.capturing)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: recorder.calls.append(("pin",)) or tensor.clone())
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda tensor, device, non_blocking: recorder.calls.append(("to", str(device), non_blocking)) or tensor.clone(),
    )
    return recorder


def test_the_calls_of_one_batch_in_their_order(recorder):
    device = torch.device("cuda:1")
    iterator = iter(CudaPrefetcher([torch.tensor(7)], "cpu", streams=CudaStreams(device), depth=1))
    assert int(next(iterator)) == 7
    assert recorder.calls == [
        ("current", device),
        ("wait_stream", "side of cuda:1", "main"),
        ("enter", "side of cuda:1"),
        ("pin",),
        ("to", "cuda:1", True),
        ("exit", "side of cuda:1"),
        ("record", 1, "side of cuda:1"),
        ("query", 1),  # nothing is waited for, before the next batch of the source
        ("wait_event", "main", 1),
        ("record_stream", 7, "main"),
        ("query", 1),
    ]
    recorder.calls.clear()
    assert next(iterator, None) is None
    assert recorder.calls == [("current", device), ("query", 1), ("synchronize", 1)]


def test_a_capture_stops_next_and_nothing_else(recorder):  # C128
    iterator = iter(
        CudaPrefetcher([torch.tensor(n) for n in range(3)], "cpu", streams=CudaStreams(torch.device("cuda:0")))
    )
    assert int(next(iterator)) == 0
    recorder.capturing = True
    with pytest.raises(LoaderError, match="a CUDA graph is being captured"):
        next(iterator)
    recorder.capturing = False
    assert [int(batch) for batch in iterator] == [1, 2]


def test_the_cpu_has_plain_streams():
    assert type(open_streams("cpu")) is PlainStreams
    assert not open_streams("cpu").ahead


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_gpu_check_without_a_gpu_says_so():
    done = subprocess.run([sys.executable, str(GPU_CHECK)], capture_output=True, text=True, timeout=60, check=True)
    result = json.loads(done.stdout)
    assert result["cuda"] is False
    assert "no CUDA device" in result["why"]
