"""A page of the web: its path, its query, the function that loads its values, its template."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import PackageLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.convertors import PathConvertor, register_url_convertor

from driftwatch import numbers
from driftwatch.errors import DriftwatchError, UsageError
from driftwatch.notify.page import http_url
from driftwatch.notify.path import cause_of, limit_row, path_rows, short_reason
from driftwatch.numbers import clean, cut

if TYPE_CHECKING:
    from driftwatch.web.access import Person
    from driftwatch.web.app import Web
    from driftwatch.web.database import WebStore

MOST_ROWS, MOST_PAGES = 50, 100_000  # of a page: 100 kB at most
LONGEST = timedelta(days=35)  # range of a server's page
OLD_AFTER = timedelta(minutes=5)  # a running service writes a newer minute than that
Row = TypeVar("Row")
Shown = dict[str, Any]  # name → value for a template; ``title`` is the page's


def in_utc(at: datetime) -> datetime:
    """A time from a form or an address; UTC if it names no zone.

    Raises ValueError: it lies outside the years 1970 to 2999.
    """
    if not 1970 <= at.year < 3000:  # the day before and the day after have to be dates, too
        raise ValueError("a time of the years 1970 to 2999")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(in_utc)]


class Query(BaseModel):
    """Parameters of a page's URL, or fields of a form; an unknown one is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


# a field or parameter → its label
IN_WORDS = {
    "hours": "For hours",
    "comment": "The reason or comment",
    "mark": "The mark",
    "from": "From",
    "to": "To",
}
_EXAMPLES = {
    "datetime": "is no time; write it as 2026-11-10T08:04Z",
    "float": "is no number; write it as 1.5",
}
Model = TypeVar("Model", bound=BaseModel)


def parsed(model: type[Model], pairs: Sequence[tuple[str, str]], noun: str) -> Model:
    """Parse parameters or fields; an empty one is absent.

    Raises UsageError: it names each wrong one, and what would be right.
    """
    values: dict[str, Any] = {}
    for name, text in pairs:
        if text != "" and name in values:
            raise UsageError(f"{noun} {clean(name)[:40]!r} stands there twice")
        if "\0" in text:  # PostgreSQL takes none in a text
            raise UsageError(f"{noun} {clean(name)[:40]!r} holds a NUL")
        if text != "":
            values[name] = text.replace("\r\n", "\n")  # browsers send a line break so
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = (_problem(model, one, noun) for one in error.errors()[:5])
        raise UsageError("; ".join(problems)) from None


def _problem(model: type[BaseModel], error: Mapping[str, Any], noun: str) -> str:
    name = str(error["loc"][0]) if error["loc"] else noun
    label = cut(clean(name), 40)
    if error["type"] == "extra_forbidden":
        return f"there is no {noun} {label}"
    kind, _, problem = error["type"].partition("_")
    message = str(error["msg"])
    if problem == "parsing" or kind == "datetime":
        message = _EXAMPLES.get(kind, message)
    if error["type"] == "literal_error":  # an empty one counts as absent
        message = message.removesuffix(" or ''").replace("'", "").replace("be ", "be one of: ", 1)
    message = re.sub("^(Input|String) should", "must", message).removeprefix("Value error, ")
    message = message.replace("Field required", "is missing")
    return f"{IN_WORDS.get(name, f'{noun} {label}')}: {cut(clean(message), 200)}"


class Paged(Query):
    """Parameters of a page that lists."""

    page: Annotated[int, Field(ge=1, le=MOST_PAGES)] = 1
    size: Annotated[int, Field(ge=1, le=MOST_ROWS)] = MOST_ROWS


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: everything that a page or a form may depend on."""

    web: Web
    store: WebStore  # for a page it reads only; every statement sees what is committed
    now: datetime
    path: Mapping[str, str]  # the variable parts of the path
    query: Any  # of the page's or the form's own class
    person: Person | None = None  # None: the reader may not act


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or a document. ``load`` depends on its visit alone; it runs in a thread.

    ``load`` raises NotFound, UsageError (a 400) or StoreError: each becomes a page.
    """

    path: str  # /incidents/{incident_id}
    title: str  # in the navigation, where the path names no incident, server, pool or week
    template: str  # in templates/, extends base.html; empty: the values are sent as JSON
    load: Callable[[Visit], Shown]
    query: type[Query] = Query


