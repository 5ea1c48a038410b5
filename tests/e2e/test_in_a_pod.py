"""The guard with what its Deployment gives a pod: the arguments, the credentials of a ServiceAccount, and a Service."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import pytest

from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.guard import Guard
from tests.e2e.guarding import account, asked, malformed
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.cli.deploying import files
from webhook.registration.manifests import Target, manifests

# The command, for which a kubelet has put the credentials elsewhere: the client has their places as constants.
IN_A_POD = """
import sys
from kubernetes.aio.config import incluster_config as pod
pod.SERVICE_TOKEN_FILENAME, pod.SERVICE_CERT_FILENAME = sys.argv[1:3]
del sys.argv[1:3]
from webhook.cli import main
main()
"""


def replica(cluster: Cluster, own: str, token: str) -> Guard:
    """A pod of the Deployment in the namespace ``own``, whose kubelet has given it ``token``; not started."""
    [deployment] = [obj for obj in manifests(files(), Target(namespace=own)) if obj["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    guard = cluster.guard(start=False)
    handed = guard.folder / "token"
    handed.write_text(token)
    here = {
        "$(NAMESPACE)": own,
        "$(MODE)": "enforce",
        "/run/allocguard/certs": str(guard.certificates),
        "/var/lib/allocguard": str(guard.folder),
        # Nothing here turns the port of a Service into that of a pod.
        "allocguard:443": f"allocguard:{guard.port}",
    }
    arguments = list(container["args"])
    for there, place in here.items():
        arguments = [each.replace(there, place) for each in arguments]
    ports = [each for each in guard.process.command if each.startswith(("--host=", "--port=", "--metrics-port="))]
    authority = str(cluster.plane.authority.certificate)
    guard.process.command = [sys.executable, "-c", IN_A_POD, str(handed), authority, *arguments, *ports]
    address = urlsplit(cluster.url)
    given = {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}
    guard.process.environment = {**given, "HOME": str(guard.folder)}
    return guard


def test_a_pod_is_asked_through_its_service_and_goes_on_with_a_new_token(cluster: Cluster) -> None:
    """API servers verify it by the name of the Service. When its token ends, as with the pod that it was made for, the
    one that a kubelet wrote meanwhile counts.
    """
    own, admin = account(cluster), cluster.as_admin
    # The API server asks the host that is named here, by the port of the registration.
    service = {"metadata": {"name": "allocguard"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    admin.create(f"/api/v1/namespaces/{own}/services", service)
    bound = admin.create(path("Secret", namespace=own), {"metadata": {"name": "as-long-as-this"}})
    first = cluster.token("allocguard", bound_to=bound, namespace=own)
    guard = replica(cluster, own, first)
    guard.start()
    asked(cluster, guard)

    where = path("ValidatingWebhookConfiguration", "allocguard")
    addresses = [entry["clientConfig"] for entry in admin.get(where)["webhooks"]]
    told = {"namespace": own, "name": "allocguard", "port": guard.port}
    assert [each["service"] | told for each in addresses] == [each["service"] for each in addresses]
    assert not any("url" in each for each in addresses)
    driver = cluster.driver("cpu.example.org", cluster.node("n1"))

    def refused() -> None:
        with pytest.raises(ApiError) as caught:
            driver.publish([malformed(driver)])
        assert "slice-mappings/product-overflow" in caught.value.message

    refused()

    (guard.folder / "token").write_text(cluster.token("allocguard", namespace=own))
    admin.delete(path("Secret", "as-long-as-this", own))

    def ended() -> bool:
        try:
            cluster.token_client(first).get(path("Node"))
        except ApiError as error:
            return error.code == 401
        return False

    eventually(ended, within=60)
    admin.patch(where, {"webhooks": []})
    eventually(lambda: admin.get(where).get("webhooks"))
    asked(cluster, guard)
    refused()
    assert guard.ready()
    assert not guard.lines(level="error")
    assert "nauthorized" not in guard.process.log.read_text()
    assert guard.stop() == 0
