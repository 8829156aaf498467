"""Every error that fastdata raises on purpose.

::

    FastdataError
    ├── OptionError (ValueError)                an argument is wrong; says which values are right
    ├── BackendMissingError (ImportError)       a named backend is not installed; says the line that installs it
    ├── StoreError
    │   ├── StoreNotFoundError (FileNotFoundError)   nothing lies at this path
    │   ├── MissingPartError (FileNotFoundError)     a shard that the pack names is not there
    │   ├── StoreFormatError (ValueError)            the bytes there are not what they claim to be
    │   │   ├── IncompletePackError                  a pack that was not finished
    │   │   ├── TruncatedStoreError                  a file is shorter than its header or index says
    │   │   ├── StaleIndexError                      the index was made for other bytes
    │   │   ├── ChecksumError                        a record's bytes are not those that were packed
    │   │   └── DuplicateKeyError                    one key (or one field of it) stands there twice
    │   ├── KeyNotFoundError (KeyError)              no sample has this key
    │   └── StoreClosedError (ValueError)            the store was closed before this call
    ├── DecodeError (ValueError)                an image cannot be decoded
    │   ├── TruncatedImageError                 its data end before its last pixel
    │   ├── UnsupportedImageError               its format, or a variant of it, is not readable here
    │   └── ImageTooLargeError                  more pixels than max_pixels
    ├── PackError (RuntimeError)                a pack could not be made
    │   ├── DestinationExistsError (FileExistsError)
    │   ├── NothingPackedError                  no file of the source could be packed
    │   └── TooManySkippedError                 more files were skipped than max_errors allows
    ├── SampleError (RuntimeError)              a sample failed in a loader; names its key and index
    ├── BatchShapeError (RuntimeError)          samples of different shapes cannot be stacked
    └── LoaderError (RuntimeError)              a loader's worker or thread failed

Every leaf can be built from one string and has no attribute ``message``, so that torch's worker wrapper can raise it
again in the parent as what it was. The text says what happened, where (path, key, index), and what to do.
"""

from __future__ import annotations

__all__ = [
    "BackendMissingError",
    "BatchShapeError",
    "ChecksumError",
    "DecodeError",
    "DestinationExistsError",
    "DuplicateKeyError",
    "FastdataError",
    "ImageTooLargeError",
    "IncompletePackError",
    "KeyNotFoundError",
    "LoaderError",
    "MissingPartError",
    "NothingPackedError",
    "OptionError",
    "PackError",
    "SampleError",
    "StaleIndexError",
    "StoreClosedError",
    "StoreError",
    "StoreFormatError",
    "StoreNotFoundError",
    "TooManySkippedError",
    "TruncatedImageError",
    "TruncatedStoreError",
    "UnsupportedImageError",
]


class FastdataError(Exception):
    """The root of every error that fastdata raises on purpose."""

    # KeyError's own __str__ shows the repr of its argument, OSError's shows an errno: an error here is its one text.
    def __str__(self) -> str:
        """Return the text the error was built from."""
        return str(self.args[0]) if self.args else ""


class OptionError(FastdataError, ValueError):
    """An argument is wrong; the text says which values are right."""


class BackendMissingError(FastdataError, ImportError):
    """A backend asked for by name is not installed; the text has the line that installs it."""


class StoreError(FastdataError):
    """A store cannot be opened or read."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """Nothing lies at this path."""


class MissingPartError(StoreError, FileNotFoundError):
    """A file that the pack names is not there."""


class StoreFormatError(StoreError, ValueError):
    """The bytes at a path are not what they claim to be."""


class IncompletePackError(StoreFormatError):
    """A pack that was never finished; pack again with overwrite."""


class TruncatedStoreError(StoreFormatError):
    """A file is shorter than its header or index says."""


class StaleIndexError(StoreFormatError):
    """The index was made for other bytes than those that lie there."""


class ChecksumError(StoreFormatError):
    """A record's bytes are not those that were packed."""


class DuplicateKeyError(StoreFormatError):
    """One key, or one field of a key, stands in a store twice."""


class KeyNotFoundError(StoreError, KeyError):
    """No sample of the store has this key."""


class StoreClosedError(StoreError, ValueError):
    """The store was closed before this call."""


class DecodeError(FastdataError, ValueError):
    """An image cannot be decoded."""


class TruncatedImageError(DecodeError):
    """The image's data end before its last pixel."""


class UnsupportedImageError(DecodeError):
    """The image's format, or a variant of it, is not readable here."""


class ImageTooLargeError(DecodeError):
    """The image has more pixels than max_pixels allows."""


class PackError(FastdataError, RuntimeError):
    """A pack could not be made."""


class DestinationExistsError(PackError, FileExistsError):
    """Something lies at the destination already; overwrite says to replace it."""


class NothingPackedError(PackError):
    """No file of the source could be packed."""


class TooManySkippedError(PackError):
    """More files were skipped than max_errors allows."""


class SampleError(FastdataError, RuntimeError):
    """A sample failed in a loader; the text names its key and index."""


class BatchShapeError(FastdataError, RuntimeError):
    """Samples of different shapes cannot be stacked into one batch."""


class LoaderError(FastdataError, RuntimeError):
    """A worker or thread of a loader failed."""
