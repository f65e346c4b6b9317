"""Standard output."""

from __future__ import annotations

from driftwatch.yaml_models import Part


class StdoutReceiver(Part):
    """Pages as JSON lines on standard output."""
