"""Build the box around one program, start it, wait for it, leave nothing behind.

Runs as `python -I -S sandbox_main.py SPEC`: standard library only, nothing of ours, so that it starts in
milliseconds. What belongs in a box is said by `swarm.sandbox`; this file only carries it out.

    outer    child of whoever asked; holds the leash, sweeps up
    └── init first process of the new pid namespace: when it ends, the kernel kills all the others in it
        └── the program

The leash is a pipe: when its other end closes, for whatever reason, everything dies. On the status pipe
go the lines `failed WHY`, or `ended WAITSTATUS`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from types import SimpleNamespace

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
SYS_MOUNT_SETATTR = 442
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
INNER_UID = 1000
SWEEP_S = 5.0
DEVICES = ("null", "zero", "full", "random", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    spec = SimpleNamespace(**json.loads(sys.argv[1]))
    for fd in (spec.leash_fd, spec.status_fd):
        os.set_inheritable(fd, False)
    try:
        init = _start(spec)
    except OSError as error:
        _say(spec, f"failed {error}")
        return 1
    _wait(spec.leash_fd, init)
    return 0 if _sweep() else 2


def _start(spec: SimpleNamespace) -> int:
    """Enter the namespaces and fork init; only OSErrors, with a text that says which step failed."""
    os.sched_setaffinity(0, spec.cores)
    _check("prctl", libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123  # pathlib costs 15 ms to import
        file.write("1000")  # when memory ends, this dies and not the judge
    if spec.uid is not None:
        os.setgroups([])
    if spec.namespaces:
        _unshare(spec.uid)
    parent = os.getpid()
    init = os.fork()
    if init == 0:
        _init(spec, parent)
    _close(spec.pass_fds)
    return init


def _unshare(uid: int | None) -> None:
    """Move into new namespaces with, until exec, all rights in them.

    The program's user there is INNER_UID: ourselves or, if we are root, `uid`; root then stays mapped too,
    to reach what only root may read while the box is being built.
    """
    if uid is None:
        maps = {"uid_map": f"{INNER_UID} {os.geteuid()} 1", "gid_map": f"{INNER_UID} {os.getegid()} 1"}
    else:
        both = f"0 0 1\n{INNER_UID} {uid} 1"
        maps = {"uid_map": both, "gid_map": both}
    pid, (ready, go) = os.getpid(), os.pipe()
    mapper = os.fork()
    if mapper == 0:  # the maps must be written from outside
        os.close(go)
        os.read(ready, 1)
        try:
            for name, text in ({"setgroups": "deny"} | maps).items():
                with open(f"/proc/{pid}/{name}", "w") as file:  # noqa: PTH123
                    file.write(text)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    os.close(ready)
    kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    try:
        _check("unshare", libc.unshare(kinds))
    finally:
        os.close(go)
        code = os.waitstatus_to_exitcode(os.waitpid(mapper, 0)[1])
    if code:
        raise OSError(code, f"uid_map: {os.strerror(code)}")


def _init(spec: SimpleNamespace, parent: int) -> None:
    """Be the first process of the box; never returns."""
    code = 1
    try:
        _check("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        if not spec.namespaces and os.getppid() != parent:
            os._exit(1)
        if spec.namespaces:
            if spec.loopback:
                _raise_loopback()
            _build_root(spec)
        os.chdir(spec.cwd)
        failed, report = os.pipe()
        program = os.fork()
        if program == 0:
            _exec(spec, report)
        os.close(report)
        _close(spec.pass_fds)
        why = os.read(failed, 4096)
        if why:
            _say(spec, f"failed {why.decode()}")
        else:
            _say(spec, f"ended {_reap(program)}")
        code = 0
    except OSError as error:
        _say(spec, f"failed {error}")
    finally:
        os._exit(code)


def _raise_loopback() -> None:
    """Let programs in the box talk to each other by TCP; it reaches nobody else."""
    import fcntl
    import socket
    import struct

    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING))


def _build_root(spec: SimpleNamespace) -> None:
    """Make a root of our own from what the spec lists; nothing else of the host remains in sight."""
    _mount(None, "/", None, MS_REC | MS_SLAVE)
    root = "/proc"  # the one folder that exists everywhere and holds nothing that is to be bound
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=0755")
    for path in ("/tmp", "/proc", "/dev", "/.old"):
        os.mkdir(root + path)  # noqa: PTH102
    _mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"size={spec.scratch_bytes},mode=1777")
    for path in spec.readable:
        _bind(path, root, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    for path in spec.writable:
        _bind(path, root, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    for path in (*(f"/dev/{name}" for name in DEVICES), *spec.devices):
        _bind(path, root, MOUNT_ATTR_NOSUID)
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV)
    machine = os.uname().machine
    if machine not in SYS_PIVOT_ROOT:
        raise OSError(0, f"pivot_root: no system call number known for {machine}")
    put_old = f"{root}/.old".encode()
    _check("pivot_root", libc.syscall(SYS_PIVOT_ROOT[machine], root.encode(), put_old))
    os.chdir("/")
    _check("umount", libc.umount2(b"/.old", MNT_DETACH))
    os.rmdir("/.old")  # noqa: PTH106


def _bind(path: str, root: str, attributes: int) -> None:
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    if os.path.islink(path):  # noqa: PTH114  # /bin -> usr/bin and the like
        os.symlink(os.readlink(path), target)  # noqa: PTH115, PTH211
        return
    if os.path.isdir(path):  # noqa: PTH112
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    elif not os.path.exists(target):  # noqa: PTH110
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    _mount(path, target, None, MS_BIND | MS_REC)
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    _check(
        f"mount_setattr {path}",
        libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), AT_RECURSIVE, wanted, 32),
    )


def _exec(spec: SimpleNamespace, report: int) -> None:
    """Become the program, or write on `report` why not."""
    try:
        os.setsid()
        for name, value in spec.rlimits.items():
            resource.setrlimit(getattr(resource, name), (value, value))
        _check("prctl", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        os.nice(spec.nice)
        if spec.uid is not None:
            user = INNER_UID if spec.namespaces else spec.uid
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(
                    number, signal.SIG_DFL
                )  # Python ignores SIGPIPE and SIGXFSZ, and exec keeps that
        os.execve(spec.argv[0], spec.argv, spec.env)
    except (OSError, ValueError) as error:
        os.write(report, f"{spec.argv[0]}: {error}".encode())
    finally:
        os._exit(127)


def _close(fds: list[int]) -> None:
    """Let go of what is the program's alone: its other end must see when the program closes it."""
    for fd in fds:
        os.close(fd)


def _reap(program: int) -> int:
    """Collect orphans until `program` itself has ended; return how."""
    while True:
        pid, status = os.wait()
        if pid == program:
            return status


def _wait(leash: int, init: int) -> None:
    """Return when init has ended, which in a namespace means that all in it has."""
    watch = os.pidfd_open(init)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    poll.register(leash, select.POLLIN | select.POLLHUP)
    if watch not in dict(poll.poll()):
        os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)


def _sweep() -> bool:
    """Kill what a program without a namespace left to us; True when nothing is left."""
    deadline = time.monotonic() + SWEEP_S
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            children = [int(word) for word in file.read().split()]
        for pid in children:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)
    return False


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    result = libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    _check(f"mount {source} on {target}", result)


def _check(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _say(spec: SimpleNamespace, line: str) -> None:
    os.write(spec.status_fd, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
