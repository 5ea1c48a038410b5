"""The events about an object, read from the API server page by page, and no more of them than somebody would read."""

from __future__ import annotations

from webhook.cluster.api import Api
from webhook.kube.object_event import ObjectEvent, read_object_event
from webhook.kube.raw import mapping, members, text

# Events in one answer, and answers that are asked for.
PAGE, PAGES = 500, 4


async def object_events(api: Api, namespace: str, pages: int = PAGES, **fields: str) -> tuple[list[ObjectEvent], bool]:
    """The events of ``namespace``, of all where it is empty, whose ``fields`` (``involvedObject_uid`` for
    ``involvedObject.uid``, ``reason``, ``source``) have these values, and whether there are more than ``pages`` have.
    Raises ApiError and Unreachable.
    """
    path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
    selector = ",".join(f"{name.replace('_', '.')}={value}" for name, value in fields.items())
    found: list[ObjectEvent] = []
    token: str | None = None
    for _ in range(pages):
        page = await api.get(path, fieldSelector=selector, limit=PAGE, **{"continue": token})
        found += [read_object_event(each) for each in members(page.get("items"))]
        token = text(mapping(page.get("metadata")).get("continue")) or None
        if token is None:
            return found, False
    return found, True
