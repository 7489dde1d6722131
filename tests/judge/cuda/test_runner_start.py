"""A runner process where there is no GPU: it says so in one line, as a fault of ours."""

from __future__ import annotations

import ctypes.util
import json
import os
import socket
import subprocess
import sys

import pytest

from swarm.judge import wire as framing
from swarm.judge.cuda import nodes
from swarm.judge.cuda.spares import MAIN, PACKAGE, Host
from swarm.judge.cuda.wire import FAULT, HELLO
from swarm.languages.protocol import Kind

pytest.importorskip("cuda.bindings")


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has a driver")
def test_a_missing_driver_is_told() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    cubin = os.open(os.devnull, os.O_RDONLY)
    spec = {
        "control_fd": theirs.fileno(),
        "cubin_fd": cubin,
        "gpu": "GPU-0",
        "needs_torch": False,
        "legacy_stream": False,
        "site": [*map(str, nodes.site_folders()), str(PACKAGE.parent)],
    }
    with (
        ours,
        subprocess.Popen(
            [os.path.realpath(sys.executable), "-I", "-S", str(MAIN), json.dumps(spec)],
            pass_fds=[theirs.fileno(), cubin],
            env={"HOME": "/tmp"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        theirs.close()
        os.close(cubin)
        assert framing.receive(ours)[0] == HELLO
        told, _ = framing.receive(ours)
        assert told.startswith(FAULT + b"no CUDA driver"), told
        assert process.wait(10) == 0


def test_every_kind_has_a_host() -> None:
    assert {kind: Host.of(kind) for kind in Kind} == {
        Kind.PLAN: Host.BARE,
        Kind.SHARED_OBJECT: Host.NATIVE,
        Kind.PYTHON: Host.TORCH,
        Kind.TORCH_EXTENSION: Host.TORCH,
    }
