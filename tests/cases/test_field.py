"""Reports from the field, as cases: what ``check``, ``review``, ``ledger show``, ``fit`` and ``replay`` answer to each.

``field/README.md`` tells the format, and which reports are answered only in part. ``kinds/`` has cases of the same
format, a file for a kind of mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace

from tests.cases.shapes import converted
from webhook.cli.program import program
from webhook.facts.times import instant
from webhook.kube.release import Release, parse_version
from webhook.ledger.book import Book
from webhook.ledger.events import Event, event_of
from webhook.ledger.export import Export, export_json, kept_objects
from webhook.ledger.fold import fold
from webhook.ledger.statement import statement
from webhook.policy.fieldpath import changed
from webhook.store import policies

FIELD = Path(__file__).parent / "field"
RELEASES = ["1.36", "1.37"]
REPORTS = sorted(path for path in FIELD.glob("*.yaml") if path.name != "base.yaml")
FILES = [*REPORTS, *sorted(FIELD.with_name("kinds").glob("*.yaml"))]
CLUSTER_FIELDS = {"cluster", "with", "without"}
SETTINGS = {*CLUSTER_FIELDS, "at", "gates", "params", "releases", "objects", "convert"}
ACTIONS = {"check", "review", "ledger", "fit", "replay"}
COMMON_EXPECT = {"errors", "warnings", "infos", "says", *RELEASES}
EXPECT = {
    "check": {"server"},
    "review": {"allowed"},
    "ledger": {"nodes"},
    "fit": {"verdict", "nodes", "smallestChange"},
    "replay": {"nodes"},
}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Json = dict[str, Any]


def expanded(value: Any, counter: str = "{n}") -> Any:
    """``value`` with every ``{repeat: N, of: …}`` of a list written out: ``{n}`` counts from 0, ``{m}`` within it."""
    if isinstance(value, dict):
        return {name: expanded(part, counter) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    parts: list[Any] = []
    for part in value:
        if isinstance(part, dict) and part.keys() == {"repeat", "of"}:
            inner = expanded(part["of"], "{m}")
            parts += [numbered(inner, counter, str(number)) for number in range(part["repeat"])]
        else:
            parts.append(expanded(part, counter))
    return parts


def numbered(value: Any, counter: str, number: str) -> Any:
    if isinstance(value, str):
        return value.replace(counter, number)
    if isinstance(value, dict):
        return {name: numbered(part, counter, number) for name, part in value.items()}
    return [numbered(part, counter, number) for part in value] if isinstance(value, list) else value


@cache
def read(path: Path) -> Json:
    value: Json = yaml.load(path.read_text(), LOADER)
    return value


def identity(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class Case:
    """One case in one release: its cluster, its command and what is expected."""

    def __init__(self, path: Path, fields: Json, release: str) -> None:
        base, top = read(FIELD / "base.yaml"), read(path)
        self.release = release
        self.shape = release if fields.get("convert", True) else "1.36"
        self.name = fields["name"]
        self.named = {**base["objects"], **top.get("objects", {}), **fields.get("objects", {})}
        self.at = fields.get("at", top.get("at", base["at"]))
        self.gates = {**top.get("gates", {}), **fields.get("gates", {})}
        self.params = fields.get("params", top.get("params"))
        (self.action,) = ACTIONS & fields.keys()
        self.asked = fields[self.action]
        self.objects: dict[tuple[str, str, str], Json] = {}
        for part in (base, top, fields):
            if "cluster" in part:
                self.objects = {}
            for obj in self.resolved([*part.get("cluster", []), *part.get("with", [])]):
                self.objects[identity(obj)] = obj
            for obj in self.resolved(part.get("without", [])):
                del self.objects[identity(obj)]
        expect = fields["expect"]
        self.expect = {k: v for k, v in {**expect, **expect.get(release, {})}.items() if k not in RELEASES}
        unknown = (fields.keys() - SETTINGS - ACTIONS - {"name", "expect"}) | (
            self.expect.keys() - COMMON_EXPECT - EXPECT[self.action]
        )
        assert not unknown, f"{path.name}: {self.name}: has {sorted(unknown)}, which nothing reads"

    def resolved(self, items: list[Any]) -> list[Json]:
        return [self.object(item) for item in expanded(items)]

    def object(self, item: Any) -> Json:
        """The object of a name, of ``{from: NAME, set: {path: value}}``, or as it is written."""
        return converted(self._made(item)) if self.shape == "1.37" else self._made(item)

    def export(self) -> Export:
        """The cluster at the clock of the case, what ``replay`` says happened since, and the accounts in the end."""
        release, begins = Release(parse_version(self.release), self.gates), instant(self.at)
        assert begins is not None
        events = [self._event(begins + timedelta(seconds=each["after"]), each) for each in self.asked]
        export = Export(begins, release, begins, kept_objects(self.objects.values()), tuple(events), {})
        return replace(export, statement=statement(Book(), fold(export.history(), release).snapshot))

    def _event(self, observed: datetime, step: Json) -> Event:
        assert step.keys() in ({"after", "put"}, {"after", "gone"}), step
        (obj,) = kept_objects([self.object(step.get("put", step.get("gone")))])
        return event_of(obj, observed, "gone" in step)

    def _made(self, item: Any) -> Json:
        if isinstance(item, str):
            return self._made(self.named[item])
        if "from" in item:
            assert item.keys() <= {"from", "set"}, item
            return changed(self._made(item["from"]), expanded(item.get("set", {})))
        obj: Json = expanded(deepcopy(item))
        return obj


def cases() -> list[Any]:
    found = []
    for path in FILES:
        for fields in read(path)["cases"]:
            releases = fields.get("releases", read(path).get("releases", RELEASES))
            # What comes first must not matter: the second run has all objects backwards.
            for release, backwards in zip(sorted((releases * 2)[:2]), (False, True), strict=True):
                name = f"{path.stem}: {fields['name']} [{release}{' backwards' if backwards else ''}]"
                found.append(pytest.param(path, fields, release, backwards, id=name))
    return found


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Hundreds of commands with the same policies: compiled at the first."""
    reader = cache(policies.read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "read", lambda paths: reader(tuple(paths)))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every case writes its files over those of the last."""
    return tmp_path_factory.mktemp("field")


def written(path: Path, objects: list[Json]) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(path)


def with_params(folder: Path, params: dict[str, Json]) -> Iterator[str]:
    """The shipped policies, those of ``params`` with these parameters in place of their own."""
    for file in Path(policies.shipped()).glob("*.yaml"):
        if file.stem in params:
            policy = yaml.load(file.read_text(), LOADER)
            policy["spec"]["params"] = params[file.stem]
            # A name of its own, as a file that was compiled once is not read again.
            file = Path(mkdtemp(dir=folder)) / file.name
            file.write_text(json.dumps(policy))
        yield str(file)


def command(case: Case, folder: Path, backwards: bool) -> list[str]:
    def file(name: str, items: Any) -> str:
        listed = case.resolved(items if isinstance(items, list) else [items])
        return written(folder / f"{name}.json", listed[::-1] if backwards else listed)

    if case.action == "replay":
        export = case.export()
        if backwards:
            export = replace(export, objects=export.objects[::-1], events=export.events[::-1])
        path = folder / "export.json"
        path.write_text(json.dumps(export_json(export)))
        return ["ledger", "replay", str(path), "-o", "json"]
    objects = list(case.objects.values())
    common = ["--at", case.at, "--kubernetes-version", case.release]
    common += ["--cluster", written(folder / "cluster.json", objects[::-1] if backwards else objects)]
    if case.gates:
        common += ["--feature-gates", ",".join(f"{name}={str(on).lower()}" for name, on in case.gates.items())]
    if case.params:
        common += [option for file in with_params(folder, case.params) for option in ("--policies", file)]
    asked = case.asked
    if case.action == "check":
        return ["check", file("objects", asked), "-o", "json", *common]
    if case.action == "ledger":
        return ["ledger", "show", "-o", "json", *common]
    if case.action == "fit":
        pod = ["--pod", file("pod", asked["pod"])] if "pod" in asked else []
        return ["ledger", "fit", "--claim", file("claims", asked["claims"]), *pod, "-o", "json", *common]
    args = ["review", "--object", file("object", asked["object"]), "--operation", asked["operation"]]
    for option in ("subresource", "user", "endpoint"):
        if option in asked:
            args += [f"--{option}", asked[option]]
    args += [part for name, value in asked.get("extra", {}).items() for part in ("--extra", f"{name}={value}")]
    if "old" in asked:
        args += ["--old", file("old", asked["old"])]
    return [*args, *common]


Texts = dict[str, list[str]]


def told(answer: Json, action: str) -> Texts:
    """What an answer says, by severity: ``rule: path: message; fix``."""
    texts: Texts = {"error": [], "warning": [], "info": [], "other": []}
    if action == "review":
        response = answer["response"]
        causes = response.get("status", {}).get("details", {}).get("causes", [])
        texts["error"] = [cause["message"].partition("/")[2] for cause in causes]
        texts["warning"] = [warning.partition("/")[2] for warning in response.get("warnings", [])]
        names = {name.partition("/")[2] for name in response["auditAnnotations"].get("findings", "").split(",")}
        texts["info"] = sorted(names - {"", *map(rule, texts["error"]), *map(rule, texts["warning"])})
        return texts
    findings = answer.get("findings", [])
    if action == "ledger":
        findings = [each for part in (answer, *answer["nodes"]) for each in part["differences"]]
        texts["other"] = [reason for node in answer["nodes"] for pool in node["pools"] for reason in pool["reasons"]]
    elif action == "replay":
        findings = [*answer["incidents"], *answer["differences"]]
    elif action == "fit":
        findings = [reason for node in answer["nodes"] for reason in node["reasons"]]
    for each in findings:
        about = f"{each.get('name', '')} {each['path']}"
        texts[each["severity"]].append(f"{each['rule']}: {about}: {each['message']}; {each['fix']}")
    return texts


def rule(text: str) -> str:
    return text.partition(":")[0]


def unlike(wanted: Any, got: Any, path: str = "") -> Iterator[str]:
    """Where ``got`` is not as wanted: of maps the fields that are wanted, of lists all items in order."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name, part in wanted.items():
            yield from unlike(part, got.get(name), f"{path}.{name}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, part in enumerate(wanted):
            yield from unlike(part, got[index], f"{path}[{index}]")
    elif wanted != got or isinstance(wanted, bool) is not isinstance(got, bool):
        yield f"{path.lstrip('.')} is {got}, wanted {wanted}"


def why_wrong(case: Case, answer: Json) -> list[str]:
    expect, texts = case.expect, told(answer, case.action)
    everything = [text for part in texts.values() for text in part]
    wrong = [
        f"{severity}s are {sorted(texts[severity])}, wanted {wanted}"
        for severity in ("error", "warning")
        if {rule(text) for text in texts[severity]} != set(wanted := expect.get(f"{severity}s", []))
    ]
    missing = set(expect.get("infos", [])) - {rule(text) for text in texts["info"]}
    wrong += [f"no info {sorted(missing)}, only {texts['info']}"] if missing else []
    wrong += [f"nothing says {part!r}: {everything}" for part in expect.get("says", []) if part not in str(everything)]
    match case.action:
        case "check":
            server = {each["rule"] for each in answer["findings"] if each["origin"] == "apiserver"}
            if server != set(expect.get("server", [])):
                wrong.append(f"the API server's own are {sorted(server)}, wanted {expect.get('server', [])}")
        case "review":
            if answer["response"]["allowed"] is not expect["allowed"]:
                wrong.append(f"allowed is {answer['response']['allowed']}: {everything}")
        case "replay":
            wrong += unlike({"equal": True}, answer)
            # What came out is what the export states, since it is equal.
            by_name = {node["node"]: node for node in case.export().statement["nodes"]}
            wrong += unlike(expect.get("nodes", {}), by_name)
        case "ledger" | "fit":
            by_name = {node["node"]: node for node in answer["nodes"]}
            wrong += unlike({k: v for k, v in expect.items() if k in ("verdict", "smallestChange")}, answer)
            wrong += unlike(expect.get("nodes", {}), by_name)
    return wrong


def run(arguments: list[str]) -> Json:
    result = CliRunner(catch_exceptions=False).invoke(program, arguments)
    assert result.exit_code in (0, 1), result.output
    answer: Json = json.loads(result.stdout)
    return answer


@pytest.mark.parametrize(("path", "fields", "release", "backwards"), cases())
def test_case(path: Path, fields: Json, release: str, backwards: bool, folder: Path) -> None:
    case = Case(path, fields, release)
    assert why_wrong(case, run(command(case, folder, backwards))) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_report_finds_something(path: Path) -> None:
    """A file whose cases expect silence alone would pass with a product that never says anything."""
    report = read(path)
    if path in REPORTS:
        assert path.stem.startswith(f"{report['report']}-")
        assert report["happened"]
    assert report["cases"]
    loud = {"errors", "warnings", "infos", "says", "nodes", "smallestChange"}
    expectations = [part for case in report["cases"] for part in (case["expect"], *map(case["expect"].get, RELEASES))]
    assert any(loud & (part or {}).keys() for part in expectations)


def test_every_report_has_its_row() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|", (FIELD / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted({read(path)["report"] for path in REPORTS})
