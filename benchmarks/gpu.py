"""What the project claims about its judge on a GPU, measured through the product. Run on a GPU host:

    python -m benchmarks.gpu [--parts latency,agreement,...] [--seconds 430] [--out FILE]

from the repository's root. A part that has not seen all by the end of its share of the seconds says how much
it saw. Prints a table after each part and last, and writes JSON; exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_agreement import agreement
from benchmarks.gpu_commit import commit
from benchmarks.gpu_jobs import Bench, Part, Row, open_bench
from benchmarks.gpu_noise import different, same
from benchmarks.gpu_speed import latency, memory, queue
from swarm.cli.devices import chosen_devices

PARTS: dict[str, tuple[Callable[[Bench, int], Part], int, float]] = {
    "latency": (latency, 5, 70),
    "agreement": (agreement, 1, 25),
    "different": (different, 10, 30),
    "memory": (memory, 1, 5),
    "queue": (queue, 60, 100),
    "same": (same, 48, 130),
    "commit": (commit, 5, 70),
}
"""Each with how often it repeats at the most, and its seconds, of which a shorter run has its share."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=430.0, help="for all parts together, about")
    parser.add_argument("--count", type=int, help="repetitions, instead of each part's own")
    parser.add_argument("--out", type=Path, default=Path("gpu-benchmark.json"))
    options = parser.parse_args()
    parts = options.parts.split(",")
    unknown = set(parts) - PARTS.keys()
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    end_s = time.monotonic() + options.seconds
    device = chosen_devices("cuda")[0]
    rows: list[Row] = []
    result: dict[str, Any] = {"device": device.model, "uuid": device.uuid, "parts": {}}
    with tempfile.TemporaryDirectory() as folder, open_bench(device, Path(folder)) as bench:
        for number, name in enumerate(parts):
            run, count, weight = PARTS[name]
            begun_s = time.monotonic()
            bench.begin((end_s - begun_s) * weight / sum(PARTS[later][2] for later in parts[number:]))
            try:
                part = run(bench, options.count or count)
                rows += part.rows
                result["parts"][name] = part.figures
            except Exception as error:  # one part that fails must not cost the others' figures
                traceback.print_exc()
                rows.append((name, "-", f"{type(error).__name__}: {error}"[:90], False))
            took_s = time.monotonic() - begun_s
            result["parts"].setdefault(name, {})["seconds"] = round(took_s, 1)
            result["rows"] = rows
            options.out.write_text(json.dumps(result, indent=1) + "\n")
            print(f"{table(rows, device.model)}\n{name} took {took_s:.1f} s\n", flush=True)
    print(table(rows, device.model))
    return 0 if all(row[3] is not False for row in rows) else 1


def table(rows: list[Row], model: str) -> str:
    """Render the rows in columns."""
    lines = [(f"on {model}", "wanted", "seen", "")]
    words = {True: "yes", False: "NO", None: ""}
    lines += [(what, wanted, seen, words[is_met]) for what, wanted, seen, is_met in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())
