"""Build sdist and wheel into dist/, check them, and try both in fresh environments on every Python that is here.

python .ci/release.py            as `make release` does
python .ci/release.py --quick    only on the Python that runs this
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CORE = """
import doctest, importlib.metadata, sys
import prunedata, prunedata.run.pruner as pruner
failed, tried = doctest.testmod(pruner)
assert tried and not failed
assert "site-packages" in prunedata.__file__, prunedata.__file__
print(f"  Python {sys.version.split()[0]}: prunedata {importlib.metadata.version('prunedata')}, {tried} examples")
"""
SHIPPED = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml", "setup.py"}


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command without what this process knows of Python; return what it prints, or end with its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def pythons() -> dict[str, Path]:
    """The Pythons of this machine that the project is for, one of each version."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {here: Path(sys.executable)}
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        on_path = shutil.which(f"python{version}")
        candidates = [*managed.glob(f"{version}.*/bin/python"), *([Path(on_path)] if on_path else [])]
        for one in candidates:
            if version not in found and subprocess.run([one, "-c", "import venv"], check=False).returncode == 0:
                found[version] = one
    return found


def build() -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel, and check what both say of themselves."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = SHIPPED - names
    if missing or any(name.startswith("tests/") for name in names):
        sys.exit(f"Expected {', '.join(sorted(SHIPPED))} and no tests in the sdist. Missing: {sorted(missing)}")
    return sdist, wheel


def try_in(python: Path, what: Path, folder: Path) -> Path:
    """Install `what` into a fresh environment, and run the core there; return its Python."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", what)
    print(f"{what.name}\n{run(inside, '-I', '-W', 'error', '-c', CORE, cwd=folder)}", end="", flush=True)
    run(
        folder / "bin" / "prunedata",
        "plan",
        "--samples",
        1000,
        "--epochs",
        12,
        "--steady",
        "--prune",
        "20%",
        "--batch-size",
        32,
    )
    return inside


def readme(inside: Path, folder: Path) -> None:
    """Run README's code from the wheel, with the PyTorch that this process has: its own wheel would be some GB."""
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    page = (ROOT / "README.md").read_text(encoding="utf-8")  # the Python that it shows, and what sets it up unseen
    shown = r"(?ms)(?:^<!-- setup:\n([^`]*?)^-->\n)?^```python\n(.*?)^```"
    code = ["\n".join(both) for both in re.findall(shown, page)]
    checked = f"import prunedata\nassert prunedata.__file__.startswith({str(folder)!r}), prunedata.__file__\n"
    script = folder / "readme.py"
    script.write_text(checked + "\n".join(code), encoding="utf-8")
    run(inside, script, cwd=folder)
    print("  README's code runs")


def main() -> None:
    """Do all of it; end with an error at the first thing that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only on the Python that runs this")
    quick = parser.parse_args().quick
    built = build()
    for version, python in pythons().items():
        if quick and python != Path(sys.executable):
            continue
        for what in built:
            with TemporaryDirectory() as name:
                inside = try_in(python, what, Path(name).resolve() / version)
                if python == Path(sys.executable) and what.suffix == ".whl":
                    readme(inside, inside.parents[1])
    if 'address = ""' in (ROOT / "pyproject.toml").read_text(encoding="utf-8"):
        print("No address of the project in pyproject.toml: README's links to files are plain text on the index.")
    print("\n".join(f"{path.stat().st_size / 1000:,.0f} kB  dist/{path.name}" for path in built))


if __name__ == "__main__":
    main()
