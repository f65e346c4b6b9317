"""Values as JSON documents and back: the one codec of what is stored, printed and read again.

A stored value is a frozen dataclass; its fields are the document's keys, so there is nothing to
write by hand. Name a codec beside the dataclass and use it on both sides::

    VERIFICATION = Codec(Verification)
    document = VERIFICATION.document(verification)  # {"schema_version": 1, "at": "2026-11-22T...Z"}
    again = VERIFICATION.value(document)  # equal to the first, or a DocumentError

Tuples, mappings, named tuples, literals, other dataclasses and aware times work as they are. What a
document has beside the fields (a property, for those who read the JSON) is passed as ``beside`` and
ignored when it is read. Fields are only added, with a default; anything else is a new
``schema_version``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from driftwatch.errors import DocumentError

T = TypeVar("T")


class Document(BaseModel):
    """A noun of driftwatch: stored as such, printed by ``--json``, drawn by templates, and the
    source of its JSON Schema.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def document(self) -> dict[str, Any]:
        """JSON values: base units, times as ISO 8601 with zone, None where unknown."""
        return self.model_dump(mode="json", by_alias=True)

    def text(self) -> str:
        """JSON text with sorted keys: equal values are equal bytes."""
        return to_json(self.document())

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """The value of a stored text.

        Raises DocumentError: a field is missing, unknown, or of another type.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            name = cls.__name__.lower()
            raise DocumentError(f"a {name} cannot be read: {problems_of(error)}") from None


class Codec(Generic[T]):
    """One type of document.

    ``kind``: the dataclass; ``schema_version``: of its form.
    """

    def __init__(self, kind: type[T], schema_version: int = 1) -> None:
        self.kind = kind
        self.schema_version = schema_version

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self.kind)

    def document(self, value: T, **beside: object) -> dict[str, Any]:
        """A value as JSON values: base units, times as ISO 8601 with zone, None where unknown."""
        fields = self._adapter.dump_python(value, mode="json")
        return {"schema_version": self.schema_version, **fields, **beside}

    def value(self, document: Mapping[str, Any]) -> T:
        """The value of a document.

        Raises DocumentError: it has another schema version, lacks a field, or one has another type.
        """
        version = document.get("schema_version")
        name = self.kind.__name__.lower()
        if version != self.schema_version:
            raise DocumentError(
                f"a {name} of schema version {version!r}, this version reads {self.schema_version}"
            )
        try:
            return self._adapter.validate_json(json.dumps(document), strict=True)
        except ValidationError as error:
            raise DocumentError(f"a {name} cannot be read: {problems_of(error)}") from None


def problems_of(error: ValidationError) -> str:
    """What does not fit, each with its place: ``fits.0.law: field required``."""
    return "; ".join(
        ".".join(map(str, one["loc"])) + f": {one['msg'][0].lower()}{one['msg'][1:]}"
        for one in error.errors(include_url=False, include_input=False)
    )


def to_json(value: object) -> str:
    """JSON text with sorted keys: equal values are equal bytes.

    Raises ValueError: it holds NaN or an infinity, which no JSON reader has to take; TypeError: it
    holds what JSON cannot.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
