"""``unpack``: the files of a pack back into a folder that an ImageFolder, or ``pack``, reads again."""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdata.converters.atomic import writing
from fastdata.errors import DestinationExistsError, PackError, StoreFormatError
from fastdata.stores.opener import open_store
from fastdata.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.types import Field, Record

__all__ = ["UnpackReport", "member_path", "unpack"]

_ENDINGS = {
    "jpeg": ".jpg", "png": ".png", "webp": ".webp", "bmp": ".bmp", "gif": ".gif", "tiff": ".tif", "avif": ".avif",
    "heic": ".heic", "jxl": ".jxl", "jp2": ".jp2", "json": ".json", "text": ".txt", "raw": ".png",
}  # fmt: skip
_METADATA = "metadata.jsonl"
_DEVICES = frozenset({"CON", "PRN", "AUX", "NUL", *(f"{n}{i}" for n in ("COM", "LPT") for i in range(10))})


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """How many samples were written where, in how many files and bytes.

    metadata: whether a metadata.jsonl was written. no_folder: the classes of which no sample was written.
    """

    dst: str
    samples: int
    files: int
    bytes_out: int
    metadata: bool
    no_folder: tuple[str, ...] = ()


def unpack(
    src: str | os.PathLike[str] | Store,
    dst: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UnpackReport:
    """Write every sample as ``dst/class/key.ending`` and return what was written; raw pixels become PNG.

    A key that begins with its class's name gets no second folder of that name; samples without class names lie by
    their key alone. Further fields stand beside the image as ``key.field.ending``. Extras, and labels that are no
    classes, go to ``dst/metadata.jsonl`` (file_name, label, ...). Nothing outside ``dst`` is written, whatever the keys
    are (StoreFormatError); files that exist are replaced only with ``overwrite`` (DestinationExistsError).
    """
    store = src if isinstance(src, Store) else open_store(src)
    try:
        total = len(store) if limit is None else min(limit, len(store))
        tree = _Tree(Path(dst), overwrite=overwrite)
        try:
            for i in range(total):
                tree.add(store.record(i), store.classes)
                if progress is not None:
                    progress(i + 1, total)
            tree.finish()
        finally:
            tree.abort()
        no_folder = [name for number, name in enumerate(store.classes) if tree.labels and number not in tree.labels]
        return UnpackReport(str(dst), total, tree.files, tree.bytes_out, tree.has_metadata, tuple(no_folder))
    finally:
        if store is not src:
            store.close()


def member_path(key: str, ending: str, *, windows: bool = os.name == "nt") -> str:
    """Return ``key + ending`` as a relative path; raise StoreFormatError where it would leave the folder."""
    parts = (key + ending).split("/")
    bad = any(part in {"", ".", ".."} or "\0" in part for part in parts) or key.rpartition("/")[2] in {"", ".", ".."}
    if windows:
        bad = bad or any(
            "\\" in part or ":" in part or part != part.rstrip(" .") or part.partition(".")[0].upper() in _DEVICES
            for part in parts
        )
    if bad:
        msg = f"key {key!r} is not the path of a file inside a folder: the pack is damaged or made to do harm"
        raise StoreFormatError(msg)
    return "/".join(parts)


class _Tree:
    """The folder that is written to."""

    def __init__(self, root: Path, *, overwrite: bool) -> None:
        self.files = self.bytes_out = 0
        self.labels: set[int] = set()  # of the samples that went into their class's folder
        self._overwrite = overwrite
        self._made: set[Path] = set()
        self._written: set[int] = set()  # inode numbers of what this run has written
        self._metadata: io.TextIOWrapper | None = None
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._root = root.resolve()
        except OSError as error:
            msg = f"cannot make the folder {root}: {error.strerror}"
            raise PackError(msg) from error

    @property
    def has_metadata(self) -> bool:
        return self._metadata is not None

    def add(self, record: Record, classes: tuple[str, ...]) -> None:
        """Write one sample."""
        key, label = record.key, record.label
        known = isinstance(label, int) and 0 <= label < len(classes)
        if known:
            self.labels.add(label)  # type: ignore[arg-type]
            folder = classes[label]  # type: ignore[index]
            key = key if key.startswith(folder + "/") else f"{folder}/{key}"
        image, *others = record.fields
        name = member_path(key, _ending(image))
        self._write(name, _file_bytes(image, record))
        for field in others:
            self._write(member_path(key, f".{field.name}{_ending(field)}"), field.data)
        facts: dict[str, Any] = dict(record.extras)
        if label is not None and not known:
            facts["label"] = list(label) if isinstance(label, tuple) else label
        if facts:
            self._note({"file_name": name, **facts})

    def finish(self) -> None:
        """Give the metadata file its name."""
        if self._metadata is not None:
            with writing(self._root / _METADATA):
                self._metadata.close()
                Path(self._metadata.name).replace(self._root / _METADATA)

    def abort(self) -> None:
        """Remove the metadata file where it has no name yet; may be called after finish."""
        if self._metadata is not None:
            with suppress(OSError):  # what is left cannot be written on a full disk
                self._metadata.close()
            Path(self._metadata.name).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes | memoryview) -> None:
        path = self._root / name
        file = self._open_for(path)
        if self._overwrite:
            file.refuse_ours(self._written)
        self._written.add(file.write_bytes(data))
        self.files += 1
        self.bytes_out += len(data)

    def _open_for(self, path: Path) -> _NewFile:
        if path.parent not in self._made:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                msg = f"cannot make the folder {path.parent}: {error.strerror}"
                raise PackError(msg) from error
            # A link that lies in the folder already must not lead us out of it.
            if self._root not in (parent := path.parent.resolve()).parents and parent != self._root:
                msg = f"{path.parent} leads out of {self._root} (a link): nothing is written there; remove the link"
                raise PackError(msg)
            self._made.add(path.parent)
        return _NewFile(path, overwrite=self._overwrite)

    def _note(self, facts: dict[str, Any]) -> None:
        path = self._root / _METADATA
        with writing(path):
            if self._metadata is None:
                _NewFile(path, overwrite=self._overwrite).refuse_old()
                self._metadata = _partial_beside(path, "metadata.").open("x", encoding="utf-8")
            self._metadata.write(json.dumps(facts) + "\n")


