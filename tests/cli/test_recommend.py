"""``driftwatch recommend`` on the recorded server: from the recording, and from a store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from command_cases import Run
from made_incidents import incident_of

import driftwatch
from driftwatch.cli.target import chosen_target
from driftwatch.collect.startup import from_arguments
from driftwatch.errors import UsageError
from driftwatch.model import Target, TargetKey
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord

# a real vLLM 0.32: max_num_seqs 8 binds from 08:18 on, a restart with 64 at 08:31
RECORDED = Path(driftwatch.__file__).parent / "_demo" / "run_cap.jsonl.gz"
BOUND = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
TARGET = "host:8000"


def test_the_bound_server_is_told_to_raise_its_cap(run: Run) -> None:
    asked = ("--at", BOUND.isoformat(), "--json", "--what-if", "max-num-seqs=24")
    code, out, err = run("recommend", "--recording", RECORDED, *asked)
    assert code == 0, err
    answer = json.loads(out)
    said = answer["advice"]
    (move,) = said["moves"]
    assert (said["action"], move["knob"]) == ("change", "max_num_seqs")
    assert (move["from_value"], move["from_provenance"]) == (8, "inferred")
    # 64, which somebody set afterwards, cleared the queue; 10 requests a second need 12 at least
    assert 16 <= move["to_value"] <= 64
    assert said["basis"] == "simulation"
    (argument,) = answer["change"]["vllm_arguments"]
    read = from_arguments(["vllm", "serve", "m", argument]).serving.max_num_seqs
    assert read is not None
    assert read.value == move["to_value"]
    assert {"max_num_seqs": 24.0} in [one["knobs"] for one in answer["what_ifs"]]
    assert answer["gain"]["mean"] >= 0.04
    assert answer["schema_version"] == 2
    assert answer["target"]["instance"] == TARGET


def test_too_little_traffic_is_no_verdict_and_says_what_helps(run: Run) -> None:
    asked = ("recommend", "--recording", RECORDED, "--at", "2026-11-21T08:22Z")
    code, out, _ = run(*asked, "--window", "2m", "--max-num-seqs", "8")
    assert code == 4
    few = "needs 3 minutes with requests since 08:20 UTC, has 2. Give a longer window"
    assert out.startswith(f"No advice for host:8000: {few}")
    assert "vLLM  " not in out


@pytest.mark.parametrize("at", ["2026-11-20T00:00Z", "2027-01-01T00:00Z"])
@pytest.mark.parametrize("verb", ["recommend", "explain"])
def test_a_time_without_data_is_refused_with_what_there_is(run: Run, verb: str, at: str) -> None:
    code, out, err = run(verb, "--recording", RECORDED, "--at", at)
    assert (code, out) == (4, f"NO VERDICT: --at {at}: nothing was scraped then\n")
    assert "help: scrapes reach from " in err and "to 2026-11-21T08:48Z\n" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slo", "ttft=1"), "'ttft=1': 1 is not a duration"),
        (("--slo", "ttft=1s,share=1"), "'share=1' is out of range"),
        (("--slo", "ttf=1s"), "no target 'ttf'; did you mean ttft?"),
        (("--window", "10s"), "--window 10s holds no whole minute"),
    ],
)
def test_what_cannot_be_asked(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("recommend", TARGET, *arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


def test_every_wrong_what_if_is_named_at_once(run: Run) -> None:
    texts = ("max_num_seq=5", "replicas=0", "prefix_hit_ratio=2", "max_num_seqs", "replicas=x")
    code, _, err = run("recommend", *(part for text in texts for part in ("--what-if", text)))
    assert code == 2
    for said in (
        "did you mean max_num_seqs?",
        "replicas is a whole number of 1 or more, not '0'",
        "prefix_hit_ratio is between 0 and 1, not '2'",
        "'max_num_seqs' is no KNOB=VALUE",
        "not 'x'",
    ):
        assert said in err


def test_of_a_pool_the_server_with_the_longest_queue_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    queues = {"a:1": 3.0, "b:1": 40.0, "c:1": 7.0}
    end = BOUND.replace(second=0, microsecond=0)
    made = [
        {
            "instance": instance,
            "engine": "0",
            "end": end - timedelta(minutes=age),
            "scrapes": 4.0,
            "waiting_requests": queue,
        }
        for instance, now in queues.items()
        # the longest queue of all was long ago
        for age, queue in ((60, 99.0 if instance == "c:1" else 0.0), (2, now))
    ]
    keys = [TargetKey(instance, "0") for instance in queues]
    targets = {key: Target(key, {}, "chat") for key in keys}
    with Store.in_memory() as store:
        assert chosen_target("chat", targets, store, end).key.instance == "a:1"
        minutes = pl.DataFrame(made, schema=STORED_SCHEMA)
        store.commit_tick(TickRecord(until=end, minutes=minutes))
        assert chosen_target("chat", targets, store, end).key.instance == "b:1"
        assert "chat: b:1 is shown, with the longest queue of its 3" in capsys.readouterr().err
        assert chosen_target("c:1", targets, store, end).key.instance == "c:1"
        # a slow or stuck server has no long queue: an open page comes first
        page = incident_of("a", pool="chat", servers=("a:1", "c:1"), at=end - timedelta(minutes=1))
        own = incident_of("b", pool="chat", servers=("b:1",), rule="Y", at=page.started_at)
        store.commit_tick(TickRecord(until=end, incidents=(own, page)))
        # of a pool the page of several servers
        assert chosen_target("chat", targets, store, end).key.instance == "c:1"
        with pytest.raises(UsageError, match="name a server or a pool"):
            chosen_target(None, targets, store, end)
