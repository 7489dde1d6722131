"""The judge as a process: `python -m swarm.judge.main FD CACHE DEVICE PEAKS` serves jobs over a socket.

One job, one answer: `V` and a verdict, `C` and a comparison, or `E` and why we could not judge. It says `R`
once it is ready, and ends when the other end does. Its caller restarts it when it dies.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import traceback
from pathlib import Path

from swarm import job, verdict
from swarm.device import Device
from swarm.errors import SwarmError
from swarm.judge.judge import Judge
from swarm.judge.peaks import from_json
from swarm.judge.wire import COMPARISON, ERROR, READY, VERDICT, Closed, receive, send
from swarm.verdict import Verdict


def main() -> int:
    fd, cache, device, peaks = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    peer = socket.socket(fileno=int(fd))
    raw = json.loads(device)
    with Judge(
        Device(**raw | {"cores": tuple(raw["cores"])}), Path(cache), from_json(peaks.encode())
    ) as judge:
        judge.warm_up()
        send(peer, READY)
        while True:
            try:
                data, _ = receive(peer)
                send(peer, answer(judge, data))
            except Closed:
                return 0


def answer(judge: Judge, data: bytes) -> bytes:
    """Judge one job; our own failure is an answer too, so that the next job finds a warm judge."""
    try:
        record = judge.judge(job.from_bytes(data))
    except SwarmError as error:
        return ERROR + str(error).encode()
    except Exception as error:  # the process's one catch-all: the job stays pending, the log has the rest
        traceback.print_exc()
        return ERROR + f"{type(error).__name__}: {error}".encode()
    return (VERDICT if isinstance(record, Verdict) else COMPARISON) + verdict.to_json(record)


if __name__ == "__main__":
    sys.exit(main())
