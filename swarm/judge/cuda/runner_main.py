"""The first lines of a runner on a GPU: find our packages, say hello, serve.

Runs as `python -I -S runner_main.py SPEC` inside a sandbox.
"""

from __future__ import annotations

import json
import socket
import sys
from types import SimpleNamespace


def main() -> None:
    spec = SimpleNamespace(**json.loads(sys.argv[1]))
    control = socket.socket(fileno=spec.control_fd)
    sys.path.extend(spec.site)
    from swarm.judge.cuda.session import serve

    serve(spec, control)


if __name__ == "__main__":
    main()
