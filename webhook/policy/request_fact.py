"""``request``: the admission request, with the fields that ``ValidatingAdmissionPolicy`` gives it."""

from __future__ import annotations

from webhook.cel import BOOL, DYN, STRING, Field, StructType, list_of, map_of
from webhook.kube.admission import GroupVersionName, Request
from webhook.kube.raw import mapping, text
from webhook.policy.fact import fact, struct


def _group_version(name: str, member: str) -> StructType:
    return StructType(
        name,
        fields={
            "group": Field(STRING, "group", "API group, empty for the core group."),
            "version": Field(STRING, "version", "API version."),
            member: Field(STRING, "name", f"The {member}'s name."),
        },
    )


_KIND = _group_version("Kind", "kind")
_RESOURCE = _group_version("Resource", "resource")


class UserInfo:
    """Who writes."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @fact(STRING)
    def username(self) -> str:
        """The user's name, as in `system:serviceaccount:NAMESPACE:NAME`."""
        return self._request.user

    @fact(STRING)
    def uid(self) -> str:
        """The user's UID; may be empty."""
        return text(mapping(self._request.raw.get("userInfo")).get("uid"))

    @fact(list_of(STRING))
    def groups(self) -> list[str]:
        """The groups the user is in."""
        return list(self._request.groups)

    @fact(map_of(STRING, list_of(STRING)))
    def extra(self) -> dict[str, list[str]]:
        """What the authenticator adds, as `authentication.kubernetes.io/node-name`."""
        return {key: list(values) for key, values in self._request.extra.items()}


_USER_INFO = struct("UserInfo", UserInfo)


class RequestFact:
    """The admission request."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @fact(STRING)
    def uid(self) -> str:
        """The review's UID."""
        return self._request.uid

    @fact(_KIND)
    def kind(self) -> GroupVersionName:
        """The kind of `object`."""
        return self._request.kind

    @fact(_RESOURCE)
    def resource(self) -> GroupVersionName:
        """The resource that is written, after conversion to the version that is registered."""
        return self._request.resource

    @fact(STRING)
    def sub_resource(self) -> str:
        """The subresource, as `status`; empty for the object itself."""
        return self._request.sub_resource

    @fact(_KIND)
    def request_kind(self) -> GroupVersionName:
        """The kind that the writer used."""
        return self._asked("requestKind", "kind") or self._request.kind

    @fact(_RESOURCE)
    def request_resource(self) -> GroupVersionName:
        """The resource that the writer used."""
        return self._asked("requestResource", "resource") or self._request.resource

    @fact(STRING)
    def request_sub_resource(self) -> str:
        """The subresource that the writer used."""
        return text(self._request.raw.get("requestSubResource")) or self._request.sub_resource

    @fact(STRING)
    def name(self) -> str:
        """The object's name; empty in the reviews of a delete-collection."""
        return self._request.name

    @fact(STRING)
    def namespace(self) -> str:
        """The object's namespace; empty for cluster-scoped objects."""
        return self._request.namespace

    @fact(STRING)
    def operation(self) -> str:
        """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""
        return self._request.operation

    @fact(_USER_INFO)
    def user_info(self) -> UserInfo:
        """Who writes."""
        return UserInfo(self._request)

    @fact(BOOL)
    def dry_run(self) -> bool:
        """Whether nothing will be stored."""
        return self._request.dry_run

    @fact(DYN)
    def options(self) -> object:
        """The options of the write (`CreateOptions` and so on), raw."""
        return self._request.raw.get("options")

    def _asked(self, member: str, name: str) -> GroupVersionName | None:
        raw = self._request.raw.get(member)
        if not isinstance(raw, dict):
            return None
        return GroupVersionName(text(raw.get("group")), text(raw.get("version")), text(raw.get(name)))


REQUEST = struct("Request", RequestFact)
