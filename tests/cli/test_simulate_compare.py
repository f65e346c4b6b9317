"""``driftwatch simulate compare`` as it is typed."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from driftwatch.cli.main import cli
from driftwatch.errors import DriftwatchError, UsageError

MIX = ("--prompt-tokens", "200", "--generation-tokens", "20")
LAW = ("--step-time", "0.007,2e-5,2e-5,1e-8", "--max-num-seqs", "64")
SHORT = ("--rates", "5,20,60")


def compare(*words: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", "compare", *words])


def document(*words: str) -> dict[str, Any]:
    found = compare(*words, "--json")
    assert found.exception is None or isinstance(found.exception, SystemExit), found.output
    answer: dict[str, Any] = json.loads(found.stdout)
    assert answer["schema_version"] == 1
    return answer


@pytest.fixture(scope="module")
def all_policies() -> dict[str, Any]:
    return document(*MIX, *LAW, *SHORT)


def test_every_policy_at_every_rate(all_policies: dict[str, Any]) -> None:
    names = ["static", "dynamic", "continuous", "hybrid", "back-pressure"]
    assert list(all_policies["policies"]) == names
    for name, found in all_policies["policies"].items():
        assert [p["requests_per_second"] for p in found["points"]] == [5.0, 20.0, 60.0]
        for p in found["points"]:
            latency = p["e2e"]
            assert latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"]
            assert p["ttft"]["p99"] <= latency["max"]
            classic = name in ("static", "dynamic")
            assert (p["batch_efficiency_ratio"] is not None) == classic
            assert ("not defined for continuous" in p["batch_reason"]) == (not classic)


def test_what_the_numbers_say(all_policies: dict[str, Any]) -> None:
    policies = all_policies["policies"]
    static, continuous = policies["static"], policies["continuous"]
    assert continuous["capacity_requests_per_second"] > 2 * static["capacity_requests_per_second"]
    # a small load is the worst case of a batch that waits until it is full
    assert static["points"][0]["e2e"]["p50"] > static["points"][1]["e2e"]["p50"]
    assert not static["points"][2]["keeps_up"]
    last = all_policies["fits"][-1]
    assert {"static", "dynamic"} <= set(last["fail"])
    assert not {"static", "dynamic"} & set(last["best"])


def test_the_finding_follows_the_knees(all_policies: dict[str, Any]) -> None:
    for name, found in all_policies["policies"].items():
        holds = found["knee"]["holds_at"]
        if holds is not None:
            assert re.search(rf"{name}\b", all_policies["finding"])
            point = next(p for p in found["points"] if p["requests_per_second"] == holds)
            assert point["keeps_up"]
            assert point["e2e"]["p99"] <= all_policies["limit_e2e_p99_seconds"]


def test_the_same_words_give_the_same_bytes(tmp_path: Path) -> None:
    words = (*MIX, *LAW, "--duration-seconds", "5", "--rates", "10,40")
    drawn = []
    for name in ("a.svg", "b.svg"):
        found = compare(*words, "--policies", "static,hybrid", "--plot", str(tmp_path / name))
        assert found.exit_code == 0, found.output
        drawn.append(((tmp_path / name).read_bytes(), found.stdout))
    assert drawn[0] == drawn[1]
    names = {"svg": "http://www.w3.org/2000/svg"}
    picture = ET.fromstring(drawn[0][0])
    said = picture.find("svg:title", names), picture.find("svg:desc", names)
    assert said[0] is not None and said[1] is not None
    assert "req/s" in (said[0].text or "")
    assert "static: 10 req/s" in (said[1].text or "")


def test_piped_rows() -> None:
    found = compare(*MIX, *LAW, *SHORT, "--policies", "dynamic,hybrid")
    head, *rows = [line.split("\t") for line in found.stdout.splitlines() if "\t" in line]
    assert head[:3] == ["policy", "requests_per_second", "throughput_requests_per_second"]
    assert {len(head)} == {len(row) for row in rows}
    assert [row[:2] for row in rows] == [
        [p, r] for p in ("dynamic", "hybrid") for r in ("5.0", "20.0", "60.0")
    ]
    assert {len(row) for row in rows} == {11}


def test_on_a_terminal_nothing_is_cut_or_wider_than_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    words = (*MIX, "--timeout-seconds", "2", "--rates", "12.345,123.45", *LAW[:2])
    cli(["simulate", "compare", *words, "--duration-seconds", "5"], standalone_mode=False)
    said = capsys.readouterr()
    for line in (*said.out.splitlines(), *said.err.split("\r")[0].splitlines()):
        assert len(line) <= 80
        assert "…" not in line
    assert re.search(r"static at 123.45: [\d,]+ requests timed out", said.out)
    assert "back-pressure, load in arriving req/s" in said.out


def test_clients_of_a_closed_loop_are_as_patient_late_as_early() -> None:
    words = (*MIX, *LAW, "--concurrency", "4", "--cancel-ratio", "0.5", "--mix-size", "2000")
    patient = document(*words, "--cancel-after-seconds", "500", "--policies", "static,continuous")
    for found in patient["policies"].values():
        (point,) = found["points"]
        gone = point["ended_otherwise"].get("cancelled", 0)
        # half of them would leave after 500 s on average; none is inside for a hundredth of it
        assert gone < 0.02 * point["e2e"]["count"]


def test_what_a_file_has_and_compare_does_not_use_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{i / 10},200,{10 + i % 7},0,64,x\n" for i in range(300))
    names = "arrival_seconds,prompt_tokens,generation_tokens,prefix_group,shared_prefix_tokens,foo"
    (tmp_path / "r.csv").write_text(f"{names}\n{rows}")
    words = ("--requests", str(tmp_path / "r.csv"), *LAW, "--rates", "5", "--policies", "dynamic")
    notes = " ".join(document(*words)["notes"])
    assert "foo" in notes
    assert "prefixes of the file not used" in notes


def test_a_closed_loop_leaves_back_pressure_out_with_a_reason() -> None:
    found = document(*MIX, *LAW, "--concurrency", "4", "--policies", "static,back-pressure")
    (point,) = found["policies"]["back-pressure"]["points"]
    assert "closed-loop" in point["reason"]
    assert found["policies"]["static"]["points"][0]["throughput_requests_per_second"] > 0


def test_no_policy_that_keeps_up_is_no_verdict() -> None:
    found = compare(*MIX, *LAW, "--rates", "400", "--policies", "static", "--duration-seconds", "5")
    assert found.exit_code == 4
    assert "none keeps up" in found.stdout


def test_causes_multiply_to_the_whole_factor() -> None:
    found = document(*MIX, *LAW, "--causes", "--duration-seconds", "20")["variants"]
    rungs = [one for one in found if not one["name"].startswith("only")]
    product = 1.0
    for one in rungs[1:]:
        product *= one["capacity_factor"]
    whole = rungs[-1]["capacity_requests_per_second"] / rungs[0]["capacity_requests_per_second"]
    assert product == pytest.approx(whole)
    assert whole > 2


def test_padding_of_given_lengths() -> None:
    found = document(
        "--padding", "--lengths", "64*2,128*2,256*2,512*2,1024*2", "--buckets", "128,512,1024"
    )
    assert found["without_buckets"]["waste_ratio"] == pytest.approx(0.6125)
    assert found["with_buckets"]["waste_ratio"] == pytest.approx(320 / 2304)
    used = found["used_ratios"]  # 64 in the bucket of 128, 1,024 in its own
    assert (used[0], used[-1]) == (0.5, 1.0)
    told = compare("--padding", "--lengths", "10,1000,50").stdout
    assert "10: 1 %, 1,000: 100 %, 50: 5 %" in told


def test_padding_of_a_trace(shared_data: Path) -> None:
    trace = str(shared_data / "traces/azure_2023_conv.csv.gz")
    found = document("--padding", "--requests", trace, "--buckets", "512,1024,2048,4096")
    assert found["lengths"] == 19366
    assert 0 < found["with_buckets"]["waste_ratio"] < found["without_buckets"]["waste_ratio"] < 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*LAW,), "which requests"),
        ((*MIX,), "the step time is unknown"),
        ((*MIX, *LAW, "--rates", "5", "--concurrency", "2"), "exclude"),
        ((*MIX, *LAW, "--rates", "0"), "above 0"),
        ((*MIX, *LAW, "--policies", "magic"), "no policy magic"),
        ((*MIX, *LAW, "--rates", "900000"), "at most"),
        ((*MIX, *LAW, "--concurrency", "9000000"), "at most 100,000 clients"),
        (("--prompt-tokens", "9", "--generation-tokens", "9e8", *LAW), "at most 1,000,000"),
        ((*MIX, *LAW, "--plot", "x.pdf"), ".svg or .png"),
        ((*MIX, *LAW, "--lengths", "5"), "--padding"),
        ((*MIX, *LAW, "--buckets", "9,8", "--rates", "5"), "rise"),
        ((*MIX, *LAW, "--causes", "--rates", "5,6"), "one rate"),
        ((*MIX, "--step-time", "0.01,0,0,0", "--max-num-seqs", "0"), "max-num-seqs"),
        (("--requests", "x", *MIX, *LAW), "exclude"),
        ((*MIX, *LAW, "--plot", "/nosuch/p.png"), "no folder /nosuch"),
        (("--prompt-tokens", "0.5", "--generation-tokens", "9", *LAW), "--prompt-tokens"),
        ((*MIX, *LAW, "--rates", "5", "--plot", "/proc/p.svg"), "/proc/p.svg: No such file"),
        ((*MIX, *LAW, "--causes", "--plot", "p.svg"), "--plot: not used with --causes"),
        ((*MIX, "--padding", "--rates", "5"), "--rates: not used with --padding"),
        (("--padding", "--lengths", "5", *LAW), "--step-time, --max-num-seqs: not used"),
        ((*MIX, *LAW, "--padding", "--causes"), "exclude"),
        ((*MIX, *LAW, "--slo-p99-seconds", "nan"), "nan is no finite number"),
    ],
)
def test_what_cannot_be_answered_is_said(words: tuple[str, ...], said: str) -> None:
    found = compare(*words)
    error = found.exception
    text = (
        f"{error.message} {error.help_text}" if isinstance(error, DriftwatchError) else found.output
    )
    assert found.exit_code != 0
    assert said in text
    if isinstance(error, UsageError):
        assert error.help_text
