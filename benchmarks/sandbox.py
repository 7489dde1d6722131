"""What a box costs: the same programs and the same verdicts with boxes of every level, and without any.

    python -m benchmarks.sandbox [--device gpu] [--boxes 100] [--verdicts 20] [--levels bubblewrap,...]

All ways take turns, so that what else the machine does falls on all of them alike, each turn with a judge of
its own: two on one device would be in each other's way. A verdict's cost is that of the boxes it starts;
device time is what a kernel takes in its box over what it takes without; so is the time that it is held.
Prints JSON; exit code 1 above 150 ms a verdict or 2 % of device time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.variants import variant
from swarm import sandbox
from swarm.cli.devices import chosen_devices
from swarm.job import Job, Purpose, Tree
from swarm.judge import peaks
from swarm.judge.judge import Judge
from swarm.problem import load_problem
from swarm.sandbox import Completed, Exit, Level, Limits, boxes
from swarm.sandbox.process import Tail
from swarm.sol import Peaks
from swarm.verdict import Status, Verdict

ROOT = Path(__file__).resolve().parents[1]
PROBLEM, LANGUAGES = "rmsnorm_residual", {"cpu": "cpp", "gpu": "cuda"}
WITHOUT = "none"
MAX_MS, MAX_SHARE = 150.0, 0.02
END_S = 60.0
GENEROUS = Peaks("any", 1e6, {"float32": 1e9}, "no floor is looked for")


class Unboxed:
    """A program started as it is: what a sandbox.Process is used for, and nothing it promises."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cores: Sequence[int],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        **_: object,
    ) -> None:
        self._home = tempfile.mkdtemp()
        system = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self._popen = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            env={**system, "HOME": self._home, "TMPDIR": self._home, **(env or {})},
            cwd=cwd or self._home,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        assert self._popen.stdout is not None
        self.log_fd = self._popen.stdout.fileno()
        self._log = Tail()

    def __enter__(self) -> Unboxed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        while select.select([self.log_fd], [], [], 0)[0] and self.drain():
            pass
        return str(self._log)

    def drain(self) -> bool:
        data = os.read(self.log_fd, 65_536)
        self._log.add(data)
        return bool(data)

    def wait(self, timeout_s: float) -> Exit | None:
        while self.drain():
            pass
        return Exit(self._popen.wait(timeout_s), None)

    def close(self) -> None:
        if self._popen.returncode is None:
            self._popen.kill()
            self._popen.wait()
        shutil.rmtree(self._home, ignore_errors=True)


def run_unboxed(argv: Sequence[str], *, timeout_s: float, **given: Any) -> Completed:
    with Unboxed(argv, **given) as process:
        return Completed(process.wait(timeout_s), process.log)


@contextmanager
def in_boxes(way: str, started: list[str]) -> Iterator[None]:
    """Have the product start all programs in one way, and note each start."""
    spawn: Any = Unboxed if way == WITHOUT else boxes.spawn
    run: Any = run_unboxed if way == WITHOUT else boxes.run

    def noted(start: Any) -> Any:
        return lambda argv, **given: (started.append(str(argv[0])), start(argv, **given))[1]

    with (
        mock.patch.object(sandbox, "spawn", noted(spawn)),
        mock.patch.object(sandbox, "run", noted(run)),
        mock.patch.object(boxes, "level", lambda: Level.PROCESS_GROUP if way == WITHOUT else Level(way)),
    ):
        yield


