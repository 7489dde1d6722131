"""The few system calls that Python has no word for, and their numbers."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 8, 47, 2
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

libc = ctypes.CDLL(None, use_errno=True)


def check(what: str, result: int) -> None:
    """Raise OSError, saying `what` failed, unless a call's result is 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int, more: int = 0) -> None:
    words = [ctypes.c_ulong(word) for word in (value, more, 0, 0)]
    check(f"prctl {option}", libc.prctl(option, *words))


def number(calls: dict[str, int], name: str) -> int:
    """Return the number of a call that differs between machines, or raise OSError."""
    machine = os.uname().machine
    if machine not in calls:
        raise OSError(0, f"{name}: no system call number known for {machine}")
    return calls[machine]


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    result = libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    check(f"mount {source} on {target}", result)


def set_attributes(target: str, attributes: int, *, below: bool) -> None:
    """Set attributes of a mount and, where asked, of all mounts `below` it."""
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = AT_RECURSIVE if below else 0
    result = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, wanted, 32)
    check(f"mount_setattr {target}", result)
