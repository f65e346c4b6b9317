"""A receiver of page JSON on the loopback: it refuses a page its schema does not know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

from driftwatch.receivers.webhook import (
    IDEMPOTENCY_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    signature,
)
from fakes.loopback import Answer, LoopbackServer, Request

HOOK_PATH = "/hooks/canary-webhook-token"

_LARGEST = 256 * 1024


class WebhookServer(LoopbackServer):
    """Takes pages at :attr:`url`.

    Args:
        schema: the page's JSON schema; a page that fails it is refused with 422.
        secret: key of the signature; without a right one a page is refused with 401.

    Attributes:
        accepted: pages taken, in order; a repeated delivery is taken once more but kept once.
    """

    def __init__(self, schema: Mapping[str, Any], secret: bytes | None = None) -> None:
        super().__init__()
        Draft202012Validator.check_schema(schema)
        self._validator = Draft202012Validator(schema)
        self._secret = secret
        self._seen: set[str] = set()
        self.accepted: list[Mapping[str, Any]] = []

    @property
    def url(self) -> str:
        return self.address + HOOK_PATH

    def judge(self, request: Request) -> Answer:
        if request.method != "POST":
            return Answer(405, "POST only")
        if request.path != HOOK_PATH:
            return Answer(404, "no such hook")
        if request.headers.get("content-type") != "application/json":
            return Answer(415, "application/json only")
        if len(request.body) > _LARGEST:
            return Answer(413, "too large")
        if self._secret is not None:
            sent_signature = request.headers.get(SIGNATURE_HEADER.lower())
            at = request.headers.get(TIMESTAMP_HEADER.lower(), "").encode()
            if sent_signature != signature(at + b"." + request.body, self._secret):
                return Answer(401, "wrong signature")
        key = request.headers.get(IDEMPOTENCY_HEADER.lower())
        if not key:
            return Answer(400, "no idempotency key")
        try:
            page = json.loads(request.body)
        except ValueError:
            return Answer(400, "not JSON")
        for wrong in self._validator.iter_errors(page):
            return Answer(422, f"{wrong.json_path}: {wrong.message}")
        if key not in self._seen:
            self._seen.add(key)
            self.accepted.append(page)
        return Answer(204)
