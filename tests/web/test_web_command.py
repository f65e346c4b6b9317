"""``driftwatch web`` as it is started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from recorded_cases import Recorded
from web_cases import TOKEN

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
