from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import polars as pl
import pytest

from driftwatch.documents import Codec, to_json
from driftwatch.errors import DocumentError

AT = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)


class Minutes(NamedTuple):
    before: int
    after: int


NONE = Minutes(0, 0)


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    size: float | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    at: datetime
    verdict: Literal["PASS", "FAIL"]
    parts: tuple[Part, ...]
    minutes: Minutes = NONE
    note: str = ""


WHOLE = Codec(Whole, schema_version=3)
VALUE = Whole(AT, "PASS", (Part("a", 1.5), Part("b")), Minutes(10, 20))


def test_a_document_has_the_fields_as_json() -> None:
    document = WHOLE.document(VALUE, ratio=0.5)
    assert document["schema_version"] == 3
    assert document["at"] == "2026-11-22T09:30:00Z"
    assert document["parts"] == [{"name": "a", "size": 1.5}, {"name": "b", "size": None}]
    assert document["ratio"] == 0.5


def test_a_value_comes_back_whatever_stands_beside_its_fields() -> None:
    found = WHOLE.value(WHOLE.document(VALUE, ratio=0.5))
    assert found == VALUE
    assert found.minutes.after == 20
    assert pl.DataFrame({"at": [found.at]})["at"][0] == AT


def test_a_field_that_was_added_has_its_default() -> None:
    document = WHOLE.document(VALUE)
    del document["note"]
    assert WHOLE.value(document) == VALUE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 4}, "a whole of schema version 4, this version reads 3"),
        ({"schema_version": None}, "a whole of schema version None, this version reads 3"),
        ({"verdict": "GREAT"}, "a whole cannot be read: verdict: input should be 'PASS' or 'FAIL'"),
        (
            {"parts": [{"size": "1"}], "at": None},
            "a whole cannot be read: at: input should be a valid datetime; "
            "parts.0.name: field required; parts.0.size: input should be a valid number",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        WHOLE.value({**WHOLE.document(VALUE), **change})
    assert str(caught.value) == message


def test_json_is_sorted_and_finite() -> None:
    assert to_json({"b": 1, "a": "×"}) == '{"a": "×", "b": 1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(WHOLE.document(Whole(AT, "PASS", (Part("a", float("inf")),))))
