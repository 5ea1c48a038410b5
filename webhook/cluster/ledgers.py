"""The NodeLedger objects of the API server, written over the very version that was seen and no other."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from webhook.cluster.api import Api, ApiError
from webhook.kube.node_ledger import NodeLedger, node_ledger_object, stored_node_ledger
from webhook.kube.packed import packed_status
from webhook.kube.raw import Json, mapping, text

PATH = "/apis/allocguard.dev/v1alpha1/nodeledgers"


class Written(Struct, frozen=True):
    """``ledger`` is what is stored now: what was to be written, or, not ``done``, what somebody else has written."""

    done: bool
    ledger: NodeLedger


class Ledgers:
    """Belongs to the event loop of ``api``. Every method raises ApiError and Unreachable; 404 where the API server does
    not have the kind.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def reserve(self, ledger: NodeLedger) -> Written:
        """Write the reservations of ``ledger`` over its version; one without a version is made."""
        if not ledger.resource_version:
            made = await self._make(ledger)
            if not made.done:
                return made
            ledger = replace(ledger, resource_version=made.ledger.resource_version)
        # Charges are not sent: a node of many devices has many of them.
        reservations = packed_status(node_ledger_object(ledger)["status"])["reservations"]
        return await self._write(ledger, {"reservations": reservations})

    async def publish(self, ledger: NodeLedger, obj: Json) -> Written:
        """Write ``obj``, the object of ``ledger``, over the version of ``ledger``; one without a version is made."""
        if not ledger.resource_version:
            made = await self._make(ledger)
            if not made.done:
                return made
            ledger = replace(ledger, resource_version=made.ledger.resource_version)
        return await self._write(ledger, packed_status(obj["status"]))

    async def remove(self, ledger: NodeLedger) -> bool:
        """Delete the object if it still has the version of ``ledger``; whether it is gone."""
        try:
            await self._api.delete(
                f"{PATH}/{ledger.node}", {"preconditions": {"resourceVersion": ledger.resource_version}}
            )
        except ApiError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            return error.status == HTTPStatus.NOT_FOUND
        return True

    async def _make(self, ledger: NodeLedger) -> Written:
        obj = node_ledger_object(ledger)
        try:
            made = await self._api.create(PATH, {name: part for name, part in obj.items() if name != "status"})
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return Written(False, await self._read(ledger.node))
        return Written(True, stored_node_ledger(made))

    async def _write(self, ledger: NodeLedger, status: Json) -> Written:
        body = {"metadata": {"resourceVersion": ledger.resource_version}, "status": status}
        try:
            written = await self._api.patch(f"{PATH}/{ledger.node}/status", body, "merge")
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                return Written(False, await self._read(ledger.node))
            if error.status == HTTPStatus.NOT_FOUND:
                # Somebody has deleted it. What was decided on it is to be decided again on an empty one.
                return replace(await self._make(NodeLedger(ledger.node, ledger.node_uid)), done=False)
            raise
        return Written(
            True, replace(ledger, resource_version=text(mapping(written.get("metadata")).get("resourceVersion")))
        )

    async def _read(self, node: str) -> NodeLedger:
        return stored_node_ledger(await self._api.get(f"{PATH}/{node}"))
