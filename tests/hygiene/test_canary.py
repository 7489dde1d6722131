"""No key is readable for anything that runs for an agent: candidate, reference, compiler, role, file.

The keys are canaries: in the environment that the judge or the run is started with, and in files of its user.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from swarm import sandbox
from swarm.environment import environment
from swarm.layout import RunRoot
from swarm.sandbox import Level
from tests.flow.test_run import root, swarm_run, wait_for
from tests.hygiene.spies import KEY
from tests.support import REPOSITORY

__all__ = ["root"]
ROLE = re.compile(r"-m swarm\.(judge\.main|cli\.main (?:watch|plan|worker))")
REPORT = re.compile(r"SPY looked at (\d+) places and found (.*?) END", re.DOTALL)
NAMES = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "PYTHON_KEYRING_KEY",
    "DSN",
)


def canary() -> str:
    return f"canary-{os.urandom(16).hex()}"


def keys_in(data: bytes) -> set[bytes]:
    return {*KEY.findall(data)}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set keys in our environment, as a user's shell does."""
    made = {name: canary() for name in NAMES}
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.timeout(600)
def test_what_is_not_trusted_finds_no_key_in_the_strongest_and_the_weakest_box(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    files = [
        tmp_path / ".config" / "openai" / "key",
        tmp_path / "run" / ".env",
        tmp_path / "transcript.jsonl",
    ]
    kept = [canary() for _ in files]
    for path, value in zip(files, kept, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"KEY={value}\n")
        path.chmod(0o600)
    levels = [at.value for at in Level if not sandbox.lack(at)]
    offered = list(dict.fromkeys((levels[0], levels[-1])))
    words = [sys.executable, "-m", "tests.hygiene.spies", ",".join(offered), *map(str, files)]
    home = {"HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(words, env=os.environ | home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    outside = said.pop("outside")
    assert all(key in outside["a spy"] for key in (*keys.values(), *kept)), "the spy is blind"
    assert all(key in outside["a compiler"] for key in kept), "the compiler would not show it"
    assert [*said] == offered
    for at, spies in said.items():
        assert len(spies) == 4
        for who, text in spies.items():
            report = REPORT.search(text)
            assert report is not None, f"{who} in {at}: {text[-2000:]}"
            assert int(report[1]) >= len(files) and not KEY.search(text.encode()), (
                f"{who} in {at}: {report[2]}"
            )


@pytest.mark.timeout(600)
def test_no_role_of_a_run_is_given_a_key_and_no_file_of_it_holds_one(
    root: RunRoot, keys: dict[str, str]
) -> None:
    paths = root.run("t")
    seen: set[str] = set()

    def has_looked() -> bool:
        """Look into every role and all that it has started; what else the run itself calls has its keys."""
        for role in psutil.Process(run.pid).children():
            with suppress(OSError, psutil.Error):  # it has just ended
                named = ROLE.search(" ".join(role.cmdline()))
                if named is None:
                    continue  # or has just begun, and is a copy of the run still
                for process in (role, *role.children(recursive=True)):
                    words = " ".join(process.cmdline())
                    environ = Path(f"/proc/{process.pid}/environ").read_bytes()
                    assert not keys_in(environ + words.encode()), words
                    seen.update(ROLE.findall(words))
        return seen >= {"judge.main", "cli.main watch", "cli.main plan", "cli.main worker"}

    with swarm_run("--minutes", "5") as run:
        given = Path(f"/proc/{run.pid}/environ")  # empty for a moment after exec
        wait_for(lambda: keys_in(given.read_bytes()) == {value.encode() for value in keys.values()})
        wait_for(has_looked, 240)
        run.send_signal(signal.SIGINT)
        assert run.wait(10) == 130
    files = [path for path in root.path.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        data = path.read_bytes()
        if path.is_relative_to(paths.hub / "objects") and not path.suffix:
            data += zlib.decompress(data)
        assert not keys_in(data), path


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_not_passed_on_whatever_its_name_begins_with(keys: dict[str, str], name: str) -> None:
    assert name not in environment()
    assert environment(**{name: keys[name]})[name] == keys[name]  # only who is given it by name has it


def test_what_it_takes_to_work_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (
        "PATH",
        "HOME",
        "LC_ALL",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_HOME",
        "LD_LIBRARY_PATH",
        "SWARM_ROOT",
        "CXX",
    )
    for name in wanted:
        monkeypatch.setenv(name, "x")
    assert {*wanted} <= {*environment()}
