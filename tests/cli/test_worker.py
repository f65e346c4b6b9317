"""``driftwatch worker``: what a task begins with."""

from __future__ import annotations

from pathlib import Path

from driftwatch.cli.worker import configured
from driftwatch.settings import load_settings

SETTINGS = "sources: [{prometheus: 'http://p:9090'}]\n"


def test_a_task_begins_with_the_settings_of_that_moment(tmp_path: Path) -> None:
    config = tmp_path / "driftwatch.yaml"
    config.write_text(SETTINGS)
    now = configured(config, load_settings(config))
    assert now()[0].external_url is None
    config.write_text(f"{SETTINGS}external_url: http://driftwatch.test\n")
    assert now()[0].external_url == "http://driftwatch.test"
    for wrong in ("external_url: [1]\n", "sources: ["):
        config.write_text(wrong)
        assert now()[0].external_url == "http://driftwatch.test"
    config.unlink()
    assert now()[0].external_url == "http://driftwatch.test"
    config.write_text(SETTINGS)
    assert now()[0].external_url is None
