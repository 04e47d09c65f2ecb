"""What two engines say, in one form that can be compared, and where they differ."""

from __future__ import annotations

from typing import Any

from tokenpulse import FormatError, engine, reference

FORMAT_ERRORS = (FormatError, reference.FormatError)


def comparable(value: Any) -> Any:
    """The reduction with sketches as their bytes, and notices without their wording."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return value.to_bytes().hex()
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items() if key != "message"}
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    return value


def differences(core: Any, oracle: Any, path: str = "") -> list[str]:
    """Where two comparable values differ, one line a place: what the core says, then what the reference says."""
    if isinstance(core, dict) and isinstance(oracle, dict):
        absent = object()
        keys = [*core, *(key for key in oracle if key not in core)]
        pairs = [(f"{path}.{key}", core.get(key, absent), oracle.get(key, absent)) for key in keys]
    elif isinstance(core, list) and isinstance(oracle, list) and len(core) == len(oracle):
        pairs = [(f"{path}[{i}]", *pair) for i, pair in enumerate(zip(core, oracle, strict=True))]
    else:
        return [] if core == oracle else [f"{path}: {core!r} is not {oracle!r}"]
    return [line for name, left, right in pairs for line in differences(left, right, name)]


def outcome(reduce: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return comparable(reduce(*arguments, **named))
    except FORMAT_ERRORS:
        return "unknown format"


def assert_same(*arguments: Any, **named: Any) -> None:
    """Core and reference reduce the same inputs to the same."""
    core = outcome(engine.reduce_bytes, *arguments, **named)
    assert differences(core, outcome(reference.reduce_lines, *arguments, **named)) == []
