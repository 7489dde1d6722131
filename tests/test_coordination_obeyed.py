"""COORDINATION.md cannot drift from the code: a number changed in any of its blocks changes what happens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from swarm import board as boards
from swarm.agents.protocol import Progress
from swarm.errors import BadInput
from swarm.layout import RunRoot
from swarm.planner.decisions import Merge, RequestComparison
from swarm.problem import problem_from_files
from swarm.protocol import Board, Output, Planner, Rules, Tests, load_protocol
from swarm.solution import validate_tree
from swarm.verdict import Outcome
from tests.problem_files import problem_files, solution_files
from tests.support import ScriptedAgent, Swarm, make_root, params_of, solution

REPOSITORY = Path(__file__).parent.parent
TEXT = (REPOSITORY / "COORDINATION.md").read_text()


def changed(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is in COORDINATION.md {text.count(old)} times"
        text = text.replace(old, new)
    return text


def root_with(folder: Path, **changes: str) -> RunRoot:
    """Make a run root whose protocol has these lines replaced, by key."""
    root = make_root(folder)
    lines = root.coordination.read_text().split("\n")
    for key, value in changes.items():
        [index] = [n for n, line in enumerate(lines) if line.startswith(f"{key} = ")]
        lines[index] = f"{key} = {value}"
    root.coordination.write_text("\n".join(lines))
    return root


def one_step(root: RunRoot, *params: int, workers: tuple[str, ...] = ("w1",)) -> Swarm:
    """Return a run whose workers hand in one solution after another, each with the next BLOCK."""
    script = [(f"BLOCK {value}", solution(BLOCK=value, UNROLL=1)) for value in params]
    return Swarm(root, agent=lambda: ScriptedAgent(script), workers=workers)


# [output]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_files = 1 ", "solution/: 2 files; use at most 1"),
        ("max_file_bytes = 10\n", "bytes; use at most 10"),
        ("max_total_bytes = 10\n", "bytes in all; use at most 10"),
    ],
)
def test_output_limits_bound_a_tree(line: str, message: str) -> None:
    validate_tree(solution_files(), load_protocol(TEXT))
    old = next(
        text for text in TEXT.splitlines(keepends=True) if text.startswith(line.partition("=")[0] + "=")
    )
    with pytest.raises(BadInput, match=message):
        validate_tree(solution_files(), load_protocol(changed(TEXT, {old: line + "\n"})))


@pytest.mark.parametrize(
    ("editable", "is_refused"), [('["solution/**", "NOTES.md"]', False), ('["solution/**"]', True)]
)
def test_output_says_what_a_commit_may_touch(tmp_path: Path, editable: str, is_refused: bool) -> None:
    with Swarm(root_with(tmp_path, editable=editable), workers=()) as swarm:
        swarm.start("rope")
        branch = swarm.hub.assign("rope", "w1")
        commit = swarm.hub.submit("w1", branch, solution(BLOCK=2, UNROLL=1), b"slow\n", "Note it", {})
        for _ in range(3):
            swarm.watcher.step(0.0)
        assert (commit in swarm.ledger.refusals("rope")) is is_refused


def test_output_says_how_commits_end(tmp_path: Path) -> None:
    with one_step(root_with(tmp_path, trailers='["Comparison", "Worker"]'), 2) as swarm:
        swarm.start("rope")
        swarm.until(lambda: params_of(swarm.champion("rope"))["BLOCK"] == 2)
        merge = swarm.hub.commit(swarm.hub.champions()["rope"])
        assert list(merge.message.trailers) == ["Comparison", "Worker"]
        candidate = swarm.hub.commit(merge.parents[1])
        assert list(candidate.message.trailers) == ["Worker"]


# [rules]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({'"-ffast-math", "-fno-math-errno"': '"-fno-math-errno"'}, "option '-ffast-math' is not allowed"),
        ({'"climits", "cmath", ': '"climits", '}, "'cmath' may not be imported"),
        ({r"'\b(asm|__asm|__asm__)\b'": "'for'"}, r"'for' is forbidden \(assembly"),
    ],
)
def test_rules_say_what_a_tree_may_hold(changes: Mapping[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        validate_tree(solution_files(), load_protocol(changed(TEXT, changes)))


def test_rules_say_which_languages_there_are() -> None:
    only_pytorch = re.sub(r"(?ms)^cpp = \[.*?^\]\n", "", TEXT)
    only_pytorch = changed(only_pytorch, {'["cpp", "pytorch", ': '["pytorch", '})
    with pytest.raises(
        BadInput, match=r"solution.toml:1: language: language 'cpp' is not allowed here; use pytorch or cuda"
    ):
        validate_tree(solution_files(), load_protocol(only_pytorch))


# [tests], as far as the planner goes; the judge's part is beside the judge


@pytest.mark.parametrize("confirmations", [0, 1, 2])
def test_tests_say_how_often_a_gain_is_confirmed(tmp_path: Path, confirmations: int) -> None:
    with one_step(root_with(tmp_path, confirmations=str(confirmations)), 2) as swarm:
        swarm.start("rope")
        decisions = [d for _ in range(20) for d in swarm.round()]
        assert sum(isinstance(d, Merge) for d in decisions) == 1
        found = [c.outcome for c in swarm.ledger.comparisons("rope")]
        assert found == [Outcome.FASTER] * (1 + confirmations)


@pytest.mark.parametrize(("effect", "is_compared"), [("[[inf, 0.4]]", True), ("[[inf, 0.6]]", False)])
def test_tests_say_which_gain_counts(tmp_path: Path, effect: str, is_compared: bool) -> None:
    with one_step(root_with(tmp_path, minimum_effect=effect), 2) as swarm:
        swarm.start("rope")
        decisions = [d for _ in range(10) for d in swarm.round()]
        assert any(isinstance(d, RequestComparison) for d in decisions) is is_compared


def test_tests_say_how_closely_outputs_match_where_nothing_else_does() -> None:
    problem = problem_from_files(problem_files(), "p")
    for atol in (0.01, 0.5):
        protocol = load_protocol(changed(TEXT, {"\natol = 0.01": f"\natol = {atol}"}))
        assert problem.limits(problem.workloads[0], protocol.tests).atol == atol


# [board]


def test_board_says_which_columns_there_are(tmp_path: Path) -> None:
    columns = '["problem", "champion", "state", "verdicts", "passed", "merges"]'
    with one_step(root_with(tmp_path, columns=columns), 2) as swarm:
        swarm.start("rope")
        swarm.round()
        assert "| problem | champion | state | verdicts | passed | merges |" in swarm.paths.board.read_text()
        assert swarm.crew[0].step() is Progress.SUBMITTED  # a worker reads the same board


def test_board_says_which_states_there_are(tmp_path: Path) -> None:
    with one_step(make_root(tmp_path), 2) as swarm:
        swarm.start("rope")
        swarm.round()
        text = swarm.paths.board.read_text()
        allowed = load_protocol(TEXT).board.states
        state = boards.parse(text, "board.md", states=allowed).problems[0].state
        with pytest.raises(BadInput, match=rf"^board.md:\d+: .*{state}"):
            boards.parse(text, "board.md", states=[word for word in allowed if word != state])


# [planner]


def rounds_until_left(root: RunRoot) -> int:
    """Count the verdicts after which a worker that finds nothing is sent to the other problem."""
    with one_step(root, *range(100, 112)) as swarm:
        swarm.pool.table = lambda tree: 50.0
        swarm.start("rope", "swiglu")
        swarm.round()
        first = swarm.hub.assignment("w1")
        assert first is not None
        for _ in range(60):
            swarm.round()
            now = swarm.hub.assignment("w1")
            if now is not None and now.work.problem != first.work.problem:
                return len(swarm.ledger.verdicts(first.work.problem))
        raise AssertionError("the worker never left")


def test_planner_says_when_a_line_is_stalled(tmp_path: Path) -> None:
    patient = rounds_until_left(make_root(tmp_path / "a", stall_verdicts=6))
    hasty = rounds_until_left(make_root(tmp_path / "b", stall_verdicts=2))
    assert hasty < patient


def test_planner_says_how_many_share_a_problem(tmp_path: Path) -> None:
    for limit in (1, 3):
        root = make_root(tmp_path / str(limit), max_workers_per_problem=limit)
        with one_step(root, 2, workers=("w1", "w2", "w3")) as swarm:
            swarm.start("rope")
            swarm.round()
            swarm.round()
            board = boards.read(swarm.paths.board)
            assert board is not None
            assert sum(board.assignment(w) is not None for w in swarm.workers) == limit


# all of them


def test_no_key_is_only_decoration() -> None:
    """A key that no code names cannot be obeyed."""
    own = REPOSITORY / "swarm" / "protocol.py"
    sources = [path.read_text() for path in (REPOSITORY / "swarm").rglob("*.py") if path != own]
    code = "\n".join(sources) + own.read_text().partition("def trusts")[2]
    for block in (Output, Rules, Tests, Board, Planner):
        for key in block.model_fields.keys() - {"manifest"}:
            assert f".{key}" in code, f"[{block.__name__.lower()}] {key}"


def test_a_manifest_of_another_version_is_refused() -> None:
    with pytest.raises(BadInput, match=r"output.manifest: 2 is not allowed; it must be 1"):
        load_protocol(changed(TEXT, {"\nmanifest = 1 ": "\nmanifest = 2 "}))
