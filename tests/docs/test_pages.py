"""Whatever the pages show is true: their code runs, and their commands print what stands there."""

import ast
import contextlib
import functools
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import prunedata
import prunedata.errors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_BY_CI = ("make ",)
LEFT_TO_THE_READER = ("pip install ",)
FENCE = re.compile(r"^```(\w*)$")


@dataclass(frozen=True)
class Block:
    """A part of a page that a test has something to do with."""

    kind: str  # the language of a fence, or "setup" for code in a comment, which a reader doesn't see
    line: int  # of the page, where its text begins
    text: str
    varies: bool  # its numbers are times or a network's, which differ from run to run


def blocks(page):
    """Return the blocks of a page in order."""
    found, lines, at, varies = [], page.splitlines(), 0, False
    while at < len(lines):
        line, first = lines[at], at + 1
        fence = FENCE.match(line)
        assert fence or not line.lstrip().startswith("```"), f"line {first}: not a fence that the test can read: {line}"
        if not fence and line != "<!-- setup:":
            varies = varies or line == "<!-- numbers vary -->"
            at += 1
            continue
        end = lines.index("```" if fence else "-->", first)
        kind = fence[1] if fence else "setup"
        found.append(Block(kind, first, "\n".join(lines[first:end]), varies))
        varies, at = False, end + 1
    return found


