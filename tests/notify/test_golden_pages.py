"""The pages as people read them, whole: each kind of page when it fires and when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from page_cases import CASES

from driftwatch.notify.page_values import public
from driftwatch.notify.terminal import render
from driftwatch.receivers.slack_blocks import blocks

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("name", CASES)
def test_a_page_reads_as_recorded(name: str, golden: Golden) -> None:
    texts = [render(page) for page in (CASES[name].page(), CASES[name].resolved())]
    golden(f"notify/{name}.txt", "\n\n\n".join(texts) + "\n")


@pytest.mark.parametrize("name", ["cap", "batch_drift", "gpu_lost", "coverage_pool"])
def test_what_receivers_are_sent(name: str, golden: Golden) -> None:
    for which, page in (("firing", CASES[name].page()), ("resolved", CASES[name].resolved())):
        golden(f"notify/{name}.{which}.page.json", _json(public(page)))
        golden(f"notify/{name}.{which}.slack.json", _json(blocks(page)))


@pytest.mark.parametrize("name", ["budget"])
def test_a_narrow_terminal_and_one_of_ascii(name: str, golden: Golden) -> None:
    page = CASES[name].page()
    golden(f"notify/{name}.narrow.txt", render(page, width=48) + "\n")
    golden(f"notify/{name}.ascii.txt", render(page, ascii=True) + "\n")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
