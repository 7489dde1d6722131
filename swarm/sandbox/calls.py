"""The system calls that no program in a box may use, as a filter that the kernel runs (classic BPF).

Denied is what opens a way out of a box that nothing else closes, at every level: other processes' memory,
further namespaces (where a program would be root, and all of the kernel in its reach), address families
that no network namespace holds (vsock), keyrings, shared memory that outlives the box, and the parts of the
kernel that most exploits went through. All else is allowed: a GPU's driver and torch use hundreds of calls.
"""

from __future__ import annotations

import errno
import os
import struct
from functools import cache

from swarm.errors import Refused

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
BETWEEN_PROCESSES = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
}
DENIED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
"""Numbers on x86_64 and on aarch64; both tables' calls fail as if not permitted."""
CLONE, CLONE3 = (56, 220), (435, 435)
SOCKET, CONNECT = (41, 198), (42, 203)
SCHED_SETAFFINITY = (203, 122)
NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW* flag that clone knows."""
UNIX, INET, NETLINK, INET6 = 1, 2, 16, 10
X32 = 0x40000000
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_IF_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, FAIL, KILL = 0x7FFF0000, 0x00050000, 0x80000000


@cache
def program(*, loopback: bool, is_pinned: bool, shares_network: bool) -> bytes:
    """Return the filter for a box.

    With `loopback` its programs may open sockets that reach its network namespace, and look into each other.
    A pinned one may not change its cores. One that shares the host's network may connect to nothing, Unix
    sockets of the host included.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise Refused(f"no filter of system calls is known for {machine}", remedy="use x86_64 or aarch64")
    column = list(ARCHITECTURES).index(machine)
    families = (UNIX, INET, INET6, NETLINK) if loopback else (UNIX,)
    tables = (DENIED,) if loopback else (DENIED, BETWEEN_PROCESSES)
    denied = {numbers[column]: errno.EPERM for table in tables for numbers in table.values()}
    denied[CLONE3[column]] = errno.ENOSYS  # its flags are out of sight; the C library turns to clone then
    if is_pinned:
        denied[SCHED_SETAFFINITY[column]] = errno.EPERM
    if shares_network:
        denied[CONNECT[column]] = errno.ENOENT
    code = [
        _step(LOAD, ARCHITECTURE),
        _step(JUMP_EQUAL, ARCHITECTURES[machine], 1, 0),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER),
        _step(JUMP_AT_LEAST, X32, 0, 1),
        _step(RETURN, FAIL | errno.ENOSYS),
    ]
    for number, error in denied.items():
        code += [_step(JUMP_EQUAL, number, 0, 1), _step(RETURN, FAIL | error)]
    code += [
        _step(JUMP_EQUAL, CLONE[column], 0, 4),
        _step(LOAD, FIRST_ARGUMENT),
        _step(JUMP_IF_SET, NEW_NAMESPACES, 0, 1),
        _step(RETURN, FAIL | errno.EPERM),
        _step(RETURN, ALLOW),
        _step(JUMP_EQUAL, SOCKET[column], 1, 0),
        _step(RETURN, ALLOW),
        _step(LOAD, FIRST_ARGUMENT),
    ]
    for family in families:
        code += [_step(JUMP_EQUAL, family, 0, 1), _step(RETURN, ALLOW)]
    return b"".join([*code, _step(RETURN, FAIL | errno.ENETUNREACH)])


def _step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction; the jumps count the instructions that are left out."""
    return struct.pack("HBBI", operation, if_true, if_false, value)
