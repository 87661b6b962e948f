"""What the calls of a process on its disk cost."""

from __future__ import annotations

from sim.disk import SimDisk
from sim.disk.costs import DiskCosts, Meter
from sim.disk.life import Life
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

MIB = 1 << 20


def test_each_call_each_byte_and_each_sync_costs_what_the_settings_say() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    disk.meter.costs = DiskCosts(call_us=10, mib_us=1_000, sync_us=500)
    file = disk.file_system(Life()).open("f", OpenMode.CREATE)
    assert disk.meter.take_us(0) == 10
    file.append(bytes(MIB // 2))
    assert disk.meter.take_us(0) == 10 + 500
    file.write_at(0, bytes(4))
    file.sync()
    assert disk.meter.take_us(0) == 10 + 500
    file.read_at(0, MIB)
    file.read_into(0, memoryview(bytearray(MIB // 4)))
    assert disk.meter.take_us(0) == 20 + 500 + 250
    assert disk.meter.take_us(0) == 0


def test_a_slow_disk_adds_to_each_call() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    file = disk.file_system(Life()).open("f", OpenMode.CREATE)
    assert disk.meter.take_us(0) == 0
    disk.meter.slow_us = 7
    file.append(b"12")
    file.sync()
    assert disk.meter.take_us(0) == 14


def test_no_call_returns_while_the_disk_hangs_and_nothing_else_waits() -> None:
    meter = Meter(DiskCosts(call_us=3))
    meter.hung_until_us = 1_000
    assert meter.take_us(400) == 0
    meter.call()
    assert meter.take_us(400) == 600 + 3
    meter.sync()
    assert meter.take_us(1_000) == 0


def test_a_slow_disk_adds_no_more_than_the_slow_time_that_is_left() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    disk.meter.costs = DiskCosts(call_us=10)
    file = disk.file_system(Life()).open("f", OpenMode.CREATE)
    disk.meter.slow_us, disk.meter.slow_until_us = 1_000, 5_500
    disk.meter.take_us(0)
    for _ in range(4):
        file.append(b"1")
    assert disk.meter.take_us(1_000) == 4_040
    for _ in range(4):
        file.append(b"1")
    assert disk.meter.take_us(4_000) == 1_540
    file.append(b"1")
    assert disk.meter.take_us(6_000) == 10


def test_what_an_observer_reads_costs_nothing() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    disk.meter.costs = DiskCosts(call_us=10)
    disk.file_system(Life()).open("f", OpenMode.CREATE).append(b"12")
    disk.meter.take_us(0)
    disk.file_system(Life("eye", sees_through=True)).open("f", OpenMode.READ).read_at(0, 2)
    assert disk.meter.take_us(0) == 0
