"""Command lines and annotations that speak of vLLM, joined to their servers. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from driftwatch.collect.dcgm.names import pod_of
from driftwatch.collect.fingerprint import gpus_from_arguments
from driftwatch.collect.prometheus.discover import Hint, Server
from driftwatch.collect.server_settings import FIELDS, from_arguments, from_config, serving_of
from driftwatch.errors import UsageError
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Serving
from driftwatch.vllm_arguments.command_line import plain_words


class Arguments:
    """Command lines and annotations, by what can join them to a server."""

    def __init__(self, hints: Sequence[Hint]) -> None:
        self._hints = hints
        self._used: set[int] = set()
        self._by_pod: dict[tuple[str, str], list[Hint]] = {}
        self._by_workload: dict[str, list[tuple[str, Hint]]] = {}
        self._by_host: dict[str, list[Hint]] = {}
        for one in hints:
            labels = one.labels
            namespace = labels.get("exported_namespace") or labels.get("namespace") or ""
            pod = labels.get("exported_pod") or labels.get("pod")
            workload = next(
                (labels[k] for k in _WORKLOADS if labels.get(k)),
                None,
            )
            of_kubernetes = one.series.startswith("kube_")
            if of_kubernetes and workload and not one.series.startswith("kube_pod_"):
                self._by_workload.setdefault(namespace, []).append((workload, one))
            elif pod:
                self._by_pod.setdefault((namespace, pod), []).append(one)
            elif not of_kubernetes:
                host = labels.get("instance", "").rpartition(":")[0]
                self._by_host.setdefault(host, []).append(one)

    @property
    def unjoined(self) -> tuple[Hint, ...]:
        """Those that nothing was joined to."""
        return tuple(one for one in self._hints if id(one) not in self._used)

    def of(self, server: Server) -> tuple[Serving, ...]:
        """What is said of one server, what is nearest to it first."""
        lines = self._lines(server)
        settings = [server.serving]
        self._used |= {id(one) for one in lines}
        for one in lines:
            serving = _settings_in(one)
            if serving is not None and serving not in settings:
                settings.append(serving)
        return tuple(one for one in settings if one != Serving()) or (Serving(),)

    def gpus(self, server: Server) -> tuple[tuple[float, str], ...]:
        """How many GPUs are asked for, and where."""
        counts = [(gpus_from_arguments(_words(o.text)), o) for o in self._lines(server)]
        return tuple((n, f"{o.series} {o.label}") for n, o in counts if n is not None)

    def _lines(self, server: Server) -> list[Hint]:
        namespace, pod = (part or "" for part in pod_of(server.labels))
        lines = list(self._by_pod.get((namespace, pod), ())) if pod else []
        lines += [
            one
            for workload, one in self._by_workload.get(namespace, ())
            if re.fullmatch(rf"{re.escape(workload)}(-[a-z0-9]+){{1,2}}", pod)
        ]
        host, _, port = server.labels.get("instance", server.instance).rpartition(":")
        here = [one for one in self._by_host.get(host, ()) if _port(one.text) in (port, None)]
        # without a port two servers of a host cannot be told apart
        lines += here if len(here) == 1 else [one for one in here if _port(one.text) == port]
        return lines


_WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset")


def _words(text: str) -> list[str]:
    """A command line, or a JSON list of its words."""
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if isinstance(listed, list):
        return [str(word) for word in listed]
    try:
        return plain_words(text.replace("\0", " "))
    except ValueError:
        return text.split()


def _port(text: str) -> str | None:
    match = re.search(r"--port[= ]+(\d+)", text)
    return match[1] if match else None


def _settings_in(one: Hint) -> Serving | None:
    """Settings in a command line, or in a label of its own such as ``…max_num_seqs``."""
    where = f"{one.series} {one.label}"
    try:
        name = next((name for name in COLUMN_KNOBS if one.label.endswith(name)), None)
        if name is not None and re.fullmatch(r"\s*\d+\s*", one.text):
            return from_config({name: one.text}, provenance="arguments", detail=where)
        serving = from_arguments(_words(one.text))
    except UsageError:
        return None  # cut off, or of something else
    return serving_of(
        {
            name: replace(setting, detail=where)
            for name in FIELDS
            if (setting := serving.setting(name)) is not None
        }
    )
