# SPDX-License-Identifier: Apache-2.0
"""Property-list values as D-Bus has them, and as Python has them."""
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

Variant = tuple[str, Any]
"""The D-Bus type of a value, and the value."""
_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
# Nested dictionaries and lists: a bus closes the connection of a program that sends more levels than it checks.
_MAX_DEPTH = 20


def text(value: Any) -> str:
    """A string that D-Bus can carry."""
    if not isinstance(value, str):
        raise TypeError(f"a string is needed, not {value!r}")
    if "\0" in value:
        raise ValueError(f"D-Bus carries no string with a NUL character: {value!r}")
    return value


def variant(value: Any, depth: int = 0) -> Variant:
    """A property-list value for D-Bus."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"user_info has more than {_MAX_DEPTH} levels")
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << 63) <= value < 1 << 64:
            raise OverflowError(f"{value} has more than 64 bits")
        return "x" if value < 1 << 63 else "t", value
    if isinstance(value, datetime):
        try:
            return "(x)", ((value.astimezone(timezone.utc) - _EPOCH) // _MICROSECOND,)
        except (OverflowError, ValueError) as error:
            raise ValueError(f"{value!r} is no date in UTC: {error}") from None
    if isinstance(value, Mapping):
        return "a{sv}", dictionary(value, depth + 1)
    if isinstance(value, (list, tuple)):
        return "av", [variant(item, depth + 1) for item in value]
    if isinstance(value, bytearray):
        return "ay", bytes(value)
    for kind, of in {"b": bool, "d": float, "s": str, "ay": bytes}.items():
        if isinstance(value, of):
            return kind, text(value) if kind == "s" else value
    raise TypeError(f"{type(value).__name__} is not a property-list type: {value!r}")


def dictionary(values: Mapping[str, Any], depth: int = 0) -> dict[str, Variant]:
    """A dictionary of a property list for D-Bus."""
    return {text(key): variant(value, depth) for key, value in values.items()}


def options(values: Mapping[str, Any]) -> dict[str, Variant]:
    """Options of a call for D-Bus: ``expires_after=60`` is the key ``expires-after``."""
    result = dictionary({key.replace("_", "-"): value for key, value in values.items()})
    for key, (kind, value) in result.items():
        if kind == "x" and 0 <= value < 1 << 32:
            result[key] = "u", value
        elif kind == "av":
            result[key] = "as", [text(item) for _, item in value]
    return result


def plain(kind: str, value: Any) -> Any:
    """A value from D-Bus."""
    if kind == "v":
        return plain(*value)
    if kind == "(x)":
        return date(value[0])
    if kind.startswith("a{"):
        return {key: plain(kind[3:-1], item) for key, item in value.items()}
    if kind.startswith("a") and kind != "ay":
        return [plain(kind[1:], item) for item in value]
    return value


def date(microseconds: int) -> datetime | int:
    """A date from D-Bus; the number of microseconds since 1970 itself if Python has no date for it."""
    try:
        return _EPOCH + microseconds * _MICROSECOND
    except OverflowError:
        return microseconds


def details(values: Mapping[str, Variant]) -> dict[str, Any]:
    """Details of a notification from D-Bus."""
    return {key: date(value[1]) if key in ("time", "expiry") else value[1] for key, value in values.items()}
