"""The API server's own rules of a DeviceClass."""

from __future__ import annotations

from webhook.facts.field_names import INVALID
from webhook.facts.object_meta import metadata_problems
from webhook.facts.request_structure import REQUESTS_MAX, TOO_MANY, config_problems, selectors_problems
from webhook.kube.finding import Finding, cause
from webhook.kube.names import qualified_name
from webhook.kube.raw import indexed, mapping, sequence
from webhook.kube.release import Release

QUOTA_PREFIX = "requests."


def class_problems(obj: object, release: Release) -> list[Finding]:
    """What the API server of ``release`` refuses in a new raw DeviceClass."""
    fields = mapping(obj)
    spec = mapping(fields.get("spec"))
    found = metadata_problems(mapping(fields.get("metadata")), False, release.minor >= 37)
    found = [finding for finding in found if not finding.path.endswith(".generateName")]
    found += selectors_problems(sequence(spec.get("selectors")), "spec.selectors", release)
    config = sequence(spec.get("config"))
    if len(config) > REQUESTS_MAX:
        has, needs = f"{len(config)} entries", f"at most {REQUESTS_MAX}"
        found.append(cause("config-invalid", "spec.config", TOO_MANY, has, needs))
    else:
        for index, item in indexed(config):
            found += config_problems(item, f"spec.config[{index}]")
    name = spec.get("extendedResourceName")
    if isinstance(name, str) and release.enabled("DRAExtendedResource") and not is_extended_resource(name):
        needs = "domain/name outside kubernetes.io"
        found.append(cause("extended-resource-name", "spec.extendedResourceName", INVALID, repr(name), needs))
    return found


def is_extended_resource(name: str) -> bool:
    """Whether ``name`` can be an extended resource: it has a domain, and not one of Kubernetes' own."""
    native = "/" not in name or "kubernetes.io/" in name or name.startswith(QUOTA_PREFIX)
    return not native and qualified_name(QUOTA_PREFIX + name) is None
