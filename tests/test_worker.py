"""The worker commits what its agent or a person hands in, and nothing else."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from swarm.agents import mailbox
from swarm.agents.mailbox import AnswerState
from swarm.agents.protocol import Desk, Progress
from swarm.errors import BadInput, Refused
from tests.support import Swarm, make_root, solution

FINAL = frozenset((AnswerState.JUDGED, AnswerState.REFUSED))


class Idle:
    """An agent that leaves everything to whoever types in its worktree."""

    name = "idle"

    def step(self, desk: Desk) -> Progress:
        return Progress.WAITING


def at_work(folder: Path) -> Swarm:
    swarm = Swarm(make_root(folder), agent=Idle)
    swarm.start("rope")
    swarm.round()
    swarm.round()
    assert swarm.paths.worktree("w1").is_dir()
    return swarm


def write_solution(swarm: Swarm, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (swarm.paths.worktree("w1") / "solution" / name).write_bytes(content)


def test_a_hand_in_is_committed_judged_and_answered(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        write_solution(swarm, solution(BLOCK=2, UNROLL=1))
        ticket = mailbox.leave(agent, "Double the block\n\nIt was small.")
        swarm.crew[0].step()
        answer = mailbox.answer(agent, ticket)
        assert answer is not None
        assert answer.state is AnswerState.COMMITTED
        commit = swarm.hub.commit(answer.commit)
        assert commit.message.subject == "Double the block"
        assert commit.message.trailers == {"Agent": "idle", "Worker": "w1"}
        for _ in range(4):
            swarm.round()
        answer = mailbox.wait(agent, ticket, 1.0, FINAL)
        assert answer.state is AnswerState.JUDGED
        verdict = swarm.ledger.verdict("rope", answer.verdict)
        assert verdict is not None
        assert verdict.time_us == pytest.approx(50.0)


def test_a_hand_in_is_committed_once_though_the_worker_died_before_it_answered(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        write_solution(swarm, solution(BLOCK=2, UNROLL=1))
        ticket = mailbox.leave(agent, "Double the block")
        swarm.crew[0].step()
        first = mailbox.answer(agent, ticket)
        (agent.submit_requests / f"{ticket}{mailbox.ANSWER}").unlink()
    with Swarm(swarm.root, agent=Idle) as again:
        again.crew[0].step()
        assert mailbox.answer(agent, ticket) == first
        assert len(again.hub.commits("rope")) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("solution.toml", b"language = 7\n", "solution.toml"),
        ("evil.cpp", b"int x;\n", "evil.cpp"),
        ("kernel.cpp", b'void f() { system("id"); }\n', "kernel.cpp:1"),
        ("kernel.cpp", b"\xff\xfe\n", "kernel.cpp"),
    ],
)
def test_a_tree_that_breaks_the_protocol_is_refused_with_its_file(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        write_solution(swarm, {name: content})
        ticket = mailbox.leave(agent, "Try this")
        swarm.crew[0].step()
        answer = mailbox.wait(agent, ticket, 1.0, FINAL)
        assert answer.state is AnswerState.REFUSED
        assert message in answer.reason
        assert len(swarm.hub.commits("rope")) == 1


def test_a_link_in_the_worktree_is_not_followed(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        kernel = swarm.paths.worktree("w1") / "solution" / "kernel.cpp"
        kernel.unlink()
        kernel.symlink_to("/etc/hostname")
        ticket = mailbox.leave(agent, "Look there")
        swarm.crew[0].step()
        assert "symbolic link" in mailbox.wait(agent, ticket, 1.0, FINAL).reason


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"message": ""}', b"\xff" * 100_000])
def test_a_request_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        write_solution(swarm, solution(BLOCK=2, UNROLL=1))
        ticket = mailbox.leave(agent, "x")
        (agent.submit_requests / f"{ticket}{mailbox.REQUEST}").write_bytes(content)
        swarm.crew[0].step()
        assert mailbox.wait(agent, ticket, 1.0, FINAL).state is AnswerState.REFUSED
        assert len(swarm.hub.commits("rope")) == 1


def test_a_request_that_is_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    import os

    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        secret = tmp_path / "secret.json"
        secret.write_text(json.dumps({"message": "secret"}))
        agent.submit_requests.mkdir(parents=True)
        (agent.submit_requests / ("0" * 32 + mailbox.REQUEST)).symlink_to(secret)
        os.mkfifo(agent.submit_requests / ("1" * 32 + mailbox.REQUEST))
        write_solution(swarm, solution(BLOCK=2, UNROLL=1))
        swarm.crew[0].step()
        for ticket in ("0" * 32, "1" * 32):
            assert mailbox.wait(agent, ticket, 1.0, FINAL).state is AnswerState.REFUSED


def test_waiting_ends_and_says_what_for(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        agent = swarm.paths.agent("w1")
        ticket = mailbox.leave(agent, "x")
        with pytest.raises(Refused, match=r"waited 0\.1 s for the worker to commit"):
            mailbox.wait(agent, ticket, 0.1, FINAL)
        with pytest.raises(BadInput, match="too long"):
            mailbox.leave(agent, "x" * 100_000)


def test_a_worker_ends_promptly_when_the_run_stops(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        [worker] = swarm.crew
        thread = threading.Thread(target=worker.run)
        thread.start()
        swarm.paths.stop.write_text("{}")
        thread.join(5)
        assert not thread.is_alive()
        assert "- state: stopped" in swarm.paths.agent("w1").status.read_text()


def test_an_unreadable_board_keeps_the_assignment(tmp_path: Path) -> None:
    with at_work(tmp_path) as swarm:
        swarm.paths.board.write_text("nonsense")
        assert swarm.crew[0].step() is Progress.WAITING
        assert "- state: working" in swarm.paths.agent("w1").status.read_text()
