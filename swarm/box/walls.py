"""What a program gives up before it starts: rights to come, files (by Landlock), resources, user, calls.

All of it stays given up by whatever the program starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import struct
from types import SimpleNamespace

from swarm.box import kernel
from swarm.box.root import DEVICES, INNER_UID

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule may give on something that is no folder."""
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many a version of Landlock knows; 16 from version 5 on."""
SCOPES_SINCE, ABSTRACT_SOCKETS, SIGNALS = 6, 1, 2
SET_MODE_FILTER, SPEC_ALLOW = 1, 4
CAPABILITY_VERSION = 0x20080522


def landlock() -> int:
    """Return the version of Landlock that this kernel offers, 0 if none."""
    found: int = kernel.libc.syscall(kernel.SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, found)


def give_up(spec: SimpleNamespace) -> None:
    """Do it all; OSError or ValueError if one of it is not possible."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if spec.landlock:
        _give_up_files(spec)
    for name, value in spec.rlimits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    os.nice(spec.nice)
    if spec.uid is not None:
        user = spec.uid if spec.level == "process-group" else INNER_UID
        os.setresgid(user, user, user)
        if spec.right is not None:
            kernel.prctl(kernel.PR_SET_KEEPCAPS, 1)
        os.setresuid(user, user, user)
        if spec.right is not None:
            _keep(spec.right)
    _give_up_calls(bytes.fromhex(spec.filter))


def _give_up_files(spec: SimpleNamespace) -> None:
    """Reach by path no more than is in sight where there is a root of its own, and signal nobody outside."""
    handled = (1 << FILE_RIGHTS.get(spec.landlock, 16)) - 1
    scopes = ABSTRACT_SOCKETS | SIGNALS if spec.landlock >= SCOPES_SINCE else 0
    attributes = struct.pack("QQQ" if scopes else "Q", *([handled, 0, scopes] if scopes else [handled]))
    rules: int = kernel.libc.syscall(
        kernel.SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0
    )
    if rules < 0:
        kernel.check("landlock_create_ruleset", rules)
    for paths, rights in (
        ((*spec.readable, "/proc"), READ),
        (spec.listable, READ_DIR),
        (spec.writable, handled & ~(MAKE_CHAR | MAKE_BLOCK)),
        ((*DEVICES, *spec.devices), READ_FILE | WRITE_FILE | IOCTL_DEV),
    ):
        for path in filter(os.path.exists, paths):
            _allow(rules, path, rights & handled)
    kernel.check("landlock_restrict_self", kernel.libc.syscall(kernel.SYS_LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= OF_FILES
    rule = struct.pack("=Qi", rights, fd)
    kernel.check(f"landlock {path}", kernel.libc.syscall(kernel.SYS_LANDLOCK_ADD_RULE, rules, 1, rule, 0))
    os.close(fd)


def _keep(right: int) -> None:
    """Keep one of root's capabilities, and no other: to read, in what Landlock lets it."""
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    rights = struct.pack("=6I", *[1 << right] * 3, 0, 0, 0)
    kernel.check("capset", kernel.libc.capset(header, rights))
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_RAISE, right)


def _give_up_calls(program: bytes) -> None:
    """Install a filter of system calls.

    SPEC_ALLOW: older kernels would otherwise switch off the processor's store bypass, which costs a kernel
    several percent. What does not know the flag is older still, or no Linux.
    """
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    seccomp = kernel.number(kernel.SYS_SECCOMP, "seccomp")
    if kernel.libc.syscall(seccomp, SET_MODE_FILTER, SPEC_ALLOW, head) != 0:
        kernel.check("seccomp", kernel.libc.syscall(seccomp, SET_MODE_FILTER, 0, head))
