"""Nouns as JSON documents and back: what is stored, printed, drawn and sent.

Fields are only added, with a default; anything else is a new ``schema_version`` of the noun.
"""

from __future__ import annotations

import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from driftwatch.errors import DocumentError


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
