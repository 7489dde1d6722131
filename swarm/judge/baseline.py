"""Measures T_b: what a problem takes in eager torch, in torch.compile and by its own baseline.py.

The work is done by `baseline_main` in a process of its own, pinned to the device; this end imports no torch.
Storing is `swarm.baseline`'s.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from swarm.baseline import Baseline, Optimised, parse_baseline
from swarm.device import Device
from swarm.environment import environment
from swarm.errors import Refused
from swarm.job import encode_files
from swarm.judge.wire import Closed, receive, send
from swarm.problem import Problem
from swarm.schema import decode

ROOT = Path(__file__).resolve().parents[2]
LOCK_AND_LAST_S = 900.0
LOG_CHARS = 400
NONE_BEGUN: Mapping[str, Baseline] = {}
NONE_OPTIMISED: Mapping[str, Optimised] = {}


def measure(
    problems: Sequence[Problem],
    coordination: bytes,
    device: Device,
    cache: Path,
    budget_s: float,
    begun: Mapping[str, Baseline] = NONE_BEGUN,
    optimised: Mapping[str, Optimised] = NONE_OPTIMISED,
) -> Iterator[Baseline]:
    """Yield a baseline per problem as they get ready; about `budget_s` for all together.

    What an earlier sitting has `begun`, by problem, is not measured again; what is `optimised` is timed as
    well. What could not be had (no
    compiler, no time left) is said in its contenders. Refused if measuring fails.
    """
    mine, theirs = socket.socketpair()
    with mine, tempfile.TemporaryFile() as log:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "swarm.judge.baseline_main", str(theirs.fileno()), str(cache)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(PYTHONPATH=str(ROOT)),
                start_new_session=True,
            )
        try:
            mine.settimeout(LOCK_AND_LAST_S + budget_s)
            send(mine, _request(problems, coordination, device, budget_s, begun, optimised))
            for _ in problems:
                yield parse_baseline(receive(mine)[0], "the baseline process")
        except (Closed, TimeoutError):
            process.kill()
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip()[-LOG_CHARS:]
            raise Refused(f"measuring the baselines failed: {said}", remedy="type: swarm doctor") from None
        finally:
            process.kill()
            process.wait()


def _request(
    problems: Sequence[Problem],
    coordination: bytes,
    device: Device,
    budget_s: float,
    begun: Mapping[str, Baseline],
    optimised: Mapping[str, Optimised],
) -> bytes:
    return json.dumps(
        {
            "device": asdict(device),
            "budget_s": budget_s,
            "coordination": decode(coordination, "COORDINATION.md"),
            "problems": {problem.name: encode_files(problem.files) for problem in problems},
            "begun": {name: asdict(baseline) for name, baseline in begun.items()},
            "optimised": {name: [one.commit, encode_files(one.files)] for name, one in optimised.items()},
        }
    ).encode()
