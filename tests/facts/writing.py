"""Writers of reviews for tests: the users that the API server would name."""

from __future__ import annotations

from webhook.facts.writers import NODE_EXTRA, POD_EXTRA, Writer, WriterParams, writer_of
from webhook.kube.snapshot import Snapshot

ACCOUNT = ("drivers", "plugin")
CREDENTIAL = "authentication.kubernetes.io/credential-id"


def account(
    snapshot: Snapshot, node: str = "", pod: str = "", name: str = "plugin", namespace: str = "drivers", **params
):
    """A ServiceAccount by a token that names this node and pod."""
    extra = {NODE_EXTRA: (node,)} if node else {}
    extra |= {POD_EXTRA: (pod,)} if pod else {}
    user = f"system:serviceaccount:{namespace}:{name}"
    return writer_of(user, ("system:serviceaccounts",), extra, snapshot, WriterParams(**params))


def user(snapshot: Snapshot, name: str, *groups: str, **params) -> Writer:
    """Somebody with a client certificate."""
    return writer_of(name, groups, {}, snapshot, WriterParams(**params))


def kubelet(snapshot: Snapshot, node: str) -> Writer:
    return user(snapshot, f"system:node:{node}", "system:nodes", "system:authenticated")


def everyone_exempt(snapshot: Snapshot) -> list[Writer]:
    """Those for whom no rule is: an administrator, the API server, somebody in an emergency, nobody at all."""
    return [
        user(snapshot, "root", "system:masters"),
        user(snapshot, "system:apiserver", "system:masters"),
        user(snapshot, "oncall", break_glass_users=frozenset({"oncall"})),
        user(snapshot, "oncall", "sre", break_glass_groups=frozenset({"sre"})),
        user(snapshot, ""),
    ]


def writers(*profiles: str) -> list[dict[str, str]]:
    """The ``spec.writers`` of a DriverRollout: the account of :func:`account`, once for each profile."""
    return [{"namespace": ACCOUNT[0], "serviceAccount": ACCOUNT[1], "profile": profile} for profile in profiles]
