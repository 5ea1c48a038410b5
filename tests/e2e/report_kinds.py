"""The kinds of reports that tools for policies define, for a real API server to check ours against.

Fields, types, enumerations and what is required are those of the published definitions: openreports.io/v1alpha1, and
wgpolicyk8s.io/v1alpha2 in its first form, which knows the fewest severities. What has no field here the server drops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.kube.policy_report import Family

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_OUTCOMES = ("pass", "fail", "warn", "error", "skip")


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _one_of(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_REFERENCE = _object(
    **dict.fromkeys(("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"), _TEXT)
)
_EXPRESSION = _object(("key", "operator"), key=_TEXT, operator=_TEXT, values=_list(_TEXT))
_SELECTOR = _object(matchExpressions=_list(_EXPRESSION), matchLabels=_TEXTS)
_TIMESTAMP = _object(("nanos", "seconds"), nanos={**_NUMBER, "format": "int32"}, seconds={**_NUMBER, "format": "int64"})


def _schema(family: Family) -> Json:
    result = _object(
        ("policy",),
        **dict.fromkeys(("category", "message", "policy", "rule", "source"), _TEXT),
        properties=_TEXTS,
        resourceSelector=_SELECTOR,
        resources=_list(_REFERENCE),
        result=_one_of(*_OUTCOMES),
        scored={"type": "boolean"},
        severity=_one_of("high", "low", "medium", *(("critical", "info") if family.whole else ())),
        timestamp=_TIMESTAMP,
    )
    fields: Json = {
        **dict.fromkeys(("apiVersion", "kind"), _TEXT),
        "metadata": {"type": "object"},
        "results": _list(result),
        "scope": _REFERENCE,
        "scopeSelector": _SELECTOR,
        "summary": _object(**dict.fromkeys(_OUTCOMES, _NUMBER)),
    }
    if family.whole:
        limits = _object(maxResults=_NUMBER, statusFilter=_list(_one_of(*_OUTCOMES)))
        fields |= {"source": _TEXT, "configuration": _object(("limits",), limits=limits)}
    return _object(**fields)


@contextmanager
def reports_defined(cluster: Cluster, family: Family) -> Iterator[None]:
    """The API server has both kinds of ``family`` meanwhile; their objects go with them."""
    place = path("CustomResourceDefinition")
    names = {f"{kind.lower()}s.{family.group}": kind for kind in family.kinds}
    try:
        for name, kind in names.items():
            spec = {
                "group": family.group,
                "names": {"kind": kind, "listKind": f"{kind}List", "plural": f"{kind.lower()}s"},
                "scope": "Cluster" if kind.startswith("Cluster") else "Namespaced",
                "versions": [
                    {
                        "name": family.version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": _schema(family)},
                    }
                ],
            }
            spec["names"]["singular"] = kind.lower()
            cluster.as_admin.create(place, {"metadata": {"name": name}, "spec": spec})
        for clustered in (True, False):
            eventually(lambda clustered=clustered: cluster.as_admin.find(family.path(clustered)))
        yield
    finally:
        for name in names:
            cluster.as_admin.gone(f"{place}/{name}")
        for name in names:
            eventually(lambda name=name: cluster.as_admin.find(f"{place}/{name}") is None)
