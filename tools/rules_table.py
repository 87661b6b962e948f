"""Writes docs/rules.md: how many tests each group of storage rules has, and which ideas of Kafka's own tests are held.

    python tools/rules_table.py [--check] [--rule LS10]

A test belongs to the rule that its name begins with: `test_ls10_...`. It holds an idea of Kafka's tests when it is
marked `@pytest.mark.covers("LogSegmentTest.testTruncate")`. Exit status: 0 all well, 1 the file is out of date or a
rule has no test, 2 a mark names no class of Kafka's.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rules.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """Rules NAME1 to NAMEn, and those with a letter behind the number."""

    name: str
    subject: str
    kafka: str
    count: int
    lettered: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        return (*(f"{self.name}{number}" for number in range(1, self.count + 1)), *self.lettered)


GROUPS = (
    RuleGroup(name="FR", subject="a `.log` file, iterating batches", kafka="FileRecords", count=16),
    RuleGroup(name="IX", subject="offset, time and transaction index", kafka="AbstractIndex", count=31),
    RuleGroup(name="LS", subject="a segment", kafka="LogSegment", count=24),
    RuleGroup(name="AP", subject="append", kafka="UnifiedLog, LocalLog", count=16),
    RuleGroup(name="RO", subject="roll", kafka="UnifiedLog, LocalLog", count=4),
    RuleGroup(name="FL", subject="flush and recovery point", kafka="UnifiedLog, LocalLog", count=6),
    RuleGroup(name="RD", subject="read, offsets, timestamps", kafka="UnifiedLog, LocalLog", count=12),
    RuleGroup(name="RT", subject="log start, retention, truncation", kafka="UnifiedLog, LocalLog", count=16),
    RuleGroup(
        name="LV", subject="what a leader checks", kafka="LogValidator", count=28, lettered=("LV9b", "LV9c")
    ),
    RuleGroup(name="PS", subject="producer state", kafka="ProducerStateManager", count=25),
    RuleGroup(name="EP", subject="leader epochs", kafka="LeaderEpochFileCache", count=13),
    RuleGroup(name="LL", subject="start-up, log directories, swap", kafka="LogManager, LogLoader", count=29),
    RuleGroup(name="CL", subject="compaction", kafka="LogCleaner", count=28),
    RuleGroup(name="BB", subject="building and converting batches", kafka="MemoryRecordsBuilder", count=6),
)

# Test methods of each class at the examined version; a parameterised one counts once.
KAFKA_TESTS = {
    "LogSegmentTest": 24,
    "OffsetIndexTest": 11,
    "TimeIndexTest": 11,
    "TransactionIndexTest": 11,
    "LogSegmentsTest": 6,
    "LogOffsetMetadataTest": 4,
    "LogValidatorTest": 54,
    "ProducerStateManagerTest": 54,
    "OffsetMapTest": 6,
    "CleanShutdownFileHandlerTest": 3,
    "LeaderEpochCheckpointFileWithFailureHandlerTest": 2,
    "OffsetCheckpointFileWithFailureHandlerTest": 7,
    "PartitionMetadataFileTest": 5,
    "FileRecordsTest": 23,
    "FileLogInputStreamTest": 7,
    "ByteBufferLogInputStreamTest": 4,
    "DefaultRecordBatchTest": 22,
    "DefaultRecordTest": 20,
    "AbstractLegacyRecordBatchTest": 11,
    "LegacyRecordTest": 3,
    "SimpleLegacyRecordTest": 4,
    "MemoryRecordsTest": 20,
    "MemoryRecordsBuilderTest": 26,
    "ControlRecordTypeTest": 3,
    "ControlRecordUtilsTest": 3,
    "EndTransactionMarkerTest": 6,
    "GzipCompressionTest": 3,
    "Lz4CompressionTest": 13,
    "NoCompressionTest": 1,
    "SnappyCompressionTest": 1,
    "ZstdCompressionTest": 2,
    "UnifiedLogTest": 147,
    "LocalLogTest": 37,
    "LogLoaderTest": 38,
    "LogManagerTest": 49,
    "LogConfigTest": 26,
    "LogCleanerTest": 49,
    "LogCleanerManagerTest": 31,
    "LogCleanerIntegrationTest": 3,
    "LogCleanerLagIntegrationTest": 1,
    "LogCleanerParameterizedIntegrationTest": 5,
    "LogConcurrencyTest": 2,
    "BrokerCompressionTest": 1,
    "VerificationGuardTest": 2,
    "LeaderEpochFileCacheTest": 44,
    "LeaderEpochIntegrationTest": 3,
    "OffsetsForLeaderEpochTest": 3,
    "DumpLogSegmentsTest": 19,
}

_RULE = re.compile(r"test_([a-z]{1,2}\d+[a-z]?)_")
_GROUP_NAMES = {group.name.lower() for group in GROUPS} | {"t"}


@dataclass(slots=True)
class Collected:
    """`rules` and `ideas` list the tests (path::name) of each rule and of each of Kafka's test methods."""

    rules: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    ideas: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def collect(tests: Path) -> Collected:
    found = Collected()
    for path in sorted(tests.rglob("*.py")):
        for function in _functions(ast.parse(path.read_text(encoding="utf-8"))):
            name = f"{path.relative_to(tests.parent)}::{function.name}"
            for idea in _covered(function):
                found.ideas[idea].append(name)
            if (match := _RULE.match(function.name)) and _group_of(match.group(1)) in _GROUP_NAMES:
                found.rules[match.group(1)].append(name)
    return found


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node


