"""Values of flags in a file, replaced where they stand: no other byte of the file changes.

Pure: text in, text out. A value that cannot be replaced surely is a problem at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftwatch import yaml_events
from driftwatch.errors import ConfigError, Problem
from driftwatch.knobs import KNOBS, refusal
from driftwatch.model import KnobMove
from driftwatch.vllm_arguments.arguments import Argument, Stated
from driftwatch.vllm_arguments.check import flags_in, own_part
from driftwatch.vllm_arguments.command_line import human_int
from driftwatch.vllm_arguments.documents import read_documents
from driftwatch.vllm_arguments.images import Surroundings
from driftwatch.vllm_arguments.manifests import CommandLine, Walk
from driftwatch.vllm_arguments.values import is_unknown, number_of
from driftwatch.yaml_events import Event, pure_events
from driftwatch.yaml_positions import LINE_BREAK, Entries, Items, Place, Scalar, YamlFile

# the kinds of sources in driftwatch.yaml
_SOURCES = {"prometheus", "pages", "recording", "dcgm", "nvml"}
_NONE = (Place(1, 1), Scalar(Place(1, 1), None))


@dataclass(frozen=True, slots=True)
class Edit:
    """One value, replaced."""

    knob: str
    place: Place
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A file with other values."""

    text: str
    edits: tuple[Edit, ...]  # in file order


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a file: its command line, and what the file's texts are looked up in."""

    file: YamlFile
    line: CommandLine

    def patched(self, text: str, moves: Sequence[KnobMove]) -> Patch:
        """The file's text with the moves' values.

        Raises ConfigError: with each move that cannot be made, at its place.
        """
        stated, _ = flags_in(self.line.words, version=self.line.version, is_vllm=self.line.is_vllm)
        problems: list[Problem] = []
        edits: list[tuple[int, Edit]] = []
        shared = list(_shared(text)) if "&" in text else []
        starts = [0, *(match.end() for match in LINE_BREAK.finditer(text))]
        for move in moves:
            places = [one for one in stated if one.flag.knob == move.knob]
            if (problem := self._refusal(move, places)) is not None:
                problems.append(problem)
                continue
            (one,), place = places, places[0].value_place
            before = one.value or ""
            offset = starts[place.line - 1] + place.column - 1
            if text[offset : offset + len(before)] != before:
                message = f"{before} is written in a way that driftwatch does not replace"
                problems.append(self._problem(place, "written", message, "write it plainly"))
            elif name := next((n for n, start, end in shared if start <= offset < end), None):
                message = f"this value belongs to the anchor &{name}, which other parts take too"
                help_text = f"write {self._as_typed(move)} for this server alone"
                problems.append(self._problem(place, "anchor", message, help_text))
            else:
                edits.append((offset, Edit(move.knob, place, before, _number(move.to_value))))
        if not problems and (why := refusal(_values(stated, moves))) is not None:
            problems.append(self._problem(edits[0][1].place, "refused", why))
        if problems:
            raise ConfigError(tuple(problems))
        edits.sort(key=lambda pair: pair[0])
        for offset, edit in reversed(edits):
            text = text[:offset] + edit.after + text[offset + len(edit.before) :]
        return Patch(text, tuple(edit for _, edit in edits))

    def _refusal(self, move: KnobMove, places: Sequence[Stated]) -> Problem | None:
        """Why a flag's value cannot be replaced, before looking at how it is written."""
        flag, to = KNOBS[move.knob].flag, _number(move.to_value)
        if not places:
            message = f"the server that starts here has no {flag}"
            where = self._last_place()
            return self._problem(where, "no-argument", message, self._addition(move))
        if len(places) > 1:
            message = f"{flag} stands {len(places)} times: vLLM takes the last one"
            return self._problem(places[0].word.part(), "repeated-flag", message, "remove the rest")
        (one,) = places
        if one.value is None:
            return self._problem(one.word.part(), "no-value", f"{flag} has no value")
        if is_unknown(one.value):
            message = f"the value comes from {one.value}, and not from this place"
            help_text = f"set it to {to} where it is given a value"
            return self._problem(one.value_place, "not-a-value", message, help_text)
        return self._value_refusal(move, one)

    def _value_refusal(self, move: KnobMove, one: Stated) -> Problem | None:
        flag, to, value = KNOBS[move.knob].flag, _number(move.to_value), one.value or ""
        try:
            before = float(human_int(value))
        except ValueError:
            message = f"{value} is no whole number"
            return self._problem(one.value_place, "value", message, f"write {to}")
        if before == move.to_value:
            message = f"{flag} is {value} here already"
            help_text = "the server does not run with it yet: roll this file out"
            return self._problem(one.value_place, "already", message, help_text)
        if move.from_value is not None and before != move.from_value:
            now = _number(move.from_value)
            source = f" ({move.from_provenance})" if move.from_provenance else ""
            message = f"{flag} is {value} here, and the advice is for a server with {now}{source}"
            help_text = f"give this server's file, or {flag} {value} if it runs with that"
            return self._problem(one.value_place, "other-value", message, help_text)
        return None

    def _as_typed(self, move: KnobMove) -> str:
        knob, to = KNOBS[move.knob], _number(move.to_value)
        if self.line.form == "chart" and knob.helm_key is not None:
            return f"{knob.helm_key}: {to}"
        if self.line.form == "keys":
            return f"{move.knob}: {to}"
        if self.line.form == "shell":
            return f"{knob.flag}={to}"
        return f'- "{knob.flag}={to}"'

    def _addition(self, move: KnobMove) -> str:
        """What to add to a command line that leaves the flag to vLLM's default."""
        typed = self._as_typed(move)
        if self.line.form == "chart":
            below = "vllmConfig" if KNOBS[move.knob].helm_key else "vllmConfig.extraArgs"
            return f"add {typed} under {below}"
        return f"add {typed} behind it" if self.line.form == "shell" else f"add {typed} below it"

    def _last_place(self) -> Place:
        words = own_part(self.line.words) or self.line.words
        return words[-1].part()

    def _problem(
        self, place: Place, code: str, message: str, help_text: str | None = None
    ) -> Problem:
        return self.file.problem(place, code, message, help_text, "error")


