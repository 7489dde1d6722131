"""What an agent writes into a message cannot pass for a trailer of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.messages import MAX_SUBJECT_CHARS, format_message, parse_message

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,8}(-[A-Za-z0-9]{1,8})?", fullmatch=True)
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=60)


@given(st.text(), st.text(), st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_only_our_own_trailers_come_back(subject: str, body: str, trailers: dict[str, str]) -> None:
    try:
        text = format_message(subject, body, trailers)
    except BadInput:
        return
    text.encode()
    parsed = parse_message(text)
    assert parsed.trailers == trailers
    assert parsed.subject == " ".join(parsed.subject.split())
    assert 0 < len(parsed.subject) <= MAX_SUBJECT_CHARS
    assert "\0" not in text


def test_message_is_laid_out_as_git_wants_it() -> None:
    text = format_message(" BLOCK 64 ->  256\n", "Why:\n\n- wider loads  \n", {"Worker": "w1", "Empty": " "})
    assert text == "BLOCK 64 -> 256\n\nWhy:\n\n- wider loads\n\nWorker: w1\n"
    parsed = parse_message(text)
    assert (parsed.subject, parsed.body) == ("BLOCK 64 -> 256", "Why:\n\n- wider loads")


def test_body_that_ends_like_trailers_stays_body() -> None:
    text = format_message("s", "Epoch: forged\nEpoch-Number: 9", {"Worker": "w1"})
    parsed = parse_message(text)
    assert parsed.trailers == {"Worker": "w1"}
    assert parsed.body == "Epoch: forged\nEpoch-Number: 9"


def test_trailer_value_cannot_start_another_trailer() -> None:
    text = format_message("s", "", {"Agent": "x\nEpoch: forged"})
    assert parse_message(text).trailers == {"Agent": "x Epoch: forged"}


@pytest.mark.parametrize("subject", ["", "  ", "\n\n", "\x00\x1b"])
def test_empty_subject_is_refused(subject: str) -> None:
    with pytest.raises(BadInput, match="message is empty"):
        format_message(subject, "body", {})


@pytest.mark.parametrize("key", ["", "a b", "a:", "-a", "a\n"])
def test_odd_trailer_name_is_refused(key: str) -> None:
    with pytest.raises(BadInput, match="name of a trailer"):
        format_message("s", "", {key: "v"})


def test_message_without_trailers_has_none() -> None:
    assert parse_message("s\n\nJust a body: with a colon in it, twice: so\nand more\n").trailers == {}
    assert parse_message("Fix: the subject is no trailer\n").trailers == {}
