"""What a time interval mutes is not sent; what fires longer is sent when it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driftwatch.backtest.archive_writer import keep
from driftwatch.backtest.outcome import Backtest, backtest
from driftwatch.collect.recordings import open_recording
from driftwatch.service.configuration import plan_of

Judge = Callable[[str], Backtest]
CONFIGURATION = """\
sources: [{{recording: .}}]
time_intervals:
  - name: window
    time_intervals: [{{times: [{{start_time: "08:00", end_time: "{until}"}}]}}]
pools:
  - name: all
    serving: {{max_num_seqs: 8}}
    mute_time_intervals: [window]
"""


@pytest.fixture
def judge(shared_data: Path, tmp_path: Path) -> Judge:
    """A real server's page from 08:30 to 08:45, muted from 08:00 on."""

    def until(end: str) -> Backtest:
        source = open_recording(shared_data / "vllm-0.32" / "run_cap")
        (tmp_path / "driftwatch.yaml").write_text(CONFIGURATION.format(until=end))
        plan = plan_of(tmp_path / "driftwatch.yaml")
        archive = keep([source], source.span(), plan, tmp_path)
        return backtest(archive, plan, advice=False)

    return until


@pytest.mark.parametrize(
    ("end", "sent"), [("08:10", "08:30"), ("08:40", "08:40"), ("08:45", None), ("09:30", None)]
)
def test_muted(end: str, sent: str | None, judge: Judge) -> None:
    result = judge(end)
    assert [f"{page.fired_at:%H:%M}" for page in result.pages] == ([sent] if sent else [])
    assert len(result.muted) == (0 if sent else 1)
    assert len(result.counts("page")) == (1 if sent else 0)
