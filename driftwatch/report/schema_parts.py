"""What every part of the weekly report's JSON schema is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Time = Annotated[
    str, Field(title="time", pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{3})?Z$")
]
WeekName = Annotated[str, Field(title="week name", pattern=r"^\d{4}-W\d{2}$")]
Severity = Literal["page", "ticket", "notice"]
Ratio = Annotated[float, Field(ge=0)]


class ReportPart(BaseModel):
    """A part of the document; a reader ignores fields that it does not know."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)
