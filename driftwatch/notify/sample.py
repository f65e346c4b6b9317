"""The page that ``driftwatch notify test`` sends: marked, nothing is wrong. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from driftwatch.model import Incident
from driftwatch.notify.numbers import clean, cut, utc_text
from driftwatch.notify.page import build_page

_NAME_LIMIT = 40


def sample_page(receiver: str, at: datetime) -> dict[str, Any]:
    """A valid page with ``test`` true; its id holds the time, so that no two are one delivery."""
    incident = Incident(
        id=f"test-{utc_text(at)}",
        key='Test{instance="driftwatch"}',
        rule="Test",
        alert="Test",
        severity="notice",
        target={"instance": "driftwatch"},
        state="firing",
        started_at=at,
        firing_at=at,
        last_true_at=at,
    )
    page = build_page(None, incident, "firing", at, rule_annotations={}, external_url=None)
    name = cut(clean(receiver), _NAME_LIMIT)
    page["test"] = True
    page["summary"] = f"TEST driftwatch: a test page for {name}; nothing is wrong, do nothing"
    page["links"] = dict.fromkeys(page["links"])
    return page
