"""PromQL as a tree, and its text: no parenthesis too many, long ones over several lines."""

from __future__ import annotations

from dataclasses import dataclass

# operator → how tightly it binds; all of them from the left
_BINDS = {
    "or": 1, "and": 2, "unless": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
    "+": 4, "-": 4, "*": 5, "/": 5,
}  # fmt: skip
_TIGHTEST = 9
_WIDTH = 88


@dataclass(frozen=True, slots=True)
class Atom:
    """A selector or a number, as written."""

    text: str

    @property
    def size(self) -> int:
        """Nodes of the tree."""
        return 1

    @property
    def is_number(self) -> bool:
        """Whether it is no selector."""
        return not self.text[0].isalpha()


@dataclass(frozen=True, slots=True)
class Call:
    """``head(inner)``: a function, an aggregation, a sign; an empty head is a parenthesis.

    ``tail`` follows ``inner``: the range of a range selector.
    """

    head: str
    inner: Promql
    tail: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.inner.size + 1)


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and what joins them."""

    first: Promql
    sign: str
    second: Promql
    size: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.first.size + self.second.size + 1)


Promql = Atom | Call | Binary


def text_of(query: Promql, width: int = _WIDTH) -> str:
    """The text of a query; what is longer than ``width`` goes over several lines."""
    return "\n".join(_lines(query, width))


def _lines(query: Promql, width: int) -> list[str]:
    flat = _flat(query)
    if len(flat) <= width or isinstance(query, Atom) or _is_plain(query):
        return [flat]
    if isinstance(query, Call):
        head = f"{query.head} (" if query.head else "("
        return [head, *_indented(_lines(query.inner, width - 2)), f"{query.tail})"]
    second = _operand(query.second, query.sign, is_second=True)
    before = _lines(_operand(query.first, query.sign), width)
    first, *rest = _lines(second, width - len(query.sign) - 1)
    return [*before, f"{query.sign} {first}", *rest]


def _is_plain(query: Promql) -> bool:
    """A metric and a constant."""
    if not isinstance(query, Binary):
        return False
    return (
        isinstance(query.first, Atom) and isinstance(query.second, Atom) and query.second.is_number
    )


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _flat(query: Promql) -> str:
    if isinstance(query, Atom):
        return query.text
    if isinstance(query, Call):
        head = f"{query.head} " if " " in query.head else query.head
        return f"{head}({_flat(query.inner)}{query.tail})"
    before = _flat(_operand(query.first, query.sign))
    return f"{before} {query.sign} {_flat(_operand(query.second, query.sign, is_second=True))}"


def _operand(query: Promql, sign: str, *, is_second: bool = False) -> Promql:
    """In a parenthesis where it would else be read otherwise."""
    binds = _BINDS[query.sign] if isinstance(query, Binary) else _TIGHTEST
    if isinstance(query, Binary) and (query.sign, sign) == ("unless", "and"):
        return Call("", query)  # not needed, but nobody knows their order by heart
    # `a and (b and c)` is `a and b and c`
    same = sign in {"and", "or"} if is_second else True
    return query if binds > _BINDS[sign] or (binds == _BINDS[sign] and same) else Call("", query)
