"""A pool's page: its servers over the same minutes, one answer, what is not judged yet."""

from __future__ import annotations

import polars as pl
from conftest import Recorded
from web_cases import browser

from driftwatch.model import TargetKey
from driftwatch.web.context import Web
from driftwatch.web.paths import near, pool_path
from driftwatch.web.side_by_side import side_by_side


def test_a_pool_has_the_answer_of_its_worst_incident(web: Web, firing: Recorded) -> None:
    client = browser(web)
    (name,) = client.get("/fleet.json").json()["pools"]
    html = client.get(pool_path(name))
    assert html.status_code == 200
    view = client.get(f"{pool_path(name)}.json").json()
    assert view["answer"]["path"] == f"/incidents/{firing.incident_id}"
    assert view["answer"]["state"] == "firing"
    assert view["answer"]["text"].replace("→", "") in html.text.replace("→", "")
    (server,) = view["rows"]
    assert server["minutes"] == 10
    assert server["requests_per_forward_pass"]["value"] > 1
    assert server["tokens_per_second_per_gpu"] == {
        "value": None,
        "reason": "no GPU count: gpus_per_replica not declared, no GPU joined to the target",
        "upper": None,
    }
    assert view["without_baseline"] == 1
    assert {one["what"] for one in view["not_judged"]} == {"speed", "latency targets"}
    assert "of 60 minutes" in html.text or "baseline" in html.text
    assert f'href="{pool_path(name)}"' in client.get("/fleet").text


def test_an_unknown_pool_lists_names_like_it(web: Web) -> None:
    client = browser(web)
    (name,) = client.get("/fleet.json").json()["pools"]
    answer = client.get(pool_path(name[:-1] + "x?"), headers={"Accept": "application/json"})
    assert answer.status_code == 404
    assert [one["text"] for one in answer.json()["near"]] == [name]


def test_names_like_one_hold_it_or_are_spelt_alike() -> None:
    names = sorted(f"chat-{n}b" for n in range(1000))
    assert near("CHAT-77b", names)[0] == "chat-77b"
    assert "chat-500b" in near("chta-500b", names)
    assert len(near("zzz", names)) == 5


def test_means_are_of_what_both_minutes_know() -> None:
    key, silent = TargetKey("a:8000", "0"), TargetKey("b:8000", "0")
    empty = dict.fromkeys(
        (
            *("queue_seconds_sum", "queue_seconds_count", "prompt_tokens_sum"),
            *("prompt_tokens_count", "generation_tokens_sum", "generation_tokens_count"),
            *("ttft_seconds_sum", "gpu_count"),
        ),
        None,
    )
    rows = [
        {"itl_seconds_count": 90.0, "ttft_seconds_count": 10.0, "forward_passes": 10.0},
        {"itl_seconds_count": 999.0, "ttft_seconds_count": 1.0, "forward_passes": None},
    ]
    minutes = pl.DataFrame(
        [
            {
                "instance": key.instance,
                "engine": key.engine,
                "scrapes": 2.0,
                "duration_seconds": 60.0,
                "generation_tokens_total": 600.0,
                "restarted": False,
                "configuration_changed": None,
                **empty,
                **row,
            }
            for row in rows
        ],
        schema_overrides=dict.fromkeys(empty, pl.Float64),
    )
    first, other = side_by_side(minutes, [key, silent]).to_dicts()
    assert first["requests_per_forward_pass"] == 10.0
    assert first["tokens_per_second_per_gpu"] is None  # nobody counted the GPUs
    assert (first["minutes"], first["changed"]) == (2, False)
    assert other["minutes"] is None and other["requests_per_forward_pass"] is None