def server_in(path: str, text: str, *, line: int | None = None) -> Server:
    """The one server that a manifest, Helm values or a compose file starts.

    ``path``: what problems call the file; ``line``: one of its lines, where there are several.

    Raises ConfigError: the file cannot be read, or starts none or several.
    """
    file = read_documents(text, path)
    if (file.problems or file.root is None) and "{{" in text:
        message = "a Helm template is not patched: its values stand in another file"
        help_text = "give the values file"
        problem = file.problem(_first(text, "{{"), "template", message, help_text, "error")
        raise ConfigError((problem,))
    if file.problems:
        raise ConfigError(tuple(file.problems))
    if (place := _own_configuration(file)) is not None:
        message = "this is a configuration of driftwatch: no server starts from it"
        help_text = "give the file that vLLM starts from"
        raise ConfigError((file.problem(place, "no-server", message, help_text, "error"),))
    walk = Walk()
    if file.root is not None:
        walk.visit(file.root, Surroundings())
    # what an alias names is one server, however often it is named
    servers = {_extent(one.words): one for one in walk.lines if one.words}
    chosen = {
        extent: one
        for extent, one in servers.items()
        if line is None or extent[0].line <= line <= extent[1].line
    }
    if len(chosen) == 1:
        return Server(file, next(iter(chosen.values())))
    raise ConfigError(tuple(_not_one(file, text, list(servers), line)))


def _own_configuration(file: YamlFile) -> Place | None:
    """Where a configuration of driftwatch names its sources; None in another file."""
    for root in file.root.items if isinstance(file.root, Items) else ():
        place, sources = root.entries.get("sources", _NONE) if isinstance(root, Entries) else _NONE
        for source in sources.items if isinstance(sources, Items) else ():
            if isinstance(source, Entries) and _SOURCES & source.entries.keys():
                return place
    return None


def _not_one(
    file: YamlFile, text: str, servers: Sequence[tuple[Place, Place]], line: int | None
) -> Iterator[Problem]:
    """No server, several, or none at the line."""
    if not servers:
        message = "this file starts no vLLM server with arguments"
        help_text = "give the file with the arguments of vllm serve, or vllmConfig"
        place = _first(text, "{{") if "{{" in text else Place(1, 1)
        yield file.problem(place, "no-server", message, help_text, "error")
        return
    for number, (first, _) in enumerate(servers, 1):
        which = f"server {number} of {len(servers)} in this file starts here"
        message = which if line is None else f"{which}, not in line {line}"
        help_text = f"--patch {file.path}:{first.line} changes this one"
        yield file.problem(first, "several-servers", message, help_text, "error")


def _values(stated: Sequence[Stated], moves: Sequence[KnobMove]) -> dict[str, float | None]:
    """Knob → its value in the file after the moves."""
    values = {
        one.flag.knob: number_of(one.flag, one.value, None)
        for one in stated
        if one.flag.knob is not None and one.value is not None
    }
    return values | {move.knob: move.to_value for move in moves}


def _extent(words: Sequence[Argument]) -> tuple[Place, Place]:
    """The first and the last place of a command line."""
    places = sorted((word.part() for word in words), key=lambda one: (one.line, one.column))
    return places[0], places[-1]


def _shared(text: str) -> Iterator[tuple[str, int, int]]:
    """Anchors that an alias names: name, where the node begins and ends."""
    spans: list[tuple[str, int, int]] = []
    used: set[str] = set()
    open_nodes: list[tuple[str | None, int]] = []
    for event in pure_events(text):
        if isinstance(event, yaml_events.Alias):
            used.add(str(event.anchor))
        elif isinstance(event, (*yaml_events.MappingStart, *yaml_events.SequenceStart)):
            open_nodes.append((event.anchor, event.start_mark.index))
        elif isinstance(event, (*yaml_events.MappingEnd, *yaml_events.SequenceEnd)):
            spans += _span(*open_nodes.pop(), event)
        elif isinstance(event, yaml_events.Scalar):
            spans += _span(event.anchor, event.start_mark.index, event)
    yield from (span for span in spans if span[0] in used)


def _span(anchor: str | None, start: int, end: Event) -> Iterator[tuple[str, int, int]]:
    if anchor is not None:
        yield str(anchor), start, end.end_mark.index


def _first(text: str, mark: str) -> Place:
    before = LINE_BREAK.split(text[: text.index(mark)])
    return Place(len(before), len(before[-1]) + 1, len(mark))


def _number(value: float) -> str:
    return f"{value:.0f}"
