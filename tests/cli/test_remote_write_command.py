"""driftwatch remote-write: a section for Prometheus, and addresses that nothing listens at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

Run = Callable[..., tuple[int, str, str]]
URL = "http://driftwatch:9464/api/v1/write"


def test_every_address_has_its_share(run: Run) -> None:
    code, out, _ = run("remote-write", URL, URL.replace("driftwatch", "other"))
    assert code == 0
    assert [one["url"].split("/")[2] for one in yaml.safe_load(out)["remote_write"]] == [
        "driftwatch:9464",
        "other:9464",
    ]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("9464", "not a URL such as"),
        ("ftp://driftwatch/api/v1/write", "only http:// and https://"),
        ("http://a:b@driftwatch:9464/api/v1/write", "no user or password"),
        ("http://driftwatch:9464", "takes samples at /api/v1/write"),
    ],
)
def test_an_address_that_takes_nothing_is_refused(run: Run, url: str, why: str) -> None:
    code, out, words = run("remote-write", URL, url)
    assert (code, out) == (2, "")
    assert why in words
    assert f"help: driftwatch remote-write {URL}" in words
