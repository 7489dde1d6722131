"""Attacks on every wall of a box, at every level that this machine offers.

Each is tried with the real calls, and what it would win is there to be won: files that anybody may read,
listening sockets, a program that is setuid root.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm import sandbox
from swarm.box import walls
from swarm.errors import Refused
from swarm.sandbox import Exit, Level, Limits, calls, users
from tests.boxes import CORES, GIVEN, PYTHON, isolated, levels, python

MACHINE = list(calls.ARCHITECTURES).index(os.uname().machine)
TRY = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    if libc.syscall(number, *words) < 0: raise OSError(ctypes.get_errno(), '')
def tried(what, *words):
    try: what(*words)
    except OSError as error: print(errno.errorcode[error.errno])
    else: print('done')
"""
guards_files = pytest.mark.skipif(walls.landlock() == 0, reason="this kernel has no Landlock")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of ours that every user may enter and read."""
    made = Path(os.path.realpath(f"/var/tmp/swarm-walls-{os.getpid()}"))
    made.mkdir(mode=0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def said(code: str, at: Level, *, readable: tuple[Path, ...] = (), **limits: int) -> list[str]:
    """Return the words that a program prints, which must end well."""
    done = python(TRY + code, at, readable=readable, **{"file_bytes": 1 << 20, **limits})
    assert done.exit == Exit(0, None), done
    return done.output.split()


@levels
def test_no_socket_can_be_made_that_reaches_out(at: Level) -> None:
    code = (
        "for name in ('AF_INET', 'AF_INET6', 'AF_NETLINK', 'AF_PACKET', 'AF_VSOCK', 'AF_ALG'):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
        "        tried(socket.socket, getattr(socket, name), kind)"
    )
    assert said(code, at) == ["ENETUNREACH"] * 18


@levels
def test_sockets_within_the_box_are_left(at: Level) -> None:
    assert said("a, b = socket.socketpair(); a.send(b'heard'); print(b.recv(9).decode())", at) == ["heard"]


@levels
@pytest.mark.parametrize("is_abstract", [True, False])
def test_unix_sockets_of_the_host_cannot_be_reached(at: Level, is_abstract: bool, folder: Path) -> None:
    """Through one of these, root's Docker or a user's session would start programs outside."""
    name = f"\0swarm-walls-{os.getpid()}" if is_abstract else str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        if not is_abstract:
            Path(name).chmod(0o777)
        server.listen()
        found = said(f"tried(socket.socket(socket.AF_UNIX).connect, {name!r})", at)
    assert found in (["ENOENT"], ["ECONNREFUSED"])


@levels
def test_files_of_the_host_cannot_be_read(at: Level, folder: Path) -> None:
    """All that a run root and a home hold, open to every user: .git, the hub, worktrees, results, keys."""
    if at is Level.PROCESS_GROUP and not walls.landlock():
        pytest.skip("this kernel has no Landlock")
    names = [
        ".git/config", "workspace/run/hub.git/HEAD", "workspace/run/worktrees/w2/solution/kernel.cu",
        "results/run/verdicts/p/1.json", ".ssh/id_ed25519", "swarm.toml",
    ]  # fmt: skip
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret")
    paths = [str(folder / name) for name in names]
    found = said(
        f"for path in {paths!r}:\n    tried(os.open, path, 0)\n    tried(os.listdir, os.path.dirname(path))\n"
        f"    tried(os.open, path, os.O_WRONLY)\n    tried(os.unlink, path)",
        at,
    )
    assert set(found) <= {"ENOENT", "EACCES"} and len(found) == 4 * len(names)


@levels
def test_a_link_made_in_the_box_leads_nowhere(at: Level, folder: Path) -> None:
    if at is Level.PROCESS_GROUP and not walls.landlock():
        pytest.skip("this kernel has no Landlock")
    (folder / "secret").write_text("secret")
    code = f"os.symlink({str(folder / 'secret')!r}, 'link')\ntried(os.open, 'link', 0)\n"
    code += f"tried(os.link, {str(folder / 'secret')!r}, 'hard')"
    assert set(said(code, at)) <= {"ENOENT", "EACCES", "EXDEV", "EPERM"}


@levels
def test_what_may_be_read_cannot_be_changed(at: Level, folder: Path) -> None:
    (folder / "file").write_text("ours")
    path, beside = str(folder / "file"), str(folder / "more")
    code = (
        f"tried(os.open, {path!r}, os.O_WRONLY)\ntried(os.truncate, {path!r}, 0)\n"
        f"tried(os.unlink, {path!r})\ntried(os.rename, {path!r}, {beside!r})\n"
        f"tried(os.open, {beside!r}, os.O_CREAT | os.O_WRONLY)\ntried(os.mkdir, {beside!r})\n"
        f"print(open({path!r}).read())"
    )
    if at is not Level.PROCESS_GROUP or os.geteuid() == 0:  # Landlock lets an owner change modes: trust.md
        code = f"tried(os.chmod, {path!r}, 0o777)\n{code}"
    found = said(code, at, readable=(folder,))
    assert found[-1] == "ours"
    assert set(found[:-1]) <= {"EROFS", "EACCES", "EPERM"}
    assert (folder / "file").read_text() == "ours"


@levels
def test_the_system_cannot_be_written_to(at: Level) -> None:
    paths = ["/usr/new", "/etc/new", "/new", "/var/tmp/new", "/dev/shm/new", "/proc/sys/kernel/core_pattern"]
    found = said(f"for path in {paths}: tried(os.open, path, os.O_CREAT | os.O_WRONLY, 0o600)", at)
    assert set(found) <= {"EROFS", "EACCES", "ENOENT", "EPERM"}


@levels
def test_other_processes_cannot_be_looked_into(at: Level) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={"API_KEY": "secret"}) as other:
        try:
            names = ("environ", "mem", "maps", "fd/0", "cwd/.", "root/.", "exe")
            paths = [f"/proc/{pid}/{name}" for pid in (other.pid, os.getpid()) for name in names]
            found = said(f"for path in {paths!r}: tried(os.open, path, 0)", at)
        finally:
            other.kill()
    assert set(found) <= {"ENOENT", "EACCES", "EPERM"}


@isolated
def test_other_processes_are_out_of_sight(at: Level) -> None:
    found = said("print(*(int(n) for n in os.listdir('/proc') if n.isdecimal()), os.getuid())", at)
    assert all(int(word) < 10 for word in found[:-1]) and found[-1] == "1000"


@levels
def test_other_processes_cannot_be_signalled(at: Level) -> None:
    if at is Level.PROCESS_GROUP and os.geteuid() != 0 and walls.landlock() < walls.SCOPES_SINCE:
        pytest.skip("this kernel's Landlock does not know signals")
    with subprocess.Popen(["/bin/sleep", "600"]) as other:
        try:
            found = said(f"tried(os.kill, {other.pid}, 9)\ntried(os.kill, {os.getpid()}, 0)", at)
            assert set(found) <= {"ESRCH", "EPERM"}
            assert other.poll() is None
        finally:
            other.kill()


@levels
def test_killing_everything_in_sight_kills_only_the_box(at: Level) -> None:
    if at is Level.PROCESS_GROUP and os.geteuid() != 0 and walls.landlock() < walls.SCOPES_SINCE:
        pytest.skip("this kernel's Landlock does not know signals, and all of ours would die")
    with subprocess.Popen(["/bin/sleep", "600"]) as other:
        try:
            done = python("import os, time; os.fork() or time.sleep(60); os.kill(-1, 9)", at)
            assert done.exit in (Exit(0, None), Exit(None, "SIGKILL"))
            assert other.poll() is None
        finally:
            other.kill()


@levels
def test_a_setuid_program_gives_nothing(at: Level, folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can plant one")
    planted = folder / "planted"
    shutil.copy("/usr/bin/id", planted)
    planted.chmod(0o4755)
    code = f"import subprocess; print(subprocess.run([{str(planted)!r}, '-u'], capture_output=True).stdout)"
    assert said(code, at, readable=(folder,)) not in ([r"b'0\n'"], ["b''"])


@levels
def test_there_are_no_rights_to_be_had(at: Level) -> None:
    """No capability but, at the weakest level, root's right to read what Landlock lets it."""
    code = (
        "print(*(line.split()[1] for line in open('/proc/self/status') if line[:6] in ('CapPrm', 'NoNewP')))"
    )
    rights, no_new = said(code, at)
    assert no_new == "1"
    assert int(rights, 16) in ((0, 1 << users.CAP_DAC_READ_SEARCH) if at is Level.PROCESS_GROUP else (0,))
    mounting = "tried(lambda: print(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None), libc.umount2(b'/proc', 2)))"
    assert said(mounting, at)[:2] == ["-1", "-1"]


