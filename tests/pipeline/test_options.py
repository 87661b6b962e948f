"""The names of options, and the one line that is left of an error in Spark: all without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipeline.directory import EARLIEST, SourceError, offset_bound, topic_filter
from pipeline.options import KAFKA_OPTIONS, OPTIONS, check_option_names
from pipeline.quiet import cause_in, java_writes_to, new_file


def test_every_option_of_the_source_is_taken_in_any_letter_case() -> None:
    check_option_names([*OPTIONS, *(name.upper() for name in OPTIONS)])


@pytest.mark.parametrize("name", KAFKA_OPTIONS)
def test_an_option_that_only_kafkas_source_has_is_refused_by_name(name: str) -> None:
    with pytest.raises(SourceError, match=f"^option {name} of Kafka's source is not supported here yet$"):
        check_option_names(["path", name.lower()])


def test_an_option_of_kafkas_clients_is_refused_by_name() -> None:
    with pytest.raises(SourceError, match=r"option kafka\.bootstrap\.servers is for Kafka's clients"):
        check_option_names(["kafka.bootstrap.servers"])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("subscribePatern", "subscribePattern"), ("topics", "topic"), ("startOffsets", "startingOffsets")],
)
def test_an_unknown_option_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(SourceError, match=rf"^unknown option {name.lower()}: did you mean {nearest}\?$"):
        check_option_names([name])


def test_an_option_that_is_near_to_none_is_refused_with_all() -> None:
    with pytest.raises(SourceError, match=r"known are assign, endingOffsets, .*, subscribePattern$"):
        check_option_names(["zzzzzz"])


def test_several_directories_are_refused() -> None:
    with pytest.raises(SourceError, match="takes one log directory"):
        check_option_names(["paths"])


@pytest.mark.parametrize("text", ['{"t": 5}', '{"t": {"0": "x"}}', '{"t": {"0": true}}', "[]", "soon"])
def test_offsets_of_a_wrong_shape_are_refused(text: str) -> None:
    with pytest.raises(SourceError, match=r"option starting[oO]ffsets"):
        offset_bound({"startingoffsets": text}, "startingOffsets", EARLIEST)("t", 0)


@pytest.mark.parametrize("text", ['{"t": 5}', '{"t": ["0"]}', "[]"])
def test_an_assignment_of_a_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="option assign"):
        topic_filter({"assign": text})


CALLING = "An error occurred while calling o5.x.\n: a.b.SparkException: Job failed\n\tat x\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[X] Failed: Trace:\n  File x\npipeline.directory.SourceError: /d is none\n S: 1", "/d is none"),
        (CALLING + "Caused by: java.io.IOException: Mkdirs failed\n", "Mkdirs failed"),
        (CALLING, "Job failed"),
        ('WARNING: x\nException in thread "main" a.SparkException: No master\n\tat x', "No master"),
        ("[SOME_ERROR] a line\n\nand more", "[SOME_ERROR] a line"),
        ("", ""),
    ],
)
def test_the_cause_is_one_line(text: str, cause: str) -> None:
    assert cause_in(text) == cause


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupted_start_ends_what_it_has_started() -> None:
    code = (
        "import subprocess, sys; from pipeline.quiet import end_children\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "end_children(); print(child.wait(20))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "-15\n"


def test_what_a_process_of_java_writes_is_kept_away(capfd: pytest.CaptureFixture[str]) -> None:
    with new_file() as file:
        with java_writes_to(file):
            process = subprocess.Popen(
                [sys.executable, "-c", "import sys; sys.stdin.read(); sys.stderr.write('trace')"],
                stdin=subprocess.PIPE,
            )
        sys.stderr.write("ours")
        # It writes after the block has ended, as Java does.
        process.communicate()
        file.seek(0)
        assert (file.read(), capfd.readouterr().err) == (b"trace", "ours")
