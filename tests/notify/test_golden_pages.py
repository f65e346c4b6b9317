"""The pages as people read them, whole."""

from __future__ import annotations

import json
from collections.abc import Callable

from page_cases import CASES

from driftwatch.notify.terminal import render
from driftwatch.receivers.slack_blocks import blocks

Golden = Callable[[str, str], None]


# one page of each kind of advice, and what ends otherwise
READ_ALOUD = (
    *("cap", "no_knob", "undetermined", "batch_drift", "fine", "drain", "slow_pool"),
    *("gpu_lost_named", "deferred_page", "coverage_unlisted", "drift", "retune"),
)


def test_pages_read_as_recorded(golden: Golden) -> None:
    """Twelve pages when they fire and when they end."""
    parts = [
        f"# {name}\n\n{render(CASES[name].page())}\n\n\n{render(CASES[name].resolved())}\n"
        for name in READ_ALOUD
    ]
    golden("notify/pages.txt", "\n".join(parts))


def test_what_receivers_are_sent(golden: Golden) -> None:
    page, over = CASES["cap"].page(), CASES["cap"].resolved()
    golden("notify/cap.page.json", _json(page.document()))
    golden("notify/cap.slack.json", _json([blocks(page), blocks(over)]))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
