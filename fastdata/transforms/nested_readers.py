"""RandomApply, RandomChoice and RandomOrder: steps of pixels within a step: all together, one of them, or shuffled."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fastdata.transforms.attributes import number, probability
from fastdata.transforms.composition import refuse
from fastdata.transforms.pixel_readers import Coloured
from fastdata.transforms.pixel_steps import Grey, Mirror, OneOf, Shuffled, Sometimes, WholeBatch
from fastdata.transforms.plan import HorizontalFlip, VerticalFlip
from fastdata.transforms.policy_readers import Sized
from fastdata.transforms.readers import Geometric, Nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fastdata.transforms.pixel_steps import PixelStep

    #: Yields the steps within a step, containers opened, by name and as what they were read as.
    Opened = Callable[[object], Iterable[tuple[str, Any]]]
    Steps = tuple[PixelStep, ...]

__all__ = ["NESTED_READERS", "makes_three_channels", "mirrored"]

_MOST_SHUFFLED = 10  # 10! orders are drawn evenly by 32 bits to 0.1 %


def mirrored(flip: HorizontalFlip | VerticalFlip) -> Mirror:
    """Return a flip as a step of pixels."""
    return Mirror(0 if isinstance(flip, HorizontalFlip) else 1, flip.p)


def makes_three_channels(step: PixelStep) -> bool:
    """Return whether a step within ``step`` asks for three channels: Grayscale(3)."""
    return any(
        (isinstance(inner, Grey) and inner.channels is not None) or makes_three_channels(inner)
        for inner in getattr(step, "steps", ())
    )


def _apply(step: Any, opened: Opened) -> Coloured | Sized:  # noqa: ANN401  any object of a known type
    p = probability(step)
    return _joined([_chain(step.transforms, opened)], lambda chains: Sometimes(p, chains[0]))


def _choice(step: Any, opened: Opened) -> Coloured | Sized:  # noqa: ANN401
    shares = None if step.p is None else [number(p, "p") for p in step.p]
    count = len(step.transforms)
    upto: tuple[float, ...] | None = None
    if shares is not None:
        if len(shares) != count or min(shares) < 0 or not sum(shares) > 0:
            refuse(f"p {step.p!r} is no share for each of {count}")
        upto = None if len(set(shares)) == 1 else tuple(edge / sum(shares) for edge in accumulate(shares))
    return _joined(
        [_chain([one], opened) for one in _listed(step.transforms)],
        lambda chains: OneOf(tuple(map(_as_one, chains)), upto),
    )


def _order(step: Any, opened: Opened) -> Coloured | Sized:  # noqa: ANN401
    if len(step.transforms) > _MOST_SHUFFLED:
        refuse(f"it shuffles more than {_MOST_SHUFFLED} steps")
    return _joined(
        [_chain([one], opened) for one in _listed(step.transforms)],
        lambda chains: Shuffled(tuple(map(_as_one, chains))),
    )


def _listed(steps: Any) -> list[object]:  # noqa: ANN401
    if type(steps).__name__ != "ModuleList" and type(steps) not in (list, tuple):
        refuse(f"its transforms are a {type(steps).__name__}, not a list")
    return list(steps)


def _chain(steps: Any, opened: Opened) -> list[tuple[str, Coloured | Sized]]:  # noqa: ANN401
    """Return the steps, which run in turn, by name; refuse what cannot be left out of a picture's way."""
    found: list[tuple[str, Coloured | Sized]] = []
    for name, read in opened(_listed(steps)):
        match read:
            case Nothing():
                pass
            case Geometric(steps=(HorizontalFlip() | VerticalFlip() as flip,)):
                found.append((name, Coloured((mirrored(flip),), (mirrored(flip),))))
            case Coloured() if not any(_changes_shape(one) for one in read.steps):
                found.append((name, read))
            case Sized():
                found.append((name, read))
            case _:
                refuse(f"{name} inside it")
    return found


def _changes_shape(step: PixelStep) -> bool:
    return isinstance(step, WholeBatch) or (isinstance(step, Grey) and step.channels == 1)


def _joined(
    chains: list[list[tuple[str, Coloured | Sized]]], join: Callable[[list[Steps]], PixelStep]
) -> Coloured | Sized:
    """Return the step that ``join`` makes of the chains, for pictures and for tensors."""
    if any(isinstance(read, Sized) for chain in chains for _, read in chain):

        def sized(width: int, height: int) -> Coloured:
            made = [
                [(name, read.make(width, height) if isinstance(read, Sized) else read) for name, read in chain]
                for chain in chains
            ]
            return _coloured(made, join)

        return Sized(sized)
    return _coloured([[(name, read) for name, read in chain if isinstance(read, Coloured)] for chain in chains], join)


def _coloured(chains: list[list[tuple[str, Coloured]]], join: Callable[[list[Steps]], PixelStep]) -> Coloured:
    steps = [tuple(_each(read.steps for _, read in chain)) for chain in chains]
    refused = [f"{name} inside it: {read.on_tensor}" for chain in chains for name, read in chain
               if isinstance(read.on_tensor, str)]  # fmt: skip
    on_tensor = [tuple(_each(read.on_tensor for _, read in chain if not isinstance(read.on_tensor, str)))
                 for chain in chains]  # fmt: skip
    return Coloured((join(steps),), refused[0] if refused else (join(on_tensor),))


def _each(parts: Iterable[Steps]) -> Iterator[PixelStep]:
    for part in parts:
        yield from part


def _as_one(steps: Steps) -> PixelStep:
    return steps[0] if len(steps) == 1 else Sometimes(1.0, steps)


#: By the name that torchvision.transforms and torchvision.transforms.v2 export.
NESTED_READERS: dict[str, Callable[[Any, Opened], Coloured | Sized]] = {
    "RandomApply": _apply,
    "RandomChoice": _choice,
    "RandomOrder": _order,
}
