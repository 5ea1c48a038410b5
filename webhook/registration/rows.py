"""Which write is sent to us, and what the API server does when we do not answer: design section 5 as data.

A row is one entry of a webhook configuration. The rows of one resource share its writes among them by their conditions
(CEL, evaluated by the API server), so that a write reaches one entry, and each kind of write has a failure policy of
its own: ``Fail`` only where an unjudged write cannot be made good later.

Conditions never fail: an error in one would refuse the write under ``Fail`` and skip us under ``Ignore``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from webhook.kube.resource import FIELD_136, FIELD_137, POD_FIELD
from webhook.policy.match import SYSTEM_NAMESPACES

VALIDATE, MUTATE = "validate", "mutate"
FAIL, IGNORE = "Fail", "Ignore"

_DRA, _RBAC = "resource.k8s.io", "rbac.authorization.k8s.io"
_SLICES, _CLAIM_STATUS = "resourceslices", "resourceclaims/status"
# Names of drivers in one condition: CEL takes 100,000 characters, a name has 63.
_CHUNK = 512
# Characters of names of accounts in one: with more, all tokens are asked about.
_LONGEST = 90_000

Condition = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One entry: ``operations`` by resource (of ``v1`` of ``group``), and what the API server is told about them.

    ``conditions`` are (name, CEL). ``implies`` are facts that have this value in every write that meets them: a policy
    that asks for the other one needs no such entry. ``seconds`` is the timeout. ``excluded`` are namespaces that are
    left alone beside our own.
    """

    name: str
    group: str
    operations: Mapping[str, Sequence[str]]
    failure: str = IGNORE
    seconds: int = 5
    side_effects: str = "None"
    endpoint: str = VALIDATE
    conditions: tuple[Condition, ...] = ()
    implies: Mapping[str, bool] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()


def rows(drivers: frozenset[str], accounts: frozenset[tuple[str, str]] | None = None) -> list[Row]:
    """All rows for these ``drivers``: those with a DriverRollout, and those whose slices have or had a mapping.
    ``accounts`` are the ServiceAccounts (namespace, name) that write for any driver, None where they are not known.
    """
    names = sorted(drivers)
    chunks = [
        "[{}]".format(", ".join(f"'{name}'" for name in names[at : at + _CHUNK])) for at in range(0, len(names), _CHUNK)
    ]
    return [*_slice_rows(chunks), *_claim_rows(chunks), *_pod_rows(), *_other_rows(), *_token_rows(accounts)]


def _slice_rows(chunks: list[str]) -> list[Row]:
    written, updated = {_SLICES: ("CREATE", "UPDATE")}, {_SLICES: ("UPDATE",)}
    # What only its metadata changes must get through while we are away, finalizers of what is being deleted as well.
    changes = "oldObject == null || object == null || object.spec != oldObject.spec"
    # A field that the server's release does not have is gone before admission: its test is false there, no error.
    maps = f"has(device.{FIELD_136}) || has(device.{FIELD_137})"
    mapped = " || ".join(
        f"({name} != null && {name}.spec.?devices.orValue([]).exists(device, {maps}))"
        for name in ("object", "oldObject")
    )
    listed = [f"(object == null ? oldObject : object).spec.driver in {chunk}" for chunk in chunks]
    changed, same = ("changes", changes), ("changes-nothing", f"!({changes})")
    unmapped = ("not-mapped", f"!({mapped})")
    never_mapped = {"slice.mapped": False, "slice.wasMapped": False}
    unchanged = {"slice.changed": False, "slice.deleted": False}
    return [
        Row("mapped-slices", _DRA, written, FAIL, conditions=(changed, ("mapped", mapped))),
        *(
            Row(
                f"guarded-slices{_number(index)}",
                _DRA,
                written,
                FAIL,
                conditions=(changed, unmapped, ("listed-driver", expression)),
                implies=never_mapped,
            )
            for index, expression in enumerate(listed)
        ),
        Row(
            "other-slices",
            _DRA,
            written,
            conditions=(changed, unmapped, *_none("unlisted-driver", listed)),
            implies=never_mapped,
        ),
        Row("unchanged-slices", _DRA, updated, conditions=(same,), implies=unchanged),
        Row("slice-deletions", _DRA, {_SLICES: ("DELETE",)}),
        Row("sent-mapped-slices", _DRA, written, endpoint=MUTATE, conditions=(changed, ("mapped", mapped))),
        Row("sent-other-slices", _DRA, written, endpoint=MUTATE, conditions=(changed, unmapped), implies=never_mapped),
        Row("sent-unchanged-slices", _DRA, updated, endpoint=MUTATE, conditions=(same,), implies=unchanged),
    ]


