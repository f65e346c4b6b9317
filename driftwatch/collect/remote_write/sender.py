"""What a sender must be configured with: only the series that driftwatch reads, dealt by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driftwatch.collect.prometheus.query import queries
from driftwatch.collect.remote_write.series import UP

# Few large requests: each costs a receiver as much as several hundred samples.
_QUEUE = {
    "capacity": 50_000,
    "max_samples_per_send": 10_000,
    "max_shards": 8,
    "batch_send_deadline": "5s",
}
_SHARD = "__tmp_driftwatch"


def sample_names() -> tuple[str, ...]:
    """Every sample name that driftwatch reads, ``up`` among them."""
    return tuple(sorted({UP, *(name for query in queries({}) for name in query.ranks)}))


def remote_write_section(
    urls: Sequence[str], by: Sequence[str], token_file: str | None = None
) -> list[dict[str, Any]]:
    """``remote_write`` of a Prometheus that writes to one receiver, or a share to each of several.

    ``by``: labels of targets (of ``up`` too) by whose values they are dealt; ``token_file``: as the
    sender finds it.
    """
    return [_receiver(url, number, len(urls), by, token_file) for number, url in enumerate(urls)]


def _receiver(
    url: str, number: int, count: int, by: Sequence[str], token_file: str | None
) -> dict[str, Any]:
    relabel: list[dict[str, Any]] = [
        {"action": "keep", "source_labels": ["__name__"], "regex": "|".join(sample_names())}
    ]
    if count > 1:
        relabel += [
            {
                "action": "hashmod", "source_labels": list(by), "modulus": count,
                "target_label": _SHARD,
            },
            {"action": "keep", "source_labels": [_SHARD], "regex": str(number)},
            {"action": "labeldrop", "regex": _SHARD},
        ]  # fmt: skip
    section: dict[str, Any] = {"url": url}
    if token_file is not None:
        section["authorization"] = {"credentials_file": token_file}
    return section | {
        "metadata_config": {"send": False},
        "queue_config": dict(_QUEUE),
        "write_relabel_configs": relabel,
    }
