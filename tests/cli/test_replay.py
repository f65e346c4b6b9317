"""replay of what cannot be read, and what lies outside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_cases import Run

AT = 1_790_000_000
NONE_BETWEEN = "NO VERDICT: no usable scrape between 2026-09-21 14:13:20 and 2026-09-21 14:1"


@pytest.fixture(scope="module")
def page(shared_data: Path) -> str:
    return (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()


def write(bodies: Sequence[tuple[int | str, str]], name: str = "r.jsonl") -> None:
    lines = [
        json.dumps({"t": AT + 5 * i, "status": status, "body": body})
        for i, (status, body) in enumerate(bodies)
    ]
    Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_recording_of_html_has_no_verdict(run: Run, as_json: bool) -> None:
    write([(200, f"<html>{i}</html>") for i in range(20)])
    code, out, err = run("replay", "r.jsonl", *(["--json"] if as_json else []))
    assert code == 4
    verdict, aside = (err, out) if as_json else (out, err)
    assert NONE_BETWEEN in verdict
    assert "answers HTML, not metrics" in verdict
    assert "NO VERDICT" not in aside
    assert err.count("warning: ") == 1  # one reason, whatever its numbers
    assert "warning: 20 of 20 scrapes failed, e.g. answers HTML, not metrics" in err


def test_history_that_is_never_read_names_the_address_without_its_secret(run: Run) -> None:
    code, out, err = run(
        "replay",
        "--prometheus",
        "http://user:CANARY@127.0.0.1:9/prefix",
        *("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T00:10Z"),
    )
    assert code == 4
    assert out.startswith("NO VERDICT: no usable scrape between 2026-01-01 00:00:00 and ")
    assert out.count("127.0.0.1:9") == 1
    assert "help: does it answer from this machine: curl 'http://" in err
    assert "@127.0.0.1:9/prefix/api/v1/query?query=up'" in err
    assert "does not answer from 2026-01-01T00:00:00Z on: " in out
    assert "CANARY" not in out + err


def test_pages_that_are_cut_off_and_a_baseline_outside_the_recording(run: Run, page: str) -> None:
    write([(200, page)] * 17 + [(200, page[: len(page) // 2])] * 2 + [(200, page)])
    code, out, err = run("replay", "r.jsonl")
    assert (code, out.startswith("no page between 2026-09-21 14:13:20 and ")) == (1, True)
    assert " doctor names the rules " in " ".join(out.split())
    assert "warning: 2 of 20 scrapes failed, e.g. page cut off at byte" in err
    code, _, err = run("replay", "r.jsonl", "--baseline", "2020-01-01T00:00Z..2020-01-01T01:00Z")
    assert code == 2
    assert "holds no minute with a scrape" in err
    assert "help: scrapes reach from 2026-09-21T14:13:20Z to 2026-09-21T14:14:55Z" in err
    write([(200, page)] * 20)
    with Path("r.jsonl").open("a") as file:
        file.write("{")
    code, _, err = run("replay", "r.jsonl")
    assert code == 1 and "r.jsonl:21" in err  # read, but not all of it


def test_what_is_kept_is_explained_from_the_database_alone(run: Run, shared_data: Path) -> None:
    Path("c.yaml").write_text(
        "pools: [{name: chat, serving: {max_num_seqs: 8}, slo: {ttft_seconds: 1.0}}]\n"
    )
    path = str(shared_data / "vllm-0.32" / "run_cap")
    out = run("replay", path, "-c", "c.yaml", "--no-advice")[1]
    assert "Nothing is kept: give replay --db FILE, and a next: command --db FILE too." in out
    _, out, _ = run("replay", path, "-c", "c.yaml", "--no-advice", "--db", "kept.db")
    assert "Nothing is kept" not in out
    first, command = out.splitlines()[0], re.search(r"^next: +driftwatch (.*)$", out, re.M)
    assert command is not None and command[1].endswith(" --db kept.db")
    code, out, _ = run(*command[1].split())
    assert code == 0
    assert first.startswith("FIRING host:8000: ") and out.startswith("FIRING chat host:8000: ")
    assert "pool chat" in out and "max_num_seqs 8" in out
    assert run("explain", "chat", *command[1].split()[2:])[1] == out
    assert run("verify", "chat", "--db", "kept.db")[0] == 0  # more requests ran than 8
    assert "did you mean chat?" in run("explain", "chatt", "--db", "kept.db")[2]


def test_the_configuration_that_lies_here_is_not_taken(run: Run, page: str) -> None:
    write([(200, page)] * 20)
    Path("driftwatch.yaml").write_text("wrong: 1\n")
    assert run("replay", "r.jsonl")[0] == 0
    assert run("evidence", "queue")[0] == 0
    assert run("explain", "--recording", "r.jsonl")[0] in (0, 4)
    assert run("replay", "r.jsonl", "-c", "driftwatch.yaml")[0] == 2
    assert run("explain")[0] == 2


def test_a_database_without_vllm_data_says_so(run: Run) -> None:
    write([(200, "up 1\n")] * 40)
    assert run("replay", "r.jsonl", "--db", "d.db")[0] == 4
    code, out, _ = run("explain", "--db", "d.db")
    assert code == 4 and "scrapes fail: no vllm: series" in out
    assert "data in 0 % of minutes" in run("rules", "backtest", "--db", "d.db")[1]


def test_a_database_has_the_last_minute_of_its_recording(run: Run, page: str) -> None:
    write([(200, page)] * 41)  # the last minute has one scrape of its four
    assert run("replay", "r.jsonl", "--db", "d.db")[0] == 0
    of_database, of_recording = (
        json.loads(run("explain", *where, "--json")[1])["evidence"]
        for where in (("--db", "d.db"), ("--recording", "r.jsonl"))
    )
    assert of_database == of_recording


def test_line_1_of_a_rule_has_the_values_on_which_it_fired(run: Run, shared_data: Path) -> None:
    """A mean of ten minutes would be below the threshold. A rule that is off is no able one."""
    recording = shared_data / "vllm-0.32/run_cap"
    rule = "alert: A, when: waiting_requests > 20, severity: page"
    says = "page: {says: ['{waiting_requests}']}"
    Path("r.yaml").write_text(f"groups: [{{name: g, rules: [{{{rule}, {says}}}]}}]")
    written = f"sources: [{{recording: {recording}}}]\nrules: {{files: [r.yaml]"
    Path("driftwatch.yaml").write_text(f"{written}}}\n")
    _, out, err = run("replay", recording, "-c", "driftwatch.yaml", "--no-advice")
    said = [float(text) for text in re.findall(r"FIRING host:8000: ([\d.]+)", out)]
    assert said and min(said) > 20, out + err
    off = "overrides: [{alert: A, enabled: false, reason: nobody minds}]"
    Path("driftwatch.yaml").write_text(f"{written}, {off}}}\n")
    _, out, _ = run("doctor", "-c", "driftwatch.yaml")
    assert "OFF tiny-llama: nobody minds: A" in " ".join(out.split())
