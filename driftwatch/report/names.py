"""What a report calls targets and knobs: short, and never two by one name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driftwatch.knobs import KNOBS
from driftwatch.model import TargetKey
from driftwatch.notify.numbers import clean

# knobs by the words of the top screen
SHORT_KNOBS: Mapping[str, str] = {name: knob.short for name, knob in KNOBS.items()}


def short_names(keys: Iterable[TargetKey]) -> dict[TargetKey, str]:
    """Target → its name: without the port where every server has the same one.

    >>> names = short_names([TargetKey("chat-8b-5:8000", "0"), TargetKey("chat-8b-6:8000", "1")])
    >>> list(names.values())
    ['chat-8b-5', 'chat-8b-6/1']
    """
    found = sorted(set(keys))
    hosts = {key: key.instance.rpartition(":") for key in found}
    ports = {port for _, _, port in hosts.values()}
    named = {host for host, colon, _ in hosts.values() if colon and host}
    instances = {key.instance for key in found}
    alike = len(ports) == 1 and len(named) == len(instances) and len(instances) > 1
    names = {}
    for key in found:
        instance = hosts[key][0] if alike else key.instance
        names[key] = clean(instance if key.engine == "0" else f"{instance}/{key.engine}")
    return names
