from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

from tests.admission.recordings import NOW, RecordingGuard, coming, off, waiting
from webhook.admission.decode import read_review
from webhook.admission.record import Reserved
from webhook.facts.times import instant


def test_a_line_is_a_review_with_what_came_of_it() -> None:
    guard = RecordingGuard()
    record = guard.allocates("a", "15", "pa", reserved=Reserved("n1", 0.01, 2, True))
    [line] = guard.lines
    request = read_review(line)
    assert (request.operation, request.name, request.sub_resource) == ("UPDATE", "a", "status")
    told = line["allocguard"]
    assert (told["outcome"], told["response"]["allowed"], told["node"]) == ("denied", False, "n1")
    assert (told["revision"], told["endpoint"], told["seconds"]) == (guard.revision.hash, "validate", 0.001)
    assert instant(told["at"]) == guard.now == NOW + timedelta(seconds=4)
    assert told["sums"] == list(record.sums)
    assert told["sums"]
    finding = next(each for each in told["findings"] if each["rule"] == "node-overcommit")
    assert (finding["policy"], finding["does"], finding["severity"]) == ("claim-allocation", "Deny", "error")
    assert finding["message"] in record.answer.message
    assert told["reservation"]["taken"] is True
    assert told["reservation"]["conflicts"] == 2


def test_it_says_which_states_of_objects_were_seen() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "1", "pa")
    assert guard.lines[0]["allocguard"]["versions"] == {
        "Node": {"n1": guard.events[0].uid},
        "NodeLedger": {"n1": ""},
        "Pod": {"ns/pa": f"{guard.events[2].uid[:13]}-Pending"},
        "ResourceClaim": {"ns/a": "4"},
        "ResourceSlice": {guard.events[1].name: "2"},
    }
    assert guard.lines[0]["allocguard"]["release"] == {"minor": 36, "gates": {}, "dropsCosts": False}


def test_words_about_what_is_not_recorded_are_not_recorded() -> None:
    """A message may quote what a driver keeps, and a policy of somebody's own anything."""
    guard = RecordingGuard()
    claim = waiting("a")
    wrong = {"driver": "not a name", "parameters": {"password": "hunter2"}}
    claim["spec"]["devices"]["config"] = [{"opaque": wrong}]
    record = guard.decides(claim)
    assert any("config[0].opaque.driver" in each.finding.path for each in record.judged)
    [line] = guard.lines
    finding = next(each for each in line["allocguard"]["findings"] if each["rule"] == "config-invalid")
    assert finding["path"] == "spec.devices"
    assert "message" not in finding
    assert "hunter2" not in json.dumps(line)


def test_a_pod_that_waits_is_told_with_the_places_of_its_patch() -> None:
    guard = RecordingGuard()
    for obj in (*off(), waiting("c")):
        guard.sees(obj)
    record = guard.decides(coming("p", "c"), endpoint="mutate")
    told = guard.lines[0]["allocguard"]
    assert record.answer.held
    assert (told["outcome"], told["response"]["held"]) == ("held", True)
    assert told["response"]["patch"] == ["add /spec/schedulingGates"]


def test_the_documentation_names_every_member() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "1", "pa", reserved=Reserved("n1", 0.01, 0, True))
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    table = page.partition("| Member | What |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(guard.lines[0]["allocguard"])
