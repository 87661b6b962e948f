"""Each folder is an import package with a short name, so a rival of the same name must be noticed at once."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.outside.wheel import Installed, build_wheel
from tests.places import ROOT

PACKAGES = ("cluster", "pipeline", "replog", "sim", "storage")


@pytest.mark.parametrize("name", PACKAGES)
def test_import_name_resolves_to_this_checkout(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / name


@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_distribution_owns_an_import_name(name: str) -> None:
    owners = set(importlib.metadata.packages_distributions().get(name, ["replog"]))
    assert owners == {"replog"}


def test_the_lock_pins_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    wanted += project["dependency-groups"]["dev"]
    lock = (ROOT / "requirements.lock").read_text().lower()
    for requirement in wanted:
        name = requirement.split(">")[0].split(";")[0].strip().lower().replace("_", "-").replace(".", "-")
        assert f"\n{name}==" in lock, f"{name} is not in requirements.lock: run `make lock`"


def test_no_package_marker_is_in_the_tests() -> None:
    # tests/storage/__init__.py would make `storage` mean `tests/storage`.
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_proto_folder_holds_proto_files_only() -> None:
    assert {path.suffix for path in (ROOT / "proto").rglob("*") if path.is_file()} == {".proto"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_the_scenarios_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert top == {*PACKAGES, "scenarios"}
    assert {f"scenarios/{path.name}" for path in (ROOT / "scenarios").glob("*.yaml")} <= set(names)
    assert "scenarios/schema.json" in names


def test_a_scenario_runs_from_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(wheel, tmp_path)
    done = installed.run("-m", "replog", "sim", "run", "leader-crash", "--seed", "7", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "held"


def test_a_page_is_written_from_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(wheel, tmp_path)
    page = tmp_path / "page.html"
    done = installed.run("-m", "replog", "sim", "run", "leader-crash", "--seed", "7", "--view", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    assert all(part in text for part in ("function drawAll", "--epoch-0", "leader-crash, seed 7"))


def test_every_package_says_that_it_is_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
