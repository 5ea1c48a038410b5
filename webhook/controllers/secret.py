"""The Secret that holds the certificates of all replicas: read, followed, and written over the version read before."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import PurePosixPath

from certs.bundle import NAMES, Material
from certs.error import CertificateError
from certs.secret import material, parts
from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.kube.raw import Json, mapping, text

# Who issues for whom is told by annotations with this prefix; cert-manager may leave our own parts beside its own.
_FOREIGN = "cert-manager.io/"
_LABELS = {"app.kubernetes.io/name": "allocguard", "app.kubernetes.io/managed-by": "allocguard"}


@dataclass(frozen=True, slots=True)
class Stored:
    """One reading of the Secret. ``held`` is None where there are no certificates in it; ``obj`` is None where there is
    no Secret. ``foreign``: somebody else issues, and nothing is to be written.
    """

    held: Material | None
    obj: Json | None
    foreign: bool = False

    @property
    def version(self) -> str | None:
        """The resourceVersion to follow from; None from the beginning."""
        return text(mapping(mapping(self.obj).get("metadata")).get("resourceVersion")) or None


class Secret:
    """The Secret ``name``, as ``NAMESPACE/NAME``. Raises ValueError for another form."""

    def __init__(self, api: Api, name: str) -> None:
        namespace, slash, short = name.partition("/")
        if not namespace or not short or "/" in short or not slash:
            raise ValueError(f"has {name!r}, needs NAMESPACE/NAME")
        self._api = api
        self._name = short
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self.place = PurePosixPath(f"secret {namespace}") / short

    async def read(self) -> Stored:
        """What the Secret holds now. Raises CertificateError for content that cannot be read, ApiError, Unreachable."""
        try:
            obj = await self._api.get(f"{self._collection}/{self._name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return Stored(None, None)
        annotations = mapping(mapping(obj.get("metadata")).get("annotations"))
        foreign = any(key.startswith(_FOREIGN) for key in annotations)
        found = {name: self._decoded(name, value) for name, value in mapping(obj.get("data")).items() if name in NAMES}
        # A Secret of this type has to have its two parts from the beginning, empty where there is nothing yet.
        found = {name: data for name, data in found.items() if data.strip()}
        if not found:
            return Stored(None, obj, foreign)
        held = material(found, self.place, issuing=not foreign)
        return Stored(held, obj, foreign or held.authority is None)

    async def write(self, held: Material, over: Stored) -> bool:
        """Make ``held`` its content, unless somebody wrote since ``over`` was read; whether it was done.

        Labels, annotations and parts of others stay. Raises ApiError and Unreachable.
        """
        data = {name: b64encode(part).decode() for name, part in parts(held).items()}
        try:
            if over.obj is None:
                metadata = {"name": self._name, "labels": _LABELS}
                obj = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata}
                await self._api.create(self._collection, {**obj, "data": data})
            else:
                others = {name: value for name, value in mapping(over.obj.get("data")).items() if name not in NAMES}
                await self._api.update(f"{self._collection}/{self._name}", {**over.obj, "data": {**others, **data}})
        except ApiError as error:
            # 404: deleted since, or its namespace is not there, which the next reading does not hide.
            if error.status == 409 or (error.status == 404 and over.obj is not None):
                return False
            raise
        return True

    async def changed(self, since: Stored, seconds: float) -> None:
        """Wait until the Secret is another than ``since``, at most ``seconds``; a watch that fails only waits."""
        options = {"fieldSelector": f"metadata.name={self._name}", "timeoutSeconds": max(1, int(seconds))}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ApiError, Unreachable):
                    lines = self._api.lines(self._collection, seconds, resourceVersion=since.version, **options)
                    async with contextlib.aclosing(lines) as watched:
                        async for line in watched:
                            if line:
                                return
                await asyncio.sleep(seconds)

    def _decoded(self, name: str, value: object) -> bytes:
        try:
            return b64decode(text(value), validate=True)
        except (binascii.Error, ValueError) as error:
            raise CertificateError(self.place / name, "is no base64") from error
