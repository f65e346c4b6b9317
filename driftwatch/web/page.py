"""What a page of the web is: a path, a typed view, and the pure function that makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from driftwatch.plots.plot import Plot
    from driftwatch.web.context import Web
    from driftwatch.web.database import WebStore
    from driftwatch.web.people import Person


def in_utc(at: datetime) -> datetime:
    """A time that somebody wrote, UTC where it names no zone.

    Raises ValueError: it is none of the years 1970 to 2999.
    """
    if not 1970 <= at.year < 3000:  # what lies around it must be a date, too
        raise ValueError("a time of the years 1970 to 2999")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(in_utc)]


class Part(BaseModel):
    """A part of a view: what is unknown is null beside its reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(Part):
    """What a page shows, as a template draws it and as the API has it.

    Its other fields are the page's own: values, rows and models; what is unknown is null.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    schema_version: Literal[2] = 2
    title: str  # what the page is about, in a few words

    @classmethod
    def of(cls, title: str, **parts: object) -> View:
        """A view with these fields."""
        return cls.model_validate({"title": title, **parts})


class Query(BaseModel):
    """Parameters of a page's URL; another one is refused with its nearest name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a page: all that its view may be made of."""

    web: Web
    store: WebStore  # reads only; every statement sees what is committed
    now: datetime
    path: Mapping[str, str]  # the variable parts of the path
    query: Any  # of the page's own class
    person: Person | None = None  # who looks, None = nobody that may act


@dataclass(frozen=True, slots=True)
class Page:
    """One page. ``load`` decides nothing but by its visit; it runs in a thread.

    Raises NotFound, UsageError (a 400), NoVerdict or StoreError: each becomes a page.
    """

    path: str  # /incidents/{incident_id}
    title: str  # in the navigation
    template: str  # in templates/, extends base.html
    load: Callable[[Visit], View]
    query: type[Query] = Query
    place: int | None = None  # in the navigation, None = not there
    api: str | None = None  # path of its JSON below /api/v1, None = it has none
    # what the template draws besides, by name: plots and markup; numbers stay in the view
    plots: Callable[[Any], Mapping[str, Plot | str]] = field(default=lambda view: {})


class Fields(BaseModel):
    """Fields of a form, besides those that every form has."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


@dataclass(frozen=True, slots=True)
class Deed:
    """One form that somebody sent."""

    store: WebStore  # may be written to
    path: Mapping[str, str]
    person: Person
    request_id: str
    now: datetime


class Done(Part):
    """What came of a form."""

    schema_version: Literal[1] = 1
    done: bool = Field(description="whether this request did it; false: it was done before")
    text: str = Field(description="what holds now, in a sentence")
    location: str = Field(description="path of the page that shows it")


@dataclass(frozen=True, slots=True)
class Form:
    """What a page posts; ``act`` is audited by what it writes, and sent twice it is done once.

    Raises UsageError (a 409: it cannot be done as things stand), NotFound or StoreError.
    """

    path: str  # /incidents/{incident_id}/acknowledge
    title: str
    fields: type[Fields]
    act: Callable[[Deed, Any], Done]


class Link(Part):
    """A text that leads to a page."""

    text: str
    path: str


class Refused(View):
    """A page that says what is wrong, and what helps."""

    status: int
    message: str
    help: str | None = None
    near: tuple[Link, ...] = ()


class NotFound(Exception):
    """There is no such thing; ``near``: links to things of a name like it."""

    def __init__(self, message: str, near: tuple[Link, ...] = ()):
        super().__init__(message)
        self.message, self.near = message, near
