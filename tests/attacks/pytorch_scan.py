"""What the scan of Python sources tells before anything is run; other modules hide the same from it."""

from __future__ import annotations

from swarm.verdict import Status
from tests.corpus.cases import Files, attack
from tests.corpus.torch_rows import torch_rows


@attack("A6", status=Status.INVALID_SOLUTION, reason=r"kernel.py:2: 'ctypes' may not be imported")
def imports_ctypes() -> Files:
    """Asks for the module with which Python writes to any memory of its process.

    Seen: pygpubench's exploits, all of which begin so.
    Stopped by: [rules.imports]; what a disguise reaches all the same is in `pytorch_timing`.
    """
    files = torch_rows("honest(x, w, y)")
    return {**files, "kernel.py": b"import torch\nimport ctypes\n" + files["kernel.py"]}


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"'\.sys' is forbidden \(modules: ")
def takes_sys_from_torch() -> Files:
    """Finds the runner's modules by way of the `sys` that torch has imported for itself.

    Seen: our own judge, which this passed until the rule came.
    Stopped by: [rules.forbidden] `modules`.
    """
    head = 'torch.sys.modules["__main__"]._timed = lambda native, run, arguments: run(*arguments) or 5_000'
    return torch_rows("honest(x, w, y)", head)


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"sys' is forbidden \(modules: ")
def imports_sys_from_torch() -> Files:
    """Imports the `sys` that torch has imported for itself.

    Seen: our own judge, which this passed until the rule came.
    Stopped by: [rules.forbidden] `modules`.
    """
    return torch_rows("honest(x, w, y)", "from torch import (\n    nn, sys)\nsys.setrecursionlimit(99)")


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"\.sys' is forbidden \(modules: ")
def writes_names_in_wide_letters() -> Files:
    """Spells a name with letters that look different and that Python reads as the plain ones.

    Seen: KernelGuard's rule on token pasting, which is the same game in C.
    Stopped by: the scan reads names as Python does.
    """
    return torch_rows("honest(x, w, y)", "torch.ｓｙｓ.setrecursionlimit(99)")


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"'getattr' is forbidden \(code: ")
def calls_getattr_by_another_name() -> Files:
    """Gives `getattr` another name, with which it builds what it asks for.

    Seen: reference-kernels#162 (aliases past identity checks).
    Stopped by: [rules.forbidden] `code`, which knows the name itself and not only its call.
    """
    return torch_rows("honest(x, w, y)", 'get = getattr\nget(torch, "s" + "ys").setrecursionlimit(99)')


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"\(clock: a kernel does not time itself\)")
def replaces_the_timing_event() -> Files:
    """Puts its own function in the place of the one that reads a timing event.

    Seen: reference-kernels#162; CUDA-L2.
    Stopped by: [rules.forbidden] `clock`; and no judge's clock is made of torch.
    """
    return torch_rows("honest(x, w, y)", "torch.cuda.Event.elapsed_time = lambda *_: 0.005")


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"'torch\.set_num_threads' is forbidden \(torch: ")
def takes_more_threads() -> Files:
    """Raises the number of torch's threads above that of the cores which are measured.

    Seen: KernelBench's list (settings of the process that also runs the baseline).
    Stopped by: [rules.forbidden] `torch`; and the cores themselves are pinned.
    """
    return torch_rows("honest(x, w, y)", "torch.set_num_threads(64)")


@attack("A5", status=Status.INVALID_SOLUTION, reason="it says that it is written in utf-7")
def hides_code_in_another_coding() -> Files:
    """Names a coding for its source in which a comment holds the end of its line and code after it.

    Seen: code in comments by utf-7, an old way past filters; our own judge, which this passed.
    Stopped by: the scan reads UTF-8, and no source may say that it is anything else.
    """
    files = torch_rows("honest(x, w, y)", "# +AAo-from torch import sys")
    return {**files, "kernel.py": b"# coding: utf-7\n" + files["kernel.py"]}


@attack("A5", status=Status.INVALID_SOLUTION, reason=r"\.sys' is forbidden \(modules: ")
def hides_code_behind_a_carriage_return() -> Files:
    """Ends a comment with a carriage return, which ends the line for Python and not for every tool.

    Seen: the same trick in C with a backslash at the end of a comment; our own judge, which this passed.
    Stopped by: the scan ends lines where Python does.
    """
    return torch_rows("honest(x, w, y)", "# a comment\rtorch.sys.setrecursionlimit(99)")
