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
"""What the names of our own kernels begin with."""
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
    early_ns: int = 0
    """How long before its first mark was over something of it ran: it did not wait for its turn."""
    late_ns: int = 0
    """How long after its last mark began something of it still ran: nobody waited for it."""


def spans(records: Sequence[Record], count: int) -> tuple[list[Span], int]:
    """Return the spans of a request's `count` calls, in order, and how many activities lie outside of all."""
    ordered = sorted(records, key=lambda record: (record.correlation, record.start_ns))
    found: list[Span] = []
    outside = 0
    mark: Record | None = None
    inside: list[Record] = []
    for record in ordered:
        if record.name == OPEN and mark is None:
            mark, inside = record, []
        elif record.name == CLOSE and mark is not None:
            found.append(span(inside, mark.end_ns, record.start_ns))
            mark = None
        elif record.name in (OPEN, CLOSE):
            raise Unreadable(f"{record.name} where it cannot be")
        elif mark is not None:
            inside.append(record)
        else:
            outside += 1
    if mark is not None or len(found) != count:
        raise Unreadable(f"{len(records)} records show {len(found)} calls of {count}")
    return found, outside


def span(records: Sequence[Record], open_ns: int, close_ns: int) -> Span:
    """Return the span of one call's activities between the end of one mark and the start of the other."""
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
        max(open_ns - first, 0),
        max(last - close_ns, 0),
    )
