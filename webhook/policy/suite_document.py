"""``PolicyTest`` documents: a small cluster, writes against it, and what a policy is expected to say to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from msgspec.structs import replace

from webhook.facts.times import instant
from webhook.kube.admission import Request, raw_request, read_request
from webhook.kube.documents import Document, load
from webhook.kube.raw import Json, mapping, sequence
from webhook.kube.release import Release, parse_version
from webhook.kube.rollout import API_VERSION
from webhook.policy.document import ENDPOINTS
from webhook.policy.fieldpath import changed
from webhook.policy.problem import Problem
from webhook.policy.reader import Reader

KIND = "PolicyTest"
DEFAULT_CLOCK = datetime(2026, 11, 29, 12, tzinfo=UTC)

# Gives the bytes of a file that a test document names, by that document's file and the name; or raises OSError.
ReadFile = Callable[[str, str], bytes]

_SETTINGS = ("kubernetesVersion", "featureGates", "at", "params", "cluster")
_WRITE = ("endpoint", "operation", "object", "set", "oldObject", "oldSet", "subresource", "dryRun")
_REVIEW = (*_WRITE, "user", "groups", "extra")
_EXPECT = ("allowed", "matched", "findings", "noFindings", "warnings", "message", "held", "patch")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a case expects. None: not asked. ``findings`` are rules that must be found (an empty list: no error and no
    warning), ``message`` a part of the text of one of them, ``patch`` the operations of the mutations.
    """

    matched: bool
    allowed: bool | None
    findings: tuple[str, ...] | None
    no_findings: tuple[str, ...]
    warnings: bool | None
    message: str
    held: bool | None
    patch: tuple[Json, ...] | None


@dataclass(frozen=True, slots=True)
class Case:
    """One write and what is expected; ``objects`` are the cluster, later ones in place of earlier ones, ``params``
    stand in place of the policy's own (None: they do not).
    """

    name: str
    line: int
    endpoint: str
    request: Request
    release: Release
    now: datetime
    params: Json | None
    objects: tuple[Json, ...]
    expect: Expectation


@dataclass(frozen=True, slots=True)
class Suite:
    """A test document: the policy it is about, and its cases."""

    file: str
    line: int
    name: str
    policy: str
    cases: tuple[Case, ...]


def read_suite(document: Document, read: ReadFile) -> tuple[Suite, list[Problem]]:
    """The suite of a document and what is wrong with it; ``read`` is for what ``cluster.files`` name."""
    reader = Reader(document)
    top = reader.fields(document.value, "", ("apiVersion", "kind", "metadata", "spec"))
    if top.get("apiVersion") != API_VERSION:
        reader.problem("apiVersion", f"has {top.get('apiVersion')!r}, needs {API_VERSION}")
    metadata = reader.fields(top.get("metadata"), "metadata", ("name", "labels", "annotations"))
    name = reader.text(metadata, "name", "metadata", required=True)
    spec = reader.fields(top.get("spec"), "spec", ("policy", "objects", "cases", *_SETTINGS))
    named = mapping(spec.get("objects"))
    if "objects" in spec and not all(isinstance(obj, dict) for obj in (named or {"": None}).values()):
        reader.problem("spec.objects", "needs names and objects")
    build = _Builder(reader, {name: obj for name, obj in named.items() if isinstance(obj, dict)}, read)
    common = tuple(build.cluster(spec, "spec"))
    suite = Suite(
        file=document.file,
        line=document.position("metadata.name")[0],
        name=name,
        policy=reader.text(spec, "policy", "spec", name),
        cases=tuple(
            case
            for path, item in reader.items(spec, "cases", "spec", required=True)
            if (case := build.case(spec, common, item, path)) is not None
        ),
    )
    seen: set[str] = set()
    for case in suite.cases:
        if case.name in seen:
            reader.problem("spec.cases", f"has the case {case.name!r} twice, needs a name of its own")
        seen.add(case.name)
    # A setting of the whole suite is read for every case.
    return suite, list(dict.fromkeys(reader.problems))


