"""Which boxes a machine can build, how that is told, and that it is the same for an ordinary user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm import sandbox
from swarm.box import walls
from swarm.errors import Refused
from swarm.sandbox import Exit, Level, Limits, advice, boxes, calls
from tests.boxes import CORES, levels, offered

TELL = """
from swarm import sandbox
from swarm.cli.capabilities import _sandbox
for at in sandbox.Level: print(at, sandbox.lack(at) or 'yes', sep=': ')
print(sandbox.standing(), _sandbox(), sep='\\n')
"""


def told(before: str = "", **environment: str) -> list[str]:
    """Return what another process says of this machine's boxes; it first does what is in `before`."""
    done = subprocess.run(
        [sys.executable, "-c", before + TELL],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_levels_are_in_order() -> None:
    assert Level.BUBBLEWRAP.is_at_least(Level.NAMESPACES)
    assert Level.NAMESPACES.is_at_least(Level.NAMESPACES)
    assert not Level.PROCESS_GROUP.is_at_least(Level.NAMESPACES)


@pytest.mark.parametrize("at", [offered(Level.BUBBLEWRAP)])
def test_bubblewrap_is_used_where_it_is_on_the_path(at: Level) -> None:
    assert sandbox.level() is at
    assert told()[3:] == ["bubblewrap", "Capability(name='sandbox', state=<State.THERE: 'there'>, "
                          "found='bubblewrap', remedy='')"]  # fmt: skip


@pytest.mark.parametrize("at", [offered(Level.NAMESPACES)])
def test_without_bubblewrap_the_same_walls_are_ours(at: Level, tmp_path: Path) -> None:
    lines = told(PATH=str(tmp_path))
    assert lines[0] == "bubblewrap: no bwrap on PATH"
    assert lines[3] == at
    assert "bubblewrap is not used: no bwrap on PATH" in lines[4]


@pytest.mark.parametrize("at", [offered(Level.NAMESPACES)])
def test_a_bubblewrap_that_does_not_work_is_not_used(at: Level, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    tmp_path.chmod(0o755)
    lines = told(PATH=str(tmp_path))
    assert "setting up uid map: Permission denied" in lines[0]
    assert lines[3] == at


@pytest.mark.parametrize("at", [offered(Level.NAMESPACES)])
def test_without_namespaces_the_record_and_doctor_say_so(at: Level) -> None:
    """In a user namespace that may have none below it, as an ordinary user, which is a machine without."""
    before = (
        "from swarm.box import kernel, root\n"
        "root.unshare(None, kernel.CLONE_NEWUSER)\n"
        "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
    )
    lines = told(before)
    assert "No space left on device" in lines[1]
    assert lines[2] == "process-group: yes"
    assert lines[3] == f"process-group (landlock {walls.landlock()})"
    assert "LIMITED" in lines[4] and "sysctl -w user.max_user_namespaces=10000" in lines[4]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"kernel/unprivileged_userns_clone": "0"}, "sysctl -w kernel.unprivileged_userns_clone=1"),
        ({"user/max_user_namespaces": "0"}, "sysctl -w user.max_user_namespaces=10000"),
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, "bwrap-userns-restrict"),
        ({"user/max_user_namespaces": "9999"}, "--security-opt seccomp=unconfined"),
    ],
)
def test_the_remedy_is_that_of_this_machine(settings: dict[str, str], wanted: str, tmp_path: Path) -> None:
    for name, value in settings.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"{value}\n")
    assert wanted in advice.remedy(tmp_path)


def test_more_than_a_machine_has_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "level", lambda: Level.PROCESS_GROUP)
    sandbox.require(Level.PROCESS_GROUP, by="this test")
    with pytest.raises(Refused, match="boxes here are process-group, and this test asks for namespaces"):
        sandbox.require(Level.NAMESPACES, by="this test")


def test_without_landlock_root_runs_no_candidate_that_needs_what_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walls, "landlock", lambda: 0)
    given: dict[str, Any] = {"timeout_s": 20, "limits": Limits(), "cores": CORES, "at": Level.PROCESS_GROUP}
    done = sandbox.run(["/bin/sh", "-c", "id -u"], **given)
    assert done.exit == Exit(0, None) and done.output != "0\n"
    if os.geteuid() == 0:
        with pytest.raises(Refused, match="cannot reach it without namespaces or Landlock; chmod o"):
            sandbox.run(["/bin/sh", "-c", "id -u"], readable=[tmp_path], **given)


@pytest.mark.parametrize(
    ("column", "header"), [(0, "x86_64-linux-gnu/asm/unistd_64.h"), (1, "asm-generic/unistd.h")]
)
def test_the_filter_numbers_calls_as_the_kernel_does(column: int, header: str) -> None:
    path = Path("/usr/include", header)
    if not path.is_file():
        pytest.skip(f"no {path}")
    told = dict(re.findall(r"#define __NR_(\w+) (\d+)", path.read_text()))
    ours = calls.DENIED | calls.BETWEEN_PROCESSES | {
        "clone": calls.CLONE, "clone3": calls.CLONE3, "socket": calls.SOCKET, "connect": calls.CONNECT,
        "sched_setaffinity": calls.SCHED_SETAFFINITY,
    }  # fmt: skip
    known = {name: numbers[column] for name, numbers in ours.items() if name in told}
    assert known == {name: int(told[name]) for name in known}
    assert len(known) >= len(ours) - 2, "newer calls than the header may be missing"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@levels
def test_it_is_the_same_for_an_ordinary_user(at: Level, tmp_path: Path) -> None:
    """With the system's Python and a copy of what builds boxes, since ours may lie in root's home."""
    system = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if system is None or subprocess.run([system, "-c", "import tomllib"], check=False).returncode != 0:
        pytest.skip("no Python 3.11 that everybody may use")
    root = Path(f"/var/tmp/swarm-user-{os.getpid()}")
    package = Path(boxes.__file__).parents[1]
    try:
        for source in (*package.glob("*.py"), package / "box", package / "sandbox"):
            target = root / "swarm" / source.name
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        (root / "secret").write_text("secret")
        code = (
            "import os\nfrom swarm import sandbox\n"
            "inner = '''import os, socket\\nprint(os.getuid())\\n"
            f"for what in (lambda: open({str(root / 'secret')!r}), lambda: socket.socket()):\\n"
            "    try: print(what())\\n    except OSError: print('kept')'''\n"
            f"done = sandbox.run([{system!r}, '-I', '-c', inner], timeout_s=20, limits=sandbox.Limits(),\n"
            f"                   cores=os.sched_getaffinity(0), at=sandbox.Level({at.value!r}))\n"
            "print(done.exit, done.output)"
        )
        done = subprocess.run(
            [system, "-c", code],
            env={"PYTHONPATH": str(root), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            user=12345,
            group=12345,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        shutil.rmtree(root)
    inside = "12345" if at is Level.PROCESS_GROUP else "1000"
    assert done.stdout.split() == ["exit", "code", "0", inside, "kept", "kept"], done
