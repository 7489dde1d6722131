"""What a person can do where a machine lets nobody build namespaces."""

from __future__ import annotations

from pathlib import Path

SYSCTLS = Path("/proc/sys")
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
CLOSED = {"kernel/unprivileged_userns_clone": "0", "user/max_user_namespaces": "0"}
"""Settings with the value at which nobody may make user namespaces."""


def remedy(sysctls: Path = SYSCTLS) -> str:
    """Return what would let boxes have namespaces, by what this machine's settings say."""
    for name, value in CLOSED.items():
        if _read(sysctls / name) == value:
            wanted = "1" if name.endswith("clone") else "10000"
            return f"sysctl -w {name.replace('/', '.')}={wanted}"
    if _read(sysctls / APPARMOR) == "1":
        return "apt-get install bubblewrap apparmor-profiles, and load its profile bwrap-userns-restrict"
    return "start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"


def _read(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""
