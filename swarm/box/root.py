"""The namespaces of a box and what of the host is in sight there: built by ourselves, or by bubblewrap.

Both builders read the same spec and make the same box. Its program's user is INNER_UID: ourselves or, if we
are root, a user that owns nothing; root then stays mapped too, to reach what only root may read while the
box is being built.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

from swarm.box import kernel
from swarm.box.kernel import MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, MS_NODEV, MS_NOSUID

INNER_UID = 1000
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ALL_KINDS = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
ROOT_BYTES = 16 << 20
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def unshare(uid: int | None, kinds: int = ALL_KINDS) -> None:
    """Move into new namespaces with, until exec, all rights in them."""
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
                with open(f"/proc/{pid}/{name}", "w") as file:  # noqa: PTH123  # pathlib costs 15 ms
                    file.write(text)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    os.close(ready)
    try:
        kernel.check("unshare", kernel.libc.unshare(kinds))
    finally:
        os.close(go)
        code = os.waitstatus_to_exitcode(os.waitpid(mapper, 0)[1])
    if code:
        raise OSError(code, f"uid_map: {os.strerror(code)}")


def build(spec: SimpleNamespace) -> None:
    """Make a root of our own from what the spec lists; nothing else of the host remains in sight."""
    if spec.loopback:
        _raise_loopback()
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    root = "/proc"  # the one folder that exists everywhere and holds nothing that is to be bound
    kernel.mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, f"size={ROOT_BYTES},mode=0755")
    for path in ("/tmp", "/proc", "/dev", "/.old"):
        os.mkdir(root + path)  # noqa: PTH102
    kernel.mount(
        "tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"size={spec.scratch_bytes},mode=1777"
    )
    for path in spec.readable:
        _bind(path, root, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    for path in spec.writable:
        _bind(path, root, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    for path in (*DEVICES, *spec.devices):
        _bind(path, root, MOUNT_ATTR_NOSUID)
    kernel.mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV)
    pivot_root = kernel.number(kernel.SYS_PIVOT_ROOT, "pivot_root")
    kernel.check("pivot_root", kernel.libc.syscall(pivot_root, root.encode(), f"{root}/.old".encode()))
    os.chdir("/")
    kernel.check("umount", kernel.libc.umount2(b"/.old", kernel.MNT_DETACH))
    os.rmdir("/.old")  # noqa: PTH106
    kernel.set_attributes("/", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, below=False)


def bubblewrap(spec: SimpleNamespace, inside: list[str]) -> list[str]:
    """Return the command by which bubblewrap builds the same and becomes `inside`, as its first process.

    If we are root it is called within a user namespace of ours, since it can map one user only.
    """
    words = [spec.bubblewrap, "--die-with-parent", "--as-pid-1"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    if spec.uid is None:
        words += ["--unshare-user", "--uid", str(INNER_UID), "--gid", str(INNER_UID)]
    else:  # `inside` changes its user
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    words += ["--perms", "1777", "--size", str(spec.scratch_bytes), "--tmpfs", "/tmp"]
    devices = (*DEVICES, *spec.devices)
    for folder in _above((*spec.readable, *spec.writable, *devices)):  # else some are made for root alone
        words += ["--perms", "0755", "--dir", folder]
    for path in spec.readable:
        if os.path.islink(path):  # noqa: PTH114
            words += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        else:
            words += ["--ro-bind", path, path]
    for path in spec.writable:
        words += ["--bind", path, path]
    for path in devices:
        words += ["--dev-bind", path, path]
    return [*words, "--proc", "/proc", "--remount-ro", "/", "--chdir", "/", "--", *inside]


def _above(paths: tuple[str, ...]) -> list[str]:
    """Return all folders that hold one of the paths, outermost first."""
    found = set()
    for path in paths:
        while (path := os.path.dirname(path)) != "/":  # noqa: PTH120
            found.add(path)
    return sorted(found)


def _raise_loopback() -> None:
    """Let programs in the box talk to each other by TCP; it reaches nobody else."""
    import fcntl
    import socket
    import struct

    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING))


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
    kernel.mount(path, target, None, kernel.MS_BIND | kernel.MS_REC)
    kernel.set_attributes(target, attributes, below=True)