class _NewFile:
    """A file that was not there before: links are replaced, never followed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path, self._overwrite = path, overwrite

    def refuse_ours(self, written: set[int]) -> None:
        """Raise StoreFormatError where a file of this run lies there: of an equal key, or one of another case."""
        try:
            there = self._path.lstat().st_ino
        except OSError:
            return
        if there in written:
            msg = (
                f"{self._path}: two samples would be this one file (equal keys, or the disk ignores case): unpack apart"
            )
            raise StoreFormatError(msg)

    def refuse_old(self) -> None:
        """Raise DestinationExistsError where a file lies there already, unless it is to be replaced."""
        if not self._overwrite and os.path.lexists(self._path):
            msg = f"{self._path} exists already; overwrite (--overwrite) replaces it, or choose another folder"
            raise DestinationExistsError(msg)

    def write_bytes(self, data: bytes | memoryview) -> int:
        """Write the file under another name, give it its own when it is whole, and return its inode number."""
        self.refuse_old()
        partial = _partial_beside(self._path)
        try:
            with partial.open("xb") as file:
                file.write(data)
                number = os.fstat(file.fileno()).st_ino
            partial.replace(self._path)
        except OSError as error:
            msg = f"cannot write {self._path}: {error.strerror}"
            raise PackError(msg) from error
        finally:
            partial.unlink(missing_ok=True)  # a full disk, or Ctrl-C
        return number


def _partial_beside(path: Path, kind: str = "") -> Path:
    """Return a free temporary name in the folder of ``path``, short, as keys may be as long as the disk takes names."""
    partial = path.with_name(f".unpacking-{os.getpid()}.{kind}partial")
    partial.unlink(missing_ok=True)
    return partial


def _ending(field: Field) -> str:
    if field.codec == "unknown":
        from fastdata.decoding.header import sniff  # noqa: PLC0415  folders only

        return _ENDINGS.get(sniff(field.data), ".bin")
    return _ENDINGS.get(field.codec, ".bin")


def _file_bytes(image: Field, record: Record) -> bytes | memoryview:
    if image.codec != "raw":
        return image.data
    from PIL import Image  # noqa: PLC0415  raw pixels only

    size = record.width, record.height
    mode = "RGB" if len(image.data) == 3 * size[0] * size[1] else "L"
    buffer = io.BytesIO()
    try:
        Image.frombytes(mode, size, bytes(image.data)).save(buffer, "PNG")
    except ValueError as error:
        msg = f"key {record.key!r}: its raw pixels are no picture of {size[0]} x {size[1]}: {error}"
        raise StoreFormatError(msg) from error
    return buffer.getvalue()
