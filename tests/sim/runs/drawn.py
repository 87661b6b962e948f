"""Draws whole scenarios and runs them: `python -m tests.sim.runs.drawn FROM TO [--stream|--datagram|both]`.

TO is exclusive; both transports are the default. Prints a line for each run that failed, with its seed, its transport
and its signature, and a summary. `--describe SEED [--datagram]` prints that scenario as a file that `replog sim run
FILE --seed SEED` takes. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ruamel.yaml import YAML

from sim.scenario.model import Scenario
from sim.scenario.steps import BROKER_JOBS
from sim.world.streams import Stream
from storage.draws import Draws
from tests.sim.runs.drawing import TRANSPORTS, pick, run_all, transports_of

FIRST_STEP_MS, END_MS = 2_300, 12_000
Part = dict[str, object]


class _Drawing:
    """The parts of one scenario, drawn one after the other."""

    def __init__(self, seed: int, transport: str) -> None:
        self._stream = Stream(Draws(seed), "drawn scenario", transport)
        self.transport = transport
        self.brokers = 1 + self.below(5)
        self.directories = self.pick((1, 1, 1, 2))
        self.topics: dict[str, Part] = {}
        # The topics that exist from the start and that no step has deleted so far.
        self._present: set[str] = set()
        self.producers: list[Part] = []
        self.consumers: list[Part] = []

    def below(self, bound: int) -> int:
        return self._stream.below(bound)

    def pick(self, choices: Sequence[object]) -> object:
        return pick(self._stream, choices)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def ms(self, *choices: int) -> str:
        return f"{self.pick(choices)}ms"

    def scenario(self) -> Part:
        for name in ("t", "u")[: 1 + self.below(2)]:
            self._add_topic(name)
        return {
            "scenario": "drawn",
            "duration": f"{END_MS}ms",
            "converge": "40s",
            "cluster": self._cluster(),
            "network": self._network(),
            "topics": self.topics,
            "producers": self.producers,
            "consumers": self.consumers,
            "steps": self._steps(),
        }

    def _cluster(self) -> Part:
        cluster: Part = {"brokers": self.brokers, "directories": self.directories}
        settings: Part = {"log.cleaner.backoff.ms": 300, "log.initial.task.delay.ms": 500}
        settings["log.retention.check.interval.ms"] = self.pick((300, 700))
        if self.chance(40):
            settings["replica.lag.time.max.ms"] = self.pick((1500, 2500))
        cluster["settings"] = settings
        if self.chance(40):
            cluster["clocks"] = {"offset": self.ms(50, 3000, 60000), "drift": self.pick((0, 200, 20000))}
        if self.chance(40):
            cluster["disk"] = {"call": self.pick(("0us", "20us", "200us")), "sync": self.ms(0, 1, 8)}
        if self.chance(40):
            cluster["jobs"] = {str(kind): self.ms(1, 10, 100, 400) for kind in BROKER_JOBS if self.chance(50)}
        return cluster

    def _network(self) -> Part:
        network: Part = {"transport": self.transport, "loss": f"{self.pick((0, 0, 1, 5))}%"}
        if self.transport == "datagram":
            network["duplicates"] = f"{self.pick((0, 5, 20, 50))}%"
            network["spread"] = f"{self.pick((800, 5000, 20000))}us"
        return network

    def _add_topic(self, name: str) -> None:
        replicas = 1 + self.below(min(4, self.brokers))
        config: Part = {
            "min.insync.replicas": 1 + self.below(replicas),
            "segment.bytes": self.pick((16384, 65536)),
        }
        if self.chance(25):
            config["unclean.leader.election.enable"] = True
        if self.chance(35):
            config["flush.messages"] = 1
        policy = self.pick(("delete", "delete", "delete", "compact", "compact,delete"))
        if policy != "delete":
            config |= {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.1"}
        if policy != "compact" and self.chance(50):
            config["retention.ms"] = self.pick((800, 3000))
            config["file.delete.delay.ms"] = self.pick((0, 500, 60000))
        if policy != "compact" and self.chance(30):
            config["retention.bytes"] = self.pick((20000, 60000))
        exists = not (self.topics and self.chance(30))
        topic: Part = {"exists": exists, "partitions": self.pick((1, 1, 2, 3)), "replicas": replicas}
        self.topics[name] = topic | {"config": config}
        if exists:
            self._present.add(name)
        for _ in range(1 + self.below(2)):
            acks = self.pick(("all", "all", "all", 1, 0))
            self.producers.append(
                {
                    "topic": name, "clients": self.pick((1, 1, 2)), "rate": f"{self.pick((20, 50, 150))}/s",
                    "acks": acks, "idempotent": acks == "all" and self.chance(75),
                    "size": f"{self.pick((20, 100, 1500))} B",
                    "keys": 0 if policy == "delete" and self.chance(50) else self.pick((3, 12)),
                    "linger": self.ms(0, 2, 30), "batch": f"{self.pick((200, 4000, 16384))} B",
                }
            )  # fmt: skip
        self.consumers.append({"topic": name, "clients": self.pick((1, 1, 2))})

    def _steps(self) -> list[Part]:
        steps: list[Part] = []
        at_ms = FIRST_STEP_MS
        while at_ms < END_MS - 300:
            steps.append({"at": f"{at_ms}ms"} | self._step())
            at_ms += (50, 300, 900, 2000)[self.below(4)]
        return steps

    def _partition(self) -> str:
        name = str(self.pick(tuple(self.topics)))
        count = self.topics[name]["partitions"]
        assert isinstance(count, int)
        return f"{name}/{self.below(count)}"

    def _broker(self) -> str:
        """A broker: by number, for what may be down or without the partition, or the leader of one."""
        leader = f"leader({self._partition()})"
        # A step that waits for the leader of a topic that is not there strikes nothing.
        if leader[7] in self._present and self.chance(60):
            return leader
        return f"broker {1 + self.below(self.brokers)}"

    def _node(self) -> str:
        return "controller" if self.chance(12) else self._broker()

    def _client(self) -> str:
        kind = self.pick(("producer", "consumer"))
        models = self.producers if kind == "producer" else self.consumers
        return f"{kind} {1 + self.below(sum(int(str(model['clients'])) for model in models))}"

    def _process(self) -> str:
        return self._client() if self.chance(30) else self._node()

    def _link(self) -> str:
        node = self._process()
        return str(
            self.pick((f"clients -> {node}", f"{node} -> clients", f"{node} <-> others", f"{node} -> others"))
        )

    def _step(self) -> Part:
        verb = str(self.pick(tuple(_VERBS)))
        part: Part = _VERBS[verb](self)
        return part

    def kill(self) -> Part:
        step: Part = {"kill": self._process(), "down": self.ms(1, 300, 1000, 3000)}
        if self.chance(20):
            side, kind = self.pick(("before", "after")), self.pick(BROKER_JOBS)
            step = {"kill": self._broker(), "point": f"{side} {kind}"} | {"down": step["down"]}
        return step

    def power(self) -> Part:
        keep = self.pick(("none", "prefix", "subset", "torn", "all"))
        target = "all" if self.chance(10) else self._node()
        return {"power": target, "keep": keep, "down": self.ms(100, 1000, 3000)}

    def pause(self) -> Part:
        return {"pause": self._process(), "for": self.ms(100, 1000, 2500)}

    def stop(self) -> Part:
        return {"stop": self._process(), "down": self.ms(100, 1000, 3000)}

    def cut(self) -> Part:
        return {"cut": self._link(), "for": self.ms(200, 1000, 4000)}

    def isolate(self) -> Part:
        step: Part = {"isolate": self._process(), "for": self.ms(200, 1000, 4000)}
        return step | ({"except": "clients"} if self.chance(30) else {})

    def slow(self) -> Part:
        return {"slow": self._link(), "by": self.ms(20, 200, 800), "for": self.ms(1000, 3000)}

    def lose(self) -> Part:
        return {"lose": self._link(), "share": f"{self.pick((10, 40))}%", "for": self.ms(1000, 3000)}

    def heal(self) -> Part:
        return {"heal": self.pick(("all", self._node()))}

    def restart(self) -> Part:
        return {"restart": self._process()}

    def partial_write(self) -> Part:
        step: Part = {"partial_write": self._broker(), "log": self._partition(), "down": self.ms(100, 1000)}
        step["byte"] = f"{self.pick((0, 10, 61, 70, 500))} B"
        return step | ({"keep": self.pick(("none", "torn", "all"))} if self.chance(50) else {})

    def break_disk(self) -> Part:
        return {"break_disk": self._broker(), "directory": 1 + self.below(int(str(self.directories)))}

    def slow_disk(self) -> Part:
        return {
            "slow_disk": self._node(),
            "by": self.pick(("100us", "2ms", "30ms")),
            "for": self.ms(500, 2000),
        }

    def step_clock(self) -> Part:
        by = self.pick(("-60s", "-2s", "-300ms", "300ms", "2s", "60s"))
        return {"step_clock": self._process(), "by": by}

    def delete_topic(self) -> Part:
        name = str(self.pick(tuple(self.topics)))
        self._present.discard(name)
        return {"delete_topic": name}

    def create_topic(self) -> Part:
        return {"create_topic": self.pick(tuple(self.topics))}

    def alter_topic(self) -> Part:
        changes: tuple[Part, ...] = (
            {"segment.bytes": 4096}, {"segment.bytes": 16384}, {"retention.ms": 500}, {"retention.ms": 60000},
            {"retention.bytes": 10000}, {"retention.bytes": ""},
        )  # fmt: skip
        return {"alter_topic": self.pick(tuple(self.topics)), "config": self.pick(changes)}

    def lag_metadata(self) -> Part:
        return {"lag_metadata": self._broker(), "for": self.ms(500, 2000, 5000)}


# The methods that draw a step. What happens to processes and links is drawn more often than what happens to topics.
_VERBS = {
    f"{method.__name__} {number}": method
    for method, times in {
        _Drawing.kill: 4, _Drawing.power: 3, _Drawing.pause: 3, _Drawing.stop: 2, _Drawing.cut: 3,
        _Drawing.isolate: 2, _Drawing.slow: 2, _Drawing.lose: 2, _Drawing.heal: 1, _Drawing.restart: 1,
        _Drawing.partial_write: 2, _Drawing.break_disk: 1, _Drawing.slow_disk: 2, _Drawing.step_clock: 2,
        _Drawing.delete_topic: 1, _Drawing.create_topic: 1, _Drawing.alter_topic: 1, _Drawing.lag_metadata: 2,
    }.items()
    for number in range(times)
}  # fmt: skip


def description(seed: int, transport: str) -> Part:
    """Return the scenario of that seed as its file has it: same seed, same scenario."""
    return _Drawing(seed, transport).scenario()


def drawn(seed: int, transport: str) -> Scenario:
    return Scenario.model_validate(description(seed, transport))


def main(arguments: Sequence[str]) -> int:
    numbers = [int(each) for each in arguments if each.isdigit()]
    if "--describe" in arguments:
        transport = transports_of(arguments, ["stream"])[0]
        YAML(typ="safe", pure=True).dump(description(numbers[0], transport), sys.stdout)
        return 0
    first, end = numbers
    return int(run_all(range(first, end), transports_of(arguments, TRANSPORTS), drawn) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
