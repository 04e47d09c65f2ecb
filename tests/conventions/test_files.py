"""Rules about files: how long they may grow, and that what the documents show runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 600
FOLDERS = ("python", "rust", "tests", "benches", "examples")
SUFFIXES = {".py", ".pyi", ".rs"}
CONSTANTS = {"rust/core/src/sketch/table.rs"}
"""Tables of constants stand alone and may be long."""

BUILT = {"target", "__pycache__", ".venv"}


def source_files() -> list[Path]:
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and not BUILT & set(path.parts)
    ]


def test_files_stay_readable() -> None:
    files = source_files()
    assert len(files) > 30
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in files}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES and name not in CONSTANTS} == {}


def test_modules_say_what_they_are_for() -> None:
    modules = sorted((ROOT / "python" / "tokenpulse").rglob("*.py"))
    assert len(modules) > 10
    assert [path for path in modules if not path.read_text().startswith('"""')] == []


def examples() -> list[object]:
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for position, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            found.append(pytest.param(code, id=f"{page.name}-{position}"))
    return found


def test_there_is_an_example() -> None:
    assert examples()


@pytest.mark.parametrize("code", examples())
def test_examples_in_documents_run(code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_links_between_documents_lead_somewhere() -> None:
    read = 0
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            name = target if target.endswith(".md") or "/" in target else f"{target}.md"
            assert (page.parent / target).exists() or (page.parent / name).exists(), f"{page.name}: {target}"
            read += 1
    assert read > 3
