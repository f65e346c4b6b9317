"""A real server slowed in place by a quarter under moving load: one page, and it says how much."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from e2e_cases import iso, pages, phases


@pytest.fixture(scope="module")
def recording(shared_data: Path) -> Path:
    return shared_data / "vllm-0.32" / "run_slow"


@pytest.mark.parametrize("accepted", [False, True])
def test_one_page_while_it_is_slow(run: Any, recording: Path, accepted: bool) -> None:
    sent = phases(recording)
    good = sent["baseline"]
    # the first minute of a run is of no law: graphs are captured, caches are cold
    span = ["--baseline", f"{iso(good['start'] + 10)}..{iso(good['end'] - 10)}"] if accepted else []
    fired, resolved = pages(run("replay", recording, "--json", *span))
    assert (fired["alert"], fired["event"]) == ("SlowerAtEqualLoad", "firing")
    assert (resolved["alert"], resolved["event"]) == ("SlowerAtEqualLoad", "resolved")
    slow = sent["engine_slow"]
    assert iso(slow["start"]) < _iso(fired["times"]["firing_at"]) < iso(slow["start"] + 12 * 60)
    assert _iso(resolved["times"]["resolved_at"]) > iso(slow["end"])
    ratio = fired["evidence"]["speed_at_equal_load_ratio"]["value"]
    assert abs((1 - ratio) - 0.25) <= 0.05
    assert "slower at equal load. Look for what changed: image, flags" in fired["summary"]
    assert fired["advice"]["action"] == "none"
    begun = _iso(fired["times"]["started_at"])
    assert iso(slow["start"] - 120) < begun < iso(slow["start"] + 120)


def test_explain_takes_the_throughput_apart(run: Any, recording: Path) -> None:
    sent = phases(recording)
    good, slow = sent["baseline"], sent["engine_slow"]
    result = run(
        "explain",
        "--recording",
        recording,
        "--baseline",
        f"{iso(good['start'] + 10)}..{iso(good['end'] - 10)}",
        "--at",
        iso(math.floor(slow["end"] / 60) * 60),
        "--json",
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    throughput = found["throughput"]
    assert math.prod(throughput["factors"].values()) == pytest.approx(throughput["ratio"], rel=1e-9)
    assert throughput["factors"]["speed"] == pytest.approx(0.75, abs=0.08)
    assert throughput["unknown"] == {}
    assert throughput["now"] / throughput["before"] == pytest.approx(throughput["ratio"], rel=1e-9)
    # the demand is served nevertheless: the batch that grew makes up for the speed
    assert throughput["ratio"] > 0.9
    assert throughput["factors"]["batch"] > 1.15
    lengths = found["shares"]["prompt_tokens"]
    assert sum(lengths["share"]) == pytest.approx(1)
    assert sum(lengths["baseline_share"]) == pytest.approx(1)
    assert found["diagnosis"]["leaf"] == "scheduler_regression"


def _iso(text: str) -> str:
    return text.replace("Z", "+00:00")