@levels
def test_calls_that_lead_out_are_denied(at: Level) -> None:
    table = calls.DENIED | calls.BETWEEN_PROCESSES
    numbers = [numbers[MACHINE] for numbers in table.values()]
    found = said(f"for number in {numbers}: tried(call, number, 0, 0, 0, 0, 0)", at)
    assert dict(zip(table, found, strict=True)) == dict.fromkeys(table, "EPERM")


@levels
def test_no_namespace_can_be_made_within(at: Level) -> None:
    """Not by clone; unshare is denied, and clone3 is not there, as its flags cannot be seen by a filter."""
    flags = [1 << bit for bit in range(32) if calls.NEW_NAMESPACES >> bit & 1]
    code = (
        f"for flag in {flags}: tried(call, {calls.CLONE[MACHINE]}, flag | 17, 0, 0, 0, 0)\n"
        f"tried(call, {calls.CLONE3[MACHINE]}, 0, 0)"
    )
    assert said(code, at) == ["EPERM"] * 7 + ["ENOSYS"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has a second set of calls")
@levels
def test_the_calls_of_32_bits_are_no_way_around(at: Level) -> None:
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        r"page.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')" + "\n"  # mov eax, getpid; int 0x80; ret
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n"
    )
    assert python(code, at).exit in (Exit(None, "SIGSYS"), Exit(None, "SIGSEGV"))


