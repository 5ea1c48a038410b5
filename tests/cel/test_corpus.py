"""Every expression of the corpus against our engine and against cel-expr-python's own evaluation.

The corpus holds the answers of a real API server. `differences.yaml` lists where we, or the other engine, answer
otherwise, and why; a listed difference that is gone fails as an unlisted one does.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from webhook import cel
from webhook.cel.formats import Format
from webhook.cel.network import CIDR, IP
from webhook.cel.quantity import Quantity
from webhook.cel.semver import Semver
from webhook.cel.times import Duration, Timestamp
from webhook.cel.urls import URL
from webhook.cel.values import TypeValue

HERE = Path(__file__).parent
ROOTS = ("object", "oldObject", "params", "request", "namespaceObject", "variables", "x", "y")


@dataclass(frozen=True)
class Case:
    file: str
    number: int
    expression: str
    names: dict[str, Any] | None
    device: dict[str, Any] | None
    expected: Any


def load() -> list[Case]:
    cases = []
    for path in sorted((HERE / "corpus").glob("*.yaml")):
        number = 0
        for group in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            for case in group["cases"]:
                number += 1
                expected = case["error"] if "error" in case else {"value": case["value"]}
                cases.append(
                    Case(path.stem, number, case["expression"], group.get("names"), group.get("device"), expected)
                )
    return cases


CASES = load()
DIFFERENCES = yaml.safe_load((HERE / "differences.yaml").read_text())


def encode(value: Any) -> Any:
    """A value as the corpus writes it: JSON, with what JSON lacks as {"$kind": text}."""
    if value is None or isinstance(value, bool | str):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, cel.Uint):
        return {"$uint": str(int(value))}
    if isinstance(value, int):
        return {"$int": str(value)}
    if isinstance(value, float):
        special = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
        return {"$double": special.get(repr(value), repr(value))}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: encode(each) for key, each in value.items()}
        return {"$map": sorted(([encode(key), encode(each)] for key, each in value.items()), key=str)}
    if isinstance(value, cel.Optional):
        return {"$optional": "none" if value.empty else [encode(value.value)]}
    if isinstance(value, Duration):
        return {"$duration": str(value.nanoseconds)}
    if isinstance(value, Quantity):
        return {"$quantity": str(value.number)}
    if isinstance(value, TypeValue):
        return {"$type": value.name}
    if isinstance(value, Format):
        return {"$format": value.name}
    kinds = {Timestamp: "$timestamp", Semver: "$semver", IP: "$ip", CIDR: "$cidr", URL: "$url"}
    return {kinds[type(value)]: str(value)}


DEVICE = cel.StructType(
    "Device",
    fields={
        "driver": cel.Field(cel.STRING, "driver"),
        "attributes": cel.Field(cel.map_of(cel.STRING, cel.map_of(cel.STRING, cel.DYN)), "attributes"),
        "capacity": cel.Field(cel.map_of(cel.STRING, cel.map_of(cel.STRING, cel.QUANTITY)), "capacity"),
        "allowMultipleAllocations": cel.Field(cel.BOOL, "shared"),
    },
)


def device(raw: dict[str, Any]) -> cel.Record:
    """A device of a slice as the value of the struct above, the way selectors need it."""

    def by_domain(entries: dict[str, Any], read: Any) -> cel.DefaultMap:
        found: dict[str, dict[str, Any]] = {}
        for name, entry in entries.items():
            domain, _, identifier = name.rpartition("/")
            found.setdefault(domain or raw["driver"], {})[identifier] = read(entry)
        return cel.DefaultMap(found, {})

    def attribute(entry: dict[str, Any]) -> Any:
        ((kind, value),) = entry.items()
        return Semver.parse(value) if kind == "version" else value

    return cel.Record(
        {
            "driver": raw["driver"],
            "attributes": by_domain(raw.get("attributes", {}), attribute),
            "capacity": by_domain(raw.get("capacity", {}), lambda entry: Quantity(parse(entry["value"]))),
            "shared": raw.get("allowMultipleAllocations", False),
        }
    )


def parse(text: str) -> Any:
    from webhook.kube import quantity

    return quantity.parse(text)


@functools.cache
def environment(of_device: bool) -> cel.Environment:
    return cel.Environment({"device": DEVICE} if of_device else dict.fromkeys(ROOTS, cel.DYN))


def answer(case: Case) -> Any:
    """What our engine makes of a case: a value, or the stage at which it failed."""
    try:
        program = cel.compile(
            case.expression, environment(case.device is not None), cel.BOOL if case.device is not None else None
        )
    except cel.CelError as error:
        return "compile" if placed(error) else error
    names = case.names if case.names is not None else {"device": device(case.device or {})}
    try:
        return {"value": encode(program.evaluate(names, cel.Budget()))}
    except cel.EvaluationError as error:
        return "evaluate" if placed(error) else error


def placed(error: cel.CelError | cel.EvaluationError) -> bool:
    """Whether an error says where it is, in one line."""
    return error.line >= 1 and error.column >= 1 and "\n" not in error.message


FILES = sorted({case.file for case in CASES})
FIXED = [case for case in CASES if case.device is None]


def differing(
    cases: list[Case], listed: list[dict[str, Any]], gives: Callable[[Case], Any], wants: Callable[[Case], Any]
) -> list[str]:
    """Cases whose answer is neither the wanted nor the listed one; a listed answer must not be the wanted one."""
    known = {entry["expression"]: entry["gives"] for entry in listed}
    wrong = []
    for case in cases:
        got, wanted = gives(case), wants(case)
        if got != known.get(case.expression, wanted):
            wrong.append(f"{case.expression}: needs {known.get(case.expression, wanted)}, gives {got}")
        elif case.expression in known and got == wanted:
            wrong.append(f"{case.expression}: is listed as different, and is not")
    return wrong


@pytest.mark.parametrize("file", FILES)
def test_every_expression_gives_what_the_api_server_gives(file: str) -> None:
    cases = [case for case in CASES if case.file == file]
    wrong = differing(cases, DIFFERENCES["guard"], answer, lambda case: case.expected)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", sorted({case.file for case in FIXED}))
def test_the_checkers_own_evaluation_agrees_with_ours(file: str) -> None:
    engine = second_engine().SecondEngine(ROOTS, encode)
    cases = [case for case in FIXED if case.file == file]
    wrong = differing(
        cases, DIFFERENCES["checker"], lambda case: engine.evaluate(case.expression, case.names or {}), answer
    )
    assert not wrong, "\n".join(wrong)


def test_every_difference_belongs_to_an_expression_and_has_a_reason() -> None:
    expressions = {case.expression for case in CASES}
    for entry in [*DIFFERENCES["guard"], *DIFFERENCES["checker"]]:
        assert entry["expression"] in expressions
        assert entry["because"]


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(CASES) >= 300
    assert {"policies", "devices", "language", "quantity", "format"} <= set(FILES)


@functools.cache
def second_engine() -> ModuleType:
    """The module beside this one; tests are no package."""
    spec = importlib.util.spec_from_file_location("second_engine", HERE / "second_engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
