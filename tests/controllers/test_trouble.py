"""What goes wrong is logged once for each cause."""

from __future__ import annotations

import io
import json

from webhook.cluster.api import ApiError
from webhook.controllers.trouble import Once, Trouble
from webhook.telemetry.log import Log


def forbidden(name: str, status: int = 403) -> Trouble:
    return Trouble(name, ApiError(status, "Forbidden", f'pods "{name}" is forbidden'))


def test_a_cause_is_logged_once_until_it_is_over() -> None:
    said = io.StringIO()
    log = Log(said)
    once = Once(log, "not done")
    for each in (forbidden("a"), forbidden("b"), "away", forbidden("c"), "away", forbidden("d", 401)):
        once.tell(each)
    once.over()
    once.tell(forbidden("e"))
    log.close()
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert {(line["event"], line["level"]) for line in lines} == {("not done", "warning")}
    assert [line["message"] for line in lines] == [
        'a: 403 Forbidden: pods "a" is forbidden',
        "away",
        'd: 401 Forbidden: pods "d" is forbidden',
        'e: 403 Forbidden: pods "e" is forbidden',
    ]
