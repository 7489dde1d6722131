"""Is nobody else at work on this GPU at this moment? Asked before a request, where a candidate has host code.

A stopped process starts nothing, but what it has launched goes on: it would slow down whoever is measured
next, above all the other side of a comparison. Contexts take turns of about a millisecond, so while another
one is at work a kernel of ours that does nothing comes back late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from swarm.errors import Refused

QUICK_NS = 500_000
USUAL = 4
"""How many times the quickest round trip so far is still quick, on a host where all are slow."""
TRIPS = 3
"""Quick ones in a row: one may hit the end of the other's turn."""
LIMIT_S = 10.0
"""A runner that starts makes its context meanwhile, too."""


class Quiet:
    """Round trips to one GPU."""

    def __init__(self, trip: Callable[[], None], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """`trip` queues nothing of any length and waits for it."""
        self._trip = trip
        self._clock_ns = clock_ns
        self._quickest_ns: float = math.inf

    def wait(self) -> None:
        """Wait until nobody else is at work; Refused if that does not come within LIMIT_S."""
        begun_ns = self._clock_ns()
        quick = 0
        while quick < TRIPS:
            before_ns = self._clock_ns()
            self._trip()
            after_ns = self._clock_ns()
            self._quickest_ns = min(self._quickest_ns, after_ns - before_ns)
            quick = quick + 1 if after_ns - before_ns < max(QUICK_NS, USUAL * self._quickest_ns) else 0
            if not quick and after_ns - begun_ns > LIMIT_S * 1e9:
                raise Refused(
                    f"for {LIMIT_S:g} s the GPU has been at work for somebody else between two requests",
                    remedy="nvidia-smi shows who; what a candidate left there ends with its process",
                )
