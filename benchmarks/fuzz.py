"""Feed a parser of ours broken and hostile input: what it does then is told, and the inputs that did it are kept.

    python benchmarks/fuzz.py TARGET... --seconds 120 [--findings DIR] [--output benchmarks/results/fuzz.json]

With atheris (pip install '.[fuzz]') new inputs are made by coverage, without it at random. What is asked: only a
FastdataError comes out, within --timeout seconds and --memory megabytes. Unexpected exceptions are counted by where
they arose, one input of each is kept, and the run goes on; a crash, a hang or too much memory ends it. ``all`` runs
every target, one after the other; ``--replay FILE`` runs one input again. JPEGs for the core: .ci/fuzz_jpeg.py.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the targets asked for, each in a process of its own, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="a target, several, or all")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--timeout", type=int, default=5, help="seconds that one input may take")
    parser.add_argument("--memory", type=int, default=300, help="megabytes beyond what the libraries take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--output", type=Path, help="write the reports there as JSON")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.replay or args.child:
        return run(args)
    known = list(load_targets().TARGETS)
    names = known if args.targets == ["all"] else args.targets
    if not set(names) <= set(known):
        parser.error(f"targets are all, {', '.join(known)}")
    guided = importlib.util.find_spec("atheris") is not None
    if not guided:
        print("atheris is not installed (pip install '.[fuzz]'): inputs are made at random, not by coverage")
    reports = [in_a_process(name, args) for name in names]
    if args.output:
        setting = {"guided": guided, "seed": args.seed, "timeout": args.timeout, "memory_mb": args.memory}
        save(args.output, reports, setting)
    return int(any(report["findings"] or report["ended"] for report in reports))


def save(path: Path, reports: list[dict[str, Any]], setting: dict[str, Any]) -> None:
    """Write the reports; those of other targets that stand there already, made by the same setting, stay."""
    from fastdata.bench.machine import facts  # not above: what is imported before the fuzzer does not tell its branches

    rows = {}
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        rows = {row["target"]: row for row in old["targets"]} if old["setting"] == setting else {}
    rows |= {row["target"]: row for row in reports}
    whole = {"what": "fuzz", "setting": setting, "targets": list(rows.values()), "machine": facts()}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def in_a_process(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fuzz one target in a child: a crash is a finding, not the end."""
    args.findings.mkdir(parents=True, exist_ok=True)
    options = [f"--{o}={getattr(args, o)}" for o in ("seconds", "timeout", "memory", "seed", "findings")]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(
            [sys.executable, __file__, name, "--child", *options], check=False, stdout=log, stderr=subprocess.STDOUT
        )
        log.seek(0)
        text = log.read()
    (args.findings / f"{name}.log").write_text(text, encoding="utf-8")
    said = re.findall(r"^REPORT (.*)$", text, re.MULTILINE)
    report = json.loads(said[-1]) if said else {"target": name, "executions": -1, "findings": {}}
    counted = re.findall(r"stat::number_of_executed_units: (\d+)|^#(\d+)\s", text, re.MULTILINE)
    if counted and report["executions"] < 0:
        report["executions"] = max(int(a or b) for a, b in counted)
    coverage = re.findall(r"cov: (\d+)", text)
    report["seconds"] = round(time.monotonic() - began, 1)
    report["coverage"] = int(coverage[-1]) if coverage else None
    report["ended"] = "" if done.returncode == 0 else f"exit {done.returncode}, see {args.findings / name}.log"
    print(json.dumps(report), flush=True)
    return report


