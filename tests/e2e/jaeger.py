"""A real Jaeger, all in one and in memory, that spans are sent to and traces are read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.e2e import build
from tests.e2e.processes import Process, free_port, until
from tests.e2e.waiting import eventually

Attributes = dict[str, Any]

STATUS = ("UNSET", "OK", "ERROR")


class Span(NamedTuple):
    """A span as Jaeger has it: ids in hexadecimal digits, times in nanoseconds since 1970, links as (trace, span),
    ``status`` one of ``STATUS``, and what is said of that.
    """

    trace: str
    id: str
    parent: str
    name: str
    begun: int
    ended: int
    attributes: Attributes
    links: list[tuple[str, str]]
    resource: Attributes
    status: str
    message: str


class Jaeger:
    """Jaeger on loopback ports of its own, its configuration and log in ``folder``."""

    def __init__(self, folder: Path) -> None:
        grpc, http, query, asked = (f"127.0.0.1:{free_port()}" for _ in range(4))
        self.otlp_grpc, self.otlp_http = f"http://{grpc}", f"http://{http}"
        self.url, self._receiver = f"http://{query}", http
        config = folder / "jaeger.json"
        config.write_text(json.dumps(_config(grpc, http, query, asked)))
        self.process = Process("jaeger", [build.jaeger(), f"--config={config}"], folder / "jaeger.log")

    def start(self) -> None:
        """Start it, empty, and wait until it takes spans and answers queries."""
        self.process.start()
        until(self._ready, 30, "jaeger is ready")

    def stop(self) -> None:
        """End it; what it knew is gone."""
        self.process.stop()

    def trace(self, trace: str) -> list[Span]:
        """The spans of the trace with this id, 32 hexadecimal digits, in the order of their beginning; none of a trace
        that it does not know.
        """
        answer = self._get(f"/api/v3/traces/{trace}", raw_traces="true")
        if answer.status_code == 404:
            return []
        return sorted(_spans(answer.raise_for_status().json()), key=lambda span: (span.begun, span.ended, span.id))

    def found(self, trace: str, *names: str, within: float = 30) -> list[Span]:
        """As :meth:`trace`, once there is a span of each of ``names``."""

        def look() -> list[Span]:
            spans = self.trace(trace)
            missing = set(names) - {span.name for span in spans}
            assert not missing, f"no {', '.join(sorted(missing))} among {[span.name for span in spans]}"
            return spans

        return eventually(look, within)

    def services(self) -> list[str]:
        """Who has sent spans."""
        answer: list[str] = self._get("/api/v3/services").raise_for_status().json().get("services", [])
        return answer

    def _ready(self) -> bool:
        try:
            # A receiver that listens refuses the method.
            taking = httpx.get(f"http://{self._receiver}/v1/traces", timeout=5, trust_env=False).status_code == 405
            return taking and self._get("/api/v3/services").status_code == 200
        except httpx.HTTPError:
            return False

    def _get(self, path: str, **query: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", params=query, timeout=10, trust_env=False)


def _config(grpc: str, http: str, query: str, asked: str) -> dict[str, Any]:
    """What Jaeger has without a configuration, on ports of its own and without what nobody here uses."""
    return {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {
            "jaeger_storage": {"backends": {"here": {"memory": {"max_traces": 100000}}}},
            "jaeger_query": {
                "storage": {"traces": "here"},
                "http": {"endpoint": query},
                "grpc": {"endpoint": asked},
                "enable_tracing": False,
            },
        },
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": grpc}, "http": {"endpoint": http}}}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "here"}},
    }


def _spans(answer: dict[str, Any]) -> list[Span]:
    found = []
    for group in answer["result"].get("resourceSpans", []):
        resource = _attributes(group.get("resource", {}))
        for scope in group.get("scopeSpans", []):
            for span in scope.get("spans", []):
                status = span.get("status", {})
                found.append(
                    Span(
                        span["traceId"],
                        span["spanId"],
                        span.get("parentSpanId", ""),
                        span["name"],
                        int(span["startTimeUnixNano"]),
                        int(span["endTimeUnixNano"]),
                        _attributes(span),
                        [(link["traceId"], link["spanId"]) for link in span.get("links", [])],
                        resource,
                        STATUS[status.get("code", 0)],
                        status.get("message", ""),
                    )
                )
    return found


def _attributes(holder: dict[str, Any]) -> Attributes:
    return {each["key"]: _value(each["value"]) for each in holder.get("attributes", [])}


def _value(value: dict[str, Any]) -> Any:
    for kind, plain in value.items():
        if kind == "arrayValue":
            return [_value(each) for each in plain.get("values", [])]
        # JSON has no integers of 64 bits: they come as text.
        return int(plain) if kind == "intValue" else plain
    return None
