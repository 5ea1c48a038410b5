"""What is doubtful or wrong about a pod that uses claims which cost its node (KEP-5517, both releases)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.account import add
from webhook.facts.drivers import claim_drivers
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.interval import MOST_SHAPES, empty_account, node_fit
from webhook.facts.pods import budget_problems, pod_request
from webhook.facts.podstatus import uncounted_problems
from webhook.facts.sharing import ended, mapped
from webhook.kube.claims import Claim, Consumer, read_claim
from webhook.kube.core import Container, Pod
from webhook.kube.finding import Finding, Severity, cause
from webhook.kube.quantity import Number, of_resource
from webhook.kube.raw import Json, mapping, objects, text
from webhook.kube.release import NODE_ALLOCATABLE
from webhook.kube.snapshot import Snapshot

_CLAIMS = "spec.resourceClaims"
_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class Use(Struct, frozen=True):
    """A claim as a pod uses it. ``claim`` is the claim itself, or what its template would give; ``costly`` tells
    whether it costs the node something (allocated), or may (its drivers map devices); ``cost`` what it costs, where
    known.
    """

    index: int
    local: str
    claim: Claim
    template: bool
    users: tuple[str, ...]
    costly: bool
    cost: Footprint | None

    @property
    def path(self) -> str:
        """Its field path in the pod."""
        return f"{_CLAIMS}[{self.index}]"


def uses(obj: Json, pod: Pod, snapshot: Snapshot) -> list[Use]:
    """The claims of a pod that are known, or whose templates are. ``obj`` is the raw pod, ``pod`` its model."""
    found: list[Use] = []
    for index, row in objects(mapping(obj.get("spec")).get("resourceClaims")):
        local = text(row.get("name"))
        name = pod.claim_names.get(local) or text(row.get("resourceClaimName"))
        claim = snapshot.claims.get((pod.namespace, name)) if name else None
        template = claim is None and not name
        if template:
            claim = snapshot.templates.get((pod.namespace, text(row.get("resourceClaimTemplateName"))))
        if claim is None:
            continue
        cost = footprint(claim, snapshot) if claim.allocation is not None else None
        costly = cost.costs if cost is not None else bool(_mapping_drivers(claim, snapshot))
        found.append(Use(index, local, claim, template, pod.users(local), costly, cost))
    return found


def _mapping_drivers(claim: Claim, snapshot: Snapshot) -> list[str]:
    return [driver for driver in claim_drivers(claim, snapshot) if driver in snapshot.mapped_slices]


def pod_problems(obj: Json, pod: Pod, snapshot: Snapshot) -> list[Finding]:
    """Everything there is to say about a pod and its claims, at its creation or at rest. ``obj`` is the raw pod,
    ``pod`` its model. A pod that has ended gets ``terminal-pod`` and nothing else.
    """
    if pod.terminal:
        return _ended(obj, pod, snapshot)
    found = [*_sources(obj, pod, snapshot), *_names(obj, pod)]
    if pod.node and not pod.entries:
        found += uncounted_problems(pod, snapshot)
    used = uses(obj, pod, snapshot)
    costly = [use for use in used if use.costly]
    for use in costly:
        found += _shared(use, pod, snapshot)
        found += _unreferenced(use, snapshot)
    found += _bridged(pod, snapshot)
    if not costly:
        return found
    found += _mirrored(pod, costly, snapshot)
    found += _budget(pod, costly, snapshot)
    if snapshot.release.minor >= 37:
        found += _limits(pod, costly)
    if _best_effort(pod):
        has = f"no request of its own, only claims ({', '.join(use.local for use in costly)})"
        needs = "a cpu or memory request, unless the pod may be the first to be evicted"
        fix = "claims do not change the QoS class, which is BestEffort"
        found.append(Finding("claim-only-besteffort", "spec.containers", has, needs, fix, "info"))
    return found


def _ended(obj: Json, pod: Pod, snapshot: Snapshot) -> list[Finding]:
    for use in uses(obj, pod, snapshot):
        if use.claim.allocation is not None:
            has = f"phase {pod.phase} and claim {use.claim.key}, which is still allocated"
            fix = "an ended pod is charged nothing; delete it, or the claim, when nobody else uses it"
            return [Finding("terminal-pod", use.path, has, "claims of running pods only", fix, "warning")]
    return []


def _sources(obj: Json, pod: Pod, snapshot: Snapshot) -> Iterator[Finding]:
    for index, row in objects(mapping(obj.get("spec")).get("resourceClaims")):
        name, template = row.get("resourceClaimName"), row.get("resourceClaimTemplateName")
        path = f"{_CLAIMS}[{index}]"
        if isinstance(name, str) == isinstance(template, str):
            has = f"claim {text(row.get('name'))} with " + ("no source" if name is None else "two sources")
            needs = "exactly one of resourceClaimName, resourceClaimTemplateName"
            yield cause("claim-source-missing", path, "FieldValueInvalid", has, needs)
        elif not (name or template):
            member = "resourceClaimName" if template is None else "resourceClaimTemplateName"
            needs = "the name of a claim or template"
            yield cause("claim-source-missing", f"{path}.{member}", "FieldValueInvalid", "an empty name", needs)
        elif template and (pod.namespace, template) not in snapshot.templates and not _made(row, pod):
            has = f"template {template}, which is not in namespace {pod.namespace}"
            fix = "the pod waits until the template is there"
            where = f"{path}.resourceClaimTemplateName"
            yield Finding("template-missing", where, has, "a template of the pod's namespace", fix, "warning")


def _names(obj: Json, pod: Pod) -> Iterator[Finding]:
    """Containers that name a claim which the pod does not have."""
    known = {claim.name for claim in pod.claims}
    named = {name for each in (*pod.init_containers, *pod.containers) for name, _ in each.claims}
    if named <= {*known, ""}:
        return
    spec = mapping(obj.get("spec"))
    for member in ("initContainers", "containers"):
        for index, container in objects(spec.get(member)):
            for position, row in objects(mapping(container.get("resources")).get("claims")):
                name = text(row.get("name"))
                if name and name not in known:
                    path = f"spec.{member}[{index}].resources.claims[{position}]"
                    needs = f"one of {', '.join(sorted(known))}" if known else "a name in spec.resourceClaims"
                    has = f"claim {name}, which is not in spec.resourceClaims"
                    yield cause("claim-name-unknown", path, "FieldValueNotFound", has, needs)


def _made(row: Json, pod: Pod) -> bool:
    """Whether the claim of a template already exists: the template is then needed no more."""
    return text(row.get("name")) in pod.claim_names


def _shared(use: Use, pod: Pod, snapshot: Snapshot) -> list[Finding]:
    if use.claim.allocation is None or not mapped(use.claim, snapshot):
        return []
    consumers = use.claim.reserved_for
    mine = any(c.is_pod and (c.uid == pod.uid if c.uid and pod.uid else c.name == pod.name) for c in consumers)
    holds = [(c, hold) for c in consumers if (hold := _hold(c, use.claim, snapshot)) is not None]
    if mine or not holds:
        return []
    has = f"claim {use.claim.key}, whose devices cost the node and which {holds[0][0].name} has reserved"
    needs = "a claim of its own: the node is charged for one pod only"
    fix = "use a ResourceClaimTemplate"
    # A pod that has its node can no longer be kept from it.
    living = not pod.node and any(hold == "error" for _, hold in holds)
    severity: Severity = "error" if living else "warning"
    return [Finding("shared-mapped-claim", f"{use.path}.resourceClaimName", has, needs, fix, severity)]


def _hold(consumer: Consumer, claim: Claim, snapshot: Snapshot) -> Severity | None:
    """How much a consumer is in the way of a new pod: the successor of one that is gone or going will get the claim."""
    pod = snapshot.pods_by_uid.get(consumer.uid)
    if pod is None:
        return "warning" if ended(consumer, claim, snapshot) else "error"
    return None if pod.terminal else "warning" if pod.deleting else "error"


def _unreferenced(use: Use, snapshot: Snapshot) -> list[Finding]:
    if use.users:
        return []
    has = f"claim {use.local}, whose devices cost the node and which no container uses"
    effect = "a 1.36 scheduler never places the pod" if snapshot.release.minor == 36 else "the node is charged for it"
    fix = f"{effect}; name it in resources.claims of a container or leave it out"
    return [Finding("claim-unreferenced", use.path, has, "a container that uses it", fix, "warning")]


def _bridged(pod: Pod, snapshot: Snapshot) -> list[Finding]:
    found: list[Finding] = []
    groups = (("initContainers", pod.init_containers), ("containers", pod.containers))
    for member, containers in groups:
        for index, container in enumerate(containers):
            for name in container.requests:
                if "/" not in name:
                    continue
                drivers = _bridge(name, snapshot)
                if drivers:
                    path = f"spec.{member}[{index}].resources.requests[{name}]"
                    has = f"extended resource {name}, served by devices of {', '.join(drivers)} that cost the node"
                    fix = "name a claim in the pod; neither 1.36 nor 1.37 can place it as it is"
                    needs = "a ResourceClaim or template"
                    found.append(Finding("extended-resource-mapped", path, has, needs, fix, "warning"))
    return found


def _bridge(resource: str, snapshot: Snapshot) -> list[str]:
    """The mapping drivers of the device class that serves an extended resource."""
    for name, obj in snapshot.classes.items():
        spec = mapping(obj.get("spec"))
        if resource in (spec.get("extendedResourceName"), _IMPLICIT + name):
            stand_in = _request_of(name)
            return _mapping_drivers(stand_in, snapshot)
    return []


def _request_of(class_name: str) -> Claim:
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": class_name}}]}
    return read_claim({"spec": {"devices": devices}})


def _containers(pod: Pod) -> Iterator[tuple[str, Container]]:
    for member, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, container in enumerate(containers):
            yield f"spec.{member}[{index}].resources.requests", container


def _mirrored(pod: Pod, costly: list[Use], snapshot: Snapshot) -> list[Finding]:
    """Requests that repeat what the claim costs are charged twice while the mapping is active, and are the only charge
    while it is not (gate off): judged by what the slices carry. A pod-level request replaces the sum, so nothing
    is charged twice under it.
    """
    active = snapshot.release.enabled(NODE_ALLOCATABLE)
    found: list[Finding] = []
    for use in costly:
        for resource, amount in (use.cost.amounts if use.cost is not None else {}).items():
            if resource in (pod.pod_requests or {}) or amount <= 0:
                continue
            mine = [(path, c) for path, c in _containers(pod) if c.name in use.users]
            costs = of_resource(resource, amount)
            asked = [(f"{path}[{resource}]", c.requests.get(resource, 0)) for path, c in mine]
            total = sum(part for _, part in asked)
            repeated = [(path, part) for path, part in asked if _about(part, amount)]
            if not repeated and _about(total, amount):
                repeated = [(next(path for path, part in asked if part), total)]
            if active:
                for path, part in repeated:
                    has = f"{of_resource(resource, part)} {resource} beside claim {use.local}, which costs {costs}"
                    needs = "one of the two: both are charged"
                    fix = f"leave {resource} out of the requests, the claim is charged by itself"
                    found.append(Finding("mirrored-requests", path, has, needs, fix, "warning"))
            elif mine and total < amount:
                has = f"less {resource} than claim {use.local} takes ({costs}), and the gate {NODE_ALLOCATABLE} off"
                fix = f"request {costs} {resource} in a container: nobody else charges it"
                found.append(Finding("mirror-missing", mine[0][0], has, "requests that cover it", fix, "warning"))
    return found


def _about(asked: Number, amount: Number) -> bool:
    """Within a tenth: people round."""
    return asked > 0 and -amount <= (asked - amount) * 10 <= amount


def _costs(pod: Pod, costly: list[Use]) -> tuple[dict[str, Number], dict[str, Number]]:
    amounts: dict[str, Number] = {}
    overhead: dict[str, Number] = {}
    for use in costly:
        if use.cost is not None:
            add(amounts, use.cost.amounts)
            add(overhead, use.cost.overhead(len(use.users)))
    return amounts, overhead


def _budget(pod: Pod, costly: list[Use], snapshot: Snapshot) -> list[Finding]:
    """A pod-level request that does not cover what the claims cost; a warning where it only does not cover what claims
    that are not allocated yet cost at least on the nodes there are.
    """
    if not pod.pod_requests:
        return []
    amounts, overhead = _costs(pod, costly)
    sure = budget_problems(pod_request(pod, amounts, overhead))
    if sure:
        return sure
    for use in costly:
        if use.cost is None:
            add(amounts, _least(use.claim, snapshot))
    return [replace(each, severity="warning") for each in budget_problems(pod_request(pod, amounts, overhead))]


def _least(claim: Claim, snapshot: Snapshot) -> dict[str, Number]:
    """What an unallocated claim costs at least, wherever it goes: tried on one node of each kind, nothing where there
    are too many kinds.
    """
    drivers = claim_drivers(claim, snapshot)
    if len(snapshot.node_shapes) > MOST_SHAPES or any(driver in snapshot.free_slices for driver in drivers):
        return {}
    least: dict[str, Number] | None = None
    for (_, offered), names in snapshot.node_shapes.items():
        account = empty_account(snapshot, next(iter(names)))
        if account is None or not any(driver in drivers for driver, _ in offered):
            continue
        fit = node_fit((claim,), snapshot, account, None, None)
        if fit.fits:
            known = fit.least if least is None else least
            least = {name: min(amount, known[name]) for name, amount in fit.least.items() if name in known}
    return least or {}


def _limits(pod: Pod, costly: list[Use]) -> list[Finding]:
    """1.37: hugepages limits plus claims within the pod-level limit, and no container above it with its claims."""
    level = pod.pod_limits or {}
    found: list[Finding] = []
    if not level:
        return found
    amounts, overhead = _costs(pod, costly)
    for resource, limit in level.items():
        path = f"spec.resources.limits[{resource}]"
        if resource.startswith("hugepages-"):
            total = sum(c.limits.get(resource, 0) for c in pod.containers)
            total += amounts.get(resource, 0) + overhead.get(resource, 0)
            if total > limit:
                found.append(_limit(path, resource, limit, total, "the containers and claims"))
        for container in pod.containers:
            declared = container.limits.get(resource)
            if declared is None:
                continue
            total = declared + sum(_of(use, resource) for use in costly if container.name in use.users)
            if total > limit and total > declared:
                found.append(_limit(path, resource, limit, total, f"container {container.name} with its claims"))
    return found


def _of(use: Use, resource: str) -> Number:
    if use.cost is None:
        return 0
    parts: tuple[Mapping[str, Number], ...] = (use.cost.amounts, use.cost.per_pod, use.cost.per_container)
    return sum(part.get(resource, 0) for part in parts)


def _limit(path: str, resource: str, limit: Number, total: Number, what: str) -> Finding:
    has = f"{of_resource(resource, limit)} {resource} for the whole pod"
    needs = f"{of_resource(resource, total)}, for {what}"
    fix = "raise the pod-level limit"
    return Finding("pod-budget-too-small", path, has, needs, fix)


def _best_effort(pod: Pod) -> bool:
    holders = [*pod.containers, *pod.init_containers]
    own = any(c.requests.get(r) or c.limits.get(r) for c in holders for r in ("cpu", "memory"))
    return not own and not pod.pod_requests and not pod.pod_limits
