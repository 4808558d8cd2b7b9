"""What is built, installed and imported is what the source tree says, and the core loads no framework."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [
    "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff",
    "prunedata", "adapters",
]  # fmt: skip
FRAMEWORKS = {
    "jax",
    "keras",
    "lightning",
    "matplotlib",
    "sklearn",
    "tensorflow",
    "torch",
    "torchdata",
    "webdataset",
}

# Adapters need frameworks.
PROBE = f"""
import importlib, pkgutil, sys
import prunedata
left = {{"prunedata.adapters", "prunedata.__main__"}}

def load(package):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name not in left:
            module = importlib.import_module(found.name)
            if found.ispkg:
                load(module)

load(prunedata)
print(*sorted({FRAMEWORKS!r} & sys.modules.keys()))
"""


def run(*command: str | Path, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, check=False, cwd=cwd, env=environment, capture_output=True, text=True)
    if check:
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def copy_tree(target: Path) -> Path:
    """What ships, without leftovers of earlier builds; links stay links."""
    target.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            leftovers = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=leftovers)
        else:
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that is built from it as a release is."""
    folder = tmp_path_factory.mktemp("dist")
    tree = copy_tree(folder / "tree")
    (tree / "tests" / "project").mkdir(parents=True)
    (tree / "tests" / "project" / "test_packaging.py").touch()
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", tree, cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request: pytest.FixtureRequest, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the project, numpy and zarr, and no framework. The editable project takes the wheel's place."""
    if request.param == "wheel":
        project = [request.getfixturevalue("wheel")]
    else:
        project = ["--editable", copy_tree(tmp_path_factory.mktemp("editable") / "tree")]
    pip = [environment, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "-c", ROOT / "constraints.txt", *project)
    return environment


@pytest.mark.slow
class TestInstalled:
    """A class, so that one worker builds and installs once for all of it."""

    def test_core_imports_with_numpy_and_zarr_alone(self, python: Path) -> None:
        assert run(python, "-I", "-W", "error", "-c", PROBE).stdout.strip() == ""
        assert run(python, "-I", "-m", "prunedata", "--help").stdout.startswith("usage: prunedata")

    def test_no_framework_is_installed(self, python: Path) -> None:
        code = f"import importlib.util as u; print(*(name for name in {FRAMEWORKS!r} if u.find_spec(name)))"
        assert run(python, "-I", "-c", code).stdout.strip() == ""

    def test_adapter_is_found_and_names_what_it_needs(self, python: Path) -> None:
        code = "import importlib.util as u; print(u.find_spec('prunedata.adapters.torch').name)"
        assert run(python, "-I", "-c", code).stdout.strip() == "prunedata.adapters.torch"
        failed = run(python, "-I", "-c", "import prunedata.adapters.torch", check=False)
        assert failed.returncode == 1
        assert "ImportError" in failed.stderr.splitlines()[-1]
        assert failed.stderr.splitlines()[-1].endswith("pip install torch")

    def test_adapters_have_one_name(self, python: Path) -> None:
        code = "import importlib.util as u, prunedata.adapters; print(u.find_spec('adapters'))"
        assert run(python, "-I", "-c", code).stdout.strip() == "None"

    def test_version_is_the_projects(self, python: Path) -> None:
        code = "import importlib.metadata as m, prunedata as p; print(p.__version__, m.version('prunedata'))"
        ours, recorded = run(python, "-I", "-c", code).stdout.split()
        assert ours == recorded

    def test_console_script_runs(self, python: Path) -> None:
        assert run(python.with_name("prunedata"), "--help").stdout.startswith("usage: prunedata")

    def test_types_are_announced(self, python: Path) -> None:
        code = "import importlib.resources as r; print((r.files('prunedata') / 'py.typed').is_file())"
        assert run(python, "-I", "-c", code).stdout.strip() == "True"

    def test_a_report_brings_its_template_and_names_its_extra(self, python: Path) -> None:
        code = "import importlib.resources as r; print(*(one.name for one in r.files('prunedata.reporting').iterdir()))"
        assert {"page.html", "page.css", "review.js"} <= set(run(python, "-I", "-c", code).stdout.split())
        failed = run(python, "-I", "-c", "import prunedata; prunedata.report('run.zarr')", check=False)
        assert failed.returncode == 1
        assert failed.stderr.splitlines()[-1].startswith("ImportError: A report needs jinja2 and matplotlib.")

    def test_the_sdist_has_no_tests(self, dist: Path) -> None:
        """Those that setuptools would take by itself cannot run without the others."""
        (built,) = dist.glob("*.tar.gz")
        with tarfile.open(built) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        assert {"CHANGELOG.md", "CITATION.cff", "setup.py"} <= names
        assert {"pyproject.toml", "README.md", "LICENSE", "adapters/iterable.py", "prunedata/run/pruner.py"} <= names
        assert not [name for name in names if name.split("/")[0] == "tests"]


def index_text(text: str, address: str) -> str:
    spec = importlib.util.spec_from_file_location("setup_of_prunedata", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return str(script.for_the_index(text, address, "main"))


def test_links_on_the_index_lead_to_the_project_or_are_text() -> None:
    text = "See [this](docs/a.md#b), [that](https://x.org) and ![a picture](docs/a.png)."
    address = "https://example.org/prunedata"
    assert index_text(text, address) == (
        f"See [this]({address}/blob/main/docs/a.md#b), [that](https://x.org) and "
        f"![a picture]({address}/raw/main/docs/a.png)."
    )
    assert index_text(text, "") == "See this, [that](https://x.org) and ."
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for where in ("", address):
        assert re.findall(r"\]\((?!https?:)[^)]*\)", index_text(readme, where)) == []


def test_what_developers_need_is_no_extra_for_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not {"dev", "test", "demo"} & extras.keys()


def test_every_folder_is_shipped() -> None:
    """A new folder needs its line in pyproject.toml."""
    names = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    core = {path.parent.relative_to(ROOT) for path in (ROOT / "prunedata").glob("**/__init__.py")}
    adapters = {"prunedata" / path.parent.relative_to(ROOT) for path in (ROOT / "adapters").glob("**/__init__.py")}
    assert sorted(names) == sorted({".".join(folder.parts) for folder in core | adapters})


def probe_tree(tree: Path) -> str:
    code = f"import sys; sys.path.insert(0, {str(tree)!r})\n{PROBE}"
    return run(sys.executable, "-I", "-c", code).stdout.strip()


def test_core_loads_no_framework() -> None:
    assert probe_tree(ROOT) == ""


def test_probe_sees_a_framework(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "tree")
    (tree / "sklearn.py").touch()
    (tree / "prunedata" / "sneaky.py").write_text("import sklearn\n")
    assert probe_tree(tree) == "sklearn"


def test_top_level_adapters_refuses() -> None:
    failed = run(sys.executable, "-c", "import adapters", check=False, cwd=ROOT)
    assert failed.returncode == 1
    assert "Expected to be imported as 'prunedata.adapters'" in failed.stderr.splitlines()[-1]
