"""YAML files with the place of every key and value, and without YAML's dangerous parts.

Only what a configuration needs is read: mappings with text keys, sequences and scalars. Anchors,
aliases, tags, merge keys, duplicate keys and further documents are problems, files over 1 MiB and
50 levels are not read. Nothing is constructed but text, numbers, true/false and null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import ScalarNode

from driftwatch.errors import Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 50

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # what ruamel counts as one
_SCALAR_TAGS = {
    "tag:yaml.org,2002:" + name: name for name in ("null", "bool", "int", "float")
}  # the rest (timestamps too) stays text

Value = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in its file: 1-based line and column, and its length there."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value."""

    place: Place  # where it stands
    value: Value  # null, true/false, a number or text
    raw: str = ""  # its source text, quotes and indentation included


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence."""

    place: Place
    items: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping: key → (place of the key, node)."""

    place: Place
    entries: dict[str, tuple[Place, Node]] = field(default_factory=dict)


Node = Scalar | Items | Entries


@dataclass(slots=True)
class YamlFile:
    """A file as read."""

    path: str  # as the user named it
    lines: list[str] = field(default_factory=list)  # its text
    # None where the file is empty or cannot be read on (then there is a problem)
    root: Node | None = None
    # what is wrong with it as YAML; later checks append theirs
    problems: list[Problem] = field(default_factory=list)

    def add(self, place: Place, code: str, message: str, help_text: str | None = None) -> None:
        """Note a problem at a place of this file."""
        inside = 0 < place.line <= len(self.lines)
        source = self.lines[place.line - 1] if inside else None
        self.problems.append(
            Problem(
                self.path,
                place.line,
                place.column,
                code,
                message,
                help_text,
                source,
                place.length,
            )
        )

    def inside(self, scalar: Scalar, line: int, column: int, length: int) -> Place:
        """The place of a (1-based) position inside a text value, whatever its YAML style."""
        text = scalar.value if isinstance(scalar.value, str) else scalar.raw
        offset = sum(len(before) + 1 for before in text.split("\n")[: line - 1]) + column - 1
        start_offset = _source_offset(scalar.raw, text, offset)
        before = _LINE_BREAK.split(scalar.raw[:start_offset])
        last = before[-1]
        start = scalar.place.column if len(before) == 1 else 1
        return Place(scalar.place.line + len(before) - 1, start + len(last), length)


