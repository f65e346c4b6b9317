"""dcgm-exporter on the loopback."""

from __future__ import annotations

from fakes.loopback import Answer, LoopbackServer, Request


class DcgmExporter(LoopbackServer):
    """Serves a page on ``/metrics``; the page may be changed while it runs.

    Attributes:
        page: what it serves.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page

    @property
    def url(self) -> str:
        return f"{self.address}/metrics"

    @property
    def instance(self) -> str:
        return self.address.removeprefix("http://")

    def judge(self, request: Request) -> Answer:
        if request.path != "/metrics":
            return Answer(404, "404 page not found\n", {"Content-Type": "text/plain"})
        return Answer(200, self.page, {"Content-Type": "text/plain; charset=utf-8"})
