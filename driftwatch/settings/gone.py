"""Settings of earlier versions that are gone, and what to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftwatch.yaml_positions import Entries, Items, Node, YamlFile

_MUTED = (
    "silence pages with `driftwatch silence`; PagerDuty and Alertmanager know who is woken when"
)

_ROUTED = (
    "`receivers` of a rule and of a pool, and `severities` of a receiver, say who gets what; "
    "PagerDuty and Alertmanager route further and escalate"
)

_DIGEST = "a receiver that is to get notices has `severities: [page, ticket, notice]`"

# Path of the key → what to use instead. `*` is every item of a list.
GONE: dict[str, str] = {
    "autoscaling": "leave it out: scale by driftwatch_target_waiting_requests",
    "sources.*.remote_write": "a source of kind prometheus; "
    "VictoriaMetrics and Mimir answer it too",
    "web.regions": "open each region's own web; GET /api/v1/targets gives its fleet as JSON",
    "shards": "batches: 16; any number of `driftwatch worker` on one PostgreSQL tick them",
    "tasks": "leave it out: on PostgreSQL every process does the slow work; "
    "tasks.heartbeat is worker_heartbeat",
    "time_intervals": _MUTED,
    "routes": _ROUTED,
    "fallback_receiver": _ROUTED,
    "digest_hour": _DIGEST,
    "receivers.*.notices": _DIGEST,
    "gpu_hour_price": "leave it out: the report counts GPU-hours",
    "receivers.*.changes": "leave it out: `driftwatch verify` and the web's page of a server tell "
    "what changed",
    "receivers.*.slack.user_groups": "name who may click in users, or use a private channel",
    "pools.*.mute_time_intervals": _MUTED,
}
# the same of rule files
GONE_OF_RULES: dict[str, str] = {
    "groups.*.rules.*.mute_time_intervals": _MUTED,
    "groups.*.rules.*.overrides": "in driftwatch.yaml: rules: {files: […], overrides: [{alert: …, "
    "pools: […], when: …}]}",
}


def note_gone(file: YamlFile, root: Entries, gone: Mapping[str, str] = GONE) -> None:
    """Add a problem for every setting that is gone, in place of any other that it causes.

    Those are problems at the same key, and those of the wrong kind of an item of a list.
    """
    for path, instead in gone.items():
        *parents, key = path.split(".")
        for node in _nodes(root, parents):
            if key in node.entries:
                place, _ = node.entries[key]
                first = next(iter(node.entries.values()))[0]
                file.problems = [
                    problem
                    for problem in file.problems
                    if (problem.line, problem.column) != (place.line, place.column)
                    and (
                        node is root
                        or problem.code != "value"
                        or (problem.line, problem.column) != (first.line, first.column)
                    )
                ]
                file.add(place, "gone", f"{path.replace('.*', '')} is gone", instead)


def _nodes(root: Node, path: list[str]) -> Iterator[Entries]:
    if not path:
        if isinstance(root, Entries):
            yield root
    elif path[0] == "*":
        for item in root.items if isinstance(root, Items) else ():
            yield from _nodes(item, path[1:])
    elif isinstance(root, Entries) and path[0] in root.entries:
        yield from _nodes(root.entries[path[0]][1], path[1:])