def _group_of(rule: str) -> str:
    return rule.rstrip("abcdefghijklmnopqrstuvwxyz").rstrip("0123456789")


def _covered(function: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("mark.covers"):
            for argument in decorator.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def tests_of(rule: str, found: Collected) -> list[str]:
    """Those of `fr8` include those of its parts, `fr8a` and so on."""
    key = rule.lower()
    lettered = [
        name
        for part, names in found.rules.items()
        if part[:-1] == key and part[-1].isalpha()
        for name in names
    ]
    return found.rules.get(key, []) + lettered


def page(found: Collected) -> str:
    lines = [
        "# Rules and tests",
        "",
        "Generated by `tools/rules_table.py` (`make generate`). A test stands under the rule that its name begins",
        "with: `test_ls10_...` holds rule LS10; `python tools/rules_table.py --rule LS10` lists them.",
        "",
        "| rules | of what | Kafka | rules | with a test | tests |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for group in GROUPS:
        tested = [rule for rule in group.rules if tests_of(rule, found)]
        names = {name for rule in group.rules for name in tests_of(rule, found)}
        lines.append(
            f"| {group.name} | {group.subject} | {group.kafka} | {len(group.rules)} | {len(tested)} | {len(names)} |"
        )
    traps = {name for rule, names in found.rules.items() if _group_of(rule) == "t" for name in names}
    tickets = sum(1 for _ in _ticket_tests(ROOT / "tests"))
    lines += [
        "",
        f"Beside them {len(traps)} tests of traps of the formats (`test_t...`) and {tickets} named after a ticket"
        " of Kafka's (`test_kafka_...`).",
        "",
        "## Ideas of Kafka's own tests",
        "",
        "How many test methods of each class have a test here that holds the same idea (`@pytest.mark.covers`).",
        "Left out are remote storage, metrics, and what belongs to the Java runtime.",
        "",
        "| Kafka's test class | its tests | held here |",
        "| --- | ---: | ---: |",
    ]
    total = 0
    for name, count in KAFKA_TESTS.items():
        held = min(count, len({idea for idea in found.ideas if idea.split(".")[0] == name}))
        total += held
        lines.append(f"| {name} | {count} | {held} |")
    lines += [f"| all | {sum(KAFKA_TESTS.values())} | {total} |", ""]
    return "\n".join(lines)


def _ticket_tests(tests: Path) -> Iterator[str]:
    for path in sorted(tests.rglob("*.py")):
        for function in _functions(ast.parse(path.read_text(encoding="utf-8"))):
            if function.name.startswith("test_kafka_"):
                yield function.name


def untested(found: Collected) -> list[str]:
    return [rule for group in GROUPS for rule in group.rules if not tests_of(rule, found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if the page is out of date")
    parser.add_argument("--rule", help="list the tests of one rule")
    arguments = parser.parse_args()
    found = collect(ROOT / "tests")
    unknown = sorted(idea for idea in found.ideas if idea.split(".")[0] not in KAFKA_TESTS)
    if unknown:
        print(f"no test class of Kafka's: {', '.join(unknown)}", file=sys.stderr)
        return 2
    if arguments.rule:
        print("\n".join(tests_of(arguments.rule, found)))
        return 0 if tests_of(arguments.rule, found) else 1
    missing = untested(found)
    if missing:
        print(f"rules without a test: {', '.join(missing)}", file=sys.stderr)
    text = page(found)
    if arguments.check:
        is_current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        if not is_current:
            print("docs/rules.md is out of date: make generate", file=sys.stderr)
        return 0 if is_current and not missing else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