def load_targets() -> ModuleType:
    """Import tests/hostile/fuzzing, which is in no installed package."""
    folder = ROOT / "tests" / "hostile" / "fuzzing"
    found = importlib.util.spec_from_file_location(
        "fuzzing", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert found is not None
    sys.modules["fuzzing"] = importlib.util.module_from_spec(found)
    return importlib.import_module("fuzzing.targets")


class Watch:
    """Runs inputs, and keeps one of each kind that does not end as it should."""

    def __init__(self, name: str, work: Callable[[bytes], None], folder: Path, seconds: float) -> None:
        """Count from now on."""
        self.name, self.work, self.folder = name, work, folder
        self.count, self.found = 0, dict[str, int]()
        self.end = time.monotonic() + seconds

    def __call__(self, data: bytes) -> None:
        """Run one input; does not come back once the time is up."""
        self.count += 1
        try:
            self.work(data)
        except Exception as error:  # noqa: BLE001  that is what is looked for
            where = origin(error)
            if where not in self.found:
                kept = self.folder / f"{self.name}-{len(self.found)}.bin"
                kept.write_bytes(data)
                print(f"FINDING {kept.name}: {where}\n{''.join(traceback.format_exception(error))}", flush=True)
            self.found[where] = self.found.get(where, 0) + 1
        if time.monotonic() > self.end:
            self.finish()

    def finish(self) -> None:
        """Print what was found and end the process: libFuzzer would not give it back."""
        print(
            "REPORT " + json.dumps({"target": self.name, "executions": self.count, "findings": self.found}), flush=True
        )
        os._exit(0)


def origin(error: BaseException) -> str:
    """Return the kind of an exception and the line of ours that it comes from."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "fastdata" in f.filename or "converters" in f.filename
    ]
    last = (frames or traceback.extract_tb(error.__traceback__))[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.name}:{last.lineno}"


def run(args: argparse.Namespace) -> int:
    """Fuzz in this process."""
    name = args.targets[0]
    try:
        import atheris
    except ImportError:
        atheris = None
    if atheris is not None and not args.replay:
        follow_coverage(atheris)
    targets = load_targets()
    warnings.simplefilter("error")
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  a disk in memory: files are written all the time
    folder = Path(tempfile.mkdtemp(prefix="fastdata-fuzz-", dir=base))
    try:
        workshop = targets.Workshop(folder)
        target = targets.TARGETS[name]
        work = getattr(workshop, name)
        if args.replay:
            work(args.replay.read_bytes())
            print("as it should be")
            return 0
        watch = Watch(name, work, args.findings, args.seconds)
        begin = target.begin()
        for data in begin:  # also what imports late is then in memory, and the good files are made
            watch(data)
        print(f"{len(begin)} inputs to begin with", flush=True)
        if os.fork():  # the child fuzzes; this process cleans up behind it, however it ends
            _, status = os.wait()
            return os.waitstatus_to_exitcode(status) and 1
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() >> 20
        if atheris is None:
            at_random(watch, begin, target.longest, args)  # does not come back
        by_coverage(atheris, watch, folder, (begin, target, args, pages))
    finally:
        if Path("/proc/self").exists() and folder.exists():
            targets.clear(folder)
    return 0


def follow_coverage(atheris: Any) -> None:  # noqa: ANN401  no types
    """Have every module of ours that is imported from now on say which branches it takes.

    Not by atheris.instrument_imports: it leaves modules with a loader of their own alone, as in an editable install.
    """
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        code = plain(self, fullname)
        return atheris.patch_code(code, trace_dataflow=True) if code and fullname.startswith("fastdata") else code

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def by_coverage(atheris: Any, watch: Watch, folder: Path, how: tuple[Any, ...]) -> None:  # noqa: ANN401  no types
    """Hand over to libFuzzer."""
    begin, target, args, pages = how
    corpus, words = folder / "corpus", folder / "words"
    corpus.mkdir()
    for number, data in enumerate(begin):
        (corpus / f"{number}").write_bytes(data)
    quoted = [
        word.replace("\\x", "\0").replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\x")
        for word in target.words
    ]
    words.write_text("".join(f'"{word}"\n' for word in quoted), encoding="ascii")
    options = [
        sys.argv[0], str(corpus), f"-max_len={target.longest}", f"-timeout={args.timeout}",
        f"-rss_limit_mb={pages + args.memory}", f"-artifact_prefix={args.findings}/{args.targets[0]}-",
        "-print_final_stats=1", "-len_control=0", f"-seed={args.seed + 1}", f"-max_total_time={int(args.seconds) + 60}",
    ]  # fmt: skip
    if target.words:
        options.append(f"-dict={words}")
    atheris.Setup(options, watch, internal_libfuzzer=True)
    atheris.Fuzz()


def at_random(watch: Watch, begin: list[bytes], longest: int, args: argparse.Namespace) -> None:
    """Change the first inputs blindly, for as long as was asked for."""
    import signal

    draw = random.Random(args.seed)  # noqa: S311  repeatable
    while True:
        data = bytearray(draw.choice(begin))
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(data) + 1)
            if draw.random() < 0.7:  # noqa: PLR2004
                data[at : at + 1] = bytes([draw.randrange(256)])
            else:
                other = draw.choice(begin)
                start = draw.randrange(len(other) + 1)
                data[at : at + draw.randrange(20)] = other[start : start + draw.randrange(20)]
        signal.alarm(args.timeout)  # ends the process: a hang is a finding
        watch(bytes(data[:longest]))
        signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
