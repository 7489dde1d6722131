"""Build the box around one program, start it, wait for it, leave nothing behind.

`swarm.sandbox` says in a spec what belongs in a box; this only carries it out, and imports little for it:
`json` and `signal` alone would double the time that a box takes to start.

    outer    child of whoever asked; holds the leash, sweeps up
    └── init first process of the new pid namespace: when it ends, the kernel kills all the others in it
        └── the program

Where bubblewrap builds the box, its process stands between outer and init. The leash is a pipe: when its
other end closes, for whatever reason, everything dies. On the status pipe go the lines `failed WHY`, or
`ended WAITSTATUS`.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time
from types import SimpleNamespace

from swarm.box import kernel, root, walls

FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib costs 15 ms
PACKAGE = os.path.dirname(FOLDER)  # noqa: PTH120
SOURCES = (FOLDER, os.path.join(PACKAGE, "__init__.py"))  # noqa: PTH118
"""What a Python needs to see in order to run `command`."""
SIGKILL, SIGNALS = 9, range(1, 65)
SWEEP_S = 5.0
OOM_SCORE = 1000
"""When memory ends, a box dies and not the judge."""


def command(function: str, spec: bytes) -> list[str]:
    """Return the words that start a Python which calls a function of this file, with a marshalled spec."""
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(PACKAGE)!r}); "  # noqa: PTH120
        f"from swarm.box import main; sys.exit(main.{function}())"
    )
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", code, spec.hex()]


def outer() -> int:
    spec = _spec()
    for fd in (spec.leash_fd, spec.status_fd):
        os.set_inheritable(fd, False)
    try:
        first = _start(spec)
    except OSError as error:
        _say(spec, f"failed {error}")
        return 1
    _wait(spec.leash_fd, first)
    return 0 if _sweep() else 2


def inside() -> int:
    """Be init, in a box that bubblewrap has built."""
    _init(_spec())
    return 1


def _spec() -> SimpleNamespace:
    return SimpleNamespace(**marshal.loads(bytes.fromhex(sys.argv[1])))


def _start(spec: SimpleNamespace) -> int:
    """Enter the namespaces and fork init; only OSErrors, with a text that says which step failed."""
    os.sched_setaffinity(0, spec.cores)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(str(OOM_SCORE))
    if spec.uid is not None:
        os.setgroups([])
    if spec.level == "namespaces":
        root.unshare(spec.uid)
    elif spec.level == "bubblewrap" and spec.uid is not None:
        root.unshare(spec.uid, kernel.CLONE_NEWUSER)
    parent = os.getpid()
    first = os.fork()
    if first == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, SIGKILL)
        if spec.level != "namespaces" and os.getppid() != parent:
            os._exit(1)
        if spec.level == "bubblewrap":
            _become_bubblewrap(spec)
        else:
            _init(spec)
    _close(spec.pass_fds)
    return first


def _become_bubblewrap(spec: SimpleNamespace) -> None:
    """Never returns; what bubblewrap cannot do it says in the log."""
    words = root.bubblewrap(spec, command("inside", bytes.fromhex(sys.argv[1])))
    try:
        os.set_inheritable(spec.status_fd, True)
        os.execve(words[0], words, {})
    except OSError as error:
        _say(spec, f"failed {words[0]}: {error}")
    finally:
        os._exit(1)


def _init(spec: SimpleNamespace) -> None:
    """Be the first process of the box; never returns."""
    code = 1
    try:
        if spec.level == "namespaces":
            root.build(spec)
        os.chdir(spec.cwd)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # the program may have our user, and must not reach into us
        os.set_inheritable(spec.status_fd, False)
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


def _exec(spec: SimpleNamespace, report: int) -> None:
    """Become the program, or write on `report` why not."""
    try:
        os.setsid()
        for number in SIGNALS:
            kernel.libc.signal(number, None)  # Python ignores some, and exec keeps that
        walls.give_up(spec)
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


def _wait(leash: int, first: int) -> None:
    """Return when init has ended, which in a namespace means that all in it has."""
    watch = os.pidfd_open(first)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    poll.register(leash, select.POLLIN | select.POLLHUP)
    if watch not in dict(poll.poll()):
        os.kill(first, SIGKILL)
    os.waitpid(first, 0)


def _sweep() -> bool:
    """Kill what was left to us: all that a program without a namespace started, or an orphaned init."""
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
                try:
                    kill(pid, SIGKILL)
                except ProcessLookupError:
                    continue
    return False


def _say(spec: SimpleNamespace, line: str) -> None:
    os.write(spec.status_fd, f"{line}\n".encode())
