"""``fastdata COMMAND ...``: finds the command, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import fastdata
from fastdata.errors import FastdataError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["COMMANDS", "main"]

OK, FAILED, USAGE = 0, 1, 2
SIGNALLED, INTERRUPTED = 128, 130  # 128 + a signal's number, as shells have it; SIGINT's


@dataclass(frozen=True, slots=True)
class Command:
    """A command's module (with ``add_arguments(parser)`` and ``run(args) -> int``) and what it does, in one line."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "pack": Command("fastdata.cli.pack_command", "pack folders, manifests or packs into one LMDB, HDF5 or tar pack"),
    "inspect": Command("fastdata.cli.inspect_command", "say what a pack holds and how it was made"),
    "verify": Command("fastdata.cli.verify_command", "check every byte of a pack, and that its pictures decode"),
    "repair": Command("fastdata.cli.repair_command", "save what is good of a damaged pack into a new one"),
    "unpack": Command("fastdata.cli.unpack_command", "write the files of a pack back into a folder"),
    "sample": Command("fastdata.cli.sample_command", "draw a small set of labelled pictures to try things with"),
    "train": Command("fastdata.cli.train_command", "train a classifier from a pack, with AMP"),
    "bench": Command("fastdata.cli.bench_command", "measure decoders and loaders on your images"),
    "decoders": Command("fastdata.cli.decoders_command", "list the image decoders that are installed here"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage, 128 + a signal that stopped it."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except SystemExit as stop:  # argparse ends so, after --help and --version
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt as stop:
        number = getattr(stop, "number", 0)  # of cli/stopping.py's TerminatedError, which few commands import
        with contextlib.suppress(OSError):  # a closed terminal shows nothing
            _tell(words, stop, "terminated" if number else "interrupted")
        return SIGNALLED + number if number else INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as head does: nobody to tell
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  for the interpreter's last flush
        return FAILED
    except (FastdataError, OSError) as error:  # OSError: a file or folder that may not be read, written or made
        _tell(words, error, _one_line(error))
        return USAGE if isinstance(error, OptionError) else FAILED


def _tell(words: list[str], error: BaseException, text: str) -> None:
    """Print a failure, for people on stderr; who asked for JSON finds an object on stdout, as after a success."""
    print(f"fastdata: {text}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps({"error": type(error).__name__, "message": text}), flush=True)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others."""

    def error(self, message: str) -> NoReturn:
        """Show the usage, and raise OptionError."""
        self.print_usage(sys.stderr)
        raise OptionError(message)


def _run(words: list[str]) -> int:
    name = words[0] if words else ""
    if name not in COMMANDS:
        parser = _list_of_commands()
        parser.parse_args(words)  # --help, --version, or an error: none of them comes back
        parser.print_help(sys.stderr)
        return USAGE
    module = _module(name)
    parser = _Parser(prog=f"fastdata {name}", description=_sentence(COMMANDS[name].summary))
    module.add_arguments(parser)
    code = int(module.run(_parse(parser, words[1:])))
    sys.stdout.flush()
    return code


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    try:
        # Options may stand between two positional arguments: pack SRC --resize 256 DST.
        return parser.parse_intermixed_args(words)
    except TypeError:  # argparse's word for a parser with commands of its own
        return parser.parse_args(words)


def _module(name: str) -> ModuleType:
    module = COMMANDS[name].module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        msg = f"the command {name!r} is not part of this installation"
        raise FastdataError(msg) from error


def _list_of_commands() -> argparse.ArgumentParser:
    """Return the parser that knows the commands' names and nothing of them, so that no module is imported."""
    parser = _Parser(prog="fastdata", description="Pack image folders once, then feed PyTorch from the pack.")
    parser.add_argument("--version", action="version", version=f"fastdata {fastdata.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.summary)
    return parser


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split("\n")) or type(error).__name__


if __name__ == "__main__":
    raise SystemExit(main())
