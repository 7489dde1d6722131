"""`swarm submit`: hand in what lies in a worktree, wait, print the verdict."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swarm.cli.context import Positive, json_option, print_json, print_table, root_of, stderr, stdout
from swarm.errors import Refused
from swarm.foreign import inline, quoted
from swarm.layout import locate_worktree
from swarm.report.render import microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.verdict import Verdict, WorkloadResult

COMMIT_TIMEOUT_S = 30.0
REASON_CHARS = 1_000


@click.command()
@click.option("-m", "--message", required=True, help="What was tried; it becomes the commit's subject.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the verdict.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Positive(),
    default=600.0,
    show_default=True,
    help="Seconds to wait for the verdict.",
)
@json_option
@click.pass_context
def submit(ctx: click.Context, message: str, no_wait: bool, timeout_s: float, as_json: bool) -> None:
    """In a worktree: hand in, wait, print the verdict."""
    from swarm.agents import mailbox
    from swarm.agents.mailbox import AnswerState
    from swarm.ledger import Ledger

    paths, worker = locate_worktree(root_of(ctx), Path.cwd().resolve())
    agent = paths.agent(worker)
    ticket = mailbox.leave(agent, message)
    with stderr().status("waiting for the worker to commit") as status:
        answer = mailbox.wait(agent, ticket, COMMIT_TIMEOUT_S, frozenset(AnswerState))
        if not no_wait and answer.state is AnswerState.COMMITTED:
            status.update(f"waiting for the verdict on {answer.commit[:10]}")
            final = frozenset((AnswerState.JUDGED, AnswerState.REFUSED))
            answer = mailbox.wait(agent, ticket, timeout_s, final)
    if answer.state is AnswerState.REFUSED:
        raise Refused(answer.reason, where=answer.commit[:10] or None)
    with Ledger(paths) as ledger:
        judged = answer.state is AnswerState.JUDGED
        verdict = ledger.verdict(answer.problem, answer.verdict) if judged else None
    if as_json:
        print_json({"commit": answer.commit, "verdict": asdict(verdict) if verdict else None})
    elif verdict is None:
        click.echo(f"committed {answer.commit[:10]}; its verdict will be {answer.verdict}")
    else:
        print_verdict(verdict)


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict for a person or a model: what it came to, each workload, what was printed, quoted."""
    out = stdout()
    time_us = f"  {microseconds(verdict.time_us)} µs" if verdict.time_us is not None else ""
    out.print(f"{verdict.status.value}{time_us}  {verdict.problem}", style="bold", markup=False)
    if verdict.reason:
        out.print(f"the judge: {inline(verdict.reason, REASON_CHARS)}", markup=False, soft_wrap=True)
    if verdict.workloads:
        _print_workloads(verdict.workloads)
    if verdict.log:
        told = quoted("printed by the compiler or the candidate", verdict.log)
        out.print(told, markup=False, style="dim", soft_wrap=True)


def _print_workloads(workloads: Sequence[WorkloadResult]) -> None:
    print_table(
        ("workload", "status", "µs", "± µs", "calls", "T_SOL µs", "of limit", "max error"),
        [
            (
                one.uuid,
                one.status.value,
                "" if one.time_us is None else microseconds(one.time_us),
                ""
                if one.ci_us is None
                else f"{one.ci_us:.2g}"
                if one.ci_us < 100
                else microseconds(one.ci_us),
                str(one.calls),
                "" if one.t_sol_us is None else microseconds(one.t_sol_us),
                ""
                if one.t_sol_us is None or one.time_us is None
                else f"{100 * one.t_sol_us / one.time_us:.0f} %",
                "" if one.max_abs_error is None else f"{one.max_abs_error:.2g}",
            )
            for one in workloads
        ],
        right=frozenset(("µs", "± µs", "calls", "T_SOL µs", "of limit", "max error")),
    )
