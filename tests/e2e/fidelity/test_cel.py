"""The corpus of CEL expressions through real ValidatingAdmissionPolicies and real device selectors.

The corpus says what Kubernetes' own evaluator gave, and tests/cel compares our engine with that. Here whole API servers
and schedulers of both releases are asked; where one says otherwise differences.yaml lists it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.client import ApiError, Client
from tests.e2e.fidelity.conftest import Scheduling
from tests.e2e.fidelity.expressions import (
    GROUP,
    PLURAL,
    READY,
    VERSION,
    Case,
    Group,
    asked,
    binding,
    custom_resource,
    groups,
    policy,
)
from tests.e2e.fidelity.test_footprints import refusal
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually

LISTED: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text())["cel"]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
CASES = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
_PLACE = re.compile(r"spec\.(variables|validations)\[(\d+)\]\.expression")
GROUPS = groups()
FIXED = [group for group in GROUPS if group.device is None]


@pytest.fixture(scope="module", autouse=True)
def kind(scheduling: Scheduling) -> None:
    """The kind whose objects carry names for expressions."""
    scheduling.client.create(path("CustomResourceDefinition"), custom_resource())
    eventually(lambda: scheduling.client.items(CASES) == [])


def verdict(said: str, wanted: str, expression: str, minor: int, place: str = "policies") -> str:
    """Empty when the server says what the corpus, or differences.yaml for this release, does."""
    entry = next(
        (
            e
            for e in LISTED
            if re.search(e["expression"], expression) and minor in e.get("releases", [36, 37]) and place == "policies"
        ),
        None,
    )
    if entry is not None:
        wanted = entry["says"]
    return "" if said == wanted else f"{expression}: wanted {wanted}, the server says {said}"


def broken(client: Client, group: Group, cases: dict[str, Case]) -> set[str]:
    """The numbers of the cases that do not compile, as the server says when it is given all of them at once."""
    causes = refused(client, POLICIES, policy(group, cases), dryRun="All")
    numbers = list(cases)
    found = {(field[1], int(field[2])) for cause in causes if (field := _PLACE.fullmatch(cause["field"]))}
    variables = {numbers[index] for where, index in found if where == "variables"}
    # What is compared with a variable that does not compile does not either; the first validation is not a case's.
    others = {numbers[index - 1] for where, index in found if where == "validations"} - variables
    assert not others, causes
    return variables


def refused(client: Client, at: str, body: dict[str, Any], **params: str) -> list[dict[str, Any]]:
    """The causes why ``body`` is not taken; empty when it is."""
    try:
        client.create(at, body, **params)
    except ApiError as error:
        if error.code != 422:
            raise
        return error.causes
    return []


def evaluated(client: Client, group: Group, number: str) -> str:
    """What the policy in force says about a case: ``value``, ``evaluate`` (an error), or that the value is another."""
    try:
        client.create(CASES, asked(group, number), dryRun="All")
    except ApiError as error:
        return "evaluate" if "resulted in error" in error.message else error.message.partition("denied request: ")[2]
    return "value"


@pytest.mark.parametrize("group", FIXED, ids=lambda group: group.name)
def test_expressions_of_policies(
    scheduling: Scheduling, group: Group, record_property: Callable[[str, object], None]
) -> None:
    """Each expression compiles, fails, or has the value and the type that the corpus says, in a policy in force."""
    client, minor = scheduling.client, scheduling.minor
    cases = {f"v{n}": case for n, case in enumerate(group.cases) if case.error != "panic"}
    unusable = broken(client, group, {number: case for number, case in cases.items() if case.error == "compile"})
    wrong = [
        verdict("compile" if number in unusable else "value", "compile", case.expression, minor)
        for number, case in cases.items()
        if case.error == "compile"
    ]
    sound = {number: case for number, case in cases.items() if case.error != "compile"}
    # What it says about sound expressions, each alone, so that one is not taken for another's fault.
    unusable = broken(client, group, sound)
    wrong += [
        verdict("compile", sound[number].error or "value", sound[number].expression, minor) for number in unusable
    ]
    sound = {number: case for number, case in sound.items() if number not in unusable}
    client.create(POLICIES, policy(group, sound))
    client.create(BINDINGS, binding(group))
    eventually(lambda: evaluated(client, group, READY) == READY)
    said = {number: evaluated(client, group, number) for number in sound}
    wrong += [verdict(said[number], case.error or "value", case.expression, minor) for number, case in sound.items()]
    counts = Counter(case.error or "value" for case in cases.values())
    text = f"cel, {scheduling.release}, {group.name}: {', '.join(f'{count} {name}' for name, count in counts.items())}"
    record_property("fidelity", json.dumps({"text": text}))
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_the_expression_that_stops_the_server(scheduling: Scheduling) -> None:
    """An expression of the corpus makes the API server's checker panic: the client's connection is cut."""
    panics = [(group, case) for group in FIXED for case in group.cases if case.error == "panic"]
    assert panics
    for group, case in panics:
        with pytest.raises(httpx.RemoteProtocolError):
            scheduling.client.create(POLICIES, policy(group, {"v0": case}), dryRun="All")


@pytest.mark.parametrize("group", [g for g in GROUPS if g.device is not None], ids=lambda group: group.name)
def test_selectors_of_devices(
    scheduling: Scheduling, group: Group, record_property: Callable[[str, object], None]
) -> None:
    """Each selector of the corpus chooses the device, does not, or ends in an error, as the real scheduler has it."""
    client, space = scheduling.client, scheduling.namespace
    node = group.name
    client.create(
        path("Node"),
        {
            "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}},
            "status": {"allocatable": {"cpu": "9", "memory": "9Gi", "pods": "110"}},
        },
    )
    client.patch(path("Node", node), {"spec": {"taints": None}})
    assert group.device is not None
    device = {key: value for key, value in group.device.items() if key != "driver"}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": group.device["driver"], "nodeName": node, "pool": pool, "devices": [{"name": "d", **device}]}
    client.create(path("ResourceSlice"), {"metadata": {"name": node}, "spec": spec})
    client.create(path("DeviceClass"), {"metadata": {"name": node}, "spec": {}})
    said: dict[str, str] = {}
    for number, case in enumerate(group.cases):
        name = f"{node}-{number}"
        # With admin access they can all have the one device.
        exactly = {
            "deviceClassName": node,
            "adminAccess": True,
            "selectors": [{"cel": {"expression": case.expression}}],
        }
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
        causes = refused(client, path("ResourceClaim", namespace=space), claim)
        if causes:
            assert [cause["reason"] for cause in causes] == ["FieldValueInvalid"], causes
            said[name] = "compile"
            continue
        container = {"name": "main", "image": "registry.invalid/pause:1", "resources": {"claims": [{"name": "c"}]}}
        pod = {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "resourceClaims": [{"name": "c", "resourceClaimName": name}],
            "terminationGracePeriodSeconds": 0,
        }
        client.create(path("Pod", namespace=space), {"metadata": {"name": name}, "spec": pod})

    def decided() -> dict[str, str]:
        pods = client.items(path("Pod", namespace=space))
        outcomes = {pod["metadata"]["name"]: outcome(pod) for pod in pods}
        return outcomes if outcomes and all(outcomes.values()) else {}

    said |= eventually(decided, within=60)
    for collection in (path("Pod", namespace=space), path("ResourceClaim", namespace=space)):
        client.delete(collection, gracePeriodSeconds="0")
    client.gone(path("ResourceSlice", node))
    wrong = [
        verdict(
            said[f"{node}-{number}"],
            case.error or str(case.value).lower(),
            case.expression,
            scheduling.minor,
            "selectors",
        )
        for number, case in enumerate(group.cases)
    ]
    record_property(
        "fidelity", json.dumps({"text": f"cel, {scheduling.release}, {node}: {len(group.cases)} selectors"})
    )
    assert not any(wrong), "\n".join(filter(None, wrong))


def outcome(pod: dict[str, Any]) -> str:
    """What the scheduler made of the pod's selector; empty as long as it has not looked."""
    if pod["spec"].get("nodeName"):
        return "true"
    why = refusal(pod)
    if not why:
        return ""
    return "false" if "cannot allocate all claims" in why else "evaluate"
