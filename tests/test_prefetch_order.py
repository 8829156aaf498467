"""The order of copies, events and reuse: checked on a model of a device whose streams run late, in random order.

The model has streams (queues of operations that run when the schedule says so), events, and a caching allocator that
gives a dead tensor's memory to the next one of its stream as soon as its rules allow. A read that comes too early or
too late finds another batch's number there. Every rule of the prefetcher, taken away, must be found out.
"""

from __future__ import annotations

import contextlib
import random
import weakref
from collections import deque
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdata.nested import map_tensors
from fastdata.prefetch import CudaPrefetcher, _Epoch

TRANSFORMED = 1_000_000


class Stream:
    """A queue of operations; a position is done when as many have run."""

    def __init__(self, name):
        self.name, self.issued, self.finished, self.queue = name, 0, 0, deque()

    def put(self, run, after=None):
        """Queue an operation that may run when the event ``after`` is done."""
        self.queue.append((run, after))
        self.issued += 1

    def runnable(self):
        return bool(self.queue) and done(self.queue[0][1])

    def step(self):
        run, _ = self.queue.popleft()
        run()
        self.finished += 1


def done(event):
    return event is None or event[0].finished >= event[1]


@dataclass(eq=False)
class Block:
    """A piece of memory with one number in it; ``pool`` says for whom it may be used again: a stream or a name."""

    pool: object
    value: int | None = None
    recorded: list = field(default_factory=list)
    freed_at: list | None = None


class Device:
    """fastdata.streams.Streams, on the model."""

    ahead = True

    def __init__(self, seed, eagerness):
        self.rng, self.eagerness = random.Random(seed), eagerness
        self.side, self.consumers = Stream("side"), [Stream("a"), Stream("b")]
        self.streams = [self.side, *self.consumers]
        self.speeds = {stream: self.rng.choice([1, 10, 1000]) for stream in self.streams}  # some are left far behind
        self.stack, self.free, self.blocks, self.violations = [self.consumers[0]], [], {}, []

    # --- time
    def pass_time(self):
        while self.rng.random() < self.eagerness:
            if not any(stream.runnable() for stream in self.streams):
                return
            self.step()

    def drain(self, until=None):
        while not done(until) if until else any(stream.queue for stream in self.streams):
            self.step()

    def step(self):
        ready = [stream for stream in self.streams if stream.runnable()]
        assert ready, "a deadlock: every stream waits"
        self.rng.choices(ready, [self.speeds[stream] for stream in ready])[0].step()

    # --- memory
    def new(self, pool, value=None):
        """Return a tensor in memory of ``pool``, the last freed of it where its rules allow."""
        for block in reversed(self.free):
            if block.pool is pool and all(map(done, block.freed_at)):
                self.free.remove(block)
                block.recorded, block.freed_at = [], None
                break
        else:
            block = Block(pool)
        if value is not None:
            block.value = value
        tensor = torch.zeros(())
        self.blocks[id(tensor)] = block
        weakref.finalize(tensor, self._died, id(tensor))
        return tensor

    def _died(self, number):
        block = self.blocks.pop(number)
        block.freed_at = [(stream, stream.issued) for stream in block.recorded]
        self.free.append(block)

    def block(self, tensor):
        return self.blocks[id(tensor)]

    def kernel(self, stream, change, source=None, target=None):
        source, target = (None if tensor is None else self.block(tensor) for tensor in (source, target))

        def run():
            value = change(None if source is None else source.value)
            if target is not None:
                target.value = value

        stream.put(run)

    # --- the seam
    def current(self):
        return self.stack[-1]

    @contextlib.contextmanager
    def use(self, stream):
        self.stack.append(stream)
        yield
        self.stack.pop()

    def wait_stream(self, stream, other):
        self.wait_event(stream, self.record_event(other))

    def record_event(self, stream):
        return stream, stream.issued

    def wait_event(self, stream, event):
        stream.put(lambda: None, after=event)

    def done(self, event):
        self.pass_time()
        return done(event)

    def synchronize(self, event):
        self.drain(until=event)

    def pin(self, tensor):
        block = self.block(tensor)
        return self.new("pinned", block.value) if block.pool == "pageable" else tensor

    def copy(self, tensor):
        if isinstance(self.block(tensor).pool, Stream):
            return tensor
        assert self.block(tensor).pool in {"pinned", "slot"}, "a copy from pageable memory blocks the host"
        target = self.new(self.current())
        self.kernel(self.current(), lambda value: value, tensor, target)
        return target

    def record_stream(self, tensor, stream):
        self.block(tensor).recorded.append(stream)


@dataclass(frozen=True)
class Plan:
    """One run: what the source gives, how the consumer behaves, how the streams progress."""

    seed: int
    eagerness: float = 0.5
    batches: int = 8
    depth: int = 2
    kinds: tuple[str, ...] = ("slot",)
    transform: bool = True
    two_streams: bool = True
    stop_at: int | None = None


class Source:
    """Gives batches of three kinds of tensors and watches how many slots are out."""

    def __init__(self, device, plan):
        self.device, self.plan, self.most = device, plan, 0

    def __iter__(self):
        for number in range(self.plan.batches):
            batch = {place: self.tensor(kind, number * 10 + place) for place, kind in enumerate(self.plan.kinds)}
            self.most = max(self.most, sum(block.pool == "slot" for block in self.device.blocks.values()))
            yield batch, number
            del batch

    def tensor(self, kind, value):
        if kind != "device":
            return self.device.new(kind, value)
        tensor = self.device.new(self.device.current())  # a kernel of the consumer's stream writes it, maybe later
        self.device.kernel(self.device.current(), lambda _: value, target=tensor)
        return tensor


