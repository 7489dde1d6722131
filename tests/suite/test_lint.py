"""The product's own lint finds nothing wrong with any problem that ships."""

from __future__ import annotations

import pytest

from swarm.cli.lint import _report
from swarm.device import cpu_device
from swarm.judge.lint import linted_workloads
from swarm.judge.reference import References
from swarm.layout import RunRoot
from swarm.protocol import Protocol, load_protocol
from tests.suite.shipped import NAMES, PROBLEMS, ROOT, SEVEN, shipped

ALWAYS = {"zeros", "half written", "stale"}
IN_SEVEN = ALWAYS | {"ones", "mean", "median", "copy", "half read", "lower precision"}


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> RunRoot:
    """A run root with the problems that ship, whose seeds are compiled into a folder of its own."""
    folder = tmp_path_factory.mktemp("root")
    (folder / "problems").symlink_to(PROBLEMS)
    return RunRoot(folder)


@pytest.fixture(scope="session")
def protocol() -> Protocol:
    return load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md")


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_that_skips_work_is_rejected_and_every_seed_builds(
    name: str, root: RunRoot, protocol: Protocol, references: References
) -> None:
    report = _report(root, name, protocol, cpu_device(), references)
    assert (report.faults, report.weak, report.mend, report.remarks) == ([], [], [], [])
    assert report.state == "sound", "no problem that ships is marked"
    wanted = IN_SEVEN if name in SEVEN else ALWAYS
    tried = len(linted_workloads(shipped(name)))
    assert {kind for kind in wanted if report.rejected.get(kind, 0) < tried} == set()