@dataclass(frozen=True, slots=True)
class Form:
    """What a page posts; ``act`` does it, then the browser goes to the page above its path.

    ``act`` raises UsageError (a 409: the page again, with the error), NotFound or StoreError.
    """

    path: str  # /incidents/{incident_id}/acknowledge
    fields: type[Query]
    act: Callable[[Visit], None]


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads to a page."""

    text: str
    path: str


class NotFound(DriftwatchError):
    """No page, server, pool, incident or report has this name; ``link``: where to search."""

    def __init__(self, message: str, link: Link) -> None:
        super().__init__(message)
        self.link = link


class Slice(NamedTuple):
    """Which part of a list a page shows."""

    page: int
    pages: int
    rows: int  # in all parts together
    # path and query of the part before and of the next
    before: str | None
    after: str | None


def paged(
    query: Paged, path: str, read: Callable[[int, int], tuple[Sequence[Row], int]]
) -> tuple[Sequence[Row], Slice]:
    """The rows of one part of a list, and which part it is. A part behind the last is the last.

    ``read``: limit and offset → rows, and how many there are in all.
    """
    rows, count = read(query.size, (query.page - 1) * query.size)
    pages = max(1, -(-count // query.size))
    page = min(query.page, pages)
    if page != query.page:
        rows, _ = read(query.size, (page - 1) * query.size)

    def address(number: int) -> str | None:
        if not 1 <= number <= pages:
            return None
        other = query.model_copy(update={"page": number})
        return f"{path}?{urlencode(other.model_dump(mode='json', exclude_defaults=True))}"

    return rows, Slice(page, pages, count, address(page - 1), address(page + 1))


class _NameConvertor(PathConvertor):
    regex = r"[\s\S]*"  # of ``path`` it ends at a new line, which a name may have


register_url_convertor("name", _NameConvertor())
POOL, TARGET = "/pools/{pool:name}", "/targets/{target:name}"


def search(path: str, word: str) -> Link:
    """The link that searches a list for a word."""
    return Link(f"Search for {cut(clean(word), 60)}", f"{path}?{urlencode({'q': word[:200]})}")


def pool_path(name: str) -> str:
    """The address of a pool's page."""
    return f"/pools/{quote(name, safe='/:')}"


def target_path(text: str) -> str:
    """The address of a target's page; ``text``: the text of its key."""
    return f"/targets/{quote(text, safe='/:')}"


# of numbers and texts, as every other screen writes them
_FILTERS = (*("clean", "count", "cut", "duration", "percent", "plural", "squeeze", "utc_text"),)
# a command, a field or a tag, else the space between a number and a percent sign
_KEPT_OR_BREAK = re.compile(r"(<(pre|textarea).*?</\2>|<[^>]*>)|(?<=\d) (?=%)", re.DOTALL)
# characters of one text on a page: a label has no bound of its own
_LONGEST_TEXT = 8_000


@cache
def style_sheet() -> tuple[str, bytes]:
    """The style sheet's name, which changes with its content, and its bytes."""
    css = (files("driftwatch.web") / "static" / "driftwatch.css").read_bytes()
    css += (files("driftwatch.plots") / "plot.css").read_bytes()
    return f"driftwatch-{hashlib.sha256(css).hexdigest()[:12]}.css", css


@cache
def _templates() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=PackageLoader("driftwatch.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters |= {name: getattr(numbers, name) for name in _FILTERS}
    environment.filters |= {
        "web_address": http_url,
        "short_reason": _short,
        "whole": _whole,
        "limit_row": limit_row,
    }
    environment.globals |= {
        "pool_path": pool_path,
        "target_path": target_path,
        "path_rows": path_rows,
        "cause_of": cause_of,
        "percent_range": numbers.percent_range,
    }
    return environment


def html_of(template: str, *, now: datetime, **context: Any) -> str:
    """Render a template; it prints times as every screen does."""

    def moment(at: datetime, beside: datetime = now) -> str:
        """With its date unless it and the moment beside it are of today."""
        return numbers.moment(at, now.date() if beside.date() == now.date() else None)

    def ago(at: datetime | None) -> str:
        """``2 h ago``; empty for a new minute."""
        is_old = at is not None and now - at > OLD_AFTER
        return f"{numbers.duration((now - at).total_seconds())} ago" if is_old and at else ""

    parts = {"now": now, "moment": moment, "ago": ago, "style": style_sheet()[0], **context}
    html = _templates().get_template(template).render(parts)
    # no line breaks between a number and its sign; commands stay as they are
    return _KEPT_OR_BREAK.sub(lambda found: found[1] or "\u00a0", html)


def _harmless(value: object) -> object:
    """A value before it is escaped: cut to a bound, control characters spelt out."""
    if type(value) is not str:  # markup is made of texts that went through here
        return value
    text = cut(value, _LONGEST_TEXT)
    if text.isprintable():
        return text
    return "\n".join(map(clean, text.split("\n")))


def _whole(text: str) -> Markup:
    """The text, in which names and options break only where a line has no room for them."""
    parts = re.split(r"(\S*\w-\S+|--\S+)", str(_harmless(text)))
    return Markup("").join(
        Markup('<span class="w">{}</span>').format(part) if at % 2 else part
        for at, part in enumerate(parts)
    )


def _short(reason: str) -> str:
    """The reason without its remedy and its consequence: JSON has the whole reason."""
    return short_reason(reason).split("; ")[0]
