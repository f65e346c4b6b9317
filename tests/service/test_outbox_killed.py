"""kill -9 while a page is on its way: the next process sends it again, with the same key."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from fakes.loopback import Answer, LoopbackServer, Request
from outbox_cases import commit, planned

from driftwatch.clock import SystemClock
from driftwatch.receivers.webhook import IDEMPOTENCY_HEADER, WebhookSender
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.store import Store

PROCESS = """
import sys, time
from driftwatch.clock import SystemClock
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.outbox import Outbox
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.store import Store
with Store.open(sys.argv[1]) as store:
    outbox = Outbox(store, SystemClock(), OwnMetrics())
    outbox.adopt({"desk": WebhookSender("desk", sys.argv[2])})
    outbox.start()
    time.sleep(60)
"""


class Hook(LoopbackServer):
    def judge(self, request: Request) -> Answer:
        return Answer(204)


def test_a_page_that_was_on_its_way_is_sent_again(database: str) -> None:
    with Hook() as hook, Store.open(database) as store:
        hook.hang_next()
        commit(store, planned(1), planned(2))
        with subprocess.Popen([sys.executable, "-c", PROCESS, database, hook.address]) as process:
            for _ in range(6000):
                if hook.requests or process.poll() is not None:
                    break
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert len(hook.requests) == 1
        outbox = Outbox(store, SystemClock(), OwnMetrics())
        outbox.adopt({"desk": WebhookSender("desk", hook.address)})
        assert [a.result for a in outbox.deliver_once()] == ["sent", "sent"]
        keys = [r.headers[IDEMPOTENCY_HEADER.lower()] for r in hook.requests]
        assert keys == [f"{n:012x}-firing" for n in (1, 1, 2)]
        assert hook.requests[0].body == hook.requests[1].body
        assert outbox.deliver_once() == []
