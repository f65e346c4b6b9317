"""``driftwatch web`` as it is started, and its OpenAPI document."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from conftest import Recorded
from jsonschema import Draft202012Validator
from web_cases import TOKEN, browser

from driftwatch.web.context import Web
from driftwatch.web.openapi import json_path
from driftwatch.web.registry import forms, pages

CONFIGURATION = """\
sources: [{pages: [http://127.0.0.1:9/metrics]}]
database: driftwatch.db
external_url: https://ops.example
web: {listen: "127.0.0.1:0", token_file: web.token}
"""


def test_it_serves_until_it_is_told_to_stop(copied: Recorded, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(CONFIGURATION)
    (tmp_path / "web.token").write_text(TOKEN)
    command = [sys.executable, "-m", "driftwatch", "web"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stderr is not None
        line = next(text for text in process.stderr if "serving" in text)
        found = re.search(r"pages=(http://127\.0\.0\.1:[1-9]\d*/)", line)
        assert found is not None, line
        page = httpx.get(f"{found[1]}incidents/{copied.incident_id}", follow_redirects=True)
        assert page.status_code == 200 and "Sign in to act" in page.text
        assert "server" not in page.headers
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(20) == 0, rest
    assert "stopped" in rest and TOKEN not in line + rest


def test_the_document_has_every_page_and_form_and_its_schemas_hold(
    web: Web, firing: Recorded
) -> None:
    client = browser(web)
    document = client.get("/openapi.json").json()
    paths = {path for path, verbs in document["paths"].items() if "get" in verbs}
    assert paths == {json_path(page) for page in pages()}
    assert sum("post" in verbs for verbs in document["paths"].values()) == len(forms())
    for path, name in (
        ("/fleet.json", "FleetView"),
        (f"/incidents/{firing.incident_id}.json", "IncidentView"),
        ("/incidents/zz.json", "Refused"),
    ):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(schema).validate(client.get(path).json())
    assert json.dumps(document).count("Traceback") == 0
