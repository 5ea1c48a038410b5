"""The request of an AdmissionReview (``admission.k8s.io/v1``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from webhook.kube.raw import Json, flag, mapping, sequence, text


class GroupVersionName(Struct, frozen=True):
    """A group, version and kind or resource."""

    group: str
    version: str
    name: str


class Request(Struct, frozen=True):
    """One admission request. ``object`` is None on DELETE, ``old_object`` on CREATE; both are raw JSON.

    ``raw`` is the request as it came, for expressions that read fields not named here; ``sent`` are the bytes of the
    review that it came in, empty where it was put together from objects.
    """

    uid: str
    kind: GroupVersionName
    resource: GroupVersionName
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user: str = ""
    dry_run: bool = False
    object: Json | None = None
    old_object: Json | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    sent: bytes = b""

    @property
    def target(self) -> Json:
        """The object the write is about: the new one, or the old one on DELETE."""
        return self.object if self.object is not None else (self.old_object or {})

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the user."""
        return _texts(mapping(self.raw.get("userInfo")).get("groups"))

    @property
    def extra(self) -> dict[str, tuple[str, ...]]:
        """What the authenticator adds about the user."""
        extra = mapping(mapping(self.raw.get("userInfo")).get("extra"))
        return {str(key): _texts(values) for key, values in extra.items()}


# Plural names of the kinds whose reviews are built from bare objects.
_PLURALS = {"DeviceClass": "deviceclasses", "Binding": "pods", "TokenRequest": "serviceaccounts"}
# Those that are always written to a subresource of v1, whatever group they are of.
_SUBRESOURCES = {"Binding": "binding", "TokenRequest": "token"}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in sequence(value) if isinstance(each, str))


def _named(raw: object, member: str) -> GroupVersionName:
    fields = mapping(raw)
    return GroupVersionName(text(fields.get("group")), text(fields.get("version")), text(fields.get(member)))


def read_request(raw: Json) -> Request:
    """The model of the raw ``request`` of an AdmissionReview; members of a wrong type count as absent."""
    new, old = raw.get("object"), raw.get("oldObject")
    return Request(
        uid=text(raw.get("uid")),
        kind=_named(raw.get("kind"), "kind"),
        resource=_named(raw.get("resource"), "resource"),
        operation=text(raw.get("operation")),
        sub_resource=text(raw.get("subResource")),
        name=text(raw.get("name")),
        namespace=text(raw.get("namespace")),
        user=text(mapping(raw.get("userInfo")).get("username")),
        dry_run=flag(raw.get("dryRun")),
        object=new if isinstance(new, dict) else None,
        old_object=old if isinstance(old, dict) else None,
        raw=raw,
    )


def raw_request(
    operation: str,
    obj: Json | None,
    old: Json | None = None,
    *,
    user: str = "",
    groups: tuple[str, ...] = (),
    extra: Mapping[str, list[str]] | None = None,
    sub_resource: str = "",
    dry_run: bool = False,
    uid: str = "00000000-0000-0000-0000-000000000000",
) -> Json:
    """The raw ``request`` that the API server would send for this write of a bare object."""
    target = mapping(obj if obj is not None else old)
    metadata = mapping(target.get("metadata"))
    group, _, version = text(target.get("apiVersion")).rpartition("/")
    kind = text(target.get("kind"))
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    gvk = {"group": group, "version": version, "kind": kind}
    gvr = {"group": group, "version": version, "resource": plural}
    if kind in _SUBRESOURCES:
        sub_resource, gvr = sub_resource or _SUBRESOURCES[kind], {"group": "", "version": "v1", "resource": plural}
    request: Json = {"uid": uid, "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr}
    if sub_resource:
        request |= {"subResource": sub_resource, "requestSubResource": sub_resource}
    request |= {"name": text(metadata.get("name")), "operation": operation}
    if metadata.get("namespace"):
        request["namespace"] = metadata["namespace"]
    elif kind == "Namespace":
        request["namespace"] = request["name"]
    person: Json = {"username": user, "groups": list(groups)}
    if extra:
        person["extra"] = dict(extra)
    options = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}.get(operation)
    return request | {
        "userInfo": person,
        "object": obj,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"} if options else None,
    }
