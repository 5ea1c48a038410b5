"""The Kubernetes release a write is judged for, with its feature gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NODE_ALLOCATABLE = "DRANodeAllocatableResources"

# Defaults of kube-apiserver for the gates that change what a slice or a claim may hold.
_DEFAULTS: dict[int, dict[str, bool]] = {
    36: {
        "DynamicResourceAllocation": True,
        "DRAAdminAccess": True,
        "DRAConsumableCapacity": True,
        "DRADeviceBindingConditions": True,
        "DRADeviceTaintRules": False,
        "DRADeviceTaints": True,
        "DRAExtendedResource": True,
        "DRAListTypeAttributes": False,
        "DRAPartitionableDevices": True,
        "DRAPrioritizedList": True,
        "DRAResourceClaimDeviceStatus": True,
        "DRAResourceClaimGranularStatusAuthorization": True,
        "NodeDeclaredFeatures": True,
        NODE_ALLOCATABLE: False,
    },
    37: {
        "DynamicResourceAllocation": True,
        "DRAAdminAccess": True,
        "DRAConsumableCapacity": True,
        "DRADeviceBindingConditions": True,
        "DRADeviceTaintRules": True,
        "DRADeviceTaints": True,
        "DRAExtendedResource": True,
        "DRAFractionalCapacityRange": False,
        "DRAListTypeAttributes": False,
        "DRAOptionalNodeOperations": False,
        "DRAPartitionableDevices": True,
        "DRAPrioritizedList": True,
        "DRAResourceClaimDeviceStatus": True,
        "DRAResourceClaimGranularStatusAuthorization": True,
        "NodeDeclaredFeatures": True,
        NODE_ALLOCATABLE: False,
    },
}

SUPPORTED = tuple(sorted(_DEFAULTS))
KNOWN_GATES = frozenset().union(*_DEFAULTS.values())


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release (36 or 37) and the gates that differ from its defaults.

    ``DRANodeAllocatableResources`` counts as on unless given: a guard of that feature is of no use without it.
    ``drops_costs``: ``gates`` do not tell, and what is stored shows that it is off.
    """

    minor: int = 36
    gates: Mapping[str, bool] = field(default_factory=dict)
    drops_costs: bool = False

    def enabled(self, gate: str) -> bool:
        """Whether the API server has ``gate`` on."""
        given = self.gates.get(gate)
        if given is not None:
            return given
        return gate == NODE_ALLOCATABLE or _DEFAULTS[self.minor].get(gate, False)

    def __str__(self) -> str:
        return f"1.{self.minor}"


def minor_of(text: str) -> int | None:
    """The minor of ``1.36``, ``v1.36.3`` or ``1.36+``; None for what is no version of Kubernetes."""
    parts = text.strip().removeprefix("v").split(".")
    digits = parts[1].rstrip("+") if len(parts) >= 2 and parts[0] == "1" else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else None


def parse_version(text: str) -> int:
    """The minor of ``1.36`` or ``v1.36.3``; ValueError when it is not a release this guard knows."""
    minor = minor_of(text)
    if minor in SUPPORTED:
        return minor
    known = " and ".join(f"1.{minor}" for minor in SUPPORTED)
    raise ValueError(f"has kubernetes version {text!r}, needs one of {known}")


def parse_gates(text: str) -> dict[str, bool]:
    """``A=true,B=false`` as a dict; ValueError names the part that is neither or a gate nobody knows."""
    gates: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, separator, value = (word.strip() for word in part.partition("="))
        if not separator or value.lower() not in ("true", "false"):
            raise ValueError(f"has feature gate {part!r}, needs NAME=true or NAME=false")
        if name not in KNOWN_GATES:
            raise ValueError(f"has feature gate {name!r}, needs one of {', '.join(sorted(KNOWN_GATES))}")
        gates[name] = value.lower() == "true"
    return gates
