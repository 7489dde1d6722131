"""The table of the problems that ship, in docs/problems.md: `python -m tests.suite.table` writes it again."""

from __future__ import annotations

from functools import cache, partial

from swarm.device import cpu_device
from swarm.judge.limit import Limit, limit_of
from swarm.judge.reference import References, input_specs
from swarm.peaks_table import BY_MODEL
from swarm.report.render import microseconds
from tests.suite.shipped import NAMES, ROOT, shipped

DOCUMENT = ROOT / "docs" / "problems.md"
BEGIN, END = "<!-- written by: python -m tests.suite.table -->\n", "<!-- to here -->\n"
H200 = BY_MODEL["nvidia-h200"].peaks("nvidia-h200")


@cache
def limits(name: str, references: References) -> list[Limit]:
    """Return the limit on an H200 of every workload of a problem, of those for a CPU last."""
    problem = shipped(name)
    reference = references.answering(name, problem)
    found = []
    for workload in (*problem.workloads, *problem.cpu_workloads):
        specs = input_specs(problem.definition, workload)
        count = partial(reference.flops, specs)
        found.append(limit_of(problem, workload, H200, lambda count=count: sum(count().values())))
    return found


def table(references: References) -> str:
    lines = [
        "| problem | family | from | workloads: GPU, CPU | T_SOL on an H200, µs | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for name in sorted(NAMES, key=lambda name: (shipped(name).settings.family or "", name)):
        problem = shipped(name)
        times = [limit.t_sol_us for limit in limits(name, references)[: len(problem.workloads)]]
        span = f"{microseconds(min(times))} to {microseconds(max(times))}"
        counts = f"{len(problem.workloads)}, {len(problem.cpu_workloads)}"
        source = (problem.settings.source or "").replace("|", "\\|")
        seeds = " ".join(sorted(problem.seeds))
        lines.append(f"| `{name}` | {problem.settings.family} | {source} | {counts} | {span} | {seeds} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """Return the table as it stands in the document."""
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    return rest.partition(END)[0]


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    with References(cpu_device()) as references:
        DOCUMENT.write_text(text.replace(BEGIN + written(), BEGIN + table(references)), encoding="utf-8")


if __name__ == "__main__":
    main()