def _claim_rows(chunks: list[str]) -> list[Row]:
    written = {_CLAIM_STATUS: ("UPDATE",)}
    # An allocation that is set (it is immutable while it is there), or a consumer that was not there before.
    allocates = (
        "object != null && object.?status.?allocation.hasValue() && (oldObject == null || "
        "object.?status.?allocation != oldObject.?status.?allocation || "
        "!sets.contains(oldObject.?status.?reservedFor.orValue([]), object.?status.?reservedFor.orValue([])))"
    )
    results = "object.?status.?allocation.?devices.?results.orValue([])"
    listed = [f"object != null && {results}.exists(result, result.driver in {chunk})" for chunk in chunks]
    allocating = ("allocates-or-adds-a-consumer", allocates)
    return [
        *(
            Row(
                f"guarded-allocations{_number(index)}",
                _DRA,
                written,
                FAIL,
                side_effects="NoneOnDryRun",
                conditions=(allocating, ("listed-driver", expression)),
                excluded=SYSTEM_NAMESPACES,
            )
            for index, expression in enumerate(listed)
        ),
        Row(
            "other-allocations",
            _DRA,
            written,
            side_effects="NoneOnDryRun",
            conditions=(allocating, *_none("unlisted-driver", listed)),
            excluded=SYSTEM_NAMESPACES,
        ),
        Row(
            "claim-releases",
            _DRA,
            written,
            conditions=(("allocates-nothing-adds-nobody", f"!({allocates})"),),
            implies={"claim.allocating": False, "claim.addsConsumers": False},
            excluded=SYSTEM_NAMESPACES,
        ),
        Row(
            "new-claims",
            _DRA,
            {"resourceclaims": ("CREATE",), "resourceclaimtemplates": ("CREATE",)},
            excluded=SYSTEM_NAMESPACES,
        ),
    ]


def _pod_rows() -> list[Row]:
    field = f"?status.?{POD_FIELD}"
    differs = f"object == null || oldObject == null || object.{field} != oldObject.{field}"
    # A refused pod status or binding is what binds a pod uncounted, and so is one that waits for us.
    return [
        Row("new-pods", "", {"pods": ("CREATE",)}, excluded=SYSTEM_NAMESPACES),
        Row(
            "pod-claim-status",
            "",
            {"pods/status": ("UPDATE",)},
            seconds=1,
            conditions=(("claim-statuses-differ", differs),),
            excluded=SYSTEM_NAMESPACES,
        ),
        # Bindings can be written without their pod in the path, too.
        Row(
            "pod-bindings",
            "",
            dict.fromkeys(("pods/binding", "bindings"), ("CREATE",)),
            seconds=1,
            excluded=SYSTEM_NAMESPACES,
        ),
        Row("pod-resizes", "", {"pods/resize": ("UPDATE",)}, excluded=SYSTEM_NAMESPACES),
        Row("sent-pods", "", {"pods": ("CREATE",)}, endpoint=MUTATE, excluded=SYSTEM_NAMESPACES),
    ]


def _other_rows() -> list[Row]:
    # A kubelet's heartbeat changes none of these.
    changes = " || ".join(
        f"object.{path} != oldObject.{path}"
        for path in ("metadata.?labels", "spec", "?status.?allocatable", "?status.?capacity")
    )
    roles = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
    return [
        Row(
            "node-changes",
            "",
            {"nodes": ("CREATE", "UPDATE"), "nodes/status": ("UPDATE",)},
            conditions=(("no-heartbeat", f"object == null || oldObject == null || {changes}"),),
        ),
        Row("role-changes", _RBAC, dict.fromkeys(roles, ("CREATE", "UPDATE"))),
    ]


def _token_rows(accounts: frozenset[tuple[str, str]] | None) -> list[Row]:
    """Every pod has a token that its kubelet asks for again and again: those of other accounts are kept away."""
    asked = {"serviceaccounts/token": ("CREATE",)}
    names = ", ".join(f"'{namespace}/{name}'" for namespace, name in sorted(accounts or ()))
    if accounts is None or len(names) > _LONGEST:
        return [Row("token-requests", "", asked, seconds=1)]
    expression = f"(request.namespace + '/' + request.name) in [{names}]"
    return [
        Row("driver-tokens", "", asked, seconds=1, conditions=(("account-of-a-driver", expression),)),
        Row(
            "other-tokens",
            "",
            asked,
            seconds=1,
            conditions=(("no-account-of-a-driver", f"!({expression})"),),
            implies={"writer.driverToken": False},
        ),
    ]


def _none(name: str, expressions: list[str]) -> list[Condition]:
    return [(f"{name}{_number(index)}", f"!({each})") for index, each in enumerate(expressions)]


def _number(index: int) -> str:
    return f"-{index + 1}" if index else ""
