"""Candidates that misbehave: each ends promptly as a Failure with a reason, and the next one runs as usual.

Wrong results are not looked at here: the runner hands them to the judge's checks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm import sandbox
from swarm.languages.protocol import Failure
from swarm.sandbox import Level
from swarm.verdict import Status
from tests.boxes import levels
from tests.judge.bench import KERNEL, bench, cpp, pytorch

PROMPT_S = 10.0
SIGNATURE = """\
extern "C" void run(const float* x, double scale, int64_t shift, bool negate, float* y, int64_t rows,
                    int64_t count)
"""
INCLUDES = """\
#include "problem.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def the_next_one_runs(cache: Path) -> Iterator[None]:
    yield
    with bench(cpp(KERNEL, cache), cache) as it:
        assert isinstance(it.call(), list)
        assert it.is_right


def source(body: str, before: str = "") -> str:
    return f"{INCLUDES}{before}\n{SIGNATURE} {{\n{body}\n}}\n"


def failure(
    cache: Path, code: str, *, timeout_s: float = 5, at: Level | None = None, calls: int = 1
) -> Failure:
    start = time.monotonic()
    with bench(cpp(code, cache), cache, timeout_s=timeout_s, memory_bytes=256 << 20, at=at) as it:
        for _ in range(calls):
            result = it.call()
        assert it.call() == result, "a failure is only repeated"
    assert time.monotonic() - start < PROMPT_S + timeout_s
    assert isinstance(result, Failure), result
    return result


@levels
def test_hang(cache: Path, at: Level) -> None:
    found = failure(cache, source('for (;;) asm volatile("");'), timeout_s=0.5, at=at)
    assert found.status is Status.TIMEOUT


@levels
def test_hang_that_ignores_every_signal_it_can(cache: Path, at: Level) -> None:
    body = "for (int n = 1; n < 32; ++n) signal(n, SIG_IGN);\nfor (;;) pause();"
    assert failure(cache, source(body), timeout_s=0.5, at=at).status is Status.TIMEOUT


@levels
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("*(volatile int*)8 = 1;", "SIGSEGV"),
        ("abort();", "SIGABRT"),
        ("__builtin_trap();", "SIGILL"),
        ("raise(SIGKILL);", "SIGKILL"),
        ("_exit(0);", "exit code 0"),
        ("exit(7);", "exit code 7"),
        ("volatile char deep[1 << 24]; for (volatile char& byte : deep) byte = 1;", "SIGSEGV"),
    ],
    ids=["segfault", "abort", "trap", "kill", "silent", "exit", "stack"],
)
def test_death(cache: Path, at: Level, body: str, reason: str) -> None:
    found = failure(cache, source(body), at=at)
    assert found.status is Status.RUNTIME_ERROR
    assert reason in found.reason


def test_death_at_a_later_call(cache: Path) -> None:
    found = failure(cache, source("static int n; if (++n > 7) abort();"), calls=3)
    assert found.status is Status.RUNTIME_ERROR


def test_death_while_it_is_loaded(cache: Path) -> None:
    found = failure(cache, source("", "__attribute__((constructor)) static void early() { abort(); }"))
    assert found.status is Status.RUNTIME_ERROR
    assert "loaded" in found.reason


@levels
def test_a_fake_verdict_is_only_output(cache: Path, at: Level) -> None:
    body = 'printf("{\\"status\\": \\"PASSED\\", \\"time_us\\": 0.1}\\n"); fflush(stdout);'
    with bench(cpp(source(body), cache), cache, at=at) as it:
        it.call()
        it.call()
        assert not it.is_right
        assert "PASSED" in it.runner.log


@levels
def test_printing_without_end(cache: Path, at: Level) -> None:
    found = failure(cache, source('for (;;) puts("all is well");'), timeout_s=1, at=at)
    assert found.status is Status.TIMEOUT
    assert len(found.log) <= sandbox.LOG_BYTES


@levels
def test_writing_a_file(cache: Path, at: Level) -> None:
    body = 'FILE* f = fopen("loot", "w"); if (f) { fputs("x", f); fclose(f); } else abort();'
    found = failure(cache, source(body), at=at)
    assert found.status is Status.RUNTIME_ERROR
    assert "wrote to a file" in found.reason


