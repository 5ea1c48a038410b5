"""Records what audit events of refused status writes look like: python -m tests.e2e.record_audit 1.37 [ROW…].

Writes ``tests/facts/data/audit-1.37.jsonl``: for each row its event at level Metadata, and for some of them with the
request at level Request, with the claim and the roles that there were.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER, ControlPlane
from tests.e2e.failed_writes import ROWS, Scene, audit_policy
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually

DATA = Path(__file__).parents[1] / "facts" / "data"
LEVELS = ("Metadata", "Request")
# Whose requests are recorded, too: of each way to write, and where they tell more than the answer.
SENT = ("driver-verb-update-put", "both", "foreign-data", "opaque-parameters", "conflict", "undecodable")


def objects(scene: Scene, row: str) -> list[Json]:
    """The claim of a row as it is now, and what its account, or the driver, may do."""
    cluster = scene.cluster
    names = (f"{row}-{cluster.ns}", row, f"{scene.driver.account}-{cluster.ns}")
    kinds = {"ClusterRole": "", "ClusterRoleBinding": "", "Role": cluster.ns, "RoleBinding": cluster.ns}
    found = [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, **obj}
        for kind, namespace in kinds.items()
        for obj in cluster.as_admin.items(path(kind, namespace=namespace))
        if obj["metadata"]["name"] in names
    ]
    claim = cluster.as_admin.find(cluster.path("ResourceClaim", row))
    found += [claim] if claim is not None else []
    for obj in found:
        obj["metadata"].pop("managedFields", None)
    return found


def main(release: str, *rows: str) -> None:
    """Provoke all rows, or these."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "audit.log"
        flags = [f"--audit-policy-file={audit_policy(folder)}", f"--audit-log-path={log}"]
        plane = ControlPlane(folder / "plane", release, flags={API_SERVER: flags})
        plane.start()
        made: list[Json] = []
        try:
            for level in LEVELS:
                (folder / level).mkdir()
                scene = Scene(Cluster(plane, level.lower(), folder / level))
                for row in rows or (ROWS if level == LEVELS[0] else SENT):
                    ROWS[row](scene, row)
                    event = eventually(lambda row=row, scene=scene: _failed(log, scene.cluster.ns, row))
                    made.append({"row": row, "event": event, "objects": objects(scene, row)})
        finally:
            plane.stop()
    (DATA / f"audit-{release}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in made))


def _failed(log: Path, namespace: str, row: str) -> Json | None:
    for line in log.read_text().splitlines():
        event: Json = json.loads(line)
        place = event["objectRef"]
        if (place["namespace"], place["name"]) == (namespace, row) and event["responseStatus"]["code"] >= 400:
            return event
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
