import json
from datetime import timedelta

import yaml
from msgspec import structs

from tests.ledger.builders import DRIVER
from tests.ledger.history import START, History
from webhook.cli.rollout_evidence import of_history, of_status
from webhook.controllers.rollout_figures import figures
from webhook.facts.times import instant, stamp
from webhook.kube.release import Release
from webhook.kube.rollout import Drill, read_rollout
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.ledger.export import Export, export_json
from webhook.ledger.fold import fold
from webhook.ledger.statement import statement

DAY = 24 * 3600
ROLLOUT = {
    "apiVersion": "allocguard.dev/v1alpha1",
    "kind": "DriverRollout",
    "metadata": {"name": DRIVER},
    "spec": {"stage": "General", "promotion": {"quietDays": 2, "pendingP99": "1m"}},
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}


def lived():
    """Two claims that wait 2 and 101 seconds; the mapping is another one for two days, over two midnights."""
    history = History()
    history.node(cpu="16")
    history.slice("1")
    history.claim("c")
    history.pod("p1", "c")
    history.version += 1
    history.allocate("c", (0, "2"), pod_name="p1")
    history.bind("p1", cpu="2")
    history.version += DAY // 2
    history.slice("2")
    history.version += 2 * DAY
    history.slice("1")
    history.claim("d")
    history.pod("p2", "d")
    history.version += 101
    history.allocate("d", (1, "1"), pod_name="p2")
    history.bind("p2", cpu="1")
    return history


def export_of(history, after=3 * DAY, **changes):
    made = START + timedelta(seconds=history.version + after)
    said = statement(Book(), fold(history.events, Release(36)).snapshot)
    export = Export(made, Release(36), START, (), tuple(history.events), said)
    return structs.replace(export, **changes)


def judged(export, *objects):
    snapshot = build([ROLLOUT, *objects], Release(36))
    return of_history(snapshot.rollouts[DRIVER], export, snapshot)


def test_days_differences_and_waits_of_a_history():
    history = lived()
    evidence, days = judged(export_of(history))
    assert [(str(each.day), each.differences) for each in days] == [
        ("2026-01-01", 1),
        ("2026-01-02", 1),
        ("2026-01-03", 1),
        ("2026-01-04", 0),
        ("2026-01-05", 0),
        ("2026-01-06", 0),
    ]
    assert evidence.observed_since == stamp(START)
    right = [event.observed for event in history.events if event.kind == "ResourceSlice"][-1]
    quiet = instant(evidence.quiet_since)
    # Whatever happened within ten seconds is looked at once.
    assert right <= quiet < right + timedelta(seconds=10)
    assert (evidence.pending_count, evidence.pending_p99) == (2, 101)
    assert (evidence.replays_equal, evidence.drills, evidence.duplicates) == (True, (), None)


