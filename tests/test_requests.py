"""Requests are strict files; a broken one is named and stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.layout import RunPaths
from swarm.requests import Request, ask, requests, withdraw

REQUEST = Request("0123abcd-4567cdef-1", "rope", "a" * 40, "b" * 40)


def test_a_request_is_left_once_read_and_withdrawn(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "r")
    assert requests(paths) == ([], [])
    assert ask(paths, REQUEST)
    assert not ask(paths, REQUEST)
    assert requests(paths) == ([REQUEST], [])
    withdraw(paths, REQUEST)
    withdraw(paths, REQUEST)
    assert requests(paths) == ([], [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Expecting"),
        (b"[]", "it needs id, problem"),
        (b'{"id": "x", "problem": "rope", "champion": "a"}', "it needs id, problem"),
        (
            b'{"id": "x", "problem": "rope", "champion": "a", "candidate": "b"}',
            "does not fit the file's name",
        ),
        (
            b'{"id": "0123abcd-4567cdef-1", "problem": "../x", "champion": "a", "candidate": "b"}',
            "is not a name",
        ),
        (
            b'{"id": "0123abcd-4567cdef-1", "problem": "rope", "champion": "--exec", "candidate": "b"}',
            "is not a commit",
        ),
        (b"\xff", "codec"),
    ],
)
def test_a_broken_request_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    paths = RunPaths(tmp_path, "r")
    other = Request("ffffffff-00000000-1", "rope", "a" * 40, "b" * 40)
    ask(paths, other)
    paths.request(REQUEST.id).write_bytes(content)
    found, [fault] = requests(paths)
    assert found == [other]
    assert message in str(fault)
    assert str(paths.request(REQUEST.id)) in str(fault)
