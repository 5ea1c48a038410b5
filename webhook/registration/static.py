"""The registration as files of the API server (KEP-5793), for who wants it to hold before and without the API.

A static configuration is read when an API server starts and whenever its file changes, on each API server for itself.
It may only name a URL, its name ends in ``.static.k8s.io``, and nobody can change it through the API. That also means:
the guard cannot follow it, so whoever adds a policy or a driver writes the files again.
"""

from __future__ import annotations

from webhook.kube.raw import Json
from webhook.policy.revision import Revision
from webhook.registration.configurations import NAME, Address, configurations

SUFFIX = ".static.k8s.io"
ADMISSION = "admission.yaml"
# A folder for each: an API server refuses the files of one plugin in the folder of the other.
VALIDATING_FOLDER, MUTATING_FOLDER = "validating", "mutating"


def static_files(
    revision: Revision,
    url: str,
    ca_bundle: bytes,
    folder: str,
    drivers: frozenset[str] = frozenset(),
    audit: bool = False,
    namespace: str = "allocguard-system",
) -> dict[str, Json]:
    """The documents by their path below ``folder``, an absolute path on every API server: the AdmissionConfiguration
    for ``--admission-control-config-file``, and the two configurations.
    """
    pair = configurations(revision, Address(url=url), ca_bundle, drivers, audit, namespace)
    places = (("Validating", VALIDATING_FOLDER), ("Mutating", MUTATING_FOLDER))
    found = {ADMISSION: _admission(folder, places)}
    for configuration, (_, place) in zip(pair, places, strict=True):
        metadata = {**configuration["metadata"], "name": f"{NAME}{SUFFIX}"}
        found[f"{place}/{NAME}.yaml"] = {**configuration, "metadata": metadata}
    return found


def _admission(folder: str, places: tuple[tuple[str, str], ...]) -> Json:
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": f"{kind}AdmissionWebhook",
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "WebhookAdmissionConfiguration",
                    "staticManifestsDir": f"{folder.rstrip('/')}/{place}",
                },
            }
            for kind, place in places
        ],
    }
