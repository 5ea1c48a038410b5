"""The ``caBundle`` of our two webhook configurations: by which authorities the API servers verify us."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from cryptography.x509 import Certificate

from certs.bundle import to_pem
from certs.error import CertificateError
from certs.pem import certificates
from webhook.cluster.api import Api, ApiError
from webhook.kube.raw import Json, mapping, members, text
from webhook.registration.configurations import API_VERSION, NAME

PLURALS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
# Seconds for every API server to go by a configuration that was just written.
SETTLE = 5.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One webhook of a configuration and what it trusts; nothing where that cannot be read."""

    configuration: str
    webhook: str
    trusted: tuple[Certificate, ...]

    def lacks(self, authorities: Iterable[Certificate]) -> bool:
        """Whether one of ``authorities`` is not trusted."""
        return not set(authorities) <= set(self.trusted)

    def __str__(self) -> str:
        return f"{self.configuration}/{NAME}: webhook {self.webhook}"


async def entries(api: Api) -> list[Entry] | None:
    """The webhooks of both configurations; None where neither is there. Raises ApiError, Unreachable."""
    found = {plural: obj for plural in PLURALS if (obj := await _get(api, plural)) is not None}
    if not found:
        return None
    return [
        Entry(plural, text(webhook.get("name")), _trusted(webhook))
        for plural, obj in found.items()
        for webhook in members(obj.get("webhooks"))
    ]


async def inject(api: Api, authorities: tuple[Certificate, ...]) -> dict[str, tuple[int, int] | None]:
    """Write ``authorities`` as the caBundle of every webhook of both configurations, and nothing else.

    Gives for each configuration how many webhooks it has and how many were changed, None where it is not there. Raises
    ApiError (409 where others write all the time), Unreachable.
    """
    return {plural: await _inject(api, plural, b64encode(to_pem(authorities)).decode()) for plural in PLURALS}


async def _inject(api: Api, plural: str, bundle: str, tries: int = 5) -> tuple[int, int] | None:
    obj = await _get(api, plural)
    if obj is None:
        return None
    webhooks = [
        {**each, "clientConfig": {**mapping(each.get("clientConfig"))}} for each in members(obj.get("webhooks"))
    ]
    changing = [each for each in webhooks if each["clientConfig"].get("caBundle") != bundle]
    for each in changing:
        each["clientConfig"]["caBundle"] = bundle
    try:
        if changing:
            await api.update(_path(plural), {**obj, "webhooks": webhooks})
    except ApiError as error:
        if error.status != 409 or tries < 2:
            raise
        return await _inject(api, plural, bundle, tries - 1)
    return len(webhooks), len(changing)


async def _get(api: Api, plural: str) -> Json | None:
    try:
        return await api.get(_path(plural))
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _path(plural: str) -> str:
    return f"/apis/{API_VERSION}/{plural}/{NAME}"


def _trusted(webhook: Json) -> tuple[Certificate, ...]:
    value = text(mapping(webhook.get("clientConfig")).get("caBundle"))
    try:
        return certificates(b64decode(value, validate=True), PurePosixPath("caBundle"))
    except (binascii.Error, ValueError, CertificateError):
        return ()
