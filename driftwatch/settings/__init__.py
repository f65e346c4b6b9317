"""The service configuration: one YAML file, every problem of it at once.

Secrets are read from files at use, or stand in the file and print as ``<secret>``. Relative file
names mean the configuration file's folder. ``DRIFTWATCH_DATABASE`` and ``DRIFTWATCH_LISTEN`` in
the environment go before the file (two of them: no settings framework is needed for that).
"""

from __future__ import annotations

from driftwatch.settings.file import ENVIRONMENT, Settings, load_settings
from driftwatch.settings.pools import PoolSettings, ServingSettings
from driftwatch.settings.receivers import ReceiverSettings
from driftwatch.settings.sources import (
    DcgmSource,
    NvmlSource,
    PagesSource,
    PrometheusSource,
    RecordingSource,
    SourceSettings,
)

__all__ = [
    "ENVIRONMENT",
    "DcgmSource",
    "NvmlSource",
    "PagesSource",
    "PoolSettings",
    "PrometheusSource",
    "ReceiverSettings",
    "RecordingSource",
    "ServingSettings",
    "Settings",
    "SourceSettings",
    "load_settings",
]
