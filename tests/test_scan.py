from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.layout import find_root
from swarm.protocol import load_protocol
from swarm.scan import check_sources, without_comments

RULES = load_protocol(find_root(Path(__file__).parent).coordination.read_text()).rules


def cpp(text: str) -> None:
    check_sources({"kernel.cpp": text}, "cpp", RULES, "solution/")


def torch(text: str) -> None:
    check_sources({"kernel.py": text}, "pytorch", RULES, "solution/")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('asm volatile("syscall");', "assembly"),
        ('__asm__("rdtsc");', "assembly"),
        ("if (!fork()) for (;;);", "process"),
        ('std::system ("x");', "process"),
        ("_exit(0);", "process"),
        ("std::thread t(f);", "threads"),
        ("std :: async(f);", "threads"),
        ("pthread_create(&t, 0, f, 0);", "threads"),
        ("auto t = omp_get_wtime();", "clock"),
        ("__rdtsc();", "clock"),
        ('auto f = fopen("/proc/self/maps", "r");', "files"),
        ("mmap(0, 1, 2, 3, 4, 5);", "files"),
        ('dlsym(RTLD_NEXT, "x");', "loading"),
        ('std::getenv("HOME");', "environment"),
        ("signal (SIGALRM, later);", "environment"),
        ("__attribute__((constructor)) void f() {}", "hooks"),
    ],
)
def test_what_a_cpp_kernel_must_not_do_is_named_with_its_line(text: str, rule: str) -> None:
    with pytest.raises(
        BadInput, match=rf"^solution/kernel.cpp:3: .* is forbidden \({rule}: .*\); do without it$"
    ):
        cpp(f"// one\n/* two */\n{text}\n")


@pytest.mark.parametrize(
    "line",
    [
        "#include <thread>",
        "  #  include <unistd.h>",
        "%:include <chrono>",
        '#include "/etc/passwd"',
        '#include "../other/kernel.cpp"',
        "#include_next <stdio.h>",
        "#include HEADER",
        "/* */ #include <fstream>",
        "#embed <secret>",
        "#import <stdio.h>",
    ],
)
def test_only_listed_headers_are_included(line: str) -> None:
    with pytest.raises(BadInput, match=r"^solution/kernel.cpp:2: .* may not be imported; "):
        cpp(f"#include <cmath>\n{line}\n")


@pytest.mark.parametrize(
    "text",
    [
        "// VEC floats at a time (1 is scalar); kill (the tail) fork()",
        "/* #include <thread>\n system(0) */",
        "float x = 1'000'000; // asm",
        "int timer(int); int y = timer(3); float uptime(); auto opened = reopen(1);",
        "void write(float *y); // our own helper",
        "float energy(const float *signal); struct Clock { int64_t time; };",
        'const char *s = "//"; int asmodeus;',
    ],
)
def test_comments_and_innocent_names_are_left_alone(text: str) -> None:
    cpp(text)


@pytest.mark.parametrize(
    "text",
    [
        'const char *s = "/*"; asm("x"); const char *t = "*/";',
        'char c = \'"\'; asm("x"); // "',
        'auto s = R"(" /* )"; asm("x"); auto t = R"( */ ")";',
        'auto s = R"x()" /* )x"; asm("x"); auto t = R"( */ )";',
        'auto s = "\\"/*"; asm("x"); auto t = "*/";',
        'auto s = "a\\\n/*"; asm("x"); auto t = "*/";',
        "int n = 1'0 /* ' */; asm(\"x\");",
    ],
)
def test_a_literal_cannot_hide_code_as_a_comment(text: str) -> None:
    with pytest.raises(BadInput, match="assembly"):
        cpp(text)


