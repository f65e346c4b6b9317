from __future__ import annotations

import pytest
from fakes import prometheus_server


@pytest.fixture(scope="session")
def real_prometheus() -> None:
    """Skips where Debian's Prometheus is not on the machine."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
