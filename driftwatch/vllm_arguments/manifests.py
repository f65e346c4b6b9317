"""vLLM's command lines in Kubernetes manifests, Helm values and compose files.

No schema of any of these: a list of words is vLLM's by its shape (``vllm serve``, the module of its
server, a flag that only vLLM has), wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from driftwatch.vllm_arguments.arguments import Argument, Finding
from driftwatch.vllm_arguments.check import check, has_own_flag, is_own_flag, names_vllm
from driftwatch.vllm_arguments.command_line import is_script, split
from driftwatch.vllm_arguments.documents import Locate, of_scalar, read_documents, through
from driftwatch.vllm_arguments.images import Surroundings
from driftwatch.vllm_arguments.mappings import chart_words, is_mapping_of_flags, mapping_words
from driftwatch.vllm_arguments.table import Version
from driftwatch.vllm_arguments.values import Fault
from driftwatch.vllm_arguments.variables import variable_faults
from driftwatch.yaml_positions import Entries, Items, Node, Place, Scalar

_COMMAND = ("entrypoint", "command", "args")
_SERVER = re.compile(r"\bvllm\s+serve\b|\bvllm\.entrypoints\.")
_EMBEDDED_KEYS = re.compile(r"^\s*(?:- )?(?:\w*_kwargs|engine_args|max[_-]num[_-]\w+)\s*:", re.M)
_DEEPEST = 2  # YAML inside YAML
# items of a list, a text for a shell, keys that become flags, vllmConfig of the production stack
Form = Literal["items", "shell", "keys", "chart"]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The words with which one server starts, each with its place."""

    words: tuple[Argument, ...]
    form: Form
    version: Version | None
    is_vllm: bool  # whether vLLM's own server gets them


