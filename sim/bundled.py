"""The scenarios that come with replog, found by name."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from sim.scenario.loading import ScenarioError

# Beside our packages, in a checkout as in a wheel. Not found by an import: the user's own folder `scenarios` could be
# found instead, since ours has no package file.
_DIRECTORY = Path(__file__).resolve().parent.parent / "scenarios"
# The smallest scenarios that show planted bugs; no list has them.
_OF_BUGS = Path(__file__).resolve().parent / "bugs" / "scenarios"
_SUFFIX = ".yaml"


def bundled_scenarios() -> dict[str, Path]:
    """Returns the file of each bundled scenario by its name, in order of name."""
    return {path.stem: path for path in sorted(_DIRECTORY.glob(f"*{_SUFFIX}"))}


def find_scenario(text: str) -> Path:
    """Returns the file that `text` names: a path if it has a suffix or a slash, else a bundled scenario.

    A name may also be that of the scenario of a planted bug. Whether the file of a path exists is not checked.
    Raises ScenarioError for an unknown name.
    """
    known = bundled_scenarios()
    if "/" in text or Path(text).suffix:
        path = Path(text)
        if not path.exists() and path.stem in known:
            raise ScenarioError(f"{text}: No such file or directory (the bundled scenario is {path.stem!r})")
        return path
    of_bug = _OF_BUGS / f"{text}{_SUFFIX}"
    if text in known or of_bug.exists():
        return known.get(text, of_bug)
    near = get_close_matches(text, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    # The file is there, but its name looks like that of a bundled scenario.
    if text and Path(text).exists():
        hint = f"for the file of this name say ./{text}; {hint}"
    raise ScenarioError(f"no bundled scenario is called {text!r}: {hint}")


def description(path: Path) -> str:
    """Returns the first line of the comment that a scenario file begins with; empty if it has none."""
    with path.open(encoding="utf-8") as lines:
        first = lines.readline()
    return first.removeprefix("#").strip() if first.startswith("#") else ""
