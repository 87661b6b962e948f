"""A foreign package under a name of ours is one clear line, wherever it was found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replog._names import TOP_LEVEL_NAMES, NameClash, check_names
from tests.places import ROOT


def with_foreign(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` where Python searches `path` before our packages."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=path, capture_output=True, text=True, check=False
    )


CHECK = "try: import replog\nexcept ImportError as error: print(error)"


def test_the_names_are_those_of_the_wheel() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*TOP_LEVEL_NAMES, "replog"} == set(wheel)


def test_our_own_packages_are_no_clash() -> None:
    check_names()
    import cluster  # noqa: F401

    check_names()


@pytest.mark.parametrize("name", TOP_LEVEL_NAMES)
@pytest.mark.parametrize("is_package", [True, False])
def test_a_foreign_package_is_one_line_that_says_which_and_where(
    tmp_path: Path, name: str, is_package: bool
) -> None:
    foreign = tmp_path / name / "__init__.py" if is_package else tmp_path / f"{name}.py"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("raise AssertionError('imported')\n")
    done = with_foreign(tmp_path, CHECK)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith(f"replog needs its own package {name!r} in {ROOT}, but ")
    assert f" first, {foreign}: rename" in done.stdout


@pytest.mark.parametrize("name", TOP_LEVEL_NAMES)
def test_a_plain_folder_of_the_user_is_no_clash(tmp_path: Path, name: str) -> None:
    """A user has a folder `scenarios` or `storage` sooner than a package of that name."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.yaml").touch()
    assert with_foreign(tmp_path, f"{CHECK}\nimport cluster, sim.commands, storage.errors").stdout == ""


def test_a_foreign_package_that_is_loaded_already_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "sim.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sim; sys.path.pop(0)\n{CHECK}"
    assert f" first, {tmp_path / 'sim.py'}: " in with_foreign(tmp_path / "..", code).stdout


def test_a_clash_is_an_import_error_with_name_and_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as raised:
        check_names(("foreign",))
    assert isinstance(raised.value, NameClash)
    assert (raised.value.name, raised.value.path) == ("foreign", str(tmp_path / "foreign.py"))


def test_register_is_imported_from_pipeline_too() -> None:
    import replog
    from pipeline import register

    assert replog.register is register
