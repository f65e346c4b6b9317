"""Pages that release 0.6 stored are still shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftwatch.notify.body import lines
from driftwatch.notify.headline import headline

PAGES = sorted((Path(__file__).parents[1] / "golden" / "notify").glob("*.page.json"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
@pytest.mark.parametrize("event", ["firing", "resolved"])
def test_a_page_without_a_form_and_a_code_is_shown(path: Path, event: str) -> None:
    page = json.loads(path.read_text(encoding="utf-8")) | {"event": event}
    page["twins"] = page.pop("peers", None)
    if page["recommendation"] is not None:
        del page["recommendation"]["reason_code"]
    assert headline(page)
    assert [line.label for line in lines(page)]
