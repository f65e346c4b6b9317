from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import pytest

from driftwatch.documents import Document, to_json
from driftwatch.errors import DocumentError

AT = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    size: float | None = None


class Whole(Document):
    at: datetime
    verdict: Literal["PASS", "FAIL"]
    parts: tuple[Part, ...]
    note: str = ""


VALUE = Whole(at=AT, verdict="PASS", parts=(Part("a", 1.5), Part("b")))


def test_a_value_is_its_document_and_comes_back() -> None:
    document = VALUE.document()
    assert document["at"] == "2026-11-22T09:30:00Z"
    assert document["parts"] == [{"name": "a", "size": 1.5}, {"name": "b", "size": None}]
    assert Whole.read(VALUE.text()) == VALUE
    del document["note"]  # a field that was added since has its default
    assert Whole.read(to_json(document)) == VALUE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "GREAT"}, "verdict: input should be 'PASS' or 'FAIL'"),
        ({"more": 1}, "more: extra inputs are not permitted"),
        (
            {"parts": [{"size": "x"}], "at": None},
            "at: input should be a valid datetime; parts.0.name: field required; "
            "parts.0.size: input should be a valid number, unable to parse string as a number",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Whole.read(json.dumps({**VALUE.document(), **change}))
    assert str(caught.value) == f"a whole cannot be read: {message}"


def test_json_is_sorted_and_finite() -> None:
    assert to_json({"b": 1, "a": "×"}) == '{"a": "×", "b": 1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({"x": float("inf")})
