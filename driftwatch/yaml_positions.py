"""YAML files with the place of every key and value, and without YAML's dangerous parts.

Only what a configuration needs is read: mappings with text keys, sequences and scalars. Anchors,
aliases, tags, merge keys, duplicate keys and further documents are problems, files over 1 MiB and
50 levels are not read. Nothing is constructed but text, numbers, true/false and null.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from driftwatch.errors import Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 50

LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # as PyYAML counts lines
_INK = re.compile(r"\S")
_HEAD = re.compile("[|>].*|['\"]")  # of a block, or of a text in quotes
_ESCAPES = {'"': "\\", "'": "''"}  # of a text in these quotes
_SURROGATE = re.compile("[\ud800-\udfff]")
# libyaml takes a tenth of the time; what it refuses is read again for PyYAML's own words
_LOADERS: tuple[Any, ...] = (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader)

# What a plain scalar stands for in YAML 1.2: not text. `yes` and `010` of YAML 1.1 are none.
_NULL = re.compile("~|null|Null|NULL|")
_BOOL = re.compile("true|True|TRUE|false|False|FALSE")
_INT = re.compile("[-+]?[0-9][0-9_]*|0o[0-7_]+|0x[0-9a-fA-F_]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)

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


@lru_cache(maxsize=4096)
def plain_value(text: str) -> Value:
    """What a plain scalar stands for: null, true or false, a number, or its text."""
    digits = text.replace("_", "").lower()
    try:
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text.lower() == "true"
        if _INT.fullmatch(text):
            return int(digits, 0 if "x" in digits or "o" in digits else 10)
        if _FLOAT.fullmatch(text):
            return float(digits.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:  # more digits than Python converts: a text that no check takes for a number
        pass
    return text


@dataclass(slots=True)
class YamlFile:
    """A file as read."""

    path: str  # as the user named it
    lines: list[str] = field(default_factory=list)  # its text
    # None where the file is empty or is no YAML (then there is a problem)
    root: Node | None = None
    # what is wrong with it as YAML; later checks append theirs
    problems: list[Problem] = field(default_factory=list)

    def add(
        self,
        place: Place,
        code: str,
        message: str,
        help_text: str | None = None,
        severity: str = "error",
    ) -> None:
        """Note a problem at a place of this file."""
        self.problems.append(self.problem(place, code, message, help_text, severity))

    def problem(
        self, place: Place, code: str, message: str, help_text: str | None, severity: str
    ) -> Problem:
        """A problem at a place of this file, with the text of its line."""
        inside = 0 < place.line <= len(self.lines)
        return Problem(
            self.path,
            place.line,
            place.column,
            code,
            message,
            help_text,
            self.lines[place.line - 1] if inside else None,
            place.length,
            severity,
        )

    def inside(self, scalar: Scalar, line: int, column: int, length: int) -> Place:
        """The place of a (1-based) position inside a text value, whatever its YAML style; behind an
        escape the whole text.

        Folding changes spaces only, so the other characters before the position are counted.
        """
        raw, value = scalar.raw, scalar.value if isinstance(scalar.value, str) else scalar.raw
        offset = sum(len(before) + 1 for before in value.split("\n")[: line - 1]) + column - 1
        head = _HEAD.match(raw)
        ends = [match.end() for match in _INK.finditer(raw, head.end() if head else 0)]
        number = len(_INK.findall(value[:offset]))
        start_offset = ends[number] - 1 if number < len(ends) else ends[-1] if ends else 0
        if _ESCAPES.get(raw[:1], raw) in raw[1:start_offset]:
            return scalar.place
        before = LINE_BREAK.split(raw[:start_offset])
        start = scalar.place.column if len(before) == 1 else 1
        return Place(scalar.place.line + len(before) - 1, start + len(before[-1]), length)


def yaml_files(path: Path) -> list[Path]:
    """The YAML files directly in a folder, or those of a glob, by name; else the path itself."""
    if path.is_dir():
        return sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    return [Path(name) for name in sorted(glob.glob(str(path)))]  # noqa: PTH207


def read_yaml(path: Path) -> YamlFile:
    """Read one file; every problem is in the answer, nothing is raised."""
    file = YamlFile(str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        file.problems.append(
            Problem(file.path, None, None, "unreadable", f"cannot be read: {reason}")
        )
        return file
    if len(data) > MAX_BYTES:
        message = f"the file is over {MAX_BYTES >> 20} MiB"
        file.problems.append(Problem(file.path, None, None, "too-large", message))
        return file
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        file.add(_place_of(before, len(before)), "encoding", message)
        return file
    return parse_yaml(text, str(path))


def parse_yaml(text: str, path: str) -> YamlFile:
    """The same for a text; ``path`` is what problems call it."""
    file = YamlFile(path, LINE_BREAK.split(text))
    for loader in _LOADERS:
        file.problems.clear()
        try:
            file.root = _Composer(file, text).document(yaml.parse(text, loader))
            return file
        except _TooDeep as error:
            file.add(error.place, "too-deep", f"nested more than {MAX_DEPTH} levels")
            return file
        except (yaml.YAMLError, UnicodeError, RecursionError) as error:
            failure: Exception = error
    file.problems.clear()
    if isinstance(failure, yaml.MarkedYAMLError):
        _add_yaml_error(file, failure)
        return file
    position = getattr(failure, "position", None)
    place = _place_of(text, position) if isinstance(position, int) else Place(1, 1)
    reason = str(getattr(failure, "reason", None) or type(failure).__name__)
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

    def __init__(self, file: YamlFile, text: str) -> None:
        self.file = file
        self.text = text

    def document(self, events: Iterator[Any]) -> Node | None:
        """The first document; a second one is a problem."""
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a second document starts here"
                    self.file.add(_place(event), "documents", message, "one document per file")
                    break
            elif isinstance(event, yaml.NodeEvent):
                root = self.node(event, events, 1)
        return root

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        """One node with all that is in it."""
        place = _place(event)
        if depth > MAX_DEPTH:
            raise _TooDeep(place)
        if isinstance(event, yaml.AliasEvent):
            self.file.add(place, "alias", "aliases are not allowed", "write the value out")
            return Scalar(place, None)
        if event.anchor:
            self.file.add(place, "anchor", "anchors are not allowed", "write the value out")
        if event.tag:
            message = f"tags are not allowed: {event.tag}"
            self.file.add(place, "tag", message, "write the value plainly")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, place)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(place, events, depth)
        items = []
        while not isinstance(child := next(events), yaml.SequenceEndEvent):
            items.append(self.node(child, events, depth + 1))
        return Items(place, tuple(items))

    def _mapping(self, place: Place, events: Iterator[Any], depth: int) -> Entries:
        mapping = Entries(place)
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self.node(event, events, depth + 1)
            self._pair(mapping, key, self.node(next(events), events, depth + 1))
        return mapping

    def _pair(self, mapping: Entries, key: Node, value: Node) -> None:
        """Add a key with its value, or note why not."""
        if not isinstance(key, Scalar) or (key.value is None and not key.raw):
            self.file.add(key.place, "key", "a key must be a plain word")
            return
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

    def _scalar(self, event: Any, place: Place) -> Scalar:
        """A value with its source text."""
        value: str = event.value
        raw = self.text[event.start_mark.index : event.end_mark.index]
        if not value.isascii() and _SURROGATE.search(value):
            # JSON writes some characters as two escapes, \\ud83d\\ude00
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if "\ufffd" in value:
                message = "half of a character stands here (an escape \\ud800 to \\udfff alone)"
                self.file.add(place, "yaml", message, "write both halves, or the character")
        is_plain = event.implicit[0]
        return Scalar(place, plain_value(value) if is_plain else value, raw)


def _place(event: Any) -> Place:
    start, end = event.start_mark, event.end_mark
    line, column = start.line, start.column
    length = end.column - column if end.line == line else 1
    return Place(line + 1, column + 1, length if length > 1 else 1)


def _place_of(text: str, offset: int) -> Place:
    before = LINE_BREAK.split(text[:offset])
    return Place(len(before), len(before[-1]) + 1)


def _add_yaml_error(file: YamlFile, error: yaml.MarkedYAMLError) -> None:
    """Note it; a quote or bracket that is never closed where it opens."""
    mark, opened = error.problem_mark or error.context_mark, error.context_mark
    message = (error.problem or error.context or "this is not YAML").split("\n")[0]
    is_open = opened is not None and _OPENED.search(error.context or "")
    if is_open and mark is not None and opened.line < mark.line:
        mark = opened
    place = Place(mark.line + 1, mark.column + 1) if mark is not None else Place(1, 1)
    help_text = None
    if "'\\t'" in message:
        message, help_text = "a tab stands where spaces are wanted", "indent with spaces"
    elif message.startswith("expected <block end>"):
        message, help_text = "this line is not indented as those above it", "indent it as they are"
    elif message == "mapping values are not allowed here":
        message = "no key can stand here"
        help_text = "indent a key as those above it; put text with a colon in quotes"
    elif message.startswith("expected ',' or"):
        message, help_text = (
            "a comma or the closing bracket is missing",
            "put text with : or a brace in quotes",
        )
    elif error.context and error.context != message:
        message = f"{message} {error.context}"
    file.add(place, "yaml", message, help_text)


_OPENED = re.compile("quoted scalar|flow")
