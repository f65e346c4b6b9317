"""Parts of a long list: bounded, and in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from pydantic import Field

from driftwatch.web.page import Part, Query

MOST_ROWS, MOST_PAGES = 200, 100_000
Row = TypeVar("Row")

PageNumber = Annotated[int, Field(ge=1, le=MOST_PAGES, description="which part of the list")]
PageSize = Annotated[int, Field(ge=1, le=MOST_ROWS, description="rows of a part")]


class Paged(Query):
    """Parameters of a page that lists."""

    page: PageNumber = 1
    size: PageSize = 50


class Slice(Part):
    """Which part of a list this is."""

    page: int
    pages: int
    size: int
    rows: int = Field(description="of all parts together")
    # of the same list: path and query of the part before and of the next
    before: str | None = None
    after: str | None = None


def part_of(rows: Sequence[Row], query: Paged, path: str) -> tuple[Sequence[Row], Slice]:
    """The rows of one part, and which it is; a part behind the last is the last."""
    piece = sliced(len(rows), query, path)
    first = (piece.page - 1) * piece.size
    return rows[first : first + piece.size], piece


def sliced(count: int, query: Paged, path: str) -> Slice:
    """Which part of ``count`` rows is wanted, with the addresses of its neighbours."""
    pages = max(1, -(-count // query.size))
    page = min(query.page, pages)
    return Slice(
        page=page,
        pages=pages,
        size=query.size,
        rows=count,
        before=address(path, query, page=page - 1) if page > 1 else None,
        after=address(path, query, page=page + 1) if page < pages else None,
    )


def address(path: str, query: Query, **changes: object) -> str:
    """The path with the query's parameters that are not usual, some of them changed.

    >>> address("/fleet", Paged(size=20), page=3)
    '/fleet?page=3&size=20'
    """
    usual: Mapping[str, object] = type(query)().model_dump(mode="json")
    wanted = {**query.model_dump(mode="json"), **changes}
    named = {name: value for name, value in wanted.items() if value != usual.get(name)}
    ordered = {name: named[name] for name in wanted if name in named}
    return f"{path}?{urlencode(ordered)}" if ordered else path