@dataclass(frozen=True, slots=True)
class _Builder:
    reader: Reader
    named: Mapping[str, Json]
    read: ReadFile

    def case(self, spec: Json, common: tuple[Json, ...], item: object, path: str) -> Case | None:
        reader = self.reader
        before = len(reader.problems)
        fields = reader.fields(item, path, ("name", "review", "expect", *_SETTINGS))
        name = reader.text(fields, "name", path, required=True)
        endpoint, request = self._review(fields, path)
        case = Case(
            name=name,
            line=reader.document.position(path)[0],
            endpoint=endpoint,
            request=request,
            release=self._release(spec, fields, path),
            now=self._clock(spec, fields, path),
            params=self._params(spec, fields, path),
            objects=(*common, *self.cluster(fields, path)),
            expect=self._expectation(fields, path),
        )
        return case if len(reader.problems) == before else None

    def _setting(self, spec: Json, fields: Json, name: str, path: str) -> tuple[object, str]:
        return (fields[name], f"{path}.{name}") if name in fields else (spec.get(name), f"spec.{name}")

    def _release(self, spec: Json, fields: Json, path: str) -> Release:
        version, where = self._setting(spec, fields, "kubernetesVersion", path)
        minor = 36
        if version is not None:
            try:
                minor = parse_version(str(version))
            except ValueError as error:
                self.reader.problem(where, str(error), 'write "1.36" in quotes')
        gates, where = self._setting(spec, fields, "featureGates", path)
        if not isinstance(gates, dict | None) or not all(isinstance(on, bool) for on in mapping(gates).values()):
            self.reader.problem(where, "needs gate names with true or false")
            return Release(minor)
        return Release(minor, mapping(gates))

    def _params(self, spec: Json, fields: Json, path: str) -> Json | None:
        params, where = self._setting(spec, fields, "params", path)
        if params is None or isinstance(params, dict):
            return params
        self.reader.problem(where, "needs names and values")
        return None

    def _clock(self, spec: Json, fields: Json, path: str) -> datetime:
        stamp, where = self._setting(spec, fields, "at", path)
        now = instant(str(stamp)) if stamp is not None else DEFAULT_CLOCK
        if now is None:
            self.reader.problem(where, f"has {stamp}, needs a time with date and offset", "write 2027-01-31T00:00:00Z")
        return now or DEFAULT_CLOCK

    def cluster(self, fields: Json, path: str) -> list[Json]:
        if fields.get("cluster") is None:
            return []
        where = f"{path}.cluster"
        parts = self.reader.fields(fields["cluster"], where, ("files", "objects"))
        found: list[Json] = []
        for file in self.reader.texts(parts, "files", where):
            try:
                documents = load(self.read(self.reader.document.file, file), file)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                self.reader.problem(f"{where}.files", f"has {file}, which cannot be read: {reason}")
                continue
            for document in documents:
                if isinstance(document, Document):
                    found.append(document.value)
                else:
                    has = f"has {file}, whose line {document.line} {document.message}"
                    self.reader.problem(f"{where}.files", has, document.fix)
        found += [obj for at, item in self.reader.items(parts, "objects", where) if (obj := self._object(item, at))]
        return found

    def _object(self, value: object, path: str) -> Json | None:
        if isinstance(value, str):
            if value not in self.named:
                self.reader.problem(path, f"has the object {value}, needs a name from spec.objects")
            return self.named.get(value)
        if isinstance(value, dict):
            return value
        self.reader.problem(path, "needs an object, or the name of one from spec.objects")
        return None

    def _changed(self, fields: Json, name: str, changes: str, path: str) -> Json | None:
        if fields.get(name) is None:
            return None
        obj = self._object(fields[name], f"{path}.{name}")
        given = fields.get(changes)
        if obj is None or given is None:
            return obj
        if not isinstance(given, dict):
            self.reader.problem(f"{path}.{changes}", "needs field paths and values")
            return obj
        try:
            return changed(obj, {str(key): value for key, value in given.items()})
        except (ValueError, LookupError) as error:
            self.reader.problem(f"{path}.{changes}", str(error.args[0]))
            return obj

    def _review(self, fields: Json, path: str) -> tuple[str, Request]:
        where = f"{path}.review"
        given = fields.get("review")
        if isinstance(given, dict) and "sent" in given:
            return self._sent(given, where)
        if isinstance(given, dict) and "request" in given:
            review = self.reader.fields(given, where, ("apiVersion", "kind", "request", "endpoint"))
            return (
                self.reader.choice(review, "endpoint", where, ENDPOINTS, "validate"),
                read_request(mapping(review["request"])),
            )
        review = self.reader.fields(given, where, _REVIEW)
        operation = self.reader.choice(review, "operation", where, ("CREATE", "UPDATE", "DELETE", "CONNECT"))
        obj = self._changed(review, "object", "set", where)
        old = self._changed(review, "oldObject", "oldSet", where)
        if (obj is None) is (operation != "DELETE"):
            self.reader.problem(where, f"has operation {operation}, needs {'oldObject alone' if obj else 'an object'}")
        if (old is None) is (operation in ("UPDATE", "DELETE")):
            self.reader.problem(where, f"has operation {operation}, needs {'no oldObject' if old else 'an oldObject'}")
        extra = {str(key): [str(v) for v in sequence(values)] for key, values in mapping(review.get("extra")).items()}
        raw = raw_request(
            operation,
            obj,
            old,
            user=self.reader.text(review, "user", where),
            groups=self.reader.texts(review, "groups", where),
            extra=extra,
            sub_resource=self.reader.text(review, "subresource", where),
            dry_run=review.get("dryRun") is True,
        )
        return self.reader.choice(review, "endpoint", where, ENDPOINTS, "validate"), read_request(raw)

    def _sent(self, given: Json, path: str) -> tuple[str, Request]:
        """A review by its text, for rules about how the JSON is written."""
        review = self.reader.fields(given, path, ("sent", "endpoint"))
        sent = self.reader.text(review, "sent", path, required=True)
        try:
            value = orjson.loads(sent)
        except orjson.JSONDecodeError as error:
            self.reader.problem(f"{path}.sent", f"is no JSON: {error}")
            value = {}
        request = read_request(mapping(mapping(value).get("request")))
        endpoint = self.reader.choice(review, "endpoint", path, ENDPOINTS, "validate")
        return endpoint, replace(request, sent=sent.encode())

    def _expectation(self, fields: Json, path: str) -> Expectation:
        where = f"{path}.expect"
        expect = self.reader.fields(fields.get("expect"), where, _EXPECT)
        if not expect:
            self.reader.problem(where, f"expects nothing, needs one of {', '.join(_EXPECT)}")
        return Expectation(
            matched=self._flag(expect, "matched", where) is not False,
            allowed=self._flag(expect, "allowed", where),
            findings=self.reader.texts(expect, "findings", where) if "findings" in expect else None,
            no_findings=self.reader.texts(expect, "noFindings", where),
            warnings=self._flag(expect, "warnings", where),
            message=self.reader.text(expect, "message", where),
            held=self._flag(expect, "held", where),
            patch=self._patch(expect, where) if "patch" in expect else None,
        )

    def _patch(self, expect: Json, path: str) -> tuple[Json, ...]:
        found = []
        for at, item in self.reader.items(expect, "patch", path):
            if isinstance(item, dict):
                found.append(item)
            else:
                self.reader.problem(at, "has something else, needs an operation: op, path, value, from")
        return tuple(found)

    def _flag(self, fields: Json, name: str, path: str) -> bool | None:
        value = fields.get(name)
        if value is not None and not isinstance(value, bool):
            self.reader.problem(f"{path}.{name}", f"has {value!r}, needs true or false")
            return None
        return value
