"""The life of a box at every level: what a program gets, how its end is told, that nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swarm import sandbox
from swarm.errors import Refused
from swarm.sandbox import Exit, Level, Limits, run
from tests.boxes import CORES, GIVEN, PYTHON, isolated, levels, python


@levels
def test_ends_are_told_apart(at: Level) -> None:
    assert python("raise SystemExit(3)", at).exit == Exit(3, None)
    assert python("import os; os.kill(os.getpid(), 11)", at).exit == Exit(None, "SIGSEGV")
    assert python("while True: pass", at, timeout_s=0.5).exit is None


@levels
def test_output_is_kept_to_its_last_bytes(at: Level) -> None:
    done = python("print('x' * 3_000_000); print('the end')", at)
    assert done.output.endswith("the end\n")
    assert len(done.output) <= sandbox.LOG_BYTES


@levels
def test_a_program_that_prints_for_ever_is_ended_in_time(at: Level) -> None:
    start = time.monotonic()
    done = python("while True: print('x' * 1000)", at, timeout_s=1)
    assert done.exit is None
    assert time.monotonic() - start < 10


@levels
def test_sigterm_and_the_like_do_not_help(at: Level) -> None:
    code = "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)"
    start = time.monotonic()
    assert python(code, at, timeout_s=0.5).exit is None
    assert time.monotonic() - start < 10


@levels
def test_daemons_die_with_their_parent(at: Level, tmp_path: Path) -> None:
    mark = f"swarm-test-{os.getpid()}-{tmp_path.name}"
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        os.execv('/bin/sh', ['{mark}', '-c', 'sleep 600; true'])\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)\n"
    )
    assert python(code, at).exit == Exit(0, None)
    assert mark not in _command_lines()


@levels
def test_a_box_dies_with_whoever_asked_for_it(at: Level, tmp_path: Path) -> None:
    mark = f"swarm-test-{os.getpid()}-{tmp_path.name}"
    code = (
        "from swarm import sandbox\n"
        f"sandbox.run(['/bin/sh', '-c', 'sleep 600; true', '{mark}'], timeout_s=600,\n"
        f"            limits=sandbox.Limits(), cores={CORES}, at=sandbox.Level({at.value!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    _until(lambda: f"sleep 600; true\0{mark}" in _command_lines())
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    _until(lambda: mark not in _command_lines())


@levels
def test_memory_ends(at: Level) -> None:
    done = python("x = bytearray(1 << 30)", at, memory_bytes=512 << 20)
    assert done.exit == Exit(1, None)
    assert "MemoryError" in done.output


@levels
def test_the_first_byte_in_a_file_is_fatal_where_none_may_be_written(at: Level) -> None:
    done = run(["/bin/sh", "-c", "echo x > f"], timeout_s=20, limits=Limits(), cores=CORES, at=at)
    assert done.exit == Exit(None, "SIGXFSZ")


@levels
def test_the_private_folder_is_empty_writable_and_gone_afterwards(at: Level) -> None:
    code = f"""import os; print({{*os.listdir('.')}} - {GIVEN}, os.getcwd() == os.environ['HOME'])