@given(st.text(alphabet="ab\"'\\/*\nR()#", max_size=60))
def test_blanking_comments_moves_nothing(text: str) -> None:
    blanked = without_comments(text, "kernel.cpp")
    assert len(blanked) == len(text)
    assert all(b in (a, " ") for a, b in zip(text, blanked, strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os", "'os' may not be imported"),
        ("import torch.utils, sys", "'sys' may not be imported"),
        ("from subprocess import run", "'subprocess' may not be imported"),
        ("def run(x):\n  import ctypes", "'ctypes' may not be imported"),
        ("from .. import judge", "'..' may not be imported"),
        ("eval('1')", "code: "),
        ("__import__('os')", "code: "),
        ("x = ().__class__", "internals: "),
        ("torch.utils.cpp_extension.load", "torch: "),
        ("torch . set_num_threads(64)", "torch: "),
        ("torch.builtins.exec('1')", "modules: "),
        ("torch._C", "torch: "),
        ("torch.cuda.Event", "clock: "),
        ("torch.sys.modules", "modules: "),
        ("from torch import nn, sys", "modules: "),
        ("from torch import (nn, \n os)", "modules: "),
        ("get = getattr", "code: "),
        ("torch. \\\n sys", "modules: "),
        ("ｅval('1')", "code: "),
        ("def run(x", "not Python: '(' was never closed"),
    ],
)
def test_what_a_pytorch_kernel_must_not_do_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        torch(f"import torch\n{text}\n")
    line = 3 if "import ctypes" in text else 2
    assert str(caught.value).startswith(f"solution/kernel.py:{line}: ") and message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "fast = torch.compile(slow, dynamic=True)",
        "net = Net().eval()",
        "torch._scaled_mm(a, b)",
        "x.sort()",
        "x.inspection = y.gcd",
        "from torch.nn import functional as F\n\ndef run(x, os): return x",
        '"""Reads x in one pass, with no threading over os pages."""',
    ],
)
def test_plain_torch_is_left_alone(text: str) -> None:
    torch(text)


@pytest.mark.parametrize("coding", ["utf-7", "latin-1", "rot13", "no-such-coding"])
def test_python_is_read_as_the_scan_reads_it(coding: str) -> None:
    with pytest.raises(BadInput, match=r"solution/kernel.py:1: "):
        torch(f"# coding: {coding}\nimport torch\n")
    torch("# coding: utf-8\nimport torch\n")
    with pytest.raises(BadInput, match=r"solution/kernel.py:2: .*code: "):
        torch("x = 1 # a comment\reval('1')\n")


def test_python_comments_are_left_alone_and_strings_are_not() -> None:
    torch("x = 1  # eval(this)\n")
    with pytest.raises(BadInput, match="code: "):
        torch("x = 'eval(this)'\n")


@pytest.mark.parametrize(
    "text",
    [
        'R"(',
        '"\\',
        "'",
        "/*",
        "//\\\n",
        '"',
        "__attribute__((",
        "#include ",
        "fork ",
        "asm\n",
        "std :: ",
        "1'0",
    ],
)
def test_no_text_takes_long_to_read(text: str) -> None:
    whole = text * ((256 << 10) // len(text))
    begun = time.process_time()
    with suppress(BadInput):
        cpp(whole)
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("text", ["(", "-", "a.", "a+", "not ", "lambda:", "f'{", "[x for x in ", "if 1:\n "])
def test_no_python_is_too_deep_to_read(text: str) -> None:
    begun = time.process_time()
    with suppress(BadInput):
        torch(text * ((256 << 10) // len(text)))
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("text", ["import ", "import(", ". ", "getattr ", "import a, "])
def test_no_string_in_python_takes_long_to_read(text: str) -> None:
    begun = time.process_time()
    with suppress(BadInput):
        torch(f"x = '{text * ((256 << 10) // len(text))}{' ' * 1000}'")
    assert time.process_time() - begun < 5


def test_a_string_without_an_end_hides_nothing_on_the_next_line() -> None:
    with pytest.raises(BadInput, match=r"^solution/kernel.cpp:2: .*process"):
        cpp('auto text = "\nfork();\n')
