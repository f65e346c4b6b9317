"""The OpenAPI document tells the truth: real answers of every path are as it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from conftest import Recorded
from jsonschema import Draft202012Validator
from operation_cases import every_state, stuck_outbox
from starlette.testclient import TestClient
from web_cases import BEARER, VARIABLES, browser, keep_forecast

from driftwatch.model import TargetKey
from driftwatch.store import Store
from driftwatch.web.context import Web

# what a form is sent, by its path's end
SENT = {
    "acknowledge": {"comment": "on it"},
    "unacknowledge": {},
    "silence": {"hours": "2"},
    "mark": {"mark": "useful"},
    "note": {"comment": "seen"},
    "what-if": {"max_num_seqs": "64"},
    "add": {"matchers": "pool=x"},
    "expire": {},
    "accept": {
        "of": "host:8000",
        "since": "2026-11-21T08:22:00Z",
        "until": "2026-11-21T08:30:00Z",
    },
}


@pytest.fixture
def client(web: Web, opened: Callable[[], Store], firing: Recorded) -> TestClient:
    """A client on a database that has something for every page."""
    with opened() as store:
        every_state(store, firing.now)
        stuck_outbox(store, firing.now)
    keep_forecast(web, firing.incident_id, TargetKey("host:8000", "0"), firing.now)
    return browser(web)


def _path(path: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"{(\w+)}", lambda found: variables[found[1]], path)


def _require_valid(document: Any, operation: Any, answer: Any) -> None:
    """The answer is one of those that the operation has."""
    responses = operation["responses"]
    one = responses.get(str(answer.status_code), responses["default"])
    kind = answer.headers["content-type"].partition(";")[0]
    schema = {**one["content"][kind]["schema"], "components": document["components"]}
    text = answer.json() if kind == "application/json" else answer.text
    problems = [
        f"{e.json_path}: {e.message}"[:200] for e in Draft202012Validator(schema).iter_errors(text)
    ]
    assert problems == [], (str(answer.request.url), problems)


def test_every_page_answers_as_the_document_says(client: TestClient, firing: Recorded) -> None:
    document = client.get("/openapi.json").json()
    variables = VARIABLES | {"incident_id": firing.incident_id}
    gets = {path: one["get"] for path, one in document["paths"].items() if "get" in one}
    for path, operation in gets.items():
        known = _path(path, variables)
        answer = client.get(known)
        assert answer.status_code == 200, answer.text
        _require_valid(document, operation, answer)
        _require_valid(document, operation, client.get(f"{known}?nonsense=1"))
        _require_valid(document, operation, client.get(known, headers={"Host": "evil.example"}))
        # a parameter that the document has is one, with every value that it lists
        for one in operation["parameters"]:
            if one["in"] == "query":
                for value in one["schema"].get("enum", ())[:20]:
                    found = client.get(known, params={one["name"]: value})
                    assert found.status_code == 200, (known, one["name"], value)
                    _require_valid(document, operation, found)
        if "{" in path:
            lost = client.get(_path(path, dict.fromkeys(variables, "nothing")))
            assert lost.status_code == 404, path
            _require_valid(document, operation, lost)


def test_every_form_answers_as_the_document_says(client: TestClient, firing: Recorded) -> None:
    document = client.get("/openapi.json").json()
    posts = {path: one["post"] for path, one in document["paths"].items() if "post" in one}
    first = client.post("/silences/add", data={"matchers": "pool=y"}, headers=BEARER)
    assert first.status_code == 200
    (silence,) = client.get("/silences.json").json()["rows"]
    variables = VARIABLES | {"incident_id": firing.incident_id, "silence_id": silence["silence_id"]}
    order = list(SENT)
    for path in sorted(posts, key=lambda one: order.index(one.rpartition("/")[2])):
        fields, known = SENT[path.rpartition("/")[2]], _path(path, variables)
        done = client.post(known, data=fields, headers=BEARER)
        # nothing of this recording is fit for a baseline
        assert done.status_code == (409 if path.endswith("accept") else 200), done.text
        body = posts[path]["requestBody"]["content"]["application/x-www-form-urlencoded"]
        named = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
        assert set(fields) <= set(named["properties"])
        for answer in (
            done,
            client.post(known, data={"nonsense": "1"}, headers=BEARER),
            client.post(known, data=fields, headers={"Accept": "application/json"}),
            client.post(known, content=b"x" * 70_000, headers=BEARER),
        ):
            _require_valid(document, posts[path], answer)
