"""Who may write what: every cell of the matrix, judged by the policies that we ship, on files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.facts.writers import read_params
from webhook.kube.admission import raw_request, read_request
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.policy.evaluate import Evaluation, evaluate
from webhook.policy.fieldpath import changed
from webhook.policy.modes import denies, warns
from webhook.policy.revision import Revision, revision_of
from webhook.store.policies import shipped

Json = dict[str, Any]
MATRIX: Json = yaml.safe_load((Path(__file__).parent / "writers" / "matrix.yaml").read_text())
EXTRA = "authentication.kubernetes.io/"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SNAPSHOT = build(MATRIX["cluster"], Release(36))


@cache
def revision() -> Revision:
    """Our policies, with the params of the matrix over their own."""
    files = {str(path): path.read_bytes() for path in sorted(Path(shipped()).glob("*.yaml"))}
    policies = []
    for compiled in compile_files(files).policies:
        params = {**compiled.policy.params, **MATRIX["params"]}
        if compiled.writers is not None:
            writers, problems = read_params(params)
            assert not problems
            compiled = replace(compiled, policy=replace(compiled.policy, params=params), writers=writers)
        policies.append(compiled)
    return revision_of(policies)


def user_of(name: str) -> Json:
    """The user, groups and extra of an identity, as the API server's authenticators give them."""
    identity = MATRIX["identities"][name]
    if "user" in identity:
        return {"user": identity["user"], "groups": (*identity.get("groups", ()), "system:authenticated")}
    namespace = identity.get("namespace", "vendor")
    extra = {"credential-id": ["JTI=0b7e3a52-0000-4000-8000-000000000001"]}
    if "nodes" in identity:
        extra["node-name"] = identity["nodes"]
    if "pod" in identity:
        extra |= {"pod-name": [identity["pod"]], "pod-uid": ["0b7e3a52-0000-4000-8000-000000000002"]}
    return {
        "user": f"system:serviceaccount:{namespace}:{identity['account']}",
        "groups": ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
        "extra": {EXTRA + key: values for key, values in extra.items()},
    }


def judged(actor: str, write: Json, expired: Callable[[], bool] = lambda: False) -> Evaluation:
    old = MATRIX["objects"].get(write.get("oldObject"))
    new = MATRIX["objects"].get(write.get("object"), old)
    new = None if write["operation"] == "DELETE" else changed(new, write.get("set", {}))
    raw = raw_request(write["operation"], new, old, sub_resource=write.get("subresource", ""), **user_of(actor))
    if write.get("nameless"):
        raw["name"] = ""
    return evaluate(revision(), read_request(raw), "validate", SNAPSHOT, Book(), NOW, expired=expired)


def ids(cells: list[Json]) -> list[Any]:
    return [pytest.param(cell, id=cell["id"]) for cell in cells]


@pytest.mark.parametrize("cell", ids(MATRIX["cells"]))
def test_cell(cell: Json) -> None:
    evaluation = judged(cell["actor"], MATRIX["writes"][cell["write"]])
    found = [result for result in evaluation.policies if result.policy == MATRIX["policies"][cell["table"]]]
    assert found, "no policy is asked"
    assert not [rule.error for result in found for rule in result.rules if rule.error]
    findings = [(result.action, finding) for result in found for finding in result.findings]
    denied = [finding for action, finding in findings if denies(action, finding.severity)]
    warned = [finding for action, finding in findings if warns(action, finding.severity)]
    ours = "deny" if denied else "warn" if warned else "allow"
    assert ours == cell["ours"], [finding.text("p") for _, finding in findings]
    if ours != "allow":
        assert cell["rule"] in {finding.rule for finding in (*denied, *warned)}


@pytest.mark.parametrize(
    ("actor", "write"),
    [
        *(("scheduler", write) for write in ("clear", "release")),
        *(("claim-controller", write) for write in ("clear", "release")),
        *(("kubelet", write) for write in ("delete-here", "delete-nic", "delete-open-here")),
        *((actor, "delete-all") for actor in ("collector", "namespace-controller", "controller-manager")),
    ],
)
def test_what_releases_or_cleans_up_passes_also_when_the_time_is_spent(actor: str, write: str) -> None:
    evaluation = judged(actor, MATRIX["writes"][write], expired=lambda: True)
    assert evaluation.policies
    assert [f.text(r.policy) for r in evaluation.policies for f in r.findings if denies(r.action, f.severity)] == []


def test_every_identity_and_every_write_is_in_a_cell() -> None:
    cells = MATRIX["cells"]
    assert {cell["actor"] for cell in cells} == set(MATRIX["identities"])
    assert {cell["write"] for cell in cells} == set(MATRIX["writes"])
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_cells_are_well_formed() -> None:
    for cell in MATRIX["cells"]:
        assert {cell["upstream"], cell.get("wide", "allow")} <= {"allow", "403", "422"}, cell["id"]
        assert cell["ours"] in ("allow", "warn", "deny"), cell["id"]
        assert (cell["ours"] == "allow") is ("rule" not in cell), cell["id"]
        assert cell.get("live", True) or cell["why"], cell["id"]


def test_what_the_api_server_checks_in_an_object_we_are_never_looser_about() -> None:
    """A missing right (403) is its matter; what it refuses in what is written (422) is refused here too, but for a
    field that it never lets anybody change, for who is exempt, and for drivers whose writers nobody named.
    """
    passed = {
        (cell["actor"], cell["write"])
        for cell in MATRIX["cells"]
        if cell["upstream"] == "422" and cell["ours"] != "deny"
    }
    assert passed == {
        ("plugin", "move-pool"),
        *(("publisher", write) for write in ("unset-node", "set-node")),
        *((actor, "report-unallocated") for actor in ("admin", "api-server")),
        *((actor, write) for actor in ("plugin", "other-plugin") for write in ("report-open", "clear-open")),
        *((actor, "report-open") for actor in ("plugin-2", "plugin-unbound")),
        ("plugin", "reserve-open"),
    }