def transform_on(device):
    def apply(tensor):
        target = device.new(device.current())
        device.kernel(device.current(), lambda v: None if v is None else v + TRANSFORMED, tensor, target)
        return target

    return lambda batch: map_tensors(batch, apply)


def use(device, batch, number, added):
    """Queue the consumer's step: it reads every tensor, on the stream that is current."""
    stream = device.current()
    for place, tensor in batch.items():
        if stream not in device.block(tensor).recorded:
            device.violations.append(f"batch {number} was not recorded with stream {stream.name}")

        def compare(value, expected=number * 10 + place + added):
            if value != expected:
                device.violations.append(f"{stream.name} read {value} where {expected} should be")

        device.kernel(stream, compare, tensor)


def consume(device, epoch, plan):
    """Use the batches and let go of each a step or two later; return how many came."""
    kept, count = deque(maxlen=device.rng.choice([1, 2])), 0
    for batch, number in epoch:
        assert number == count
        count += 1
        use(device, batch, number, TRANSFORMED * plan.transform)
        kept.append(batch)
        del batch
        device.pass_time()
        if plan.two_streams:
            device.stack[-1] = device.rng.choice(device.consumers)
        if count == plan.stop_at:
            break
    return count


def run(plan, cripple=None):
    """Run one epoch by ``plan`` and return the violations; ``cripple`` changes the device first."""
    device = Device(plan.seed, plan.eagerness)
    if cripple:
        cripple(device)
    source = Source(device, plan)
    transform = transform_on(device) if plan.transform else None
    epoch = _Epoch(source, device, transform, depth=plan.depth, again=False)
    count = consume(device, epoch, plan)
    epoch.close()
    device.drain()
    if cripple is None:
        assert count == (plan.batches if plan.stop_at is None else min(plan.batches, plan.stop_at))
        assert not device.blocks, "a tensor outlived its epoch"
        assert source.most <= (plan.depth + 1) * len(plan.kinds), "more batches were held than promised"
    return device.violations


plans = st.builds(
    Plan,
    seed=st.integers(0, 2**32),
    eagerness=st.sampled_from([0.0, 0.3, 0.6, 0.9]),
    batches=st.integers(0, 9),
    depth=st.integers(1, 4),
    kinds=st.lists(st.sampled_from(["slot", "pageable", "device"]), min_size=1, max_size=3).map(tuple),
    transform=st.booleans(),
    two_streams=st.booleans(),
    stop_at=st.none() | st.integers(1, 9),
)


@given(plans)
@settings(max_examples=300, deadline=None)
def test_no_interleaving_shows_a_wrong_value(plan):  # C119, on the model
    assert run(plan) == []


def _nothing(*_):
    return None


def _without(name, answer=_nothing):
    def cripple(device):
        setattr(device, name, answer)

    return cripple


def _recorded_but_not_kept(device):
    """Let the rule that record_stream was called pass, while the allocator does not heed it."""
    device._died = lambda number: Device._died(device, number)
    original = device.new

    def new(pool, value=None):
        for block in device.free:
            block.freed_at = []
        return original(pool, value)

    device.new = new


CRIPPLED = {
    "the side stream does not wait for the consumer's": _without("wait_stream"),
    "the consumer's stream does not wait for the copy": _without("wait_event"),
    "tensors are not recorded with the consumer's stream": _without("record_stream"),
    "the allocator forgets what was recorded": _recorded_but_not_kept,
    "sources are let go before their copy is done": _without("done", lambda _: True),
    "the host does not wait for the oldest copy": _without("synchronize"),
    "events are recorded before the copy": _without("record_event", lambda stream: (stream, 0)),
}


@pytest.mark.parametrize("what", CRIPPLED)
def test_each_rule_taken_away_is_found_out(what):
    kinds = ("slot", "pageable", "device")
    found = [
        violation
        for seed in range(150)
        for violation in run(Plan(seed, (0.0, 0.4, 0.8)[seed % 3], batches=9, kinds=kinds), CRIPPLED[what])
    ]
    assert any("read" in violation for violation in found), found[:3]


def test_what_is_missing_is_the_rule_and_not_the_plan():
    kinds = ("slot", "pageable", "device")
    assert not [run(plan) for seed in range(150) if run(plan := Plan(seed, (0.0, 0.4, 0.8)[seed % 3], 9, kinds=kinds))]


@given(plans)
@settings(max_examples=60, deadline=None)
def test_a_failing_transform_leaves_nothing_behind(plan):
    device, calls, text = Device(plan.seed, plan.eagerness), 0, "the third batch"

    def transform(batch):
        nonlocal calls
        calls += 1
        if calls > 2:
            raise ValueError(text)
        return batch

    batches = (device.new("slot", number) for number in range(plan.batches))
    epoch = _Epoch(batches, device, transform, depth=plan.depth, again=False)
    for _ in range(min(plan.batches, 2)):
        next(epoch)
    with pytest.raises(ValueError, match="third") if plan.batches > 2 else contextlib.nullcontext():
        assert next(epoch, "end") == "end"
    assert next(epoch, "end") == "end"
    assert not epoch._held


def test_streams_of_an_owner_are_used_epoch_after_epoch():
    device = Device(0, 0.5)
    for _ in range(2):
        batches = [device.new("slot", number) for number in range(4)]
        result = list(CudaPrefetcher(batches, "cpu", streams=device))
        assert [device.block(batch).pool for batch in result] == [device.side] * 4
    assert device.side.issued > 0
