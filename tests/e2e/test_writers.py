"""Who may write what, asked of real API servers with real credentials: every cell of the matrix, without the guard and
with it in front. The matrix is data of tests/cases/writers; what it says of the API server is what the API server says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER
from tests.e2e.guard import Guard
from tests.e2e.guarding import definitions, deployed
from tests.e2e.kinds import path
from tests.e2e.writers import ROOT, Writers, cells, guarded, upstream
from webhook.kube.rollout import API_VERSION

GRANULAR = "DRAResourceClaimGranularStatusAuthorization"
# Seconds for an answer to become the right one, as long as there are not many wrong ones.
PATIENCE, MANY = 5, 5
Wanted = Callable[[Json], str]


def differences(writers: Writers, asked: Iterable[Json], wanted: Wanted, patch: bool = False) -> list[str]:
    """The cells where the answer is another one than ``wanted``. A write that should pass is a dry run, so that the
    next one finds all as it was.
    """
    found: list[str] = []

    def wrong(cell: Json) -> str:
        verdict, policy = wanted(cell), writers.matrix["policies"][cell["table"]]
        answer = writers.answer(cell, dry=verdict in ("allow", "warn"), patch=patch)
        named = verdict not in ("warn", "deny") or answer.names(policy, cell["rule"])
        if answer.verdict(policy) == verdict and named:
            return ""
        return f"{cell['id']}: wanted {verdict}, got {answer}"

    for cell in sorted(asked, key=writers.subject):
        said = wrong(cell)
        # Neither the guard nor the authorizer knows at once of what was written just now.
        end = time.monotonic() + (PATIENCE if len(found) < MANY else 0)
        while said and time.monotonic() < end:
            time.sleep(0.1)
            said = wrong(cell)
        if said:
            found.append(said)
    return found


def policies(writers: Writers, folder: Path) -> Path:
    """The policies of the matrix, with its params, and no others: its claims have all the same device."""
    folder.mkdir(parents=True)
    for name in set(writers.matrix["policies"].values()):
        policy = yaml.safe_load((ROOT / "policies" / f"{name}.yaml").read_text())
        if "breakGlass" in policy["spec"].get("params", {}):
            policy["spec"]["params"] |= writers.matrix["params"]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(policy))
    return folder


def guarding(writers: Writers) -> Guard:
    """The guard in front, as it is deployed, with the rollouts of the matrix, and nothing stored yet."""
    cluster = writers.cluster
    definitions(cluster)
    for obj in writers.matrix["cluster"]:
        if obj["apiVersion"] == API_VERSION:
            cluster.as_admin.create(path(obj["kind"]), obj)
    writers.clear()
    return deployed(cluster, f"--policies={policies(writers, cluster.folder / 'policies')}")


def test_matrix(fresh_cluster: Callable[..., Cluster]) -> None:
    """The API server says what the matrix says of it, to actors with the rights of their kind by whole objects and by
    patches, and to those who may do all; with the guard in front, it says what the matrix says of us to both.
    """
    writers = Writers(fresh_cluster())
    minor, every = writers.cluster.minor, cells()
    found = differences(writers, every, upstream(minor))
    found += differences(writers, every, upstream(minor), patch=True)
    writers.widen()
    found += differences(writers, every, upstream(minor, wide=True))
    assert not found, "\n".join(found)
    guarding(writers)
    found = differences(writers, every, guarded(minor, wide=True))
    writers.widen(False)
    writers.clear()
    found += differences(writers, every, guarded(minor), patch=True)
    assert not found, "\n".join(found)


def test_without_the_api_servers_own_checks(fresh_plane: Callable[..., Cluster]) -> None:
    """Where 1.36 does not ask for permissions for single fields, whoever may write the status of claims may write it
    all, and the guard alone keeps to the table.
    """
    writers = Writers(fresh_plane("1.36", component_gates={API_SERVER: {GRANULAR: False}}))
    claims = cells("claims")
    front, allowed = upstream(36), upstream(36, wide=True)

    def open_door(cell: Json) -> str:
        return "403" if front(cell) == "403" else allowed(cell)

    found = differences(writers, claims, open_door)
    assert not found, "\n".join(found)
    guarding(writers)
    found = differences(writers, claims, lambda cell: cell["ours"] if open_door(cell) == "allow" else open_door(cell))
    assert not found, "\n".join(found)
