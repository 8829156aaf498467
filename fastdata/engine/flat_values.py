"""Values as bytes and back, in memory only: what a data set's samples are made of, and nothing that could run code.

Known are None, bool, int, float, complex, str, bytes, numpy arrays and scalars without objects, torch tensors on the
CPU, PIL images (as their ``copy()``, with what of ``info`` is of these types), and tuples, lists and dicts of them,
each of exactly that type: a subclass may mean more than its bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Unstorable", "flatten", "restore"]

_DEEPEST = 32  # levels of nesting; also what ends a list that holds itself
_SIZE = struct.Struct("<q")


class Unstorable(Exception):  # noqa: N818  not an error: it says which way a value takes
    """A value that has no bytes of its own."""


def flatten(value: object) -> list[Any]:
    """Return buffers that ``restore`` makes an equal value of, one behind the other; raise Unstorable.

    The buffers may be the value's own memory: use them before anybody changes it.
    """
    out: list[Any] = []
    _put(value, out, 0)
    return out


def restore(data: memoryview) -> Any:  # noqa: ANN401  whatever was flattened
    """Return the value in memory of its own, writable where such values are."""
    return _get(_Cursor(data))


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> memoryview:
        start = self.at
        self.at += size
        return self.data[start : self.at]

    def size(self) -> int:
        return int(_SIZE.unpack(self.take(8))[0])

    def block(self) -> memoryview:
        return self.take(self.size())


def _put(value: Any, out: list[Any], depth: int) -> None:  # noqa: ANN401
    kind = type(value)
    if depth > _DEEPEST:
        raise Unstorable
    if kind in {tuple, list}:
        out.append((b"t" if kind is tuple else b"l") + _SIZE.pack(len(value)))
        for item in value:
            _put(item, out, depth + 1)
        return
    if kind is dict:
        out.append(b"d" + _SIZE.pack(len(value)))
        for key, item in value.items():
            _put(key, out, depth + 1)
            _put(item, out, depth + 1)
        return
    writer = _WRITERS.get(kind)
    if writer is None:
        if isinstance(value, np.generic):
            writer = _put_scalar
        elif isinstance(value, Image.Image) and kind.__module__.startswith("PIL."):
            writer = _put_image
        else:
            raise Unstorable
    writer(value, out)


def _block(out: list[Any], tag: bytes, data: Any) -> None:  # noqa: ANN401  a buffer
    out.append(tag + _SIZE.pack(memoryview(data).nbytes))
    out.append(data)


def _put_array(value: np.ndarray[Any, Any], out: list[Any]) -> None:
    dtype = value.dtype
    if dtype.hasobject or dtype.kind == "V" or dtype.metadata:
        raise Unstorable
    fortran = value.flags.f_contiguous and not value.flags.c_contiguous
    _block(out, b"a", f"{dtype.str};{'F' if fortran else 'C'};{','.join(map(str, value.shape))}".encode())
    whole = np.ascontiguousarray(value.T if fortran else value)
    _block(out, b"", whole.reshape(-1).view(np.uint8).data if whole.size else b"")


def _put_scalar(value: np.generic[Any], out: list[Any]) -> None:
    out.append(b"g")
    _put_array(np.asarray(value), out)


def _put_tensor(value: torch.Tensor, out: list[Any]) -> None:
    plain = value.device.type == "cpu" and value.layout == torch.strided and not value.is_quantized
    if not plain or value.requires_grad or value.is_conj() or value.is_neg():
        raise Unstorable
    name = str(value.dtype).removeprefix("torch.")
    # The order of strides is part of a tensor: a channels_last image stays one.
    strides = value.stride()
    order = sorted(range(value.ndim), key=lambda axis: -strides[axis])
    whole = value.detach().permute(order).contiguous()
    _block(out, b"T", f"{name};{','.join(map(str, order))};{','.join(map(str, whole.shape))}".encode())
    _block(out, b"", whole.reshape(-1).view(torch.uint8).numpy().data if whole.numel() else b"")


def _put_image(value: Image.Image, out: list[Any]) -> None:
    value.load()
    info = {key: item for key, item in value.info.items() if type(key) is str and _is_storable(item)}
    palette = value.palette
    colours = (palette.mode, bytes(value.getpalette(palette.mode) or ())) if palette is not None else None
    out.append(b"p")
    _put((value.mode, value.size, colours, info), out, 1)
    _block(out, b"", value.tobytes())


def _is_storable(value: object) -> bool:
    try:
        flatten(value)
    except Unstorable:
        return False
    return True


_WRITERS: dict[type, Callable[[Any, list[Any]], None]] = {
    type(None): lambda _, out: out.append(b"n"),
    bool: lambda value, out: out.append(b"1" if value else b"0"),
    int: lambda value, out: _block(out, b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)),
    float: lambda value, out: out.append(b"f" + struct.pack("<d", value)),
    complex: lambda value, out: out.append(b"c" + struct.pack("<dd", value.real, value.imag)),
    str: lambda value, out: _block(out, b"s", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value, out: _block(out, b"b", value),
    np.ndarray: _put_array,
    torch.Tensor: _put_tensor,
}


def _get(cursor: _Cursor) -> Any:  # noqa: ANN401
    return _READERS[bytes(cursor.take(1))](cursor)


def _get_array(cursor: _Cursor) -> np.ndarray[Any, Any]:
    dtype, order, shape = bytes(cursor.block()).decode().split(";")
    sides = tuple(map(int, shape.split(","))) if shape else ()
    data = np.array(cursor.block(), np.uint8, copy=True).view(np.dtype(dtype))
    return data.reshape(sides[::-1]).T if order == "F" else data.reshape(sides)


def _get_tensor(cursor: _Cursor) -> torch.Tensor:
    name, order, shape = bytes(cursor.block()).decode().split(";")
    data = np.array(cursor.block(), np.uint8, copy=True)
    axes = [int(axis) for axis in order.split(",") if axis]
    sides = [int(side) for side in shape.split(",") if side]
    dtype: torch.dtype = getattr(torch, name)
    whole = torch.from_numpy(data).view(dtype).reshape(sides) if len(data) else torch.empty(sides, dtype=dtype)
    return whole.permute([axes.index(axis) for axis in range(len(axes))])


def _get_image(cursor: _Cursor) -> Image.Image:
    mode, size, colours, info = _get(cursor)
    image = Image.frombytes(mode, size, cursor.block())
    if colours is not None:
        image.putpalette(colours[1], colours[0])
    image.info = info
    return image


def _get_dict(cursor: _Cursor) -> dict[Any, Any]:
    pairs = [(_get(cursor), _get(cursor)) for _ in range(cursor.size())]
    return dict(pairs)


_READERS: dict[bytes, Callable[[_Cursor], Any]] = {
    b"n": lambda _: None,
    b"0": lambda _: False,
    b"1": lambda _: True,
    b"i": lambda cursor: int.from_bytes(cursor.block(), "little", signed=True),
    b"f": lambda cursor: struct.unpack("<d", cursor.take(8))[0],
    b"c": lambda cursor: complex(*struct.unpack("<dd", cursor.take(16))),
    b"s": lambda cursor: bytes(cursor.block()).decode("utf-8", "surrogatepass"),
    b"b": lambda cursor: bytes(cursor.block()),
    b"t": lambda cursor: tuple([_get(cursor) for _ in range(cursor.size())]),
    b"l": lambda cursor: [_get(cursor) for _ in range(cursor.size())],
    b"d": _get_dict,
    b"a": _get_array,
    b"g": lambda cursor: _get(cursor)[()],
    b"T": _get_tensor,
    b"p": _get_image,
}
