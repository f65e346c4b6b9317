"""The pages as people read them, whole."""

from __future__ import annotations

import json
from collections.abc import Callable

from page_cases import CASES

from driftwatch.notify.terminal import render
from driftwatch.receivers.slack_blocks import blocks

Golden = Callable[[str, str], None]


def test_pages_read_as_recorded(golden: Golden) -> None:
    """Each kind of page when it fires and when it ends."""
    parts = [
        f"# {name}\n\n{render(case.page())}\n\n\n{render(case.resolved())}\n"
        for name, case in CASES.items()
    ]
    golden("notify/pages.txt", "\n".join(parts))


def test_what_receivers_are_sent(golden: Golden) -> None:
    page, over = CASES["cap"].page(), CASES["cap"].resolved()
    golden("notify/cap.page.json", _json(page.document()))
    golden("notify/cap.slack.json", _json([blocks(page), blocks(over)]))


def test_a_narrow_terminal(golden: Golden) -> None:
    golden("notify/narrow.txt", render(CASES["budget"].page(), width=48) + "\n")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
