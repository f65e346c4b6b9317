"""What was worked out before, kept beside a recording until what it was made with changes.

A change of a detector or rule pays for its own replay: recordings stay, and so does what the
settings of a what-if brought, which no detector has a part in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_DETECTORS = ("driftwatch", "rules", "migrations")
_SIMULATED = ("driftwatch/simulate", "driftwatch/fleet", "bench/truth_judge/whatif.py")
_FAKES = {"testing", "fleet"}
_SOURCES = {".py", ".yaml", ".yml", ".sql", ".json"}


@cache
def made_with(*, simulator: bool = False) -> str:
    """A hash of the sources that decide: driftwatch without its fakes, or the simulator alone."""
    found = hashlib.sha256()
    for name in _SIMULATED if simulator else _DETECTORS:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            fake = not simulator and not _FAKES.isdisjoint(file.relative_to(ROOT).parts)
            if file.suffix in _SOURCES and not fake:
                found.update(str(file.relative_to(ROOT)).encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:20]


def kept(file: Path, asked: object, make: Callable[[], Any]) -> Any:
    """What ``make`` gives as JSON, or what it gave when the same was asked.

    Args:
        file: where it is kept.
        asked: all that it depends on; anything that JSON holds.
        make: works it out.
    """
    said = json.loads(json.dumps(asked))
    if file.exists():
        before = json.loads(file.read_text())
        if before["asked"] == said:
            return before["found"]
    found = make()
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps({"asked": said, "found": found}))
    beside.replace(file)
    return found
