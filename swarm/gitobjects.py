"""Git's object formats and which paths may enter a tree: pure, no file and no process touched."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from swarm.errors import BadInput
from swarm.messages import Message, parse_message

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
FILE_MODES = (0o100644, 0o100755)
TREE_MODE = 0o040000
MAX_TREE_DEPTH = 16
MAX_PATH_BYTES = 200

_TREE_ROW = re.compile(rb"([0-7]{5,6}) ([^\0/]+)\0(.{20})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a tree; any mode but FILE_MODES is not a regular file."""

    mode: int
    sha: str


@dataclass(frozen=True, slots=True)
class CommitInfo:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    committed_s: int
    message: Message


def parse_commit(sha: str, data: bytes) -> CommitInfo:
    """Read a commit object; BadInput if it names no tree. Whatever else is odd in its header does no harm."""
    header, _, text = data.partition(b"\n\n")
    fields: dict[bytes, list[str]] = {}
    for line in header.split(b"\n"):
        key, _, value = line.partition(b" ")
        fields.setdefault(key, []).append(value.decode(errors="replace"))
    ids = [*fields.get(b"tree", [""])[:1], *fields.get(b"parent", [])]
    if not all(re.fullmatch(r"[0-9a-f]{40}", item) for item in ids):
        raise BadInput(f"commit {sha} is malformed")
    date = re.search(r"> (\d{1,12}) [+-]\d{4}$", fields.get(b"committer", [""])[0])
    return CommitInfo(
        sha=sha,
        tree=ids[0],
        parents=tuple(ids[1:]),
        author=fields.get(b"author", [""])[0].partition(" <")[0],
        committed_s=int(date[1]) if date else 0,
        message=parse_message(text.decode(errors="replace")),
    )


def format_commit(tree: str, parents: Sequence[str], message: str, author: str, when_s: int) -> bytes:
    """Render a commit by `author`, a plain name; the committer is always the swarm."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", author):
        raise BadInput(f"{author!r} cannot be the author of a commit", remedy="use letters, digits, '_.-'")
    lines = [
        f"tree {tree}",
        *(f"parent {parent}" for parent in parents),
        f"author {author} <{author}@swarm.invalid> {when_s} +0000",
        f"committer swarm <swarm@swarm.invalid> {when_s} +0000",
        "",
        message,
    ]
    return "\n".join(lines).encode()


def parse_tree(data: bytes) -> dict[str, Entry]:
    """Read one level of a tree; a name that is not UTF-8 comes back with surrogates."""
    start, found = 0, {}
    while start < len(data):
        row = _TREE_ROW.match(data, start)
        if row is None:
            raise BadInput(f"a tree is malformed at byte {start}")
        start = row.end()
        found[row[2].decode(errors="surrogateescape")] = Entry(int(row[1], 8), row[3].hex())
    return found


def format_tree(level: Mapping[str, Entry]) -> bytes:
    """Render one level of a tree in git's order, in which a folder sorts as if its name ended in '/'."""
    rows = []
    for name, entry in level.items():
        raw = name.encode()
        order = raw + b"/" if entry.mode == TREE_MODE else raw
        rows.append((order, b"%o %s\0%s" % (entry.mode, raw, bytes.fromhex(entry.sha))))
    return b"".join(row for _, row in sorted(rows))


def check_path(path: str) -> str:
    """Return `path` if it is safe as a file of a tree everywhere, or raise BadInput naming it."""
    parts = path.split("/")
    unsafe = (
        any(part in ("", ".", "..") or part.lower().startswith(".git") for part in parts)
        or re.search(r"[\x00-\x1f\x7f\\:\ud800-\udfff]", path) is not None
        or len(path.encode(errors="replace")) > MAX_PATH_BYTES
        or len(parts) > MAX_TREE_DEPTH
    )
    if unsafe:
        raise BadInput(
            f"the path {ascii(path)[:MAX_PATH_BYTES]} is not allowed",
            remedy="use short relative paths without '..', '.git*', control characters, '\\' or ':'",
        )
    return path


def regular_files(tree: Mapping[str, Entry], names: Iterable[str]) -> dict[str, Entry]:
    """Return the entries called `names`; BadInput naming the first that is no plain file on a safe path."""
    chosen = {}
    for name in names:
        entry = tree[check_path(name)]
        if entry.mode not in FILE_MODES:
            kind = "symbolic link" if stat.S_ISLNK(entry.mode) else f"file of mode {entry.mode:o}"
            raise BadInput(f"{name} is a {kind}", remedy="only regular files can be handed in")
        chosen[name] = entry
    return chosen