@levels
def test_devices_can_neither_be_made_nor_opened(at: Level) -> None:
    others = [str(path) for path in Path("/dev").iterdir() if _is_device(path)]
    others = [
        path
        for path in others
        if path.rpartition("/")[2] not in ("null", "zero", "full", "random", "urandom")
    ]
    assert others, "this machine has some"
    if at is Level.PROCESS_GROUP and not walls.landlock():
        others = [path for path in others if not Path(path).stat().st_mode & 0o006]
    code = f"for path in {others!r}: tried(os.open, path, os.O_RDWR)\n"
    code += "tried(os.mknod, 'made', 0o20666, os.makedev(1, 3))"
    assert set(said(code, at)) <= {"ENOENT", "EACCES", "EPERM"}


@levels
def test_processes_end(at: Level) -> None:
    code = (
        "import time\ncount = 0\n"
        "try:\n    while os.fork(): count += 1\n    time.sleep(60)\n"
        "except BlockingIOError: print(count)\n"
    )
    assert int(said(code, at, processes=20)[0]) <= 20 + _others_start(at)


@levels
def test_threads_are_counted_too(at: Level) -> None:
    code = (
        "import threading, time\ncount = 0\n"
        "def start(): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "try:\n    while count < 500: start(); count += 1\n"
        "except RuntimeError: print(count, flush=True)\nos._exit(0)"
    )
    assert int(said(code, at, processes=20)[0]) <= 20 + _others_start(at)


@levels
def test_open_files_end(at: Level) -> None:
    assert said("tried(lambda: [os.pipe() for _ in range(100)])", at, open_files=50) == ["EMFILE"]


@levels
def test_files_end(at: Level) -> None:
    code = (
        "def fill(file):\n    for _ in range(999): file.write(bytes(65536))\n"
        "tried(fill, open('f', 'wb', 0))\ntried(fill, open(os.memfd_create('m'), 'wb', 0))"
    )
    assert said(code, at, file_bytes=1 << 20) == ["EFBIG", "EFBIG"]


@isolated
def test_the_private_folder_is_bounded(at: Level) -> None:
    code = "for n in range(99): tried(open(str(n), 'wb').write, bytes(1 << 20))"
    found = said(code, at, scratch_bytes=4 << 20, file_bytes=2 << 20)
    assert "ENOSPC" in found and found.count("done") <= 4


@levels
def test_processor_time_ends(at: Level) -> None:
    assert python("while True: pass", at, cpu_s=1).exit in (Exit(None, "SIGXCPU"), Exit(None, "SIGKILL"))


@levels
def test_limits_cannot_be_raised(at: Level) -> None:
    code = (
        "import resource\n"
        "for name in ('NPROC', 'AS', 'FSIZE', 'NOFILE', 'CPU', 'CORE'):\n"
        "    which = getattr(resource, 'RLIMIT_' + name)\n"
        "    try: resource.setrlimit(which, (resource.RLIM_INFINITY,) * 2); print(name)\n"
        "    except ValueError: print('kept')\n"
        "tried(os.nice, -5)\ntried(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))"
    )
    found = said(code, at)
    assert found[:6] == ["kept"] * 6
    assert set(found[6:]) <= {"EACCES", "EPERM"}


