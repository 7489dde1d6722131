"""Tricks in C++ on the CPU."""

from __future__ import annotations

from swarm.verdict import Status
from tests.corpus.cases import Files, attack, cpp


@attack("B1", status=Status.INCORRECT_NUMERICAL, reason="never written")
def leaves_the_output_as_it_was() -> Files:
    """Writes nothing, and hopes that the memory still holds somebody's right answer.

    Seen: KernelBench#38 and #82; Sakana's AI CUDA Engineer, whose `torch.empty` got the freed reference.
    Stopped by: outputs are the judge's own and poisoned before every call.
    """
    return cpp("(void)x, (void)w, (void)y, (void)rows;")
