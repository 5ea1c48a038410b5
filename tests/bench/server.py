"""The server under measurement: as it is, or as one that only decodes and allows.

Started as ``python -m tests.bench.server FOLDER guard|allow CORE``; FOLDER has ``cluster`` and ``certs``.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from webhook.admission.action import Answer
from webhook.admission.decode import decode
from webhook.admission.respond import respond
from webhook.cluster.files import Cluster
from webhook.server.run import run
from webhook.server.service import Reply, Service
from webhook.server.settings import Settings
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log


class Allowing(Service):
    """What every review costs, whoever judges it."""

    def answer(self, endpoint: str, data: bytes, until: float, parent: str = "") -> Reply:
        request = decode(data)
        answer = Answer(request.uid, True, annotations={"revision": self.policies.revision.hash})
        return Reply(respond(answer), request.resource.name, request.operation, True, lambda _: None)


def main(folder: str, kind: str, core: str) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})
    settings = Settings(Path(folder, "certs"), [str(Path(folder, "cluster"))], (), "127.0.0.1", 0, None)
    service = (Allowing if kind == "allow" else Service)(
        PolicyStore([shipped()]), Cluster(settings.cluster), Log(), lambda: datetime.now(UTC)
    )
    run(service, settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
