"""Compare the skips of a test run with the list of expected ones.

    python scripts/skips.py JUNIT_XML EXPECTED

Exits 1 when a test was skipped (or failed as expected) that the list does not name, or when no
test ran at all. A line of the list is ``path/to/test.py::name  # why``; blank lines and lines
that begin with ``#`` are passed over. A parametrised test is named without its parameters.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def expected_names(text: str) -> frozenset[str]:
    """Names in the list, without their comments."""
    lines = (line.split("  #", 1)[0].strip() for line in text.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def test_name(case: ET.Element) -> str:
    """``tests/house/test_lock.py::test_name`` of a JUnit case; a module skip has no name."""
    module = case.get("classname", "")
    name = case.get("name", "").split("[", 1)[0]
    if not module:  # skipped while collecting: the whole module
        return name.replace(".", "/") + ".py"
    path = module.replace(".", "/")
    while path and not Path(f"{path}.py").is_file():  # a test class is part of the name
        path, _, inner = path.rpartition("/")
        name = f"{inner}::{name}"
    return f"{path}.py::{name}"


def judge(junit: Path, expected: frozenset[str]) -> tuple[int, list[str]]:
    """Number of tests that really ran, and what is wrong."""
    if not junit.is_file():
        return 0, ["pytest left no report"]
    ran = 0
    wrong: list[str] = []
    seen: set[str] = set()
    for case in ET.parse(junit).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if skipped is None:
            ran += 1
            continue
        name = test_name(case)
        seen.add(name)
        if name not in expected:
            wrong.append(f"unexpected skip: {name}: {skipped.get('message', '')}")
    if not ran:
        wrong.append("no test ran")
    for name in sorted(expected - seen):
        print(f"note: expected skip did not happen: {name}")
    return ran, wrong


def main() -> int:
    """Print the verdict; 0 where every skip was expected and something ran."""
    junit, names = Path(sys.argv[1]), Path(sys.argv[2])
    ran, wrong = judge(junit, expected_names(names.read_text(encoding="utf-8")))
    for line in wrong:
        print(line)
    print(f"{ran} tests ran; skips {'NOT ' if wrong else ''}as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
