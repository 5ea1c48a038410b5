"""Reports that tools for policies read: ``Report`` and ``ClusterReport`` (openreports.io), or those that came before
them, ``PolicyReport`` and ``ClusterPolicyReport`` (wgpolicyk8s.io).

Ours are told by their label, one for each namespace and one for the cluster. Somebody else's are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from webhook.kube.finding import SEVERITY_ORDER, Severity, one_line
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import GROUP

NAME = "allocguard"
MANAGED_BY = "app.kubernetes.io/managed-by"
SELECTOR = f"{MANAGED_BY}={NAME}"
LEFT_OUT = f"{GROUP}/results-left-out"
# Results of one report, and characters of the message and of the path of each: four bytes for every character, it stays
# below what etcd takes of an object, 1.5 MiB.
MOST, _LONGEST, _LONGEST_PATH = 250, 800, 200

# What findings are in a report. One that is no error is not scored.
_RESULTS: dict[Severity, str] = {"error": "fail", "warning": "warn", "info": "warn"}
_COUNTED = ("pass", "fail", "warn", "error", "skip")


@dataclass(frozen=True, slots=True)
class Family:
    """A group of the API with reports, whose kinds are alike but for what they are called and a few fields. ``lowest``
    is the severity of an info; ``whole`` is whether a report names its source and its limit.
    """

    group: str
    version: str
    kinds: tuple[str, str]
    lowest: str
    whole: bool

    @property
    def api_version(self) -> str:
        """``openreports.io/v1alpha1``."""
        return f"{self.group}/{self.version}"

    def path(self, clustered: bool, namespace: str = "", name: str = "") -> str:
        """The URL path of a report, of all of a namespace, or of all namespaces; ``clustered``: of those without."""
        middle = f"namespaces/{namespace}/" if namespace else ""
        tail = f"/{name}" if name else ""
        return f"/apis/{self.api_version}/{middle}{self.kinds[clustered].lower()}s{tail}"


# The newest first. The first definitions of PolicyReport know no severity below low.
FAMILIES = (
    Family("openreports.io", "v1alpha1", ("Report", "ClusterReport"), "info", True),
    Family("wgpolicyk8s.io", "v1alpha2", ("PolicyReport", "ClusterPolicyReport"), "low", False),
)


class Row(Struct, frozen=True):
    """One finding about a stored object, as a report has it."""

    policy: str
    rule: str
    severity: Severity
    path: str
    message: str
    fix: str
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    category: str

    @property
    def line(self) -> str:
        """``path: has X, needs Y; fix``."""
        told = f"{self.path}: {self.message}" if self.path else self.message
        return f"{told}; {self.fix}" if self.fix else told

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it the same finding at the next look, whatever its numbers are then."""
        return (self.kind, self.namespace, self.name, self.uid, self.policy, self.rule, self.path)


def report(
    family: Family, namespace: str, rows: Sequence[Row], counts: Mapping[Severity, int], now: datetime, held: Json
) -> Json:
    """The report of ``namespace`` (empty: of the cluster) with the gravest ``rows``; ``counts`` tells how many there
    are of each severity. What the report ``held`` (empty: there is none) has already keeps the time it was found at.
    """
    found = {_key(each): each.get("timestamp") for each in members(held.get("results"))}
    kept = rows[:MOST]
    at = {"seconds": int(now.timestamp()), "nanos": 0}
    metadata: Json = {"name": NAME, "labels": {MANAGED_BY: NAME}}
    if namespace:
        metadata["namespace"] = namespace
    if sum(counts.values()) > len(kept):
        metadata["annotations"] = {LEFT_OUT: str(sum(counts.values()) - len(kept))}
    made: Json = {"apiVersion": family.api_version, "kind": family.kinds[not namespace], "metadata": metadata}
    if family.whole:
        made |= {"source": NAME, "configuration": {"limits": {"maxResults": MOST}}}
    if namespace:
        made["scope"] = {"apiVersion": "v1", "kind": "Namespace", "name": namespace}
    summary = dict.fromkeys(_COUNTED, 0)
    for severity, count in counts.items():
        summary[_RESULTS[severity]] += count
    results = [_result(family, row) for row in kept]
    made |= {"summary": summary, "results": [{**each, "timestamp": found.get(_key(each)) or at} for each in results]}
    return made


def ours(obj: Json) -> bool:
    """Whether a stored report is ours."""
    metadata = mapping(obj.get("metadata"))
    return metadata.get("name") == NAME and mapping(metadata.get("labels")).get(MANAGED_BY) == NAME


def changed(made: Json, held: Json) -> tuple[bool, bool]:
    """Whether ``made`` says anything else than ``held``, which is stored; and whether that is more than words: another
    finding, or one less.
    """
    more = made["summary"] != held.get("summary") or _keys(made) != _keys(held) or _left_out(made) != _left_out(held)
    return more or made["results"] != held.get("results"), more


def gravest(rows: Iterable[Row]) -> list[Row]:
    """``rows`` in the order of a report: gravest first, then by object and rule."""
    return sorted(rows, key=lambda row: (SEVERITY_ORDER[row.severity], row.key))


def _result(family: Family, row: Row) -> Json:
    severity = {"error": "high", "warning": "medium", "info": family.lowest}[row.severity]
    resource = {"apiVersion": row.api_version, "kind": row.kind, "name": row.name}
    resource |= {name: value for name, value in (("namespace", row.namespace), ("uid", row.uid)) if value}
    return {
        "source": NAME,
        "policy": row.policy,
        "rule": row.rule,
        "category": row.category,
        "severity": severity,
        "result": _RESULTS[row.severity],
        "scored": row.severity == "error",
        "message": one_line(row.line)[:_LONGEST],
        "resources": [resource],
        "properties": {"path": one_line(row.path)[:_LONGEST_PATH]},
    }


def _keys(obj: Json) -> list[tuple[str, ...]]:
    return [_key(each) for each in members(obj.get("results"))]


def _left_out(obj: Json) -> object:
    return mapping(mapping(obj.get("metadata")).get("annotations")).get(LEFT_OUT)


def _key(result: Json) -> tuple[str, ...]:
    about = next(iter(members(result.get("resources"))), {})
    told = [text(about.get(name)) for name in ("kind", "namespace", "name", "uid")]
    told += [text(result.get("policy")), text(result.get("rule"))]
    return (*told, text(mapping(result.get("properties")).get("path")))