def test_a_claim_that_still_waits_has_waited_until_the_end():
    history = lived()
    history.claim("e")
    history.pod("p3", "e")
    assert judged(export_of(history, after=3600))[0].pending_count == 2
    # Only claims that name the driver are known to be for it.
    history.put(CLASS)
    evidence, _ = judged(export_of(history, after=3600))
    assert (evidence.pending_count, evidence.pending_p99 // 60) == (3, 60)


def test_a_difference_that_stands_at_the_end_is_one_now():
    history = lived()
    history.slice("3")
    evidence, days = judged(export_of(history))
    # Of both claims.
    assert (evidence.quiet_since, days[-1].differences) == ("", 2)


def test_a_history_with_a_gap_begins_after_it():
    lost = START + timedelta(days=4)
    export = export_of(lived(), gaps=({"observed": stamp(lost), "lost": {"Pod": 1}},))
    evidence, _ = judged(export)
    assert (evidence.observed_since, evidence.quiet_since) == (stamp(lost), stamp(lost))


def crowded():
    """As lived, with one of two nodes too small for what is charged there, for an hour at the end."""
    history = lived()
    history.node("n2", cpu="16")
    history.version += DAY
    history.node(cpu="1")
    begun = history.now
    history.version += 3600
    history.node(cpu="16")
    return history, instant(begun)


def test_a_node_that_was_overcommitted_counts_though_it_is_not_now():
    history, begun = crowded()
    snapshot = build([*history.objects.values(), ROLLOUT], Release(36))
    assert figures(snapshot, Book(), [DRIVER], START)[DRIVER].overcommitted == 0
    assert judged(export_of(lived()))[0].overcommitted == 0
    evidence, _ = judged(export_of(history))
    assert (evidence.overcommitted, evidence.quiet_since) == (1, stamp(begun + timedelta(seconds=3601)))
    for lost, nodes in ((begun - timedelta(minutes=5), 1), (begun + timedelta(minutes=5), 1), (None, 0)):
        # What stood when the history begins is in it, what was over before is not.
        gap = {"observed": stamp(lost or begun + timedelta(hours=2)), "lost": {"Pod": 1}}
        assert judged(export_of(history, gaps=(gap,)))[0].overcommitted == nodes


def test_a_node_that_is_overcommitted_only_since_the_export_counts_once():
    history, _ = crowded()
    export = export_of(history)
    assert judged(export, *history.objects.values())[0].overcommitted == 1
    history.node(cpu="1")
    assert judged(export, *history.objects.values())[0].overcommitted == 1
    assert judged(export_of(lived()), *history.objects.values())[0].overcommitted == 1


def test_an_export_that_does_not_come_out_again():
    history = lived()
    export = export_of(history)
    assert judged(export)[0].replays_equal is True
    assert judged(structs.replace(export, events=export.events[:-3]))[0].replays_equal is False


def test_check_by_a_history(run, tmp_path):
    history = lived()
    cluster, exported = tmp_path / "cluster.yaml", tmp_path / "export.json"
    export = export_of(history)
    cluster.write_text(yaml.safe_dump_all([*history.objects.values(), ROLLOUT]))
    exported.write_text(json.dumps(export_json(export)))
    where = ("--cluster", cluster, "--history", exported, "--at", stamp(export.made + timedelta(days=30)))
    ran = run("rollout", "check", DRIVER, *where, "-o", "json")
    value = json.loads(ran.out)
    gates = {gate["name"]: gate for gate in value["gates"]}
    # What happened after the export was not seen, be it thirty days.
    assert gates["quiet"]["has"].startswith("no difference for 3d")
    assert (gates["quiet"]["passed"], gates["pending"]["passed"], ran.code) == (True, False, 1)
    assert gates["pending"]["has"] == "99 of 100 claims allocated within 1m41s, of 2 claims"
    assert gates["capacity"]["has"] == f"0 overcommitted nodes since {stamp(START)}"
    assert value["days"][:2] == [{"day": "2026-01-01", "differences": 1}, {"day": "2026-01-02", "differences": 1}]
    text = run("rollout", "check", DRIVER, *where).out
    assert "  2026-01-03            1\n" in text
    assert "| 2026-01-06 | 0 |" in run("rollout", "check", DRIVER, *where, "-o", "markdown").out
    exported.write_text("{}")
    ran = run("rollout", "check", DRIVER, *where)
    assert (ran.code, "kind: has nothing, needs LedgerExport" in ran.err) == (2, True)


def test_a_status_of_another_stage_counts_for_drills_alone():
    history = lived()
    export = export_of(history)
    drill = {"name": "Rollback", "at": "2026-01-02T00:00:00Z", "passed": True, "by": "dana", "message": ""}
    status = {"observedSince": stamp(START), "quietSince": stamp(START), "duplicates": 1, "drills": [drill]}
    snapshot = build([*history.objects.values(), ROLLOUT], Release(36))
    for stage, seen, duplicates in (("General", stamp(START), 1), (None, stamp(START), 1), ("Canary", "", None)):
        document = {**ROLLOUT, "status": {**status, **({"stage": stage} if stage else {})}}
        found = of_status(read_rollout(document), document, export, snapshot, export.made)
        assert (found.observed_since, found.quiet_since, found.duplicates) == (seen, seen, duplicates)
        assert found.drills == (Drill("Rollback", "2026-01-02T00:00:00Z", True, "dana", ""),)
        assert (found.replays_equal, found.overcommitted) == (True, 0)


def test_a_difference_now_goes_before_what_the_status_says():
    history = lived()
    history.node(cpu="1")
    document = {**ROLLOUT, "status": {"observedSince": stamp(START), "quietSince": stamp(START)}}
    snapshot = build([*history.objects.values(), document], Release(36))
    found = of_status(snapshot.rollouts[DRIVER], document, export_of(history), snapshot, START)
    assert (found.quiet_since, found.overcommitted) == ("", 1)
