"""What the documentation says is what the program does."""

import pkgutil
import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_cli_reference_is_current(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # the reader's terminal changes nothing
    reference = runpy.run_path(str(DOCS / "make_cli_reference.py"))["reference"]
    written = (DOCS / "cli.md").read_text("utf-8")
    assert written == reference(), "docs/cli.md is not what --help says any more: renew it with `make docs`"


def test_settings_reference_is_current():
    reference = runpy.run_path(str(DOCS / "make_settings_reference.py"))["reference"]
    written = (DOCS / "settings.md").read_text("utf-8")
    assert written == reference(), "docs/settings.md is not what src/vsdn/settings.py says: renew it with `make docs`"


def test_the_equation_page_names_what_exists():
    page = (DOCS / "equations.md").read_text("utf-8")
    names = re.findall(r"`(vsdn(?:\.\w+)+)`", page)
    assert len(names) > 20
    for name in names:
        assert pkgutil.resolve_name(name) is not None
    for path, test in re.findall(r"`(tests/[\w/]+\.py)`: `(\w+)`", page):
        assert f"def {test}(" in (DOCS.parent / path).read_text("utf-8")


def test_links_lead_somewhere():
    pages = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md"), *(DOCS.parent / "experiments").rglob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if "://" not in link
    ]
    assert len(links) > 50
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_every_numbered_equation_has_a_row():
    rows = re.findall(r"^\| (\d+)(?:–(\d+))? \|", (DOCS / "equations.md").read_text("utf-8"), re.MULTILINE)
    numbers = [number for first, last in rows for number in range(int(first), int(last or first) + 1)]
    assert numbers == list(range(1, 30))


def test_the_ten_truths_are_where_contributing_says():
    root = DOCS.parent
    for name, test in re.findall(r"`([\w/]+)::(\w+)`", (root / "CONTRIBUTING.md").read_text("utf-8")):
        assert f"def {test}(" in (root / "tests" / f"{name}.py").read_text("utf-8")


def test_contributing_names_every_module_once():
    page = (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8")
    table = re.search(r"^\| layer \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    assert table is not None
    parts = [path for path in (DOCS.parent / "src" / "vsdn").iterdir() if not path.name.startswith("_")]
    names = [path.stem for path in parts if path.suffix == ".py"] + [f"{path.name}/" for path in parts if path.is_dir()]
    assert len(names) > 30
    assert sorted(re.findall(r"`(\w+/?)`", table[0])) == sorted(names)
