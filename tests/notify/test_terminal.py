"""The page in a terminal: 80 columns, signs that it may lack, colour that only repeats a word."""

from __future__ import annotations

import io
import re
import sys

import pytest
from page_cases import CAP, CASES

from driftwatch.cli.main import main
from driftwatch.notify.layout import columns, wrap
from driftwatch.notify.page import Links
from driftwatch.notify.terminal import render

COMMAND = re.compile(r"^(ack|silence|next|runbook): ")


def test_no_line_is_too_wide() -> None:
    for page in (page for one in CASES.values() for page in (one.page(), one.resolved())):
        text = render(page)
        wide = [line for line in text.splitlines() if columns(line) > 80]
        assert [line for line in wide if not COMMAND.match(line)] == []
        assert all(line == line.rstrip() for line in text.splitlines())


def test_a_terminal_that_lacks_signs_gets_their_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    stream = io.TextIOWrapper(output, encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["driftwatch", "demo", "--list"])
    with pytest.raises(SystemExit) as ended:
        main()
    stream.flush()
    told = output.getvalue().decode("latin-1")
    assert ended.value.code == 0
    assert "generations ×4" in told
    page = render(CAP.page(), mark=True).encode("ascii", "spelled").decode()
    assert page.startswith("FIRING") and "->" in page and "?" not in page.splitlines()[0]


def test_colour_only_repeats_a_word() -> None:
    page = CAP.page()
    painted = render(page, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render(page)
    assert painted != render(page)


def test_a_command_is_never_broken() -> None:
    long = "vllm-rag-8b-6f7c9d5b4-x2x9p.inference.svc.cluster.local:8000"
    page = CAP.page()
    silence = f"driftwatch silence alert=BatchLimitBinding instance={long}"
    page = page.model_copy(update={"links": Links(ack="driftwatch ack 3f", silence=silence)})
    assert f"silence: {silence}" in render(page).splitlines()


def test_a_number_stays_beside_its_unit() -> None:
    assert wrap("requests deferred in 80 % of scrapes", 24) == [
        "requests deferred in",
        "80 % of scrapes",
    ]
    assert wrap("last 2 min, n 1,640", 12) == ["last 2 min,", "n 1,640"]
