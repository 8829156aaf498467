"""Automatic mixed precision as one value: autocast, and the loss scaling that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Amp", "Precision", "choose_precision"]

Precision = Literal["off", "bf16", "fp16"]

_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """Return the precision for ``wanted`` ("auto" or one of off, bf16, fp16) on ``device``; raise OptionError.

    auto depends on the hardware only, so that a resumed run gets what it had. CUDA: bf16 where the device has it, else
    fp16. CPU: bf16 where the processor has instructions for it (a training step of a small network then took 0.3 to
    0.5 of the time of float32 on an AVX512-BF16 core), else off; fp16 took 5 to 15 times as long there.
    """
    known: tuple[Precision, ...] = get_args(Precision)
    for precision in known:
        if precision == wanted:
            return precision
    if wanted != "auto":
        msg = f"amp is {wanted!r}; it can be auto, {', '.join(known)}"
        raise OptionError(msg)
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return "bf16" if device.type == "cpu" and _cpu_has_bf16() else "off"


def _cpu_has_bf16() -> bool:
    # torch older than 2.10 does not tell: float32 is right there, if not the fastest
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


class Amp:
    """Autocast and loss scaling for one optimizer: "fp16" scales the loss, "bf16" and "off" have no scaler in the way.

    The order of a step is backward (once or more), then unscale where gradients are looked at or changed, then step.
    """

    def __init__(
        self,
        precision: Precision,
        device: torch.device,
        *,
        init_scale: float = 65536.0,
        growth_interval: int = 2000,
    ) -> None:
        """Make the value; init_scale and growth_interval are GradScaler's and matter for fp16 only."""
        self.precision, self.device = precision, device
        self._scaler: torch.amp.GradScaler | None = None
        if precision == "fp16":
            self._scaler = torch.amp.GradScaler(device.type, init_scale=init_scale, growth_interval=growth_interval)

    def __repr__(self) -> str:
        """Return precision, device type and loss scale."""
        return f"Amp({self.precision}, {self.device.type}, scale={self.scale:g})"

    @property
    def scale(self) -> float:
        """The factor on the loss of the next backward; 1.0 without a scaler. Reading it waits for the device."""
        return 1.0 if self._scaler is None else float(self._scaler.get_scale())

    def autocast(self) -> torch.autocast:
        """Return the context for the forward pass and the loss; it does nothing where the precision is off."""
        dtype = _DTYPES.get(self.precision)
        return torch.autocast(self.device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of ``loss``, scaled for fp16, to those that are there."""
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        torch.autograd.backward(scaled)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the gradients true ones, by the scale that backward used; once before each step, before clipping."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step the optimizer unless a gradient is inf or NaN (fp16), and return whether it did; then adapt the scale.

        For fp16 this waits for the device, as GradScaler itself does.
        """
        if self._scaler is None:
            optimizer.step()
            return True
        before = self.scale
        self._scaler.step(optimizer)
        self._scaler.update()
        # A scale falls when, and only when, the step was skipped; asking the optimizer would miss fused ones, which
        # are called in either case and skip on the device.
        return self.scale >= before

    def state_dict(self) -> dict[str, Any]:
        """Return precision and scaler state, numbers and strings only."""
        return {"precision": self.precision, "scaler": {} if self._scaler is None else self._scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state; raise OptionError if it is one of another precision."""
        if state["precision"] != self.precision:
            msg = f"the checkpoint was made with amp {state['precision']}, this run has {self.precision}: ask for that"
            raise OptionError(msg)
        if self._scaler is not None:
            self._scaler.load_state_dict(dict(state["scaler"]))