@levels
def test_writing_outside_its_folder(cache: Path, at: Level, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    body = (
        f'int f = open("{victim}", O_WRONLY | O_APPEND);\n'
        'if (f < 0) f = open("mine", O_WRONLY | O_CREAT, 0600);\n'
        'write(f, "x", 1); abort();'
    )
    assert failure(cache, source(body), at=at).status is Status.RUNTIME_ERROR
    assert victim.read_text() == "precious"


@levels
@pytest.mark.parametrize(
    "body",
    [
        "for (;;) memset(new char[1 << 20], 1, 1 << 20);",
        "for (;;) { char* p = (char*)malloc(1 << 20); memset(p, 1, 1 << 20); }",
        "for (;;) if (mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) abort();",
    ],
    ids=["new", "malloc", "mmap"],
)
def test_allocating_without_end(cache: Path, at: Level, body: str) -> None:
    assert failure(cache, source(body), at=at).status is Status.RUNTIME_ERROR


@levels
def test_fork_bomb(cache: Path, at: Level) -> None:
    assert failure(cache, source("for (;;) fork();"), timeout_s=1, at=at).status is Status.TIMEOUT


@levels
def test_children_that_stay(cache: Path, at: Level) -> None:
    """They leave the process group, and are found all the same: the runner's close waits for all of them."""
    body = "for (int n = 0; n < 5; ++n) if (fork() == 0) { setsid(); for (;;) pause(); }\n_exit(0);"
    assert failure(cache, source(body), at=at).status is Status.RUNTIME_ERROR


def test_a_fork_that_answers_too(cache: Path) -> None:
    assert failure(cache, source("fork();"), calls=2).status is Status.REWARD_HACK


def test_threads_without_end(cache: Path) -> None:
    body = "for (;;) new std::thread([] { for (;;) pause(); });"
    found = failure(cache, source(body), timeout_s=2)
    assert found.status in (Status.RUNTIME_ERROR, Status.TIMEOUT)


def test_a_thread_does_not_go_on_after_the_answer(cache: Path) -> None:
    before = (
        "static void late(float* y, int64_t n) { usleep(100000); for (int64_t i = 0; i < n; ++i) y[i] = 1; }"
    )
    with bench(cpp(source("new std::thread(late, y, count);", before), cache), cache) as it:
        assert isinstance(it.call(), list)
        time.sleep(0.5)
        assert not it.wrote_anything


@pytest.mark.parametrize(
    "body",
    [
        "for (int s = 3; s < 64; ++s) send(s, words, sizeof words, MSG_DONTWAIT | MSG_NOSIGNAL);",
        "for (int s = 3; s < 64; ++s) send(s, words, 8, MSG_DONTWAIT | MSG_NOSIGNAL);",
        'for (int s = 3; s < 64; ++s) send(s, "!all is well", 12, MSG_DONTWAIT | MSG_NOSIGNAL);',
    ],
    ids=["times", "nonce", "status"],
)
def test_answering_in_place_of_the_runner(cache: Path, body: str) -> None:
    found = failure(cache, source(f"static int64_t words[4] = {{1, 1, 1, 1}};\n{body}"))
    assert found.status is Status.REWARD_HACK


def test_claiming_no_time(cache: Path) -> None:
    before = 'extern "C" int clock_gettime(clockid_t, timespec* t) { *t = {}; return 0; }'
    with bench(cpp(source("", before), cache), cache) as it:
        claims = it.call()
        assert isinstance(claims, list) and min(claims) > 0, (
            "our clock is bound before the candidate is loaded"
        )


def test_closing_every_descriptor(cache: Path) -> None:
    found = failure(cache, source("for (int n = 0; n < 64; ++n) close(n);\nfor (;;) pause();"), timeout_s=5)
    assert found.status is Status.RUNTIME_ERROR


def test_shrinking_the_arena(cache: Path) -> None:
    body = "for (int n = 3; n < 64; ++n) ftruncate(n, 0);"
    with bench(cpp(source(body), cache), cache) as it:
        it.call()
        assert not it.is_right  # and reading it did not kill this process


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("    raise RuntimeError('boom')", Status.RUNTIME_ERROR, "RuntimeError: boom"),
        ("    import os; os._exit(0)", Status.RUNTIME_ERROR, "exit code 0"),
    ],
    ids=["raises", "silent"],
)
def test_python_that_fails(cache: Path, body: str, status: Status, reason: str) -> None:
    code = f"def run(x, scale, shift, negate, y):\n{body}\n"
    with bench(pytorch(code, cache), cache, timeout_s=1) as it:
        found = it.call()
    assert isinstance(found, Failure)
    assert found.status is status
    assert reason in found.reason


def test_python_that_hangs_once_its_first_call_is_over(cache: Path) -> None:
    """The first request (of three) is given a minute, in which Triton may compile."""
    signature = "def run(x, scale, shift, negate, y):\n"
    code = f"calls = []\n{signature}    calls.append(x)\n    while len(calls) > 3: pass\n"
    with bench(pytorch(code, cache), cache, timeout_s=1) as it:
        assert isinstance(it.call(), list)
        found = it.call()
    assert isinstance(found, Failure)
    assert found.status is Status.TIMEOUT
    assert "1 s" in found.reason


def test_python_that_cannot_be_loaded(cache: Path) -> None:
    with bench(pytorch("import a_module_that_is_not_there", cache), cache) as it:
        found = it.call()
    assert isinstance(found, Failure)
    assert found.status is Status.RUNTIME_ERROR
    assert "ModuleNotFoundError" in found.reason


def test_death_right_after_it_was_loaded(cache: Path) -> None:
    before = (
        'extern "C" int usleep(unsigned);\nstatic void die() { usleep(20000); abort(); }\n'
        "__attribute__((constructor)) static void early() { new std::thread(die); }"
    )
    with bench(cpp(source("", before), cache), cache) as it:
        it.runner.ready()
        it.runner.linger(0.2)
        found = it.call()
    assert isinstance(found, Failure)
    assert found.status is Status.RUNTIME_ERROR
    assert "SIGABRT" in found.reason
