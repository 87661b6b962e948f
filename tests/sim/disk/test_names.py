"""The names of a simulated directory are in order after each change of them, and each listing is the caller's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.disk.life import Life
from storage.disk.filesystem import OpenMode
from tests.sim.disk.disks import new_disk

VERBS = ("make", "move", "unlink", "lose")
NAMES = ("a", "b", "ba", "c")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("make", "move", "unlink", "lose")),
            st.sampled_from(NAMES),
            st.sampled_from(NAMES),
        )
    )
)
def test_names_are_listed_in_order_after_each_change(changes: list[tuple[str, str, str]]) -> None:
    disk = new_disk()
    system = disk.file_system(Life())
    system.make_directory("d")
    system.sync_directory("")
    present = set[str]()
    for verb, name, other in changes:
        if verb == "make":
            system.open(f"d/{name}", OpenMode.CREATE).close()
            present.add(name)
        elif verb == "lose":
            disk.lose_power("none")
            system = disk.file_system(Life())
            present.clear()
        elif name in present:
            if verb == "unlink":
                system.unlink(f"d/{name}")
                present.remove(name)
            elif name != other:
                system.rename(f"d/{name}", f"d/{other}")
                present = present - {name} | {other}
        listed = system.list("d")
        assert listed == sorted(present)
        listed.append("mine")
