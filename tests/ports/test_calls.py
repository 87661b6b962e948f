"""The port of calls: each script sees the same on gRPC over the loopback as on simulated links."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.ports.call_cases import CALL_CASES, Script
from tests.ports.limit_cases import LIMIT_CASES, SIZE_CASES, small_messages
from tests.ports.real_calls import real_calls
from tests.ports.simulated_calls import SimulatedCalls

SEEDS = (1, 2, 3)


def real(script: Script) -> object:
    """What a script returns on gRPC."""

    async def main(patch: pytest.MonkeyPatch) -> object:
        async with real_calls(patch) as world:
            return await script(world)

    with pytest.MonkeyPatch.context() as patch:
        if script in SIZE_CASES:
            small_messages(patch)
        return asyncio.run(main(patch))


def simulated(script: Script, seed: int) -> object:
    """What a script returns in the simulator."""

    async def main(patch: pytest.MonkeyPatch) -> object:
        return await script(SimulatedCalls(patch, seed))

    with pytest.MonkeyPatch.context() as patch:
        if script in SIZE_CASES:
            small_messages(patch)
        return asyncio.run(main(patch))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    # Calls that fail on purpose are logged as warnings, a core that fails with its traceback.
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize(
    "script", [*CALL_CASES, *LIMIT_CASES, *SIZE_CASES], ids=lambda script: script.__name__
)
def test_both_worlds_show_a_script_the_same(script: Script) -> None:
    expected = real(script)
    assert [simulated(script, seed) for seed in SEEDS] == [expected] * len(SEEDS)
    assert expected, "a script that sees nothing compares nothing"
