"""The facts of one review: what expressions may name beside the request, computed when first read, at most once."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from msgspec.structs import replace

from webhook import cel
from webhook.facts.account import Account
from webhook.facts.writers import WriterParams
from webhook.kube.admission import Request
from webhook.kube.core import Node, Pod, read_node, read_pod
from webhook.kube.raw import Json
from webhook.kube.rbac import BINDINGS, ROLES
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.claim_fact import CLAIM, ClaimFact
from webhook.policy.class_fact import CLASS, ClassFact
from webhook.policy.fact import Once
from webhook.policy.ledger_fact import LEDGER, LedgerFact
from webhook.policy.node_fact import DRIVER, NODE, DriverFact, NodeFact
from webhook.policy.pod_fact import POD, PodFact, binding_node
from webhook.policy.request_fact import REQUEST, RequestFact
from webhook.policy.role_fact import ROLE, RoleFact
from webhook.policy.slice_fact import SLICE, SliceFact
from webhook.policy.writer_fact import WRITER, WriterFact

# The facts that are null unless the write is of one of these resources.
SUBJECTS = {
    "slice": ("resourceslices",),
    "driver": ("resourceslices",),
    "claim": ("resourceclaims", "resourceclaimtemplates"),
    "deviceClass": ("deviceclasses",),
    "pod": ("pods", "bindings"),
    "role": ("clusterroles", "roles", "clusterrolebindings", "rolebindings"),
}

_RAW = ("object", "oldObject", "namespaceObject", "params")
STRUCTS = {
    "request": REQUEST,
    "slice": SLICE,
    "driver": DRIVER,
    "claim": CLAIM,
    "deviceClass": CLASS,
    "pod": POD,
    "node": NODE,
    "ledger": LEDGER,
    "writer": WRITER,
    "role": ROLE,
}
DOCS = {
    "request": "The admission request, as in ValidatingAdmissionPolicy.",
    "slice": "The ResourceSlice of the write (on DELETE the old one); null for other writes.",
    "driver": "What the operator tells about the slice's driver; null for other writes.",
    "claim": "The ResourceClaim of the write, or the claim that a ResourceClaimTemplate stands for; null for others.",
    "deviceClass": "The DeviceClass of the write; null for other writes.",
    "pod": "The pod of the write: of pods, pods/status, pods/resize, or the known one of a binding; null for others.",
    "node": "The one node that the write is about (of nodes: as written); null where there is none or it is not known.",
    "ledger": "The account of that node, before the write.",
    "writer": "Who writes, by the `params` of the policy, and what is not theirs to write.",
    "role": "The role or binding of the write; null for other writes.",
}
# The attribute of Facts that computes each of STRUCTS; the writer is computed for each policy.
ATTRIBUTES = {
    **{name: name for name in STRUCTS if name != "writer"},
    "request": "request_fact",
    "deviceClass": "device_class",
}

ENVIRONMENT = cel.Environment({**dict.fromkeys(_RAW, cel.DYN), **STRUCTS})

_BY_DEFAULT = WriterParams()


class Names(dict[str, object]):
    """What expressions of one policy are given: of the facts, those that one of them names."""

    __slots__ = ("_facts", "_writers")

    def __init__(self, facts: Facts, params: Json, writers: WriterParams | None = None) -> None:
        request, snapshot = facts.request, facts.snapshot
        super().__init__(
            object=request.object,
            oldObject=request.old_object,
            namespaceObject=snapshot.namespaces.get(request.namespace) if request.namespace else None,
            params=params,
        )
        self._facts = facts
        self._writers = writers or _BY_DEFAULT

    def __missing__(self, name: str) -> cel.Lazy:
        compute = (
            partial(self._facts.writer, self._writers)
            if name == "writer"
            else partial(getattr, self._facts, ATTRIBUTES[name])
        )
        lazy = self[name] = cel.Lazy(compute)
        return lazy


class Facts:
    """The facts of one review."""

    def __init__(self, request: Request, snapshot: Snapshot, book: Book, now: datetime) -> None:
        self.request = request
        self.snapshot = snapshot
        self.book = book
        self.now = now
        self.later: tuple[Facts, ...] = ()
        self.writers: tuple[WriterFact, ...] = ()

    @property
    def latest(self) -> Facts:
        """The facts about what policies have made of the object so far."""
        return self.later[-1] if self.later else self

    def change(self, obj: Json) -> None:
        """Go on with facts about ``obj``, which a policy has made of the object; ``later`` has them all."""
        self.later += (Facts(replace(self.request, object=obj), self.snapshot, self.book, self.now),)

    def release(self) -> None:
        """Forget everything, once nobody asks any more. Facts lead to one another in circles, which would keep them,
        and the objects they are about, until the cycle collector stops everything to find them.
        """
        for each in self.later:
            each.release()
        vars(self).clear()

    def writer(self, params: WriterParams) -> WriterFact:
        """See ``DOCS``: one for all policies with the same ``params``; ``writers`` has those that were asked for."""
        for known in self.writers:
            if known.params == params:
                return known
        made = WriterFact(self, params)
        self.writers += (made,)
        return made

    @Once
    def request_fact(self) -> RequestFact:
        """See ``DOCS``."""
        return RequestFact(self.request)

    @Once
    def slice(self) -> SliceFact | None:
        """See ``DOCS``."""
        return SliceFact(self) if self.request.kind.name == "ResourceSlice" else None

    @Once
    def driver(self) -> DriverFact | None:
        """See ``DOCS``."""
        if self.slice is None:
            return None
        driver = self.slice.driver
        return DriverFact(driver, self.snapshot.rollouts.get(driver), self._known_node, self.now)

    @Once
    def claim(self) -> ClaimFact | None:
        """See ``DOCS``."""
        return ClaimFact(self) if self.request.kind.name in ("ResourceClaim", "ResourceClaimTemplate") else None

    @Once
    def device_class(self) -> ClassFact | None:
        """See ``DOCS``."""
        return ClassFact(self.request, self.snapshot.release) if self.request.kind.name == "DeviceClass" else None

    @Once
    def pod(self) -> PodFact | None:
        """See ``DOCS``."""
        model = self._pod
        return None if model is None else PodFact(self, model)

    @Once
    def node(self) -> NodeFact | None:
        """See ``DOCS``."""
        return None if self._known_node is None else NodeFact(self, self._known_node)

    @Once
    def ledger(self) -> LedgerFact:
        """See ``DOCS``."""
        return LedgerFact(self.account)

    @Once
    def role(self) -> RoleFact | None:
        """See ``DOCS``."""
        return RoleFact(self) if self.request.kind.name in (*ROLES, *BINDINGS) else None

    @Once
    def account(self) -> Account | None:
        """The account of the write's node; None when there is no such node."""
        return self.book.account(self.snapshot, self.node_name) if self.node_name else None

    @Once
    def node_name(self) -> str:
        """The one node that the write is about, empty when there is none."""
        request = self.request
        match request.kind.name:
            case "Node":
                return request.name
            case "ResourceSlice":
                return self.slice.node if self.slice is not None else ""
            case "ResourceClaim":
                return self.claim.node if self.claim is not None else ""
            case "Binding":
                return binding_node(request.object)
            case "Pod":
                return self._pod.node if self._pod is not None else ""
        return ""

    @Once
    def _known_node(self) -> Node | None:
        if self.request.kind.name == "Node":
            return read_node(self.request.target)
        return self.snapshot.nodes.get(self.node_name)

    @Once
    def _pod(self) -> Pod | None:
        request = self.request
        if request.kind.name == "Pod":
            return read_pod(request.target)
        if request.kind.name == "Binding":
            return self.snapshot.pods.get((request.namespace, request.name))
        return None
