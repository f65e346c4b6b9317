"""Mappings that become flags: Helm values, Ray's ``engine_kwargs``, vLLM's ``--config`` file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from driftwatch.vllm_arguments.arguments import Argument, Finding
from driftwatch.vllm_arguments.documents import Locate
from driftwatch.vllm_arguments.table import CURES, FLAGS, nearest
from driftwatch.vllm_arguments.values import Fault
from driftwatch.yaml_positions import Entries, Items, Node, Place, Scalar

# what the chart of vLLM's production stack makes of ``vllmConfig``
# (helm/templates/deployment-vllm-multi.yaml)
_CHART = frozenset(
    {"enable-chunked-prefill", "enable-prefix-caching", "max-model-len", "dtype",
     "tensor-parallel-size", "pipeline-parallel-size", "max-num-seqs", "gpu-memory-utilization",
     "max-loras"}
)  # fmt: skip
LocateIn = Callable[[Scalar], Locate]


def flag_name(key: str) -> str:
    """``maxNumSeqs``, ``max_num_seqs`` → ``max-num-seqs``.

    >>> flag_name("maxNumSeqs"), flag_name("max_num_seqs")
    ('max-num-seqs', 'max-num-seqs')
    """
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", key).lower().replace("_", "-")


def is_mapping_of_flags(node: Entries) -> bool:
    """Whether two keys are flags that only vLLM has."""
    names = {flag_name(key) for key in node.entries}
    own = [name for name in names if name in FLAGS and FLAGS[name].is_own]
    return len(own) > 1


def mapping_words(node: Entries, locate: LocateIn) -> Iterator[Argument]:
    """Each key that is, or nearly is, a flag, with its value, as words of a command line."""
    for key, (place, value) in node.entries.items():
        name = flag_name(key)
        if name not in FLAGS and name not in CURES:
            close = nearest(name, cutoff=0.9)
            if close is None or not FLAGS[close].is_own:
                continue
        yield from _pair(name, place, value, locate)


def chart_words(node: Entries, locate: LocateIn) -> tuple[list[Argument], list[Finding]]:
    """What the chart of the production stack starts vLLM with, without ``extraArgs``.

    A key that the chart does not read is a warning: Helm leaves it out without a word.
    """
    words: list[Argument] = []
    findings: list[Finding] = []
    for key, (place, value) in node.entries.items():
        name = flag_name(key)
        if name in _CHART:
            words += _pair(name, place, value, locate)
        elif name in FLAGS or name in CURES or nearest(name, cutoff=0.9) in _CHART:
            message = f"the chart of the production stack does not read vllmConfig.{key}"
            close = nearest(name, cutoff=0.9)
            help_text = f'write "--{name}" under extraArgs'
            if name not in FLAGS and close is not None:
                help_text = f"did you mean {_camel(close)}?"
            fault = Fault("chart-key", message, help_text, "warning")
            findings.append(Finding(_at(place, locate)(0, place.length), fault))
    return words, findings


def _pair(name: str, place: Place, value: Node, locate: LocateIn) -> Iterator[Argument]:
    """A key and its value as one or two words."""
    at = _at(place, locate)

    def key_place(start: int, length: int) -> Place:
        return at(0, place.length)

    if isinstance(value, Scalar):
        if value.value is None:
            return
        if isinstance(value.value, bool):
            yield Argument(f"--{name}" if value.value else f"--no-{name}", key_place)
            return
        yield Argument(f"--{name}", key_place)
        text = value.value if isinstance(value.value, str) else value.raw
        # a printed configuration has objects there, in Python's words
        is_json = name in FLAGS and FLAGS[name].kind == "json"
        is_object = is_json and not text.lstrip().startswith("{")
        yield Argument("{{}}" if is_object else text, locate(value))
    else:
        yield Argument(f"--{name}", key_place)
        kind = "{{}}" if isinstance(value, Entries | Items) else ""
        yield Argument(kind, key_place)


def _at(place: Place, locate: LocateIn) -> Locate:
    """The place of a key, through the file that its YAML stands in."""
    blank = "x" * max(place.length, 1)
    return locate(Scalar(place, blank, blank))


def _camel(name: str) -> str:
    return re.sub(r"-(\w)", lambda match: match[1].upper(), name)
