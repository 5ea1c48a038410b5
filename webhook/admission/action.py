"""Second step of three: what the modes of the policies make of a verdict. Nothing here knows about HTTP or bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from webhook.admission.decide import Judged, Verdict
from webhook.admission.sums import fit_rows, told
from webhook.facts.steering import gate_patch
from webhook.kube.core import GATE
from webhook.kube.finding import SEVERITY_ORDER, one_line
from webhook.kube.raw import Json
from webhook.policy import modes
from webhook.policy.evaluate import FAILED

# A warning of the API server: advice is 120 characters each, and above 4,096 in all it cuts and drops.
WARNING_SIZE = 120
WARNINGS_SIZE = 4096

# One answer stays far below the megabyte that the API server should get, whatever an object with thousands of
# problems and long names brings together.
MAX_CAUSES = 256
MESSAGE_SIZE = 1024
ANNOTATION_SIZE = 4096


class Cause(Struct, frozen=True):
    """One entry of ``status.details.causes``."""

    reason: str
    message: str
    field: str


class Answer(Struct, frozen=True):
    """What the API server is told. ``message`` and ``causes`` are empty where the write is allowed; ``patch`` is a JSON
    patch (RFC 6902), ``held`` says that it has the scheduling gate which makes a new pod wait.
    """

    uid: str
    allowed: bool
    message: str = ""
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    patch: tuple[Json, ...] = ()
    held: bool = False


def apply(verdict: Verdict) -> Answer:
    """The answer to ``verdict``.

    A policy with action Deny refuses for an error and warns for a warning, one with Warn warns for both, one with Hold
    also makes the pod wait for an error, and one with Audit, like every info and whatever an exception covers, is only
    written to the audit log. The message of a refusal starts with the gravest finding; where several are as grave, with
    the first of the first policy by name.
    """
    if not verdict.judged and not verdict.errors and not verdict.annotations and not verdict.patch:
        return Answer(verdict.request.uid, True, annotations={"revision": verdict.revision})
    # A policy that could not be judged says less than a finding that another one made.
    denials = sorted((judged for judged in verdict.judged if denies(judged)), key=lambda j: j.finding.rule == FAILED)
    warned = sorted(
        (judged for judged in verdict.judged if warns(judged)), key=lambda j: SEVERITY_ORDER[j.finding.severity]
    )
    gate = _gate(verdict)
    return Answer(
        uid=verdict.request.uid,
        allowed=not denials,
        message=_message(denials) if denials else "",
        causes=_causes(denials),
        warnings=_warnings(map(_warning, warned)),
        annotations=_annotations(verdict, bool(denials), bool(gate)),
        patch=(*verdict.patch, *gate),
        held=bool(gate),
    )


def denies(judged: Judged) -> bool:
    """Whether the finding refuses the write."""
    return modes.denies(judged.action, judged.finding.severity)


def holds(judged: Judged) -> bool:
    """Whether the finding makes a new pod wait, where one may be held."""
    return modes.holds(judged.action, judged.finding.severity)


def warns(judged: Judged) -> bool:
    """Whether the finding becomes a warning to the writer."""
    return modes.warns(judged.action, judged.finding.severity)


def stopped_by(verdict: Verdict, fact: str) -> bool:
    """Whether a rule that reads ``fact`` refuses the write, or would make it wait."""
    stopping = {judged.finding for judged in verdict.judged if denies(judged) or holds(judged)}
    return any(
        fact in validation.program.names and stopping.intersection(rule.findings)
        for result in verdict.evaluation.policies
        for rule in result.rules
        for validation in result.compiled.validations
        if validation.validation.name == rule.name
    )


def _gate(verdict: Verdict) -> list[Json]:
    """The operations that give the pod the scheduling gate; none where it has it, or must not get one."""
    if not verdict.may_hold or not any(map(holds, verdict.judged)):
        return []
    pod = verdict.evaluation.patched
    return gate_patch(pod, GATE) if pod is not None else []


def _message(denials: list[Judged]) -> str:
    more = f" (and {len(denials) - 1} more)" if len(denials) > 1 else ""
    return cut(denials[0].text, MESSAGE_SIZE - len(more)) + more


def _causes(denials: list[Judged]) -> tuple[Cause, ...]:
    causes = [
        Cause(judged.finding.error_type or "FieldValueInvalid", cut(judged.text, MESSAGE_SIZE), judged.finding.path)
        for judged in denials[:MAX_CAUSES]
    ]
    if len(denials) > MAX_CAUSES:
        causes.append(Cause("FieldValueInvalid", f"{len(denials) - MAX_CAUSES} more findings are not listed", ""))
    return tuple(Cause(c.reason, c.message, one_line(cut(c.field, MESSAGE_SIZE))) for c in causes)


def _warning(judged: Judged) -> str:
    """What is wrong, in the little room of a warning: a long path would leave none for it."""
    text = judged.text
    if len(text) > WARNING_SIZE:
        text = replace(judged.finding, path="").text(judged.policy)
    return cut(text, WARNING_SIZE)


def _warnings(texts: Iterable[str]) -> tuple[str, ...]:
    lines = list(dict.fromkeys(texts))
    if sum(map(len, lines)) <= WARNINGS_SIZE:
        return tuple(lines)
    kept: list[str] = []
    room = WARNINGS_SIZE - WARNING_SIZE
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return (*kept, f"and {len(lines) - len(kept)} more; the audit log has them all")


def _annotations(verdict: Verdict, denied: bool, held: bool) -> dict[str, str]:
    annotations = {key: cut(one_line(value), ANNOTATION_SIZE) for key, value in verdict.annotations.items()}
    annotations["revision"] = verdict.revision
    if verdict.patch:
        changing = [result.policy for result in verdict.evaluation.policies if result.made]
        annotations["mutations"] = cut(",".join(changing), ANNOTATION_SIZE)
    if held:
        reasons = dict.fromkeys(judged.text for judged in verdict.judged if holds(judged))
        annotations["held"] = cut("; ".join(reasons), ANNOTATION_SIZE)
    if verdict.judged:
        names = dict.fromkeys(f"{judged.policy}/{judged.finding.rule}" for judged in verdict.judged)
        annotations["findings"] = cut(",".join(names), ANNOTATION_SIZE)
    rows = fit_rows(verdict.evaluation.facts) if denied else ()
    if not all(row.fits for row in rows):
        annotations["sums"] = cut("; ".join(map(one_line, told(rows))), ANNOTATION_SIZE)
    excepted = dict.fromkeys(f"{judged.policy}/{judged.exception}" for judged in verdict.judged if judged.exception)
    if verdict.errors:
        annotations["errors"] = cut("; ".join(map(one_line, verdict.errors)), ANNOTATION_SIZE)
    if excepted:
        annotations["exceptions"] = cut(one_line("; ".join(excepted)), ANNOTATION_SIZE)
    return annotations


def cut(text: str, size: int) -> str:
    """``text``, shortened to ``size`` characters where it is longer."""
    return text if len(text) <= size else f"{text[: size - 3]}..."
