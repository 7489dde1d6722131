"""agents/<worker>/submit/: where a hand-in is asked for and answered, as files.

`swarm submit` in a worktree, or a coding agent's tool, leaves a request and waits; the trusted worker process
commits and answers. A request is data from an untrusted place: bounded, parsed, never a path.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

from swarm.durable import write_atomic
from swarm.errors import BadInput, Refused
from swarm.foreign import one_line, read_plain
from swarm.layout import AgentPaths, check_name

REQUEST, ANSWER = ".request.json", ".answer.json"
IDENTIFIER = re.compile(r"[0-9a-f]{32}")
VERDICT = re.compile(r"([0-9a-f]{32})?")
MAX_REQUEST_BYTES = 64 << 10
MAX_REASON_CHARS = 500
SERVED_AT_ONCE = 16
"""A worker has more to do than to answer whoever leaves a thousand requests."""
POLL_S = 0.1


class AnswerState(StrEnum):
    COMMITTED = "committed"
    """The commit is safe; its verdict is awaited."""
    JUDGED = "judged"
    REFUSED = "refused"
    """Nothing was committed, or the commit cannot be judged; the reason says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    id: str
    state: AnswerState
    problem: str
    commit: str = ""
    verdict: str = ""
    """The key of the verdict, where there is or will be one."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HandInRequest:
    id: str
    message: str


def leave(agent: AgentPaths, message: str) -> str:
    """Ask for the worktree to be handed in; return the id of the answer."""
    identifier = uuid.uuid4().hex
    data = json.dumps({"message": message}).encode()
    if len(data) > MAX_REQUEST_BYTES:
        raise BadInput("the message is too long", remedy="say in one line what was tried")
    write_atomic(agent.submit_requests / f"{identifier}{REQUEST}", data)
    return identifier


def wait(agent: AgentPaths, identifier: str, timeout_s: float, states: frozenset[AnswerState]) -> Answer:
    """Return the answer once it is in one of `states`; Refused, saying what it lacks, at the timeout."""
    end_s = time.monotonic() + timeout_s
    while True:
        found = answer(agent, identifier)
        if found is not None and found.state in states:
            return found
        if time.monotonic() >= end_s:
            what = "a verdict" if found is not None else "the worker to commit"
            raise Refused(
                f"waited {timeout_s:g} s for {what}", remedy="is `swarm run` or `swarm worker` running?"
            )
        time.sleep(POLL_S)


def answer(agent: AgentPaths, identifier: str) -> Answer | None:
    """Return the answer to one request, None if there is none; BadInput if its file does not hold one."""
    path = agent.submit_requests / f"{identifier}{ANSWER}"
    if not os.path.lexists(path):
        return None
    try:
        raw = json.loads(read_plain(path, MAX_REQUEST_BYTES) or b"")
        if set(raw) != {field.name for field in fields(Answer)}:
            raise ValueError(f"its fields are {sorted(raw)}")
        text = {key: str(value) for key, value in raw.items()}
        found = Answer(**{**text, "state": AnswerState(text["state"])})  # type: ignore[arg-type]
        if found.id != identifier or not IDENTIFIER.fullmatch(identifier):
            raise ValueError("it is named for another one")
        check_name("problem", found.problem)
        if not VERDICT.fullmatch(found.verdict):
            raise ValueError("its verdict is not a key")
    except (BadInput, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"not an answer: {error}", where=str(path), remedy="delete it, and hand in again"
        ) from None
    return found


def put_answer(agent: AgentPaths, answer: Answer) -> None:
    write_atomic(agent.submit_requests / f"{answer.id}{ANSWER}", json.dumps(asdict(answer)).encode())


def unanswered(agent: AgentPaths) -> list[HandInRequest]:
    """Return the requests without an answer, oldest first."""
    found = []
    for path in _by_age(agent.submit_requests, REQUEST):
        identifier = path.name.removesuffix(REQUEST)
        is_answered = os.path.lexists(path.with_name(f"{identifier}{ANSWER}"))
        if IDENTIFIER.fullmatch(identifier) and not is_answered:
            found.append(HandInRequest(identifier, _message(path)))
    return found


def open_answers(agent: AgentPaths) -> list[Answer]:
    """Return the answers that still lack a verdict."""
    found = []
    for path in _by_age(agent.submit_requests, ANSWER):
        with suppress(BadInput):  # whoever waits for it is told
            item = answer(agent, path.name.removesuffix(ANSWER))
            if item is not None and item.state is AnswerState.COMMITTED:
                found.append(item)
    return found


def serve(agent: AgentPaths, problem: str, commit: Callable[[str], tuple[str, str]]) -> int:
    """Answer the oldest requests: `commit(message)` gives the commit and the key of the verdict to come."""
    requests = unanswered(agent)[:SERVED_AT_ONCE]
    for request in requests:
        try:
            sha, key = commit(request.message)
        except (BadInput, Refused) as error:
            reason = one_line(str(error), MAX_REASON_CHARS)
            put_answer(agent, Answer(request.id, AnswerState.REFUSED, problem, reason=reason))
        else:
            put_answer(agent, Answer(request.id, AnswerState.COMMITTED, problem, sha, key))
    return len(requests)


def _by_age(folder: Path, suffix: str) -> list[Path]:
    def age(path: Path) -> tuple[int, str]:
        try:
            return path.lstat().st_mtime_ns, path.name
        except FileNotFoundError:
            return 0, path.name

    return sorted(folder.glob(f"*{suffix}"), key=age)


def _message(path: Path) -> str:
    """Return the message of a request; an empty one, which is refused later, if it is not a request."""
    try:
        raw = json.loads(read_plain(path, MAX_REQUEST_BYTES) or b"")
    except (ValueError, RecursionError):
        return ""
    return str(raw.get("message", "")) if isinstance(raw, dict) else ""
