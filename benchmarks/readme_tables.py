"""Write the README's tables from the JSON files in benchmarks/results; run it after the benchmarks.

fastdata bench load p256.lmdb --output benchmarks/results/load.json
fastdata bench decode PHOTOS --output benchmarks/results/decode.json
python benchmarks/loaders.py ... --output benchmarks/results/loaders.json
python benchmarks/pack.py ... ; python benchmarks/engine.py ... ; python benchmarks/open_pack.py ...
python benchmarks/formats.py ... --output benchmarks/results/formats.json
python benchmarks/loader_costs.py --output benchmarks/results/loader_costs.json
python benchmarks/readme_tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE.parent / "README.md"


def main() -> None:
    """Replace what stands between the markers of the README."""
    text = README.read_text(encoding="utf-8")
    text = _between(text, "numbers", _numbers())
    text = _between(text, "decoders", _decoders())
    text = _between(text, "awkward", _awkward())
    README.write_text(text, encoding="utf-8")


def _between(text: str, name: str, body: str) -> str:
    pattern = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no markers for {name}")
    return pattern.sub(lambda match: match[1] + body + match[2], text)


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _machine(report: dict[str, Any]) -> str:
    machine = report["machine"]
    return f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}"


def _numbers() -> str:
    loaders, load, pack = _read("loaders"), _read("load"), _read("pack")
    setting = loaders["setting"]
    text = (
        f"{_machine(loaders)}; {setting['images']} photographs, shorter side 256, JPEG q90; RandomResizedCrop"
        f"({setting['size']}) + flip, uint8 batches of {setting['batch_size']}, {setting['workers']} workers each, "
        f"warm cache; medians of {setting['rounds']} interleaved rounds (`benchmarks/loaders.py`). Absolute numbers "
        "are this machine's; quote ratios.\n\n"
    )
    text += _loader_table(loaders, "train") + "\n"
    others = [
        ("float", "the same, float32 normalised on the CPU"),
        ("evaluate", "centre crop, uint8"),
        ("original", "the photographs as they are, not resized, RandomResizedCrop + flip"),
    ]
    rows = [
        [words, row["loader"], *_rates(row)]
        for table, words in others
        for row in _measured(loaders, table)
        if row["loader"].startswith("fastdata")
    ]
    text += _table(["other work", "loader", "images/s", "x torchvision"], rows) + "\n"
    best = {row["loader"]: row["ratio_to_torchvision"] for row in load["rows"]}
    text += (
        f"`fastdata bench load` on the same pack: {best['fastdata']:.2f} x torchvision, webdataset "
        f"{best['webdataset']:.2f} x. `fastdata pack --resize 256` (`benchmarks/pack.py`): two workers give "
        f"{pack['workers_2_over_workers_1']:.2f} x one worker and "
        f"{pack['workers_2_over_pillow_loop']:.2f} x a plain Pillow loop in one process.\n\n"
    )
    formats = [f"{row['format']} {row['over_lmdb']:.3f}" for row in _read("formats")["rows"][1:]]
    text += (
        f"Formats over LMDB, in one process (`benchmarks/formats.py`; again: a second loader on the same file): "
        f"{', '.join(formats)}. The table above is older than the change that made them equal.\n\n"
    )
    camera = _read("pack_camera")
    levels = camera["grey_levels_of_fast_from_exact"]
    text += (
        f"Camera photographs of {camera['megapixels']:.0f} MP on average, one worker: exact "
        f"{camera['workers_1_over_pillow_loop']:.2f} x that loop, `--fidelity fast` "
        f"{camera['fast_1_over_pillow_loop']:.2f} x, and {camera['fast_1_over_pillow_draft_loop']:.2f} x one that "
        f"calls `draft` ({camera['pillow_draft_loop_over_pillow_loop']:.2f} x). Fast pixels differ from exact ones by "
        f"{levels['mean']:.2f} grey levels on average, {levels['percentile_99_9']:.0f} at the 99.9th percentile.\n"
    )
    return text + (_costs() if (RESULTS / "loader_costs.json").exists() else "")


def _costs() -> str:
    costs = _read("loader_costs")
    first, order, batch, memory = costs["first"], costs["order"], costs["overhead"], costs["memory"]
    us, after = batch["microseconds"], ", ".join(f"{value:.0f}" for value in memory["bytes_a_sample"])
    rows = [
        [
            f"seconds to the first of {first['samples']:,} samples, shuffled",
            f"{first['fastdata_seconds']:.2f}",
            f"{first['dataloader_seconds']:.2f}, after the folder's scan",
        ],
        ["kB for the order", f"{order['fastdata_bytes'] / 1e3:.0f}", f"{order['dataloader_bytes'] / 1e3:.0f}"],
        [
            "microseconds per batch of 256 images of 8x8",
            f"{us['fastdata']:.0f}",
            f"{us['dataloader_held']:.0f} from memory, {us['dataloader_pack']:.0f} from the pack",
        ],
        [f"private bytes a sample of {memory['samples']:,}, after epoch 1, 2, 3", after, ""],
    ]
    return "\n" + _table(["beside the decoding (`benchmarks/loader_costs.py`)", "fastdata", "DataLoader"], rows)


def _measured(report: dict[str, Any], table: str) -> list[dict[str, Any]]:
    rows = [row for row in report["rows"] if row["table"] == table and row["status"] == "measured"]
    return sorted(rows, key=lambda row: -row["images_per_second"])


def _rates(row: dict[str, Any]) -> list[str]:
    return [f"{row['images_per_second']:.0f}", f"{row['ratio_to_torchvision']:.2f}"]


def _loader_table(report: dict[str, Any], table: str) -> str:
    rows = [
        [row["loader"], *_rates(row), f"{row['first_batch_seconds']:.2f}", f"{row['private_megabytes']}"]
        for row in _measured(report, table)
    ]
    return _table(["loader", "images/s", "x torchvision", "first batch, s", "private MB"], rows)


def _decoders() -> str:
    report, pixels = _read("decode"), _read("decoder_pixels")
    rows = [
        [
            f"{row['backend']} {row['version']}",
            f"{row['images_per_second']:.0f}",
            f"{row['ratio_to_pillow']:.2f}",
            *(_difference(pixels, row["backend"], subsampling) for subsampling in ("4:2:0", "4:4:4")),
            f"{len(row['refused'])}",
        ]
        for row in report["rows"]
        if row["threads"] == 1
    ]
    fast = "native, fidelity fast"
    rows.append([fast, "", "", *(_difference(pixels, fast, subsampling) for subsampling in ("4:2:0", "4:4:4")), ""])
    text = (
        f"Whole decodes of {report['images']} photographs ({report['megapixels_each']:.2f} MP, "
        f"{report['kilobytes_each']:.0f} kB) in memory, one thread of the same machine. Every backend decodes ordinary "
        "JPEGs itself; PNG, WebP, CMYK, 16 bit, animations, damaged files and what else is odd go to Pillow in the "
        f"same call, so that all give one verdict and one picture. Differences to Pillow are grey levels over "
        f"{pixels['images']} photographs, encoded with each chroma subsampling (`benchmarks/decoder_pixels.py`): mean, "
        "99.9th percentile, largest.\n\n"
    )
    return text + _table(["backend", "images/s", "x Pillow", "4:2:0 differs by", "4:4:4 differs by", "refused"], rows)


def _difference(report: dict[str, Any], backend: str, subsampling: str) -> str:
    for row in report["rows"]:
        if (row["backend"], row["subsampling"]) == (backend, subsampling):
            return f"{row['mean']:.2f}, {row['percentile_99_9']}, {row['largest']}" if row["largest"] else "0"
    return "0" if backend == "pillow" else ""


def _awkward() -> str:
    report = _read("awkward")
    rows = [[row["kind"], str(row["files"]), *_roads(row["backends"])] for row in report["rows"]]
    counts = [each for row in report["rows"] for each in row["backends"].values()]
    other = sum(each.get("other verdict", 0) for each in counts)
    largest = max(each.get("largest difference", 0) for each in counts)
    text = (
        f"{report['files']} odd and damaged files through `decode` with {len(report['rows'][0]['backends'])} backends "
        f"(`benchmarks/awkward.py`): {other or 'no'} verdict differs between them, the largest difference of a pixel "
        f"is {largest}. What a library gets wrong, or may, goes to Pillow in the same call. Refused are files that are "
        "damaged, too large or no pictures. HEIC and JPEG XL need a plugin (`pip install pillow-heif "
        "pillow-jxl-plugin`); without it each file is skipped and named with the plugin's name.\n\n"
    )
    return text + _table(["kind of file", "files", "refused", "decoded by", "left to Pillow by"], rows)


def _roads(backends: dict[str, dict[str, int]]) -> list[str]:
    """Return how many are refused, whose library decodes the rest, and who leaves how many of them to Pillow."""
    refused = backends["pillow"].get("refused", 0)
    own = [name for name, counts in backends.items() if counts.get("library")]
    left = {name: counts["reference"] for name, counts in backends.items() if counts.get("reference")}
    whose = {0: "", 1: own[0] if own else "", len(backends): "all"}.get(len(own))
    if whose is None:
        whose = "all others" if len(own) > len(backends) // 2 else ", ".join(own)
    if len(left) == len(backends) - 1 and len(set(left.values())) == 1 and "pillow" not in left:
        return [str(refused or ""), whose, "all others"]
    return [str(refused or ""), whose, ", ".join(f"{name} ({count})" for name, count in left.items())]


if __name__ == "__main__":
    main()
