"""Who may import whom: ARCHITECTURE.md says, and every import is held against it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "tokenpulse"
CORE = ROOT / "rust" / "core" / "src"

RUST_PATH = re.compile(r"\b(crate|tokenpulse_core|tokenpulse_io)::(\{|\w+)")


def allowed() -> dict[str, set[str]]:
    block = re.search(r"```imports\n(.*?)```", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL)
    assert block is not None, "ARCHITECTURE.md must hold a fenced block named imports"
    table = {}
    for line in block[1].splitlines():
        room, arrow, others = line.partition("->")
        assert arrow, f"not `room -> rooms`: {line!r}"
        table[room.strip()] = set(others.split())
    return table


def python_room(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def python_imports(path: Path) -> Iterator[str]:
    """The rooms of the package that a file imports; `tokenpulse` is the package's public face."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            depth = len(path.relative_to(PACKAGE).parts)
            package = ["tokenpulse", *path.relative_to(PACKAGE).parts[:-1]]
            assert node.level <= depth, f"{path}: the import leaves the package"
            base = ".".join([*package[: depth - node.level + 1], node.module or ""]).strip(".")
            module = base if node.level else node.module or ""
            # `from tokenpulse import engine` names a room; `from tokenpulse import SLO` the public face.
            names = [
                f"{module}.{alias.name}" if module == "tokenpulse" and is_room(alias.name) else module
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "tokenpulse":
                yield rest.split(".")[0] or "tokenpulse"


def is_room(name: str) -> bool:
    return name == "_core" or (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def rust_code(path: Path) -> str:
    return re.sub(r"//[^\n]*", "", path.read_text())


def rust_paths(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of crate and first name of every path that starts at a crate's root, braces taken apart."""
    code = rust_code(path)
    for found in RUST_PATH.finditer(code):
        if found[2] != "{":
            yield found[1], found[2]
            continue
        depth, start = 1, found.end()
        end = start
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        flat = code[start : end - 1]
        while "{" in flat:
            flat = re.sub(r"\{[^{}]*\}", "", flat)
        for part in flat.split(","):
            if part.strip():
                yield found[1], part.strip().split("::")[0]


def test_python_imports_follow_the_table() -> None:
    table = allowed()
    read, wrong = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = python_room(path)
        assert f"python/{room}" in table, f"ARCHITECTURE.md does not say what {room} may import"
        for other in python_imports(path):
            read += 1
            if other != room and other not in table[f"python/{room}"]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong
    assert read > 20


def test_core_imports_follow_the_table() -> None:
    table = allowed()
    read, wrong = 0, []
    for path in sorted(CORE.rglob("*.rs")):
        inside = path.relative_to(CORE)
        room = inside.parts[0] if len(inside.parts) > 1 else inside.stem
        if room == "lib":
            continue
        assert f"core/{room}" in table, f"ARCHITECTURE.md does not say what core/{room} may import"
        for crate, other in rust_paths(path):
            assert crate == "crate", f"{inside} names {crate}"
            read += 1
            other = "error" if other in {"Error", "ErrorKind", "Result"} else other  # named at the crate's root too
            if other != room and other not in table[f"core/{room}"]:
                wrong.append(f"core/{inside} imports {other}")
    assert not wrong
    assert read > 20


def test_crates_follow_the_table() -> None:
    table = allowed()
    read = 0
    for crate in ("core", "io", "py"):
        manifest = (ROOT / "rust" / crate / "Cargo.toml").read_text()
        named = set(re.findall(r"^tokenpulse-(\w+)\b", manifest, re.MULTILINE))
        assert named <= table.get(crate, set()), f"rust/{crate} depends on {named}"
        read += len(named)
        if crate != "py":
            assert not re.search(r"^(pyo3|numpy)\b", manifest, re.MULTILINE), f"rust/{crate} knows Python"
    assert read > 2


def test_only_the_engine_imports_the_compiled_core() -> None:
    naming = {path.name for path in PACKAGE.rglob("*.py") if "_core" in python_imports(path)}
    assert naming == {"engine.py"}


def test_importing_the_package_loads_no_command_line_library() -> None:
    asked = "import sys, tokenpulse; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert "tokenpulse" in loaded
    assert not {"click", "rich"} & set(loaded)
