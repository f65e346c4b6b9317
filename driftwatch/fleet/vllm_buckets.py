"""Bucket edges of vLLM 0.32's histograms (v1/metrics/buckets.py, loggers.py), finite ``le`` only.

For histograms that the simulator writes. Of a real server's histograms the edges are read, never
assumed: ``--custom-histogram-buckets`` changes them.
"""

from __future__ import annotations

REQUEST_LATENCY_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
TIME_TO_FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_LATENCY_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
ITERATION_TOKENS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip


def request_tokens(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, … up to the model's length.

    >>> request_tokens(8192)[-3:]
    (1000.0, 2000.0, 5000.0)
    """
    edges: list[float] = []
    decade = 1
    while True:
        for step in (1, 2, 5):
            if decade * step > max_model_len:
                return tuple(edges)
            edges.append(float(decade * step))
        decade *= 10
