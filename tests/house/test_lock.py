"""Every installed file is checked against a hash, and no lock file names a place to fetch from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock")
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;\\]+)(?P<rest>.*)$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def _pins(lock: str) -> dict[str, tuple[str, int]]:
    """Name → version and number of hashes."""
    pins: dict[str, tuple[str, int]] = {}
    name = None
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        pin = PIN.match(line)
        if pin:
            name = pin["name"]
            pins[name] = (pin["version"], 0)
            continue
        assert name is not None and HASH.match(line), f"{lock}: neither a pin nor a hash: {line!r}"
        pins[name] = (pins[name][0], pins[name][1] + 1)
    return pins


def _declared(*extras: str) -> set[str]:
    """Names that pyproject.toml asks for, as an index spells them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["build-system"]["requires"]) + list(project["project"]["dependencies"])
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    names = (re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in wanted)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    pins = _pins(lock)
    assert len(pins) > 20
    assert {name for name, (_, hashes) in pins.items() if not hashes} == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host| @ ", text)


def test_what_the_project_asks_for_is_locked() -> None:
    assert _declared() <= set(_pins("requirements.lock"))
    assert _declared("dev") <= set(_pins("requirements-dev.lock"))


def test_what_tests_run_with_is_what_ships() -> None:
    runs, tests = _pins("requirements.lock"), _pins("requirements-dev.lock")
    assert {name: pin[0] for name, pin in runs.items()} == {
        name: tests[name][0] for name in runs if name in tests
    }
