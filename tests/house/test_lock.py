"""Every installed file is checked against a hash, and no lock file names a place to fetch from."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-kubernetes.lock")
# the image and the units run on either database, with every source and the pages: scripts/lock
IMAGE_EXTRAS = ("postgres", "web")
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


def _asked(*extras: str) -> list[str]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["build-system"]["requires"]) + list(project["project"]["dependencies"])
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    return wanted


def _declared(*extras: str) -> set[str]:
    """Names of it, as an index spells them."""
    return {canonicalize_name(Requirement(text).name) for text in _asked(*extras)}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    pins = _pins(lock)
    assert len(pins) > 20 or lock == "requirements-kubernetes.lock"
    assert pins
    assert {name for name, (_, hashes) in pins.items() if not hashes} == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host| @ ", text)


def test_what_the_project_asks_for_is_locked() -> None:
    assert _declared(*IMAGE_EXTRAS) <= set(_pins("requirements.lock"))
    assert _declared("dev") <= set(_pins("requirements-dev.lock"))


def test_a_lock_is_closed_and_its_versions_fit() -> None:
    """Nothing is installed besides (--no-deps): what one asks for is pinned, and fits."""
    pins = {name: Version(version) for name, (version, _) in _pins("requirements.lock").items()}
    waiting = [("driftwatch", Requirement(text)) for text in _asked(*IMAGE_EXTRAS)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asker, one = waiting.pop()
        name = canonicalize_name(one.name)
        assert name in pins, f"{asker} asks for {one}: it is not in requirements.lock"
        assert one.specifier.contains(pins[name], prereleases=True), (asker, str(one), pins[name])
        for extra in {"", *one.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            for asked in map(Requirement, metadata.requires(name) or ()):
                if asked.marker is None or asked.marker.evaluate({"extra": extra}):
                    waiting.append((name, asked))
    assert ("psycopg", "binary") in seen
    # and nothing else is installed; hatchling asks for editables where it builds with -e
    assert set(pins) == {name for name, _ in seen} | {"editables"}


def test_what_tests_run_with_is_what_ships() -> None:
    runs, tests = _pins("requirements.lock"), _pins("requirements-dev.lock")
    assert {name: pin[0] for name, pin in runs.items()} == {
        name: tests[name][0] for name in runs if name in tests
    }
