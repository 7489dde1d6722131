"""Code that is not trusted, looking for a key: a candidate in Python and in C++, a reference, and a compiler.

Run as a program, with keys in its environment and the names of files that hold others: it is the judge that
starts them. It prints, as JSON, what each of them said and, for comparison, what one finds outside of a box.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KEY = re.compile(rb"canary-[0-9a-f]{32}")
SPY = r'''
import os, re

PLACES = {places!r}
KEY = re.compile(rb"canary-[0-9a-f]{{32}}")

def look():
    """Raise what was found in environment, /proc and files, and in how many places it was sought."""
    found, looked = set(), 0
    def see(path, limit=1 << 16):
        nonlocal looked
        looked += 1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            data = os.read(descriptor, limit)
            os.close(descriptor)
        except OSError:
            return
        found.update(match.decode() for match in KEY.findall(data))
    found.update(match.decode() for match in KEY.findall(repr(dict(os.environ)).encode()))
    for pid in [name for name in os.listdir("/proc") if name.isdigit()] + ["self"]:
        for name in ("environ", "cmdline"):
            see(f"/proc/{{pid}}/{{name}}")
        for folder in ("fd", "cwd", "root"):
            try:
                for name in os.listdir(f"/proc/{{pid}}/{{folder}}")[:200]:
                    see(f"/proc/{{pid}}/{{folder}}/{{name}}")
            except OSError:
                pass
    for path in PLACES:
        see(path)
    for top in (os.path.expanduser("~"), os.getcwd(), "/tmp", "/dev/shm", "/root", "/home", "/run"):
        for number, (folder, _, names) in enumerate(os.walk(top)):
            for name in names[:40]:
                see(os.path.join(folder, name))
            if number > 20:
                break
    raise RuntimeError(f"SPY looked at {{looked}} places and found {{sorted(found)}} END")

def run(*args):
    look()
'''
CPP_SPY = r"""
#include "problem.h"
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>
#include <unistd.h>
extern char** environ;
extern "C" void run(const float*, double, int64_t, bool, float*, int64_t, int64_t) {
  std::vector<std::string> places = {PLACES};
  std::error_code none;
  for (const auto& item : std::filesystem::directory_iterator("/proc", none)) {
    places.push_back(item.path().string() + "/environ");
    places.push_back(item.path().string() + "/cmdline");
  }
  std::string all;
  for (char** one = environ; *one; ++one) all += std::string(*one) + "\n";
  for (const auto& place : places) {
    std::ifstream file(place, std::ios::binary);
    if (file) all.append(std::istreambuf_iterator<char>(file), {});
  }
  std::set<std::string> found;
  const std::string mark = std::string("canary") + "-";
  for (size_t at = all.find(mark); at != std::string::npos; at = all.find(mark, at + 1))
    found.insert(all.substr(at, mark.size() + 32));
  std::printf("SPY looked at %zu places and found [", places.size());
  for (const auto& one : found) std::printf("'%s',", one.c_str());
  std::printf("] END\n");
  std::fflush(stdout);
  std::abort();
}
"""


def candidates(places: list[str], cache: Path) -> dict[str, str]:
    from swarm.languages.protocol import Failure
    from tests.judge.bench import bench, cpp, pytorch

    said = {}
    listed = ", ".join(json.dumps(place) for place in places)
    made = {
        "a candidate in Python": pytorch(SPY.format(places=places), cache),
        "a candidate in C++": cpp(CPP_SPY.replace("PLACES", listed), cache),
    }
    for name, artifact in made.items():
        with bench(artifact, cache) as it:
            found = it.call()
        assert isinstance(found, Failure)
        said[name] = f"{found.reason}\n{found.log}"
    return said


def reference(places: list[str]) -> str:
    from swarm.judge.reference import InvalidReference, References
    from tests.judge.test_judge import DEVICE
    from tests.judge.test_reference import DEFINITION, probing

    assert DEFINITION
    source = SPY.format(places=places).replace("def run(*args):\n    look()\n", "look()\ndef run(): ...\n")
    with References(DEVICE) as references:
        try:
            with probing(references, source):
                pass
        except InvalidReference as error:
            return str(error)
    raise AssertionError("it had nothing to say")


def compiler(places: list[str], cache: Path) -> str:
    """Return what a compiler prints that is asked to include each file that it can see."""
    from swarm.languages.protocol import Failure
    from tests.judge.bench import cpp

    found = cpp(includes(places), cache)
    assert isinstance(found, Failure)
    return f"SPY looked at {len(places)} places and found {found.log}{found.reason} END"


def includes(places: list[str]) -> str:
    return "".join(f'#if __has_include("{one}")\n#include "{one}"\n;\n#endif\n' for one in places)


def outside(places: list[str]) -> dict[str, str]:
    """Return what the same code finds, and the same compiler prints, without a box."""
    spy = [sys.executable, "-c", SPY.format(places=places) + "\nlook()\n"]
    compile_ = ["c++", "-fsyntax-only", "-x", "c++", "-"]
    ran = (
        subprocess.run(words, input=text, capture_output=True, text=True, check=False).stderr
        for words, text in ((spy, ""), (compile_, includes(places)))
    )
    return dict(zip(("a spy", "a compiler"), ran, strict=True))


def main() -> None:
    """Print {level: {who: what it said}} for the levels in the first argument; the others are files."""
    from swarm.sandbox import Level, boxes

    levels, *places = sys.argv[1:]
    said: dict[str, dict[str, str]] = {"outside": outside(places)}
    with tempfile.TemporaryDirectory() as folder:
        for at in map(Level, levels.split(",")):
            boxes.level = lambda at=at: at  # type: ignore[assignment, misc]  # not only the strongest there is
            cache = Path(folder)
            said[at] = candidates(places, cache)
            said[at]["a reference"] = reference(places)
            said[at]["a compiler"] = compiler(places, Path(folder) / at)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