def same(expected, got, *, varies=False):
    """Whether text is as shown, where "..." stands for anything in a line and, alone, for any lines."""
    if varies:
        expected, got = (re.sub(r"\d[\d,.]*|#+|█+", "0", re.sub(r" +", " ", text)) for text in (expected, got))
    lines = expected.strip("\n").split("\n")
    parts = [r"(?s:.*?)" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", r"[^\n]*") for line in lines]
    return re.fullmatch("\n".join(parts), got.strip("\n")) is not None


def commands(block):
    """Return (command, output shown) for each "$" line of a console block."""
    parts = re.split(r"(?m)^\$ ", block.text)
    assert not parts[0].strip(), f"line {block.line}: Expected a console block to begin with '$ '. Got {parts[0]!r}."
    return [(first, rest) for first, _, rest in (part.partition("\n") for part in parts[1:])]


def program(command):
    """Run a command of ours in the current folder; return its exit status and what it prints."""
    words = shlex.split(command)
    words = words[2:] if words[:2] == ["python", "-m"] else words
    assert words[0] == "prunedata", f"Expected a command that the test knows. Got {command!r}."
    done = subprocess.run(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = {"__name__": "__main__", "PAGE": page}, None
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, line {block.line}"
        if block.kind in ("python", "setup"):
            # The empty lines make a traceback name the line of the page.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)
            printed = out.getvalue()
        elif block.kind == "text":
            assert printed is not None, f"{where}: Expected Python before its output. Got none."
            assert same(block.text, printed, varies=block.varies), f"{where} shows another output than:\n{printed}"
        elif block.kind == "console":
            for command, shown in commands(block):
                if command.startswith((*RUN_BY_CI, *LEFT_TO_THE_READER)):
                    continue
                status, output = program(command)
                assert status == (2 if shown.startswith("prunedata: error") else 0), f"{where}: {output}"
                assert same(shown, output, varies=block.varies), f"{where} shows another output than:\n{output}"
        else:
            # A misspelt language would hide code from this test.
            assert block.kind == "", f"{where}: Expected python, console, text or no language. Got {block.kind!r}."


@pytest.mark.docs
def test_ci_runs_the_commands_that_the_readme_leaves_to_it():
    readme = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [command for block in readme if block.kind == "console" for command, _ in commands(block)]
    shown = {line.split("#")[0].strip() for line in lines if line.startswith(RUN_BY_CI)}
    assert {"make demo", "make test"} <= shown
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    ran = {line.split("#")[0].split("||")[0].strip() for line in script}  # what follows || runs if it fails
    assert shown | {"make test-rest"} <= ran  # what make test leaves out


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8"))
    for target, anchor in links:
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor and there.suffix == ".md":
            heads = re.findall(r"(?m)^#+ (.*)$", there.read_text(encoding="utf-8"))
            assert anchor in {re.sub(r"[^\w\s-]", "", head).strip().lower().replace(" ", "-") for head in heads}


def load(name):
    """A script that lies beside the pages."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.docs
def test_the_picture_of_the_folders_shows_what_is_there():
    tree = load("made/tree")
    assert "pruner.py" in tree.tree()
    assert tree.PAGE.read_text(encoding="utf-8") == tree.page(), "run: python docs/made/tree.py --write"


@pytest.mark.docs
def test_the_reference_has_every_public_name():
    shown = set(re.findall(r"(?m)^::: (\S+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8")))
    public = {name: getattr(prunedata, name) for name in prunedata.__all__ if not name.startswith("__")}
    missing = [
        name for name, each in public.items() if not {f"prunedata.{name}", getattr(each, "__module__", None)} & shown
    ]
    adapters = {path for path in (ROOT / "adapters").iterdir() if (path / "__init__.py").exists()}
    adapters |= {path for path in (ROOT / "adapters").glob("*.py") if path.name != "__init__.py"}
    missing += [path.stem for path in adapters if f"prunedata.adapters.{path.stem}" not in shown]
    assert not missing


def text_of(node):
    """A message as a reader meets it, with … for what differs from case to case."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return "…"


@pytest.mark.docs
def test_the_page_of_errors_quotes_messages_that_there_are_and_names_every_class():
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    quoted = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| Expected ")]
    sources = [path for folder in ("prunedata", "adapters") for path in (ROOT / folder).rglob("*.py")]
    calls = (node for path in sources for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    said = {" ".join(text_of(node.args[0]).split()) for node in calls if isinstance(node, ast.Call) and node.args}
    assert len(quoted) >= 30
    assert [one for one in quoted if not any(message.startswith(one) for message in said)] == []
    assert [name for name in prunedata.errors.__all__ if f"`{name}`" not in page] == []


@pytest.mark.docs
def test_every_picture_is_on_a_page():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = [path.name for kind in ("png", "svg") for path in (ROOT / "docs").rglob(f"*.{kind}")]
    assert len(pictures) > 10
    assert [name for name in pictures if name not in shown] == []


# The table of what works with what: each cell is a test that exists, or a reason, and the page shows it.


MADE = load("made/features")
CELLS = [(name, feature) for name in MADE.TABLE for feature in MADE.FEATURES]


@functools.cache
def named_in(file):
    """The tests that pytest collects from a file, unless they are always skipped."""
    found = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return {
        each.name
        for each in found
        if isinstance(each, ast.FunctionDef)
        and each.name.startswith("test_")
        and not any("mark.skip" in ast.unparse(mark) or "xfail" in ast.unparse(mark) for mark in each.decorator_list)
    }


@pytest.mark.docs
@pytest.mark.parametrize(("name", "feature"), CELLS)
def test_each_cell_is_a_test_or_a_reason(name, feature):
    cell = MADE.TABLE[name][feature]
    assert cell.tests or (cell.says and not cell.says.startswith("yes"))
    for test in cell.tests:
        file, _, function = test.partition("::")
        assert function in named_in(MADE.TESTS + file), test


@pytest.mark.docs
def test_each_refusal_is_a_test():
    for *_, test in MADE.REFUSED:
        file, _, function = test.partition("::")
        assert function in named_in(MADE.TESTS + file), test


@pytest.mark.docs
def test_no_row_has_another_column():
    assert all(tuple(row) == MADE.FEATURES for row in MADE.TABLE.values())


@pytest.mark.docs
def test_the_page_shows_the_table():
    assert MADE.PAGE.read_text(encoding="utf-8") == MADE.page(), "run: python docs/made/features.py --write"


# How pages are read.


PAGE = """
# A page
<!-- setup:
x = 1
-->
```python
print(x + 1)
```
<!-- numbers vary -->
```text
2
```
"""


def test_a_page_is_read_as_it_is_shown():
    setup, python, text = blocks(PAGE)
    assert (setup.kind, setup.line, setup.text) == ("setup", 3, "x = 1")
    assert (python.kind, python.text, python.varies) == ("python", "print(x + 1)", False)
    assert (text.kind, text.text, text.varies) == ("text", "2", True)
    with pytest.raises(AssertionError, match="not a fence"):
        blocks("``` python title=x\n```")


@pytest.mark.parametrize(
    ("expected", "got", "is_same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nb\nc\ne", False),
        ("took ... s", "took 1.25 s", True),
        ("took ... s", "took 1.25 m", False),
        ("...", "", True),
        ("a", "a\nb", False),
    ],
)
def test_an_ellipsis_stands_for_what_it_leaves_out(expected, got, is_same):
    assert same(expected, got) is is_same


def test_numbers_may_vary_but_nothing_else():
    assert same("epoch  3  1.25 s ███", "epoch 12  0.50 s █████████", varies=True)
    assert not same("epoch  3  1.25 s", "epoch  3  1.25 m", varies=True)
    assert not same("epoch 3", "epoch 4")
