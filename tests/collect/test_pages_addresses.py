"""What else a server of pages answers, and what its address may be."""

from __future__ import annotations

import socket

import pytest
from page_servers import (
    answer,
    serving,
)

from driftwatch.collect.http import address_of
from driftwatch.collect.pages import PagesSource
from driftwatch.errors import UsageError
from driftwatch.model import Fingerprint

# --- beside the page


NOTHING = Fingerprint()
VERSION = Fingerprint(release={"vllm": "0.32.0"})
# of vLLM 0.32 (entrypoints/openai/models/protocol.py), with an adapter before its model
MODELS = b"""{"object": "list", "data": [
  {"id": "sql", "root": "/adapters/sql", "parent": "chat", "max_model_len": null},
  {"id": "chat", "root": "Qwen/Qwen2.5-7B-Instruct", "parent": null, "max_model_len": 16384}]}"""


def test_release_and_model_are_asked_once_and_again_after_a_restart() -> None:
    asked: list[str] = []

    def behave(connection: socket.socket, path: str) -> None:
        asked.append(path)
        body = MODELS if path.endswith("/models") else b'{"version":"0.32.0"}'
        answer(body)(connection, path)

    with serving(behave) as address, serving(answer(b"{}", "404 Not Found")) as none:
        source = PagesSource([f"http://{address}/v/metrics", none])
        told = Fingerprint(
            {"model": "Qwen/Qwen2.5-7B-Instruct"}, {"max_model_len": "16384"}, {"vllm": "0.32.0"}
        )
        for _ in range(2):
            assert source.reports() == {address: told, none: NOTHING}
        assert asked == ["/v/version", "/v/v1/models"]
        source.forget([address])
        assert source.reports()[address] == told
        assert len(asked) == 4
        source.close()


# --- addresses


@pytest.mark.parametrize(
    ("url", "instance"),
    [
        ("gpu-1", "gpu-1:80"),
        ("gpu-1:8000", "gpu-1:8000"),
        ("https://gpu-1", "gpu-1:443"),
        ("http://[::1]:8000/metrics", "[::1]:8000"),
        ("http://user:secret@gpu-1:8000/metrics", "gpu-1:8000"),
    ],
)
def test_the_name_of_an_instance(url: str, instance: str) -> None:
    assert address_of(url).instance == instance


@pytest.mark.parametrize("url", ["ftp://a:1", "http://a:99999", ""])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        PagesSource([url])


def test_two_addresses_of_one_name() -> None:
    with pytest.raises(UsageError, match="already an address with the instance name 'a:1'"):
        PagesSource(["a:1", "http://a:1/other"])
    with pytest.raises(UsageError, match="no address"):
        PagesSource([])
