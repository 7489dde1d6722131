"""From what CUPTI saw on the GPU to the span of each call: pure arithmetic on records.

Between the marks that the runner queues around a call (kernels of our own) lie the call's activities. They
are told apart by the order in which they were launched, not by time: work on a side stream that runs on into
the next call belongs to the call that launched it. A span is from its first start to its last end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

OWN = "swarm_"
OPEN, CLOSE = "swarm_open", "swarm_close"
MEMCPY, MEMSET = "[memcpy]", "[memset]"


class Unreadable(Exception):
    """The records do not show the request's calls: some were lost, or there are marks too many."""


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel, copy or fill that ran on the GPU."""

    name: str
    start_ns: int
    end_ns: int
    correlation: int
    """Of the launch: it grows from one launch to the next."""
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """What one call did on the GPU."""

    ns: int
    """0 if it did nothing."""
    activities: int
    signature: int
    """A hash of the activities' names in order: calls of one shape have the same."""
    blocks: int


def spans(records: Sequence[Record], count: int) -> tuple[list[Span], int]:
    """Return the spans of a request's `count` calls, in order, and how many activities are in none."""
    ordered = sorted(records, key=lambda record: (record.correlation, record.start_ns))
    found: list[Span] = []
    strays = 0
    inside: list[Record] | None = None
    for record in ordered:
        if record.name == OPEN and inside is None:
            inside = []
        elif record.name == CLOSE and inside is not None:
            found.append(span(inside))
            inside = None
        elif record.name.startswith(OWN) and (inside is not None or record.name in (OPEN, CLOSE)):
            raise Unreadable(f"{record.name} where it cannot be")
        elif inside is not None:
            inside.append(record)
        elif not record.name.startswith(OWN):
            strays += 1
    if inside is not None or len(found) != count:
        raise Unreadable(f"{len(records)} records show {len(found)} calls of {count}")
    return found, strays


def span(records: Sequence[Record]) -> Span:
    """Return the span of one call's activities."""
    if not records:
        return Span(0, 0, 0, 0)
    first = min(record.start_ns for record in records)
    last = max(record.end_ns for record in records)
    names = "\n".join(record.name for record in records)
    digest = hashlib.blake2b(names.encode(), digest_size=8).digest()
    return Span(
        max(last - first, 1),
        len(records),
        int.from_bytes(digest, "little") >> 1,
        sum(record.blocks for record in records),
    )
