"""The service configuration: one YAML file, every problem of it at once.

Secrets are read from files at use, or stand in the file and print as ``<secret>``. Relative file
names mean the configuration file's folder. ``DRIFTWATCH_DATABASE`` and ``DRIFTWATCH_LISTEN`` in
the environment go before the file (two of them: no settings framework is needed for that).
"""

from __future__ import annotations

from driftwatch.settings.file import ENVIRONMENT as ENVIRONMENT
from driftwatch.settings.file import Settings as Settings
from driftwatch.settings.file import load_settings as load_settings
from driftwatch.settings.pools import PoolSettings as PoolSettings
from driftwatch.settings.pools import ServingSettings as ServingSettings
from driftwatch.settings.receivers import ReceiverSettings as ReceiverSettings
from driftwatch.settings.sources import DcgmSource as DcgmSource
from driftwatch.settings.sources import NvmlSource as NvmlSource
from driftwatch.settings.sources import PagesSource as PagesSource
from driftwatch.settings.sources import PrometheusSource as PrometheusSource
from driftwatch.settings.sources import RecordingSource as RecordingSource
from driftwatch.settings.sources import SourceSettings as SourceSettings
