"""The names of options, and the one line that is left of an error in Spark: all without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipeline.directory import topic_filter
from pipeline.errors import SourceError
from pipeline.offsets import EARLIEST, ENDING, LATEST, STARTING, offset_option
from pipeline.options import KAFKA_OPTIONS, OPTIONS, check_option_names, check_pushdown, flag
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


def test_filters_are_never_pushed_down_and_the_line_says_what_narrows_a_read() -> None:
    """Spark keeps the filters of one use of a frame for all its other uses."""
    for options in ({}, {"path": "/"}, {"pushdown": "false"}, {"pushDown": "False"}):
        check_pushdown(options)
    with pytest.raises(
        SourceError, match=r"^option pushdown: .*subscribe, assign, startingOffsets and endingOff"
    ):
        check_pushdown({"pushDown": "True"})
    with pytest.raises(SourceError, match=r"^option pushdown takes true or false, not 'yes'$"):
        check_pushdown({"pushdown": "yes"})


def test_a_flag_is_true_or_false_in_any_letter_case() -> None:
    assert flag({"includeHeaders": "TRUE"}, "includeHeaders", default=False)
    assert flag({"includeheaders": "true"}, "includeHeaders", default=False)
    assert flag({}, "failOnDataLoss", default=True)
    with pytest.raises(SourceError, match=r"^option failOnDataLoss takes true or false, not '1'$"):
        flag({"failondataloss": "1"}, "failOnDataLoss", default=True)


def test_several_directories_are_refused() -> None:
    with pytest.raises(SourceError, match="takes one log directory"):
        check_option_names(["paths"])


@pytest.mark.parametrize("text", ['{"t": 5}', '{"t": {"0": "x"}}', '{"t": {"0": true}}', "[]", "soon"])
def test_offsets_of_a_wrong_shape_are_refused(text: str) -> None:
    with pytest.raises(SourceError, match="option startingOffsets"):
        offset_option({"startingoffsets": text}, STARTING)


def test_offsets_are_given_by_word_or_by_json() -> None:
    assert offset_option({"startingoffsets": "earliest"}, STARTING).of("t", 0) == EARLIEST
    by_json = offset_option({"endingoffsets": '{"t": {"0": 7, "2": -1}}'}, ENDING)
    assert [by_json.of("t", partition) for partition in range(3)] == [7, LATEST, LATEST]
    assert offset_option({"startingoffsets": '{"t": {"0": -2}}'}, STARTING).of("t", 0) == EARLIEST


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (STARTING, "latest", "option startingOffsets cannot be latest: a batch would read nothing"),
        (ENDING, "earliest", "option endingOffsets cannot be earliest: a batch would read nothing"),
        (
            STARTING,
            '{"t": {"0": -1}}',
            "option startingOffsets: t-0 takes an offset or -2 for earliest, not -1",
        ),
        (ENDING, '{"t": {"0": -2}}', "option endingOffsets: t-0 takes an offset or -1 for latest, not -2"),
        (
            STARTING,
            '{"t": {"0": -7}}',
            "option startingOffsets: t-0 takes an offset or -2 for earliest, not -7",
        ),
        (
            ENDING,
            '{"t": {"0": 9223372036854775808}}',
            "option endingOffsets: t-0 takes an offset or -1 for latest, not 9223372036854775808",
        ),
        (STARTING, '{"t": {"00": 1}}', "option startingOffsets: '00' of t is no number of a partition"),
        (STARTING, '{"t": {"x": 1}}', "option startingOffsets: 'x' of t is no number of a partition"),
    ],
)
def test_offsets_that_kafkas_source_refuses_are_refused(name: str, text: str, line: str) -> None:
    with pytest.raises(SourceError) as raised:
        offset_option({name.lower(): text}, name)
    assert str(raised.value) == line


@pytest.mark.parametrize("number", ["9" * 5_000, str(1 << 31)])
def test_a_number_that_no_partition_has_is_refused(number: str) -> None:
    with pytest.raises(
        SourceError, match=r"^option endingOffsets: '\d+'.* of t is no number of a partition$"
    ) as raised:
        offset_option({"endingoffsets": f'{{"t": {{"{number}": 1}}}}'}, ENDING)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("text", ["[" * 100_000, '{"t": [' + "9" * 5_000 + "]}"])
def test_json_that_is_too_much_for_python_is_refused_in_one_short_line(text: str) -> None:
    for name, read in (
        ("assign", topic_filter),
        (STARTING, lambda options: offset_option(options, STARTING)),
    ):
        with pytest.raises(
            SourceError, match=f"^option {name}: expected .*JSON, got .* characters more"
        ) as raised:
            read({name.lower(): text})
        assert len(str(raised.value)) < 400 and "\n" not in str(raised.value)


@pytest.mark.parametrize("pattern", ["a{99999999999999}", "(" * 10_000 + ")" * 10_000])
def test_a_pattern_that_is_too_much_for_python_is_refused(pattern: str) -> None:
    with pytest.raises(SourceError, match=r"^subscribePattern is not a regular expression: "):
        topic_filter({"subscribepattern": pattern})


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
        ("Traceback:\n  File x\nValueError: first\nRuntimeError: 0 of 2 seeds\n  more", "0 of 2 seeds"),
        (
            CALLING
            + "Caused by: a.PythonException: Traceback (most recent call last):\nKeyError: 'x'\n\tat y",
            "'x'",
        ),
        ("", ""),
    ],
)
def test_the_cause_is_one_line(text: str, cause: str) -> None:
    assert cause_in(text) == cause


def run_program(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupted_start_ends_what_it_has_started() -> None:
    code = (
        "import subprocess, sys; from pipeline.quiet import end_children\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "end_children(); print(child.wait(20))"
    )
    assert run_program(code).stdout == "-15\n"


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


def test_what_the_bridge_to_java_logs_of_an_interrupt_is_kept_away() -> None:
    """The root logger makes itself a handler when it is asked to log and has none."""
    code = (
        "import logging; from pipeline.quiet import keep_bridge_quiet; keep_bridge_quiet()\n"
        "logging.exception('KeyboardInterrupt while sending command.')\n"
        "logging.getLogger('py4j').exception('again')"
    )
    assert run_program(code).stderr == ""
