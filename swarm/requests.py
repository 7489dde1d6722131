"""requests/<id>.json: the comparisons that the planner wants; it writes them and the watcher reads them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from swarm.durable import create_only
from swarm.errors import BadInput
from swarm.layout import NAME, RunPaths

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{8}-[1-9]\d{0,5}")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Request:
    """A comparison of two commits' solution trees; `id` names the record to be made."""

    id: str
    problem: str
    champion: str
    candidate: str


def ask(paths: RunPaths, request: Request) -> bool:
    """Leave the request; say whether it is new."""
    return create_only(paths.request(request.id), json.dumps(asdict(request), indent=1).encode())


def withdraw(paths: RunPaths, request: Request) -> None:
    paths.request(request.id).unlink(missing_ok=True)


def requests(paths: RunPaths) -> tuple[list[Request], list[BadInput]]:
    """Return all requests in order of their ids, and what is wrong with files that are none."""
    found, faults = [], []
    for path in sorted(paths.requests.glob("*.json")):
        try:
            found.append(_parse(path.stem, path.read_bytes()))
        except FileNotFoundError:
            continue  # withdrawn since the listing
        except ValueError as error:
            faults.append(BadInput(f"not a request: {error}", where=str(path), remedy="delete it"))
    return found, faults


def _parse(stem: str, data: bytes) -> Request:
    raw = json.loads(data)
    if not isinstance(raw, dict) or sorted(raw) != ["candidate", "champion", "id", "problem"]:
        raise ValueError("it needs id, problem, champion and candidate")
    request = Request(**{key: str(value) for key, value in raw.items()})
    if request.id != stem or not ID.fullmatch(request.id):
        raise ValueError(f"the id {request.id[:40]!r} does not fit the file's name")
    if not NAME.fullmatch(request.problem):
        raise ValueError(f"the problem {request.problem[:40]!r} is not a name")
    for commit in (request.champion, request.candidate):
        if not COMMIT.fullmatch(commit):
            raise ValueError(f"{commit[:50]!r} is not a commit")
    return request