@levels
def test_shared_memory_is_not_to_be_had(at: Level) -> None:
    """By System V the calls are denied (see above); by POSIX there is no folder for it."""
    code = "tried(os.open, '/dev/shm/left', os.O_CREAT | os.O_RDWR, 0o600)\ntried(os.listdir, '/dev/shm')"
    assert set(said(code, at)) <= {"ENOENT", "EACCES"}


@levels
def test_what_one_box_leaves_the_next_does_not_find(at: Level) -> None:
    assert said(f"open('left', 'w').write('x'); print({{*os.listdir('.')}} - {GIVEN})", at) == ["{'left'}"]
    assert said(f"print({{*os.listdir('.')}} - {GIVEN}, os.path.exists('/tmp/left'))", at) == [
        "set()",
        "False",
    ]


@levels
def test_a_pinned_box_stays_on_its_cores(at: Level) -> None:
    code = f"{TRY}tried(os.sched_setaffinity, 0, range(os.cpu_count()))\nprint(len(os.sched_getaffinity(0)))"
    with sandbox.spawn(
        [PYTHON, "-I", "-S", "-c", code], limits=Limits(), cores=CORES[:1], is_pinned=True, at=at
    ) as box:
        assert box.wait(20) == Exit(0, None)
        assert box.log.split() == ["EPERM", "1"]


@guards_files
@levels
def test_what_only_root_may_read_is_given_to_a_box_by_name(at: Level, tmp_path: Path) -> None:
    """A solution may lie in root's home; beside it nothing more can be read."""
    if os.geteuid() != 0:
        pytest.skip("only root's boxes have a user of their own")
    assert tmp_path.parent.stat().st_mode & 0o077 == 0, "pytest keeps others out"
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("given")
    (tmp_path / "kept").write_text("kept")
    given, kept = str(tmp_path / "given" / "file"), str(tmp_path / "kept")
    code = f"print(open({given!r}).read())\ntried(os.open, {kept!r}, 0)"
    found = said(code, at, readable=(tmp_path / "given",))
    assert found in (["given", "ENOENT"], ["given", "EACCES"])


DOCKER = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,"
    "mknod,audit_write,setfcap"
)
"""The capabilities of root in a container that is started with no word about them."""


@guards_files
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv")
def test_the_root_of_a_container_gives_its_boxes_the_same(folder: Path) -> None:
    """It may not read everything, only read and write everything: still nothing can be changed."""
    if os.geteuid() != 0 or walls.landlock() < users.TRUNCATE_SINCE:
        pytest.skip("only root has rights to pass on, and only where Landlock guards a file's length")
    folder.chmod(0o700)
    for name in ("given", "kept"):
        (folder / name).write_text(name)
    given, kept = str(folder / "given"), str(folder / "kept")
    attack = (
        f"{TRY}print(open({given!r}).read(), os.getuid() > 0)\ntried(os.open, {kept!r}, 0)\n"
        f"for path in ({given!r}, {kept!r}):\n    tried(os.open, path, os.O_WRONLY)\n"
        "    tried(os.truncate, path, 0)\n    tried(os.unlink, path)\n    tried(os.chmod, path, 0o777)"
    )
    code = (
        "from pathlib import Path\nfrom tests.boxes import python\nfrom swarm.sandbox import Level\n"
        f"print(python({attack!r}, Level.PROCESS_GROUP, readable=[Path({given!r})]).output)"
    )
    bounds = ",".join(f"+{name}" for name in DOCKER.split(","))
    done = subprocess.run(
        ["setpriv", "--bounding-set", f"-all,{bounds}", sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = done.stdout.split()
    assert found[:3] == ["given", "True", "EACCES"], done
    assert len(found) == 11 and set(found[3:]) <= {"EACCES", "EPERM"}
    assert (folder / "given").read_text() == "given" and (folder / "kept").read_text() == "kept"


def test_a_network_of_its_own_takes_namespaces() -> None:
    with pytest.raises(Refused, match="network of its own"):
        sandbox.spawn(["/bin/true"], limits=Limits(), cores=CORES, loopback=True, at=Level.PROCESS_GROUP)


def _is_device(path: Path) -> bool:
    mode = path.stat(follow_symlinks=False).st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _others_start(at: Level) -> int:
    """How many tasks of our user may have ended since they were counted, where a box is counted with them."""
    return 200 if at is Level.PROCESS_GROUP and os.geteuid() != 0 else 0
