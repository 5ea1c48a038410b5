"""Who asks for a token of an account that writes for a driver, and which node that token names.

A token is the driver: it says by itself on which node it is, whoever holds it, and one that was made before its pod had
a node never names one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from webhook.facts.writers import EMERGENCY, Writer
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping, text
from webhook.kube.snapshot import Key, Snapshot

PATH = "spec.boundObjectRef"
CREDENTIAL = "authentication.kubernetes.io/credential-id"


def token_writer_problems(writer: Writer, account: Key, request: Json, snapshot: Snapshot) -> list[Finding]:
    """What is wrong with a request for a token of ``account`` (namespace, name), where that writes for a driver;
    ``request`` is the raw TokenRequest.

    ``token-by-stranger`` (error): by neither controller-manager nor administrator, nor by a kubelet for a pod.
    ``token-of-other-node`` (error): by a kubelet, bound to what is on another node. ``token-without-node`` (warning):
    writes with it will be refused, as the account may write on its own node only and the token names none.
    """
    profiles = {**writer.params.accounts.get(account, {}), **snapshot.writers.get(account, {})}
    if not profiles or writer.kind == "Nobody":
        return []
    bound = mapping(mapping(request.get("spec")).get("boundObjectRef"))
    return [*_stranger(writer, account, profiles, bound), *_node(writer, account, profiles, bound, snapshot)]


def impersonation_hints(writer: Writer, uid: str, extra: Collection[str]) -> list[Finding]:
    """``writer-may-be-impersonated`` (info) for an account of a driver that is said to be on a node, but has neither
    the ``uid`` nor the credential (``extra`` are the keys) that a token gives. Somebody who may impersonate can add
    these, too: nothing proves who it was.
    """
    if writer.kind != "Driver" or not writer.node or uid or CREDENTIAL in extra:
        return []
    has = f"{writer.shown} on node {writer.node} with neither a uid nor a credential id"
    fix = "somebody who may impersonate accounts and userextras may have written; see impersonatedUser in the audit log"
    return [Finding("writer-may-be-impersonated", "", has, "what a token has", fix, "info")]


def _stranger(writer: Writer, account: Key, profiles: Mapping[str, str], bound: Json) -> Iterator[Finding]:
    for_pod = bound.get("kind") == "Pod"
    if writer.exempt or writer.kind == "ControllerManager" or (writer.kind == "Kubelet" and for_pod):
        return
    what = " bound to no pod" if writer.kind == "Kubelet" else ""
    has = f"a token of {_name(account)}{what}, asked for by {writer.shown}"
    needs = "a kubelet, which asks for the pods that it runs, or an administrator"
    fix = f"whoever has it writes for {', '.join(sorted(profiles))}; take create on serviceaccounts/token away"
    if not writer.service_account and writer.kind != "Kubelet":
        fix += f", or name {EMERGENCY}"
    yield Finding("token-by-stranger", PATH, has, needs, fix)


def _node(
    writer: Writer, account: Key, profiles: Mapping[str, str], bound: Json, snapshot: Snapshot
) -> Iterator[Finding]:
    kind, name = text(bound.get("kind")), text(bound.get("name"))
    node = name if kind == "Node" else ""
    what = f"{kind.lower()} {name}" if kind else "nothing"
    if kind == "Pod":
        pod = snapshot.pods.get((account[0], name))
        if pod is None or text(bound.get("uid")) not in ("", pod.uid):
            return
        node = pod.node
        if not node:
            what = f"pod {name}, which is on no node yet"
    if writer.kind == "Kubelet":
        # A kubelet knows of its pod before the guard does.
        if node and node != writer.node:
            has = f"a token bound to {what}{f' on node {node}' if kind == 'Pod' else ''}, asked for by {writer.shown}"
            fix = "a kubelet may ask for tokens of its own pods only"
            yield Finding("token-of-other-node", PATH, has, f"node {writer.node or 'of a known name'}", fix)
        if kind == "Pod":
            return
    if not node and "NodeLocal" in profiles.values():
        has = f"a token bound to {what}"
        fix = f"it names no node and never will: what {_name(account)} writes with it will be refused"
        yield Finding("token-without-node", PATH, has, "a pod that is on a node, or a Node", fix, "warning")


def _name(account: Key) -> str:
    return "/".join(account)
