"""The policies that are kept as ``AdmissionPolicy`` objects of the cluster: each judged and served by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from webhook.kube.json_text import too_deep
from webhook.kube.raw import Json, mapping
from webhook.kube.rollout import API_VERSION
from webhook.kube.yaml_text import MAX_DEPTH
from webhook.policy.compile import PolicyErrors, compile_object
from webhook.policy.document import KIND, digest
from webhook.policy.problem import Problem
from webhook.policy.revision import CompiledPolicy


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """One object: its latest content, and the last that compiled with the generation that it had (None: none did).

    ``problems`` is what is wrong with the latest content, empty where that is the one that compiled.
    """

    uid: str
    generation: int
    digest: str
    problems: tuple[Problem, ...]
    good: CompiledPolicy | None
    good_generation: int


class PolicyObjects:
    """The objects by name. An object that does not compile keeps what it said when it last did; the others are not
    held up by it: they are other people's.
    """

    def __init__(self) -> None:
        self._known: dict[str, PolicyObject] = {}

    def items(self) -> Iterator[tuple[str, PolicyObject]]:
        """Name and object, in order of the names."""
        yield from sorted(self._known.items())

    def take(self, objs: Mapping[str, Json]) -> tuple[str, ...]:
        """Make ``objs`` all the objects that there are, and compile what is new in them: the names of those whose
        content is new or gone.
        """
        before = self._known
        self._known = {name: _read(name, mapping(obj), before.get(name)) for name, obj in objs.items()}
        return tuple(
            name
            for name in sorted(before.keys() | self._known.keys())
            if _content(before.get(name)) != _content(self._known.get(name))
        )


def _content(entry: PolicyObject | None) -> tuple[str, str] | None:
    return None if entry is None else (entry.uid, entry.digest)


def _read(name: str, obj: Json, before: PolicyObject | None) -> PolicyObject:
    metadata = mapping(obj.get("metadata"))
    generation = metadata.get("generation")
    deep = too_deep(obj.get("spec"))
    now = PolicyObject(
        uid=str(metadata.get("uid")),
        generation=generation if type(generation) is int else 0,
        digest="too deep" if deep else digest(obj),
        problems=(),
        good=None,
        good_generation=0,
    )
    if before is not None and before.uid == now.uid:
        if before.digest == now.digest:
            return replace(before, generation=now.generation)
        # Another object of the same name owes nothing to the one that is gone; a new content of the same one does.
        now = replace(now, good=before.good, good_generation=before.good_generation)
    source = f"admissionpolicy/{name}"
    if deep:
        problem = Problem(source, 0, 0, f"is nested more than {MAX_DEPTH} levels deep", path="spec")
        return replace(now, problems=(problem,))
    # What a list of objects need not say of each.
    whole = {"apiVersion": API_VERSION, "kind": KIND, **obj}
    try:
        return replace(now, good=compile_object(whole, source), good_generation=now.generation)
    except PolicyErrors as errors:
        return replace(now, problems=errors.problems)
