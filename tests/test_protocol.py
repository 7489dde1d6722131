from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.layout import find_root
from swarm.protocol import BLOCKS, FROZEN_BLOCKS, frozen_text, load_protocol
from swarm.verdict import Trust

TEXT = find_root(Path(__file__).parent).coordination.read_text()
PROTOCOL = load_protocol(TEXT)


def replaced(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return TEXT.replace(old, new)


def line_of(fragment: str, text: str = TEXT) -> int:
    return text.count("\n", 0, text.index(fragment)) + 1


def test_a_commit_ends_with_the_trailers_of_the_block_in_its_order() -> None:
    trailers = {"Worker": "a", "Speedup": "1.5", "Cost": "", "Evil": "x"}
    assert list(PROTOCOL.output.trailing(trailers).items()) == [("Speedup", "1.5"), ("Worker", "a")]


@pytest.mark.parametrize(("least", "trusted"), [("host", 3), ("replayed", 2), ("device_only", 1)])
def test_trust_is_ordered(least: str, trusted: int) -> None:
    tests = load_protocol(replaced('min_trust = "host"', f'min_trust = "{least}"')).tests
    assert sum(map(tests.trusts, Trust)) == trusted


def test_the_minimum_effect_depends_on_the_time() -> None:
    effect = PROTOCOL.tests.effect_at
    assert [effect(t) for t in (0.1, 4.9, 5.0, 49.9, 50.0, 1e9)] == [0.02, 0.02, 0.01, 0.01, 0.005, 0.005]


BROKEN = {
    "unclosed block": (
        TEXT[: TEXT.index("max_files = 16")],
        "```toml",
        "the toml block is not closed; end it with ```",
    ),
    "syntax": (replaced("max_files = 16 ", "max_files = "), "max_files =", "not TOML: "),
    "unknown key": (
        replaced("max_files = 16", "max_file = 16"),
        "max_file =",
        "output.max_file: unknown field; did you mean 'max_files'?",
    ),
    "missing key": (
        replaced("max_files = 16", "# "),
        "[output]\n",
        "output.max_files: required field is missing; add it",
    ),
    "zero": (
        replaced("quads = 30", "quads = 0"),
        "quads",
        "tests.quads: 0 is not allowed; it must be greater than or equal to 1",
    ),
    "text for a number": (
        replaced("quads = 30", 'quads = "30"'),
        "quads",
        "tests.quads: '30' is not allowed; it must be a valid integer",
    ),
    "share in per cent": (
        replaced("confidence = 0.95", "confidence = 95"),
        "confidence",
        "tests.confidence: 95 is not allowed; it must be less than 1",
    ),
    "unknown choice": (
        replaced('flush = "clean"', 'flush = "cold"'),
        "flush",
        "tests.flush: 'cold' is not allowed; it must be 'clean' or 'dirty'",
    ),
    "fewest above most": (
        replaced("min_calls = 10 ", "min_calls = 1000 "),
        "min_calls",
        "tests.min_calls: 1000 is above max_calls; use at most 200",
    ),
    "effects that do not end": (
        replaced("[inf, 0.005]", "[100.0, 0.005]"),
        "minimum_effect =",
        "tests.minimum_effect: the bounds are [5.0, 50.0, 100.0]; they must rise from above 0 to inf",
    ),
    "effect in per cent": (
        replaced("[inf, 0.005]", "[inf, 5]"),
        "minimum_effect =",
        "tests.minimum_effect: an effect is not between 0 and 1; 0.02 means 2 %",
    ),
    "comparing more than all": (
        replaced("[10, 50]", "[50, 10]"),
        "compared_calls =",
        "tests.compared_calls: more calls are compared than there are; write [n, of] with n <= of",
    ),
    "fewer quads than processes": (
        replaced("quads = 30", "quads = 1"),
        "quads",
        "tests.quads: 1 is below processes_per_tree; use at least as many",
    ),
    "trailer that is no name": (
        replaced('"SOL-Score"', '"SOL Score"'),
        "trailers =",
        "output.trailers: trailer 'SOL Score' is not allowed; use letters and '-', the first one upper-case",
    ),
    "language without options": (
        replaced("pytorch = []\n", ""),
        "[rules.compile_options]",
        "rules.compile_options: nothing for language 'pytorch'; add pytorch = []",
    ),
    "options of no language": (
        replaced("pytorch = []\n", "pytorch = []\ncp = []\n"),
        "cp = []",
        "rules.compile_options.cp: not a language; did you mean 'cpp'?",
    ),
    "broken expression": (
        replaced(r"\b(asm|", r"\b((asm|"),
        "cpp = [\n  { name",
        "is not a regular expression: missing ), unterminated subpattern at position 2; correct it",
    ),
    "column twice": (
        replaced('"problem", "state"', '"problem", "problem"'),
        "columns =",
        "board.columns: 'problem' is not allowed or appears twice; use distinct lower-case words",
    ),
    "endless patience": (
        replaced("stall_minutes = 20.0", "stall_minutes = inf"),
        "stall_minutes =",
        "planner.stall_minutes: Infinity is not allowed; it must be a finite number",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_block_is_one_line_with_the_line_of_the_file(case: str) -> None:
    text, fragment, message = BROKEN[case]
    with pytest.raises(BadInput) as caught:
        load_protocol(text)
    line = str(caught.value)
    assert line.startswith(f"COORDINATION.md:{line_of(fragment, text)}: ")
    assert message in line and "\n" not in line


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_there_exactly_once(block: str) -> None:
    blocks = re.findall(r"```toml\n.*?```\n", TEXT, re.DOTALL)
    (own,) = (text for text in blocks if text.startswith(f"```toml\n[{block}]"))
    with pytest.raises(BadInput, match=rf"^COORDINATION.md: no block \[{block}\]; add a fenced toml block"):
        load_protocol(TEXT.replace(own, ""))
    twice = TEXT + "\n" + own
    with pytest.raises(
        BadInput, match=rf"^COORDINATION.md:\d+: block \[{block}\] appears twice; merge the two$"
    ):
        load_protocol(twice)


def test_an_unknown_block_is_named() -> None:
    with pytest.raises(BadInput, match=r"unknown block \[ruels\]; did you mean 'rules'\?"):
        load_protocol(TEXT.replace("[rules]", "[ruels]").replace("[rules.", "[ruels."))


def test_better_prose_and_comments_start_no_epoch() -> None:
    other = TEXT.replace("Your assignment", "What you do").replace("# below solution/", "# files")
    assert other != TEXT and frozen_text(other) == frozen_text(TEXT)


@pytest.mark.parametrize(
    ("old", "new", "block"),
    [
        ("max_files = 16", "max_files = 17", "output"),
        ("memory_gib = 4 ", "memory_gib = 5 ", "rules"),
        ("quads = 30", "quads = 31", "tests"),
        ('"merges", "workers"', '"merges"', "board"),
        ("exploration = 0.5", "exploration = 0.6", "planner"),
    ],
)
def test_a_changed_number_starts_an_epoch_only_in_the_frozen_blocks(old: str, new: str, block: str) -> None:
    assert (frozen_text(replaced(old, new)) != frozen_text(TEXT)) is (block in FROZEN_BLOCKS)


@settings(max_examples=150)
@given(data=st.data())
def test_a_line_lost_or_garbled_is_accepted_or_bad_input(data: st.DataObject) -> None:
    lines = TEXT.splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number : number + 1] = data.draw(
        st.sampled_from([[], [lines[number][1:]], [lines[number] + '"'], ["= 1"]])
    )
    try:
        load_protocol("\n".join(lines))
    except BadInput as error:
        assert str(error).startswith("COORDINATION.md")