def starts_ms(ways: Sequence[str], count: int) -> dict[str, list[float]]:
    """Return the milliseconds from asking for a program that does nothing to its being gone, by way."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    cores = sorted(os.sched_getaffinity(0))
    for _ in range(count):
        for way, times in found.items():
            with in_boxes(way, []):
                begun_s = time.perf_counter()
                done = sandbox.run(["/bin/true"], timeout_s=END_S, limits=Limits(), cores=cores)
                times.append((time.perf_counter() - begun_s) * 1e3)
            assert done.exit == Exit(0, None), done
    return found


def verdicts(
    ways: Sequence[str], count: int, kind: str, folder: Path
) -> tuple[dict[str, list[Verdict]], dict[str, int]]:
    """Return `count` verdicts on a seed by way, and how many boxes one of them starts."""
    device = chosen_devices("cuda" if kind == "gpu" else "cpu")[0]
    problem = load_problem(ROOT / "problems" / PROBLEM)
    seed = problem.seeds[LANGUAGES[kind]]
    frozen = {**problem.files, "COORDINATION.md": (ROOT / "COORDINATION.md").read_bytes()}
    found: dict[str, list[Verdict]] = {way: [] for way in ways}
    counted: dict[str, int] = {}
    limits = peaks.load(folder / "peaks.json", device, folder / "cache") if kind == "gpu" else GENEROUS
    for number in range(count):
        for way in ways:
            started: list[str] = []
            with in_boxes(way, started), Judge(device, folder / way, limits) as judge:
                for at in (2 * number, 2 * number + 1):  # the first warms up
                    started.clear()
                    tree = Tree("a" * 40, "b" * 40, variant(seed, at))
                    made = judge.judge(Job(f"{way}-{at}", Purpose.VERDICT, PROBLEM, "e", frozen, tree))
                    assert isinstance(made, Verdict)
                    if made.status is not Status.PASSED:
                        raise RuntimeError(f"{way}: {made.status}: {made.reason}\n{made.log}")
            print(f"{way} {number + 1}/{count}: {made.total_s:.2f} s", file=sys.stderr)
            found[way].append(made)
            counted[way] = len(started)
    return found, counted


def start_figures(way: str, starts: Mapping[str, Sequence[float]]) -> dict[str, float]:
    own_ms = statistics.median(starts[way])
    return {"start_ms": own_ms, "start_ms_beyond_none": own_ms - statistics.median(starts[WITHOUT])}


def verdict_figures(
    made: Sequence[Verdict], bare: Sequence[Verdict], boxes_a_verdict: int, beyond_ms: float
) -> dict[str, float | int | bool]:
    pairs = list(zip(made, bare, strict=True))
    kernel_share = statistics.median(_time_us(boxed) / _time_us(without) for boxed, without in pairs) - 1
    held_share = statistics.median(boxed.measured_s / without.measured_s for boxed, without in pairs) - 1
    verdict_ms = beyond_ms * boxes_a_verdict
    return {
        "boxes_a_verdict": boxes_a_verdict,
        "verdict_ms": verdict_ms,
        "kernel_time_share": kernel_share,
        "device_held_share": held_share,
        "passed": verdict_ms <= MAX_MS and kernel_share <= MAX_SHARE,
    }


def _time_us(verdict: Verdict) -> float:
    """Return the geometric mean over the workloads."""
    return math.exp(statistics.fmean(math.log(item.time_us or math.nan) for item in verdict.workloads))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=LANGUAGES, default="cpu")
    parser.add_argument("--boxes", type=int, default=100)
    parser.add_argument("--verdicts", type=int, default=20, help="0: only the start of boxes")
    parser.add_argument("--levels", default=",".join(at for at in Level if not sandbox.lack(at)))
    options = parser.parse_args()
    levels = options.levels.split(",")
    ways = [WITHOUT, *levels]
    starts = starts_ms(ways, options.boxes)
    result: dict[str, Any] = {way: start_figures(way, starts) for way in levels}
    if options.verdicts:
        with tempfile.TemporaryDirectory() as folder:
            made, counted = verdicts(ways, options.verdicts, options.device, Path(folder))
        for way in levels:
            beyond_ms = result[way]["start_ms_beyond_none"]
            result[way] |= verdict_figures(made[way], made[WITHOUT], counted[way], beyond_ms)
        result["device"] = made[WITHOUT][0].environment.device_model
    result["passed"] = all(result[way].get("passed", True) for way in levels)
    print(json.dumps(result, indent=1))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
