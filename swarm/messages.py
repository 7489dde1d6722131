"""Commit messages: subject, body, trailers. Text an agent wrote can become neither a trailer nor a header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.errors import BadInput
from swarm.foreign import one_line, plain

MAX_SUBJECT_CHARS = 200
MAX_BODY_CHARS = 8_000
MAX_TRAILER_CHARS = 500
TRAILER_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    body: str = ""
    trailers: Mapping[str, str] = field(default_factory=dict)


def format_message(subject: str, body: str, trailers: Mapping[str, str]) -> str:
    """Render a commit message; BadInput if there is no subject or a trailer's name is not one."""
    parts = [one_line(subject, MAX_SUBJECT_CHARS)]
    if not parts[0]:
        raise BadInput("the commit message is empty", remedy="say in one line what was changed")
    lines = (line.rstrip() for line in plain(body.replace("\r\n", "\n")).split("\n"))
    if text := "\n".join(lines).strip("\n")[:MAX_BODY_CHARS].rstrip():
        parts.append(text)
    block = []
    for key, value in trailers.items():
        if not TRAILER_KEY.fullmatch(key):
            raise BadInput(
                f"{key!r} is not the name of a trailer", remedy="use letters, digits and single '-'"
            )
        if text := one_line(value, MAX_TRAILER_CHARS):
            block.append(f"{key}: {text}")
    if block:
        parts.append("\n".join(block))
    return "\n\n".join(parts) + "\n"


def parse_message(text: str) -> Message:
    """Split a message; its last paragraph holds trailers if each of its lines is one.

    Anybody's git can have made it, so each part comes back as format_message would have written it.
    """
    subject, _, rest = text.strip("\n").partition("\n")
    paragraphs = re.split(r"\n{2,}", rest.strip("\n")) if rest.strip() else []
    trailers = _trailers(paragraphs[-1]) if paragraphs else {}
    if trailers:
        paragraphs.pop()
    body = plain("\n\n".join(paragraphs))[:MAX_BODY_CHARS]
    return Message(one_line(subject, MAX_SUBJECT_CHARS), body, trailers)


def _trailers(paragraph: str) -> dict[str, str]:
    found = {}
    for line in paragraph.split("\n"):
        key, colon, value = line.partition(": ")
        if not colon or not TRAILER_KEY.fullmatch(key):
            return {}
        found[key] = one_line(value, MAX_TRAILER_CHARS)
    return found
