"""The events of a YAML text: from libyaml, a tenth of the time, or from ruamel.yaml.

libyaml reads YAML 1.1. What it reads otherwise than ruamel.yaml, and what one of them refuses, is
left to ruamel.yaml, so that every value, place and message is its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml import events as pure

# of either library: both have PyYAML's names and fields
Event = Any
Alias = (yaml.AliasEvent, pure.AliasEvent)
DocumentStart = (yaml.DocumentStartEvent, pure.DocumentStartEvent)
MappingEnd = (yaml.MappingEndEvent, pure.MappingEndEvent)
MappingStart = (yaml.MappingStartEvent, pure.MappingStartEvent)
Scalar = (yaml.ScalarEvent, pure.ScalarEvent)
SequenceEnd = (yaml.SequenceEndEvent, pure.SequenceEndEvent)
SequenceStart = (yaml.SequenceStartEvent, pure.SequenceStartEvent)
Node = (*Scalar, *MappingStart, *SequenceStart, *Alias)

# None where PyYAML was built without libyaml
LIBYAML = getattr(yaml, "CSafeLoader", None)
# Characters that one of them refuses or counts as a line break; a directive; the end of a
# document; a key in quotes without a space behind its colon.
_ODD = re.compile(
    "[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
    r"|^(?:%|\.\.\.)|[\"']:[^ \n]",
    re.M,
)
# The first lines of a folded or literal text.
_TEXT = re.compile(r"[>|][+-]?(?: +#.*| *)\n +[^ \n]")


class Unsure(Exception):
    """libyaml may read the text otherwise than ruamel.yaml."""


def quick_events(text: str) -> Iterator[Event]:
    """Events as ruamel.yaml's, but for documents' marks and those of ends.

    Raises:
        Unsure: ruamel.yaml has to read the text; also after some events.
    """
    if LIBYAML is None or _ODD.search(text):
        raise Unsure
    try:
        for event in iter(LIBYAML(text).get_event, None):
            if isinstance(event, yaml.NodeEvent):
                _check(event, text)
            yield event
    except yaml.YAMLError:
        raise Unsure from None


def _check(event: Event, text: str) -> None:
    """An anchor's characters, a tag's scalar and the place of an empty scalar differ."""
    if event.anchor or event.tag:
        raise Unsure
    if isinstance(event, yaml.ScalarEvent):
        style = event.style
        if not (style or event.value):
            raise Unsure
        if style in ("|", ">") and not _TEXT.match(text, event.start_mark.index):
            raise Unsure


def pure_events(text: str) -> Iterator[Event]:
    """ruamel.yaml's events; its errors are raised."""
    return YAML(typ="safe", pure=True).parse(text)  # type: ignore[no-any-return]
