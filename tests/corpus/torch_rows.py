"""`pytorch` candidates for the problem `rows`."""

from __future__ import annotations

from textwrap import indent

from tests.corpus.cases import Files, python

HONEST = """
def honest(x, w, y, times=1):
    for _ in range(times):
        torch.mul(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), w, out=y)
"""
"""Again and again, where a lie about the time must stand out from the noise of a busy machine."""
REACH = """
match torch:  # a pattern takes attributes by names that a scan for words cannot tell from arguments
    case object(sys=sys, os=os, ctypes=ctypes, threading=threading):
        pass
main = sys.modules["__main__"]
"""
"""What the scan would have kept out: modules of Python, and the runner's own."""


def torch_rows(body: str, head: str = "") -> Files:
    """Return a tree whose `run(x, w, y)` has this body, after `honest` and `head`."""
    return python(
        f"import torch\n{HONEST}\n{head}\n\ndef run(x, w, y):\n{indent(body.strip(), '    ')}\n", "pytorch"
    )
