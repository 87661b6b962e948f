"""The shape of the source tree: imports run down only, no circle of imports, short chains, shallow classes.

Every import counts: at the top of a file, in a function and under TYPE_CHECKING. A face is the `__init__.py` of a
folder, which passes names on to other folders. Importing a file runs the faces of all folders on the way to it, so
these count as imported too, except for the folders that the importing file is itself in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.places import ROOT

PACKAGES = ("storage", "cluster", "sim", "pipeline", "replog")
# Folders and root files of a package from top to bottom.
ORDERS = {
    "storage": (
        "directory log recovery validation inspection cleaner producers segment leader_epochs index batch disk"
        " server_settings config topics codec draws errors values"
    ),
    "storage.inspection": "stats verify dump messages",
    "cluster": "commands local shell core rpc",
    "cluster.core": (
        "node broker controller replica client metadata connection refusals outbox effects events config bounds fencing"
        " messages errors"
    ),
    "cluster.shell": "clients server incoming refused runtime transport failures forks streams engine wire",
    "sim": (
        "commands shrink view determinism detection swarm seeds_output seeds cpu_limit interruption run seed_range"
        " bundled result_lines canaries twin_logs held_files departures judgement verified_logs sometimes"
        " outages blindfold cluster watch left_logs story told whole_file witness"
        " faults anomalies checkers hosts disk world scenario buggify bugs"
    ),
    "sim.shrink": (
        "commands report telling likelihood again critical_pair reordering replay passes events surroundings"
        " search ddmin trial families data"
    ),
    "sim.swarm": (
        "commands output campaign groups results code job rows drawing plans workload topology settings profiles"
        " choices"
    ),
    "sim.detection": "commands measure runner results search",
    "replog.real": (
        "command run result judge rest admin plan faults ground site watch telling mirror steps client clients orders"
        " ports processes proxy links launch"
    ),
}
LONGEST_CHAIN_IN_STORAGE = 16
DEEPEST_CLASS = 3
# Steps of a scenario are models of the lines of a file: they share fields by inheritance.
MODELS = "sim.scenario"

Graph = dict[str, set[str]]


@dataclass(frozen=True, slots=True)
class Tree:
    """The modules of a checkout by dotted name. A face has the name of its folder."""

    paths: dict[str, Path]
    imports: dict[str, list[tuple[str, str]]]
    """Module and name of each import of a file; an empty name for `import module`."""
    classes: dict[str, list[tuple[str, list[str]]]]
    """Each class of a file with its bases, as they are written there."""

    def is_face(self, name: str) -> bool:
        return self.paths[name].name == "__init__.py"

    def imported(self, name: str) -> set[str]:
        """Return the files that `name` imports from, faces included."""
        wholes = ((f"{module}.{what}", module) for module, what in self.imports[name])
        found = {whole if whole in self.paths else module for whole, module in wholes}
        return {module for module in found if module in self.paths and module != name}

    def home(self, module: str, name: str) -> str:
        """Return the file that defines what `module`, perhaps a face, has under `name`."""
        if f"{module}.{name}" in self.paths:
            return f"{module}.{name}"
        if module in self.paths and self.is_face(module):
            for origin, handed_on in self.imports[module]:
                if handed_on == name:
                    return self.home(origin, name)
        return module


def read_tree(root: Path) -> Tree:
    tree = Tree({}, {}, {})
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            tree.paths[name] = path
            tree.imports[name] = [found for node in nodes for found in imports_of(node)]
            tree.classes[name] = [
                (node.name, [ast.unparse(base).partition("[")[0] for base in node.bases])
                for node in nodes
                if isinstance(node, ast.ClassDef)
            ]
    return tree


def imports_of(node: ast.AST) -> list[tuple[str, str]]:
    if isinstance(node, ast.Import):
        return [(alias.name, "") for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [(node.module, alias.name) for alias in node.names]
    return []


@cache
def this_tree() -> Tree:
    return read_tree(ROOT)


def is_within(name: str, folder: str) -> bool:
    return f"{name}.".startswith(f"{folder}.")


def faces_above(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def everything_run(tree: Tree) -> Graph:
    """Return for each file what it imports, and the faces that run on the way there."""
    graph = {}
    for name in tree.paths:
        found = tree.imported(name)
        on_the_way = {face for module in found for face in faces_above(module) if not is_within(name, face)}
        graph[name] = found | (on_the_way & tree.paths.keys())
    return graph


def definitions(tree: Tree) -> Graph:
    """Return for each file the files that define what it uses.

    Faces are followed to the definition; they have no entry.
    """
    graph: Graph = {}
    for name in tree.paths:
        if not tree.is_face(name):
            found = {tree.home(module, what) for module, what in tree.imports[name]}
            graph[name] = {module for module in found if module in tree.paths and module != name}
    return {name: {module for module in found if module in graph} for name, found in graph.items()}


def circle_in(graph: Graph) -> list[str]:
    """Return the names of one circle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def longest_chain(graph: Graph) -> list[str]:
    """Return the longest chain of a graph without circles."""
    chains: dict[str, list[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        below = max((chains[module] for module in sorted(graph[name])), key=len, default=[])
        chains[name] = [name, *below]
    return max(chains.values(), key=len, default=[])


def arrows_up(tree: Tree, package: str, order: list[str]) -> list[str]:
    """List imports between parts of `package` that run against `order`, and parts that `order` does not name."""
    depth = package.count(".") + 1
    wrong = []
    for name, found in definitions(tree).items():
        for module in sorted(found):
            if not all(is_within(each, package) and each != package for each in (name, module)):
                continue
            above, below = name.split(".")[depth], module.split(".")[depth]
            if above not in order or below not in order or order.index(above) > order.index(below):
                wrong.append(f"{name} imports {module}")
    return wrong


def depths(tree: Tree) -> dict[str, int]:
    """Return the depth of each class: itself and its bases within this project."""
    bases: dict[str, list[str]] = {}
    for name, classes in tree.classes.items():
        homes = {what: tree.home(module, what) for module, what in tree.imports[name]}
        for class_name, written in classes:
            bases[f"{name}.{class_name}"] = [f"{homes.get(base, name)}.{base}" for base in written]

    def depth(known: str) -> int:
        return 1 + max((depth(base) for base in bases[known] if base in bases), default=0)

    return {known: depth(known) for known in bases}


def test_no_file_imports_itself_by_way_of_others() -> None:
    assert circle_in(everything_run(this_tree())) == []


def test_a_file_imports_from_the_files_of_its_own_folder_and_not_from_their_face() -> None:
    tree = this_tree()
    wrong = [
        f"{name} imports from {module}"
        for name in tree.paths
        for module in tree.imported(name)
        if tree.is_face(module) and is_within(name, module) and name.startswith(tuple(ORDERS))
    ]
    assert wrong == []


def test_the_longest_chain_of_imports_in_storage_is_bounded() -> None:
    graph = definitions(this_tree())
    inside = {name for name in graph if is_within(name, "storage")}
    chain = longest_chain({name: graph[name] & inside for name in inside})
    assert len(chain) <= LONGEST_CHAIN_IN_STORAGE, " > ".join(chain)


@pytest.mark.parametrize("package", ORDERS)
def test_imports_between_folders_run_down(package: str) -> None:
    assert arrows_up(this_tree(), package, ORDERS[package].split()) == []


def test_no_class_inherits_through_a_long_chain() -> None:
    deep = {name: depth for name, depth in depths(this_tree()).items() if depth > DEEPEST_CLASS}
    assert {name: depth for name, depth in deep.items() if not is_within(name, MODELS)} == {}


def test_a_circle_through_a_function_and_a_face_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "storage" / "a"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from storage.a.inner import X\n")
    (folder / "inner.py").write_text("def f():\n    from storage.b import Y\nX = 1\n")
    (tmp_path / "storage" / "b.py").write_text("from storage.a import X\nY = X\n")
    tree = read_tree(tmp_path)
    assert set(circle_in(everything_run(tree))) == {"storage.a", "storage.a.inner", "storage.b"}
    assert set(circle_in(definitions(tree))) == {"storage.a.inner", "storage.b"}


def test_an_arrow_that_runs_up_and_a_folder_without_a_place_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "storage"
    folder.mkdir()
    (folder / "low.py").write_text("from storage.high import X\n")
    (folder / "high.py").write_text("import storage.new\nX = 1\n")
    (folder / "new.py").write_text("")
    wrong = arrows_up(read_tree(tmp_path), "storage", ["high", "low"])
    assert sorted(wrong) == ["storage.high imports storage.new", "storage.low imports storage.high"]


def test_a_class_counts_those_below_it_in_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "storage"
    folder.mkdir()
    (folder / "one.py").write_text("class A(Exception): ...\nclass B(A): ...\n")
    (folder / "two.py").write_text("from storage.one import B\nclass C(B): ...\nclass D(C): ...\n")
    found = depths(read_tree(tmp_path))
    assert found == {"storage.one.A": 1, "storage.one.B": 2, "storage.two.C": 3, "storage.two.D": 4}
