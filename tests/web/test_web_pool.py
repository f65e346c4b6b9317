"""A pool's page: its servers, one answer, what is not judged yet."""

from __future__ import annotations

from conftest import Recorded
from web_cases import browser, view_of

from driftwatch.web.app import Web
from driftwatch.web.page import near, pool_path


def test_a_pool_has_the_answer_of_its_worst_incident(web: Web, firing: Recorded) -> None:
    client = browser(web)
    name = client.get("/api/v1/targets").json()["rows"][0]["pool"]
    html = client.get(pool_path(name))
    assert html.status_code == 200
    view = view_of(web, pool_path(name))
    assert view["answer"]["path"] == f"/incidents/{firing.incident_id}"
    assert view["answer"]["state"] == "firing"
    assert view["answer"]["text"].replace("→", "") in html.text.replace("→", "")
    (server,) = view["rows"]
    assert (server["state"], server["limit"]) == ("firing", "max_num_seqs")
    assert view["without_baseline"] == 1
    assert {one["what"] for one in view["not_judged"]} == {"speed", "latency targets"}
    assert "of 60 minutes" in html.text or "baseline" in html.text
    assert f'href="{pool_path(name)}"' in client.get("/fleet").text


def test_an_unknown_pool_lists_names_like_it(web: Web) -> None:
    client = browser(web)
    name = client.get("/api/v1/targets").json()["rows"][0]["pool"]
    answer = client.get(pool_path(name[:-1] + "x?"))
    assert answer.status_code == 404
    assert f'<li><a href="{pool_path(name)}">{name}</a></li>' in answer.text


def test_names_like_one_hold_it_or_are_spelt_alike() -> None:
    names = sorted(f"chat-{n}b" for n in range(1000))
    assert near("CHAT-77b", names)[0] == "chat-77b"
    assert "chat-500b" in near("chta-500b", names)
    assert len(near("zzz", names)) == 5
