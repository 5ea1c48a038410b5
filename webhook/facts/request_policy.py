"""A capacity's ``requestPolicy`` (DRA consumable capacity, KEP-5075): its rules, and what a request consumes by it.

The whole-number arithmetic is the allocator's own: without ``DRAFractionalCapacityRange`` a step grid is computed on
values rounded up to whole numbers, so a fractional grid gives more than it seems to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from webhook.facts.field_names import shown
from webhook.kube.finding import Finding, cause
from webhook.kube.quantity import INT64_MAX, Number, try_parse
from webhook.kube.raw import Json, mapping
from webhook.kube.release import Release

MAX_VALID_VALUES = 10
FRACTIONAL_GATE = "DRAFractionalCapacityRange"
RULE = "requestpolicy-out-of-range"


def whole(value: Number) -> int:
    """``value`` as the server's 64-bit arithmetic sees it: rounded away from zero to a whole number."""
    rounded = -(-abs(value.numerator) // value.denominator)
    return rounded if value > 0 else -rounded


def _milli(value: Number) -> int | None:
    scaled = value * 1000
    return int(scaled) if scaled.denominator == 1 and -INT64_MAX <= scaled <= INT64_MAX else None


def _fractional(*values: Number | None) -> bool:
    return any(value is not None and value.denominator != 1 for value in values)


@lru_cache(maxsize=1 << 12)
def _fine(value: object, default: object, low: object, high: object, step: object, newer: bool, exact: bool) -> bool:
    span = {"min": low, "max": high, "step": step}
    amount, given = try_parse(value), try_parse(default)
    return amount is not None and given is not None and not _range(given, amount, span, "", newer, exact)


def policy_fine(value: object, policy: Json, newer: bool, exact: bool) -> bool:
    """True only for a policy without problems; false says nothing. ``newer``: 1.37; ``exact``: the fractional gate.

    The same few policies come with every device, so that remembering the good ones spares most of the work.
    """
    span = policy.get("validRange")
    if type(span) is not dict or policy.get("validValues"):
        return False
    get = span.get
    try:
        return _fine(value, policy.get("default"), get("min"), get("max"), get("step"), newer, exact)
    except TypeError:  # a list or map where a quantity should be
        return False


def policy_problems(value: Number, policy: Json, path: str, release: Release) -> list[Finding]:
    """The API server's rules of one ``requestPolicy`` of a device that allows multiple allocations.

    ``value`` is the capacity's value, ``path`` that of the policy.
    """
    values, span = policy.get("validValues"), policy.get("validRange")
    default = try_parse(policy.get("default"))
    options = values if isinstance(values, list) else []
    if options and isinstance(span, dict):
        needs = "one of them: a request cannot follow two policies"
        return [cause("requestpolicy-both", path, "FieldValueForbidden", "validValues and validRange", needs)]
    if not options and not isinstance(span, dict):
        return []
    if default is None:
        kind = "validValues" if options else "validRange"
        return [
            cause(
                "requestpolicy-default-missing",
                f"{path}.default",
                "FieldValueRequired",
                f"{kind} without default",
                "the amount that a request without capacity gets",
            )
        ]
    if options:
        return _values(default, value, options, f"{path}.validValues", release)
    newer, exact = release.minor >= 37, release.enabled(FRACTIONAL_GATE)
    return _range(default, value, mapping(span), f"{path}.validRange", newer, exact)


def _values(default: Number, value: Number, options: list[object], path: str, release: Release) -> list[Finding]:
    amounts = [try_parse(option) or 0 for option in options]
    found = [
        cause(
            "requestpolicy-values",
            f"{path}[{index + 1}]",
            "FieldValueInvalid",
            f"{shown(after)} after {shown(before)}",
            "values in ascending order",
        )
        for index, (before, after) in enumerate(itertools.pairwise(amounts))
        if before > after
    ]
    if len(amounts) > MAX_VALID_VALUES:
        # The server stops at the size and so never sees whether the default is among them.
        has = f"{len(amounts)} values"
        found.append(cause("requestpolicy-values", path, "FieldValueTooMany", has, f"at most {MAX_VALID_VALUES}"))
        found.append(_no_default(default, path))
        return found
    seen: set[Number] = set()
    exact = release.enabled(FRACTIONAL_GATE)
    for index, amount in enumerate(amounts):
        if amount > value:
            has = shown(amount)
            needs = f"at most the capacity {shown(value)}"
            found.append(cause("requestpolicy-values", f"{path}[{index}]", "FieldValueInvalid", has, needs))
        key = amount if exact else whole(amount)
        if key in seen:
            has = f"{shown(amount)} twice" + ("" if exact else " (compared as whole numbers)")
            found.append(cause("requestpolicy-values", f"{path}[{index}]", "FieldValueDuplicate", has, "it once"))
        seen.add(key)
    if default not in amounts:
        found.append(_no_default(default, path))
    return found


def _no_default(default: Number, path: str) -> Finding:
    return cause("requestpolicy-values", path, "FieldValueInvalid", f"default {shown(default)}", "it among the values")


def _bad(path: str, has: str, needs: str, rule: str = RULE) -> Finding:
    return cause(rule, path, "FieldValueInvalid", has, needs)


def _range(default: Number, value: Number, span: Json, path: str, newer: bool, exact: bool) -> list[Finding]:
    low, high, step = (try_parse(span.get(name)) for name in ("min", "max", "step"))
    if low is None:
        return [cause(RULE, f"{path}.min", "FieldValueRequired", "validRange without min", "the smallest amount")]
    found: list[Finding] = []
    if low > value:
        found.append(_bad(f"{path}.min", f"min {shown(low)}", f"at most the capacity {shown(value)}"))
    if default < low:
        where = "default" if newer else "min"
        found.append(_bad(f"{path}.{where}", f"default {shown(default)}", f"at least min {shown(low)}"))
    if high is not None:
        if low > high:
            found.append(_bad(f"{path}.max", f"max {shown(high)}", f"at least min {shown(low)}"))
        if high > value:
            found.append(_bad(f"{path}.max", f"max {shown(high)}", f"at most the capacity {shown(value)}"))
        if default > high:
            where = "default" if newer else "max"
            found.append(_bad(f"{path}.{where}", f"default {shown(default)}", f"at most max {shown(high)}"))
    milli = exact and _fractional(low, high, step, default)
    bounds = {"default": default, "min": low, "max": high, "step": step}
    if milli:
        unsafe = [
            _bad(f"{path}.{name}", shown(bound), "a value that is whole in thousandths")
            for name, bound in bounds.items()
            if bound is not None and _milli(bound) is None
        ]
        if unsafe:
            return found + unsafe
    if step is not None:
        found += _grid(bounds, value, milli, path, newer)
    return found


def _grid(bounds: Mapping[str, Number | None], value: Number, milli: bool, path: str, newer: bool) -> list[Finding]:
    low, step = bounds["min"] or 0, bounds["step"] or 0
    where = f"{path}.step"
    if newer and step <= 0:
        rule = "requestpolicy-step-zero" if step == 0 else RULE
        return [_bad(where, f"step {shown(step)}", "a step greater than zero", rule)]
    found: list[Finding] = []
    if low + step > value:
        needs = f"at most the capacity {shown(value)} for one step above min"
        found.append(_bad(where, f"min {shown(low)} and step {shown(step)}", needs))
    if newer and not milli:
        unsafe = [
            _bad(f"{path}.{name}", shown(bound), f"between 0 and {INT64_MAX}")
            for name, bound in bounds.items()
            if bound is not None and not 0 <= bound <= INT64_MAX
        ]
        if unsafe:
            return found + unsafe
    if step == 0 or not (newer or -INT64_MAX <= step <= INT64_MAX):
        # 1.36 divides by the step in 64 bits, in which it is zero too where it does not fit: its API server ends the
        # request with a panic, and nobody is told why.
        has, fix = f"step {shown(step)}", "leave step out where every amount is allowed"
        found.append(Finding("requestpolicy-step-zero", where, has, "a step greater than zero, within 64 bits", fix))
        return found
    scale = 1000 if milli else 1
    unit, start = whole(step * scale), whole(low * scale)
    for name in ("default", "max"):
        bound = bounds[name]
        if bound is not None and (whole(bound * scale) - start) % unit:
            has = f"{name} {shown(bound)}"
            found.append(_bad(where, has, f"min {shown(low)} plus a multiple of step {shown(step)}"))
    return found


def consumed_for(asked: Number | None, entry: object, release: Release) -> Number | None:
    """What the allocator consumes of one capacity of a shared device for ``asked`` (None: nothing was asked).

    ``entry`` is the raw capacity (``value``, ``requestPolicy``). None when it cannot be computed: unreadable
    amounts, a zero step, a result beyond 64 bits (1.36 wraps around there, 1.37 gives up).
    """
    fields = mapping(entry)
    policy = fields.get("requestPolicy")
    rules = mapping(policy)
    if asked is None:
        default = rules.get("default")
        return try_parse(fields.get("value") if default is None else default)
    span = rules.get("validRange")
    if isinstance(span, dict) and span.get("min") is not None:
        return _rounded(asked, span, release)
    options = rules.get("validValues")
    for option in options if isinstance(options, list) else ():
        amount = try_parse(option)
        if amount is not None and amount >= asked:
            return amount
    return asked


def _rounded(asked: Number, span: Json, release: Release) -> Number | None:
    low = try_parse(span.get("min"))
    if low is None or asked < low:
        return low
    if span.get("step") is None:
        return asked
    step = try_parse(span.get("step"))
    if step is None or step <= 0:
        return None
    scale = 1000 if _in_milli(span, release) else 1
    if scale == 1000 and _milli(asked) is None:
        return None
    start, unit = whole(low * scale), whole(step * scale)
    added = whole(asked * scale) - start
    result = start + unit * -(-added // unit)
    if max(abs(result), abs(added), abs(unit)) > INT64_MAX:
        return None
    exact = Fraction(result, scale)
    return int(exact) if exact.denominator == 1 else exact


def _in_milli(span: Json, release: Release) -> bool:
    if not release.enabled(FRACTIONAL_GATE):
        return False
    bounds = [try_parse(span.get(name)) for name in ("min", "max", "step")]
    step = bounds[2]
    return all(bound is None or _milli(bound) is not None for bound in bounds) and step is not None and step > 0


def off_policy(amount: Number, entry: object, release: Release) -> str:
    """Why ``amount`` may not be consumed of the raw capacity ``entry`` by its policy; empty when it may.

    The amount is compared with the policy only, not with the capacity's value.
    """
    policy = mapping(mapping(entry).get("requestPolicy"))
    if amount == try_parse(policy.get("default")):
        return ""
    span = policy.get("validRange")
    if not isinstance(span, dict):
        options = policy.get("validValues")
        amounts = [try_parse(option) for option in options] if isinstance(options, list) else []
        known = [option for option in amounts if option is not None]
        return f"one of {', '.join(map(shown, known))}" if known and amount not in known else ""
    low, high, step = (try_parse(span.get(name)) for name in ("min", "max", "step"))
    if low is not None and amount < low:
        return f"at least {shown(low)}"
    if high is not None and amount > high:
        return f"at most {shown(high)}"
    if step is None or step <= 0:
        return ""
    scale = 1000 if _in_milli(span, release) else 1
    off = (whole(amount * scale) - whole((low or 0) * scale)) % whole(step * scale)
    return f"{shown(low or 0)} plus a multiple of {shown(step)}" if off else ""