class Walk:
    """All that one file says of vLLM; call :meth:`visit` with its root."""

    def __init__(self, outer: Callable[[Place], Place] | None = None, level: int = 0) -> None:
        self.findings: list[Finding] = []
        self.lines: list[CommandLine] = []
        self._outer = outer
        self._level = level
        self._visited: set[int] = set()

    def visit(self, node: Node, around: Surroundings, key: str = "") -> None:
        """A node and all that is in it, each once."""
        if isinstance(node, Scalar):
            self._text(node, around, key)
            return
        if id(node) in self._visited:
            return
        self._visited.add(id(node))
        if isinstance(node, Items):
            if not self._command(list(node.items), around, key):
                for one in node.items:
                    self.visit(one, around, key)
            return
        self._mapping(node, around.inside(node))

    def _mapping(self, node: Entries, around: Surroundings) -> None:
        if around.engine == "other":
            around = replace(around, version=None)
        children = {name: child for name, (_, child) in node.entries.items()}
        done = self._container(children, around)
        for name, (place, child) in node.entries.items():
            if name == "vllmConfig" and isinstance(child, Entries):
                self._chart(child, around)
                done.add(name)
            elif name.startswith("VLLM_") and isinstance(child, Scalar):
                self._variable(name, place, around)
            elif name == "name" and isinstance(child, Scalar) and "value" in children:
                self._variable(str(child.value), child.place, around)
            elif name == "environment" and isinstance(child, Items):
                self._assignments(child, around)
        if is_mapping_of_flags(node):
            self._line(list(mapping_words(node, self._locate)), around, "keys")
        for name, child in children.items():
            if name not in done:
                self.visit(child, around, name)

    def _container(self, children: Mapping[str, Node], around: Surroundings) -> set[str]:
        """``entrypoint``, ``command`` and ``args``, lists and texts; those that are vLLM's."""
        parts = [name for name in _COMMAND if name in children]
        lists = [name for name in parts if isinstance(children[name], Items)]
        words = [one for name in lists for one in _items(children[name])]
        done = set(lists) if lists and self._command(words, around, lists[-1], parts) else set()
        for name in parts:
            text = children[name]
            if isinstance(text, Scalar) and isinstance(text.value, str):
                is_vllm = around.engine == "vllm" and (name == parts[0] or name == "args")
                if around.engine != "other" and self._script(text, around, is_vllm=is_vllm):
                    done.add(name)
        return done

    def _text(self, node: Scalar, around: Surroundings, key: str) -> None:
        """A script, a text of flags, or YAML inside a block of text."""
        text = node.value
        if not isinstance(text, str) or around.engine == "other":
            return
        if _SERVER.search(text) or key in _COMMAND or is_own_flag(text.strip()):
            self._script(node, around, is_vllm=False)
        elif (
            self._level < _DEEPEST
            and node.raw[:1] in ("|", ">")
            and (key == "serveConfigV2" or _EMBEDDED_KEYS.search(text))
        ):
            file = read_documents(text, "")
            if file.root is not None and not file.problems:
                inner = Walk(through(text, self._locate(node)), self._level + 1)
                inner.visit(file.root, around, key)
                self.findings += inner.findings
                self.lines += inner.lines

    def _script(self, node: Scalar, around: Surroundings, *, is_vllm: bool) -> bool:
        """The commands of a shell text that are vLLM's."""
        count = len(self.lines)
        for words in commands_in(node, self._locate(node)):
            if names_vllm(words) or (has_own_flag(words) and around.engine != "other"):
                before = len(self.findings)
                self._line(words, around, "shell", is_vllm=is_vllm or names_vllm(words))
                if not names_vllm(words):  # whether a shell takes its quotes away is unknown
                    own = [one for one in self.findings[before:] if one.fault.code != "json"]
                    self.findings[before:] = own
        return len(self.lines) > count

    def _command(
        self, items: Sequence[Node], around: Surroundings, key: str, parts: Sequence[str] = ()
    ) -> bool:
        """One container's words, or a list of them; whether they are vLLM's."""
        if around.engine == "other":
            return False
        words: list[Argument] = []
        lines = len(self.lines)
        for index, item in enumerate(items):
            before = items[index - 1] if index else None
            if isinstance(item, Scalar) and _is_script(item, before, len(items)):
                self._script(item, around, is_vllm=_has_flags_first(item, around))
                continue
            words += self._words(item, around, key)
        program = {"command", "entrypoint"} & set(parts)
        is_start = bool(parts) and (not program or parts == ["command"])
        is_vllm = names_vllm(words) or (around.engine == "vllm" and is_start)
        if names_vllm(words) or has_own_flag(words):
            if around.is_kubernetes and parts:
                self._check_texts(items)
            self._line(words, around, "items", is_vllm=is_vllm)
        return len(self.lines) > lines

    def _words(self, item: Node, around: Surroundings, key: str) -> Iterator[Argument]:
        """The words of one item of a list; a flag with its value in one item is two."""
        if not isinstance(item, Scalar):
            yield Argument("{{}}", of_scalar(Scalar(item.place, "{{}}", "{{}}"), self._outer))
            return
        locate = self._locate(item)
        text = _text_of(item)
        name = text.partition("=")[0]
        if not (name.startswith("--") and any(ch.isspace() for ch in name) and is_own_flag(name)):
            yield Argument(text, locate)
            return
        severity = "error" if key in _COMMAND and around.is_kubernetes else "warning"
        flag, _, value = text.partition(" ")
        message = "this is one word, and vLLM gets it with the space in it"
        help_text = f"write two items, or {flag}={value.strip()}"
        if len(text) > 60:
            help_text = "write each flag and each value as an item of its own"
        place = locate(0, len(text))
        self.findings.append(Finding(place, Fault("one-word", message, help_text, severity)))
        for words in commands_in(item, locate):
            yield from words

    def _line(
        self, words: Sequence[Argument], around: Surroundings, form: Form, *, is_vllm: bool = False
    ) -> None:
        self.lines.append(CommandLine(tuple(words), form, around.version, is_vllm))
        self.findings += check(words, version=around.version, is_vllm=is_vllm)

    def _chart(self, node: Entries, around: Surroundings) -> None:
        """``vllmConfig`` of vLLM's production stack, with its ``extraArgs``."""
        words, findings = chart_words(node, self._locate)
        self.findings += findings
        extra = node.entries.get("extraArgs")
        for item in _items(extra[1]) if extra is not None else ():
            words += self._words(item, around, "extraArgs")
        if words:
            self._line(words, around, "chart", is_vllm=True)
        if (env := node.entries.get("env")) is not None:
            self.visit(env[1], around, "env")

    def _check_texts(self, items: Sequence[Node]) -> None:
        """Kubernetes takes only text as an item of ``args``."""
        for item in items:
            if isinstance(item, Scalar) and not isinstance(item.value, str):
                message = f"Kubernetes takes only text here, and {item.raw or 'nothing'} is no text"
                help_text = f'write "{item.raw}"' if item.raw else None
                place = self._locate(item)(0, len(_text_of(item)))
                self.findings.append(Finding(place, Fault("not-text", message, help_text)))

    def _variable(self, name: str, place: Place, around: Surroundings) -> None:
        place = place if self._outer is None else self._outer(place)
        self.findings += [Finding(place, fault) for fault in variable_faults(name, around.version)]

    def _assignments(self, items: Items, around: Surroundings) -> None:
        """``NAME=value`` of a compose file's environment."""
        for item in items.items:
            if isinstance(item, Scalar) and (name := _text_of(item).partition("=")[0]):
                place = self._locate(item)(0, len(name))
                faults = variable_faults(name, around.version)
                self.findings += [Finding(place, fault) for fault in faults]

    def _locate(self, scalar: Scalar) -> Locate:
        return of_scalar(scalar, self._outer)


def commands_in(node: Scalar, locate: Locate) -> Iterator[list[Argument]]:
    """The commands of a shell text, each word with its place."""
    for command in split(_text_of(node)):
        words = []
        for word in command:

            def place(start: int, length: int, offsets: tuple[int, ...] = word.offsets) -> Place:
                inside = offsets[start : start + length] or offsets[-1:] or (0,)
                return locate(inside[0], inside[-1] - inside[0] + 1)

            words.append(Argument(word.text, place))
        yield words


def _is_script(item: Scalar, before: Node | None, count: int) -> bool:
    """What follows ``sh -c``, or the only item of a list with a whole command in it."""
    text = _text_of(item)
    if isinstance(before, Scalar) and is_script(_text_of(before)):
        return True
    return bool(_SERVER.search(text)) or (count == 1 and "\n" in text)


def _has_flags_first(item: Scalar, around: Surroundings) -> bool:
    return around.engine == "vllm" and _text_of(item).lstrip().startswith("--")


def _items(node: Node) -> Sequence[Node]:
    """The items of a list."""
    return node.items if isinstance(node, Items) else ()


def _text_of(scalar: Scalar) -> str:
    return scalar.value if isinstance(scalar.value, str) else scalar.raw
