"""What a disk says of the names in a directory stays equal as long as each of them names the same file."""

from __future__ import annotations

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import OpenMode
from storage.draws import Draws


def disk_with(*paths: str) -> SimDisk:
    disk = SimDisk(Draws(7), lambda: 0)
    files = disk.file_system(Life("setup"))
    for path in paths:
        files.make_directory(path.rpartition("/")[0])
        files.open(path, OpenMode.CREATE_NEW).append(b"abc")
    return disk


def test_a_write_and_a_change_in_another_directory_leave_the_names_as_they_are() -> None:
    disk = disk_with("a/one", "b/two")
    files, names = disk.file_system(Life("process")), disk.names_of("a")
    files.open("a/one", OpenMode.WRITE).append(b"def")
    files.rename("b/two", "b/three")
    files.make_directory("c")
    assert disk.names_of("a") == names


def test_each_change_of_a_name_in_the_directory_changes_them() -> None:
    disk = disk_with("a/one", "b/two")
    files, seen = disk.file_system(Life("process")), [disk.names_of("a")]
    changes = (
        lambda: files.open("a/three", OpenMode.CREATE_NEW),
        lambda: files.rename("a/one", "a/four"),
        lambda: files.rename("b/two", "a/two"),
        lambda: files.rename("a/two", "b/two"),
        lambda: files.unlink("a/four"),
    )
    for change in changes:
        change()
        assert disk.names_of("a") not in seen
        seen.append(disk.names_of("a"))


def test_a_directory_in_the_place_of_another_has_other_names() -> None:
    disk = disk_with("a/one", "b/two")
    files, names = disk.file_system(Life("process")), disk.names_of("a")
    files.rename("a", "c")
    assert disk.names_of("a") == (None, 0)
    files.rename("b", "a")
    assert disk.names_of("a") != names
    assert disk.names_of("c") == names


def test_a_power_loss_and_an_older_image_change_them() -> None:
    disk = disk_with("a/one")
    disk.sync_all()
    image, names = disk.snapshot(), disk.names_of("a")
    disk.file_system(Life("process")).unlink("a/one")
    without = disk.names_of("a")
    disk.lose_power("none")
    assert disk.names_of("a") not in (names, without)
    disk.restore(image)
    assert disk.names_of("a") != names
    assert disk.names_in("a") == ["one"]
