"""The picture in README.md shows the run that it names, and follows every change of the run."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.places import ROOT

PICTURE = ROOT / "docs" / "run.svg"
SVG = "{http://www.w3.org/2000/svg}"


def draw(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "picture.py"), *arguments]
    environment = {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)


def texts(picture: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(picture).iter(f"{SVG}text")]


def test_the_picture_is_up_to_date() -> None:
    done = draw("--check", hash_seed="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_picture_of_another_run_is_out_of_date(tmp_path: Path) -> None:
    other = tmp_path / "run.svg"
    assert draw("--seed", "8", "--out", str(other)).returncode == 0
    done = draw("--check", "--out", str(other))
    assert (done.returncode, done.stdout) == (1, f"{other} is out of date: run make generate\n")


def test_the_picture_shows_what_the_story_says() -> None:
    command = [
        sys.executable,
        "-m",
        "replog",
        "sim",
        "run",
        "scenarios/torn-tail-power-loss.yaml",
        "--seed",
        "7",
    ]
    story = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    shown = texts(PICTURE)
    elected = re.findall(r"(broker \d) is elected leader of (epoch \d)", story)
    assert elected == [tuple(text.split(", ")) for text in shown if ", epoch" in text]
    cuts = re.findall(r"recovery cuts (\d+) bytes", story)
    assert sorted(cuts) == sorted(text.split()[0].replace(",", "") for text in shown if "torn bytes" in text)
    lost = [text for text in shown if text.startswith("power loss")]
    assert len(lost) == len(re.findall(r"power loss", story)) == 4
    assert "the run ends at 18.1 s: every replica agrees" in shown


def test_nothing_of_the_picture_is_outside_of_it() -> None:
    root = ET.parse(PICTURE).getroot()
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    for bar in root.iter(f"{SVG}rect"):
        left, top = float(bar.attrib["x"]), float(bar.attrib["y"])
        assert 0 <= left and left + float(bar.attrib["width"]) <= width
        assert 0 <= top and top + float(bar.attrib["height"]) <= height


def test_the_picture_has_colours_for_readers_of_dark_pages() -> None:
    assert "@media (prefers-color-scheme: dark)" in PICTURE.read_text(encoding="utf-8")


def test_a_kill_and_a_truncation_are_drawn_too(tmp_path: Path) -> None:
    scenario, picture = ROOT / "scenarios" / "divergence-truncation.yaml", tmp_path / "run.svg"
    assert draw("--scenario", str(scenario), "--out", str(picture)).returncode == 0
    shown = texts(picture)
    assert "killed" in shown and any(text.startswith("truncates from ") for text in shown)
