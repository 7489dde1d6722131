from __future__ import annotations

from pathlib import Path

from swarm.config import load_config
from swarm.layout import find_root
from swarm.protocol import load_protocol

ROOT = find_root(Path(__file__).parent)


def test_the_coordination_file_of_the_project_is_obeyable() -> None:
    protocol = load_protocol(ROOT.coordination.read_text())
    assert protocol.output.is_editable("solution/deep/kernel.cpp")
    assert not protocol.output.is_editable("reference.py")


def test_the_configuration_of_the_project_names_the_embedded_default() -> None:
    assert load_config(ROOT).run.agent == "tuner"