open('f', 'w').write('x')"""
    for _ in range(2):
        done = python(code, at, file_bytes=100)
        assert done.exit == Exit(0, None)
        assert done.output == "set() True\n"


@levels
def test_nothing_of_our_environment_is_inherited(at: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    done = python("import os; print(sorted(os.environ))", at)
    assert done.output.strip() == "['HOME', 'LANG', 'PATH', 'TMPDIR']"


@levels
def test_no_descriptor_of_ours_is_inherited(at: Level) -> None:
    with Path("/dev/null").open() as file:
        os.set_inheritable(file.fileno(), True)
        done = python("import os; print(len(os.listdir('/proc/self/fd')))", at)
    assert done.output.strip() == "4"  # 0, 1, 2 and the one that lists


@levels
def test_it_stays_on_its_cores(at: Level) -> None:
    done = run(
        [PYTHON, "-I", "-S", "-c", "import os; print(os.sched_getaffinity(0))"],
        timeout_s=20,
        limits=Limits(),
        cores=CORES[-1:],
        at=at,
    )
    assert done.output.strip() == str(set(CORES[-1:]))


@levels
def test_only_what_was_made_writable_is(at: Level, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    tmp_path.chmod(0o755)
    done = run(
        ["/bin/sh", "-c", f"echo hello > {folder}/f"],
        timeout_s=20,
        limits=Limits(file_bytes=100),
        cores=CORES,
        writable=[folder],
        at=at,
    )
    assert done.exit == Exit(0, None), done.output
    assert (folder / "f").read_text() == "hello\n"


@levels
def test_a_program_that_is_not_there_is_our_fault(at: Level) -> None:
    with pytest.raises(Refused, match="/no/such/program"):
        run(["/no/such/program"], timeout_s=20, limits=Limits(), cores=CORES, at=at)


@levels
def test_descriptors_that_are_passed_arrive_and_are_let_go_of(at: Level) -> None:
    """As a GPU's memory and the judge's arena do: the program alone holds the other end."""
    theirs, ours = os.pipe()
    shared = os.memfd_create("shared")
    os.write(shared, b"from the judge")
    with os.fdopen(theirs, "rb") as heard:
        box = sandbox.spawn(
            [PYTHON, "-I", "-S", "-c", f"import os; os.write({ours}, os.pread({shared}, 99, 0))"],
            limits=Limits(),
            cores=CORES,
            pass_fds=[ours, shared],
            at=at,
        )
        os.close(ours)
        os.close(shared)
        with box:
            assert heard.read() == b"from the judge"  # and then the end, while the box is still there
            assert box.wait(20) == Exit(0, None)


@levels
def test_what_the_launcher_knows_is_out_of_reach(at: Level) -> None:
    """A program with the launcher's user could otherwise open its status pipe and forge an end."""
    code = (
        "import os\n"
        "for name in ('mem', 'environ', *(f'fd/{n}' for n in range(20))):\n"
        "    try: print(os.open(f'/proc/{os.getppid()}/{name}', os.O_RDONLY), name)\n"
        "    except OSError: pass\n"
        "try: os.kill(os.getppid(), 9)\n"
        "except OSError: pass\n"
        "print('and still runs')\n"
    )
    done = python(code, at)
    assert (done.exit, done.output) == (Exit(0, None), "and still runs\n")


def _command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return "\n".join(lines)


def _until(claim: object) -> None:
    deadline = time.monotonic() + 15
    assert callable(claim)
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@levels
def test_a_box_with_devices_may_reserve_addresses_but_not_fill_them(at: Level) -> None:
    code = (
        "import mmap, resource\n"
        "held = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | 0x4000, prot=0)\n"
        "print('reserved')\n"
        "bytearray(2 << 30)\n"
    )
    with sandbox.spawn(
        [PYTHON, "-I", "-S", "-c", code],
        limits=Limits(memory_bytes=1 << 30),
        cores=CORES,
        devices=[Path("/dev/full")],
        at=at,
    ) as box:
        assert box.wait(20) == Exit(1, None)
        assert "reserved" in box.log
        assert "MemoryError" in box.log


@isolated
def test_only_the_devices_that_were_given_are_there(at: Level) -> None:
    code = "import os; print(sorted(os.listdir('/dev')), os.path.exists('/sys/devices'))"
    given = Path("/dev/tty")
    with sandbox.spawn(
        [PYTHON, "-I", "-S", "-c", code], limits=Limits(), cores=CORES, devices=[given], at=at
    ) as box:
        assert box.wait(20) == Exit(0, None)
        assert f"{['full', 'null', 'random', 'tty', 'urandom', 'zero']} True" in box.log


@isolated
@pytest.mark.parametrize("loopback", [True, False])
def test_programs_in_a_box_reach_each_other_only_if_they_are_to(loopback: bool, at: Level) -> None:
    code = (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), 2)\nprint('connected')\n"
        "socket.create_connection(('127.0.0.1', 22), 2)"
    )
    with sandbox.spawn(
        [PYTHON, "-I", "-S", "-c", code], limits=Limits(), cores=CORES, loopback=loopback, at=at
    ) as process:
        assert process.wait(20) == Exit(1, None)
        assert ("connected" in process.log) is loopback
        assert ("refused" in process.log) is loopback
