"""Where requests come from: logs and traces, arrival processes, production statistics, histograms.

``read_requests(path)`` reads a file in any format that driftwatch knows, by its content.
"""

from __future__ import annotations

from driftwatch.simulate.workload.requests_file import Workload, read_requests, read_workload

__all__ = ["Workload", "read_requests", "read_workload"]