def read_yaml(path: Path) -> YamlFile:
    """Read one file; every problem is in the answer, nothing is raised."""
    file = YamlFile(str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        file.problems.append(_whole(file.path, "unreadable", f"cannot be read: {reason}"))
        return file
    if len(data) > MAX_BYTES:
        message = f"the file is over {MAX_BYTES >> 20} MiB"
        file.problems.append(_whole(file.path, "too-large", message))
        return file
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        lines = _LINE_BREAK.split(before)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        file.problems.append(
            Problem(file.path, len(lines), len(lines[-1]) + 1, "encoding", message)
        )
        return file
    return parse_yaml(text, str(path))


def parse_yaml(text: str, path: str) -> YamlFile:
    """The same for a text; ``path`` is what problems call it."""
    file = YamlFile(path, _LINE_BREAK.split(text))
    yaml = YAML(typ="safe", pure=True)
    try:
        file.root = _Composer(file, text, yaml).document(yaml.parse(text))
    except _TooDeep as error:
        file.add(error.place, "too-deep", f"nested more than {MAX_DEPTH} levels")
    except MarkedYAMLError as error:
        _add_yaml_error(file, error)
    except (YAMLError, RecursionError) as error:
        position = getattr(error, "position", None)
        place = _place_of(text, position) if isinstance(position, int) else Place(1, 1)
        reason = str(getattr(error, "reason", None) or type(error).__name__)
        file.add(place, "yaml", f"this cannot stand in a YAML file ({reason})")
    return file


def plain(node: Node | None) -> object:
    """The value without places: dicts, lists and scalars."""
    match node:
        case Entries():
            return {name: plain(child) for name, (_, child) in node.entries.items()}
        case Items():
            return [plain(child) for child in node.items]
        case Scalar():
            return node.value
    return None


class _TooDeep(Exception):
    def __init__(self, place: Place) -> None:
        self.place = place


class _Composer:
    """Events → nodes, noting what is not wanted."""

    def __init__(self, file: YamlFile, text: str, yaml: YAML) -> None:
        self.file = file
        self.text = text
        self.resolve = yaml.resolver.resolve

    def document(self, events: Iterator[Event]) -> Node | None:
        """The first document; a second one is a problem."""
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a second document starts here"
                    self.file.add(_place(event), "documents", message, "one document per file")
                    break
            elif isinstance(
                event, AliasEvent | ScalarEvent | SequenceStartEvent | MappingStartEvent
            ):
                root = self.node(event, events, 1)
        return root

    def node(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        place = _place(event)
        if depth > MAX_DEPTH:
            raise _TooDeep(place)
        if isinstance(event, AliasEvent):
            self.file.add(place, "alias", "aliases are not allowed", "write the value out")
            return Scalar(place, None)
        if event.anchor:  # type: ignore[attr-defined]
            self.file.add(place, "anchor", "anchors are not allowed", "write the value out")
        if event.tag:  # type: ignore[attr-defined]
            message = f"tags are not allowed: {event.tag}"  # type: ignore[attr-defined]
            self.file.add(place, "tag", message, "write the value plainly")
        if isinstance(event, SequenceStartEvent):
            items = []
            while not isinstance(child := next(events), SequenceEndEvent):
                items.append(self.node(child, events, depth + 1))
            return Items(place, tuple(items))
        if isinstance(event, MappingStartEvent):
            return self.mapping(place, events, depth)
        return self.scalar(event, place)

    def mapping(self, place: Place, events: Iterator[Event], depth: int) -> Entries:
        mapping = Entries(place)
        while not isinstance(event := next(events), MappingEndEvent):
            key = self.node(event, events, depth + 1)
            value = self.node(next(events), events, depth + 1)
            if not isinstance(key, Scalar) or (key.value is None and not key.raw):
                self.file.add(key.place, "key", "a key must be a plain word")
                continue
            name = key.value if isinstance(key.value, str) else key.raw
            if name == "<<":
                message = "merge keys are not allowed"
                self.file.add(key.place, "anchor", message, "write the values out")
            elif name in mapping.entries:
                first = mapping.entries[name][0].line
                message = f"duplicate key {name}, first in line {first}"
                self.file.add(key.place, "duplicate-key", message, "remove one of them")
            else:
                mapping.entries[name] = (key.place, value)
        return mapping

    def scalar(self, event: Event, place: Place) -> Scalar:
        value: str = event.value  # type: ignore[attr-defined]
        raw = self.text[event.start_mark.index : event.end_mark.index]
        if not event.implicit[0]:  # type: ignore[attr-defined]
            return Scalar(place, value, raw)
        tag = _SCALAR_TAGS.get(str(self.resolve(ScalarNode, value, (True, False))))
        return Scalar(place, _convert(value, tag), raw)


def _convert(text: str, tag: str | None) -> Value:
    try:
        match tag:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                digits = text.replace("_", "").lower()
                return int(digits, 0 if "x" in digits or "o" in digits else 10)
            case "float":
                return float(
                    text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
                )
    except ValueError:  # more digits than Python converts: a text that no check takes for a number
        return text
    return text


def _place(event: Event) -> Place:
    start, end = event.start_mark, event.end_mark
    length = end.column - start.column if end.line == start.line else 1
    return Place(start.line + 1, start.column + 1, max(length, 1))


def _place_of(text: str, offset: int) -> Place:
    before = _LINE_BREAK.split(text[:offset])
    return Place(len(before), len(before[-1]) + 1)


def _whole(path: str, code: str, message: str) -> Problem:
    return Problem(path, None, None, code, message)


def _add_yaml_error(file: YamlFile, error: MarkedYAMLError) -> None:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark is not None else Place(1, 1)
    message = (error.problem or error.context or "this is not YAML").split("\n")[0]
    help_text = None
    if "'\\t'" in message:
        message, help_text = "a tab stands where spaces are wanted", "indent with spaces"
    elif error.context and error.context != message:
        message = f"{message} {error.context}"
    file.add(place, "yaml", message, help_text)


def _source_offset(raw: str, value: str, offset: int) -> int:
    """Where ``value[offset]`` stands in the source of the scalar."""
    at = 0
    if raw[:1] in ("|", ">"):
        first_break = _LINE_BREAK.search(raw)
        at = first_break.end() if first_break else len(raw)
    elif raw[:1] in ("'", '"'):
        at = 1
    for index in range(min(offset + 1, len(value))):
        wanted = value[index]
        if wanted.isspace():
            if index == offset:
                return at
            while at < len(raw) and raw[at].isspace():
                at += 1
            continue
        at = raw.find(wanted, at)
        if at < 0:
            return 0
        if index < offset:
            at += 1
    return at
