"""Kubernetes' ip and cidr libraries, on Python's own addresses."""

from __future__ import annotations

import ipaddress
import re
from typing import ClassVar

from webhook.cel import types
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library

LIBRARY = Library()

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PREFIX = re.compile(r"0|[1-9][0-9]{0,2}")


class IP:
    """An address; IPv4-mapped IPv6 addresses and those with a zone are not taken."""

    __slots__ = ("address",)
    cel_type: ClassVar[str] = types.IP.name

    def __init__(self, address: Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IP) and self.address == other.address

    def __hash__(self) -> int:
        return hash((IP, self.address))

    def __str__(self) -> str:
        return str(self.address)

    def __repr__(self) -> str:
        return f"IP({self})"


class CIDR:
    """An address with the length of its network prefix; bits behind the prefix may be set."""

    __slots__ = ("address", "length")
    cel_type: ClassVar[str] = types.CIDR.name

    def __init__(self, address: Address, length: int) -> None:
        self.address = address
        self.length = length

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network that the address is in."""
        return ipaddress.ip_network((self.address, self.length), strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CIDR) and (self.address, self.length) == (other.address, other.length)

    def __hash__(self) -> int:
        return hash((CIDR, self.address, self.length))

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"

    def __repr__(self) -> str:
        return f"CIDR({self})"


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return None
    return address


def _cidr(text: str) -> CIDR | None:
    host, slash, length = text.rpartition("/")
    address = _address(host)
    if not slash or address is None or not _PREFIX.fullmatch(length) or int(length) > address.max_prefixlen:
        return None
    return CIDR(address, int(length))


LIBRARY.declare("ip", types.IP, types.STRING)
LIBRARY.declare("isIP", types.BOOL, types.STRING)
LIBRARY.declare("ip.isCanonical", types.BOOL, types.STRING)
LIBRARY.declare("string", types.STRING, types.IP)
LIBRARY.declare("string", types.STRING, types.CIDR)
LIBRARY.declare("family", types.INT, types.IP, member=True)
for _name in ("isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"):
    LIBRARY.declare(_name, types.BOOL, types.IP, member=True)
LIBRARY.declare("cidr", types.CIDR, types.STRING)
LIBRARY.declare("isCIDR", types.BOOL, types.STRING)
LIBRARY.declare("ip", types.IP, types.CIDR, member=True)
LIBRARY.declare("masked", types.CIDR, types.CIDR, member=True)
LIBRARY.declare("prefixLength", types.INT, types.CIDR, member=True)
for _argument in (types.STRING, types.IP):
    LIBRARY.declare("containsIP", types.BOOL, types.CIDR, _argument, member=True)
for _argument in (types.STRING, types.CIDR):
    LIBRARY.declare("containsCIDR", types.BOOL, types.CIDR, _argument, member=True)


@LIBRARY.function("ip", str)
def _ip(text: str) -> IP:
    address = _address(text)
    if address is None:
        raise EvaluationError(f"has the address {text[:60]!r}, needs an IP address, not IPv4-mapped, without a zone")
    return IP(address)


@LIBRARY.function("isIP", str)
def _is_ip(text: str) -> bool:
    return _address(text) is not None


@LIBRARY.function("ip.isCanonical", str)
def _is_canonical(text: str) -> bool:
    return str(_ip(text)) == text


@LIBRARY.member("family", IP)
def _family(ip: IP) -> int:
    return ip.address.version


@LIBRARY.member("isUnspecified", IP)
def _is_unspecified(ip: IP) -> bool:
    return ip.address.is_unspecified


@LIBRARY.member("isLoopback", IP)
def _is_loopback(ip: IP) -> bool:
    return ip.address.is_loopback


@LIBRARY.member("isLinkLocalMulticast", IP)
def _is_link_local_multicast(ip: IP) -> bool:
    packed = ip.address.packed
    if ip.address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 2


@LIBRARY.member("isLinkLocalUnicast", IP)
def _is_link_local_unicast(ip: IP) -> bool:
    return ip.address.is_link_local


@LIBRARY.member("isGlobalUnicast", IP)
def _is_global_unicast(ip: IP) -> bool:
    # Go's meaning: everything that is no special address, private networks included.
    address = ip.address
    broadcast = address == ipaddress.IPv4Address(0xFFFFFFFF)
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (broadcast or special)


@LIBRARY.function("cidr", str)
def _to_cidr(text: str) -> CIDR:
    found = _cidr(text)
    if found is None:
        raise EvaluationError(f"has the network {text[:60]!r}, needs one like 10.0.0.0/8")
    return found


@LIBRARY.function("isCIDR", str)
def _is_cidr(text: str) -> bool:
    return _cidr(text) is not None


@LIBRARY.member("ip", CIDR)
def _ip_of(cidr: CIDR) -> IP:
    return IP(cidr.address)


@LIBRARY.member("masked", CIDR)
def _masked(cidr: CIDR) -> CIDR:
    return CIDR(cidr.network.network_address, cidr.length)


@LIBRARY.member("prefixLength", CIDR)
def _prefix_length(cidr: CIDR) -> int:
    return cidr.length


@LIBRARY.member("containsIP", CIDR, (str, IP))
def _contains_ip(cidr: CIDR, other: str | IP) -> bool:
    ip = _ip(other) if isinstance(other, str) else other
    return ip.address in cidr.network


@LIBRARY.member("containsCIDR", CIDR, (str, CIDR))
def _contains_cidr(cidr: CIDR, other: str | CIDR) -> bool:
    inner = _to_cidr(other) if isinstance(other, str) else other
    return cidr.length <= inner.length and inner.address in cidr.network
