"""Answers of 2xx that are not the service's: a login page answers 200 too. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from driftwatch.errors import DeliveryError


def json_answer(name: str, text: str, service: str) -> dict[str, Any] | DeliveryError:
    """The answer as a JSON object; else what it means for the message.

    A page of HTML comes from something else at that address: trying again cannot help. An answer
    that is empty or breaks off may have been one: the same message is sent again.
    ``name``: of the receiver; ``text``: of the answer; ``service``: whose answer is wanted.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = None
    return document if isinstance(document, dict) else unexpected(name, text, service)


def unexpected(name: str, text: str, service: str) -> DeliveryError:
    """What an answer means that ``service`` does not give."""
    is_page = text.lstrip("\ufeff \t\r\n").startswith("<")
    return DeliveryError(f"{name} answered, but not as {service} does", permanent=is_page)
