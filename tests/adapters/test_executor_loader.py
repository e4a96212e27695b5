from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from blockx.errors import LoadFailed
from blockx.executor.loader import check_requirements, load_functions

FUNCTION = "from blockx import function\n@function\ndef {name}(): return '{name}'\n"


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def code(root: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return str(root)


def test_modules_and_packages_of_a_directory_are_imported_with_all_below_them(tmp_path: Path) -> None:
    files = {
        "bx_one.py": FUNCTION.format(name="one"),
        "bx_pkg/__init__.py": "",
        "bx_pkg/two.py": "from bx_one import one\n" + FUNCTION.format(name="two"),
        "bx_pkg/deep/__init__.py": "from .three import three\n",
        "bx_pkg/deep/three.py": FUNCTION.format(name="three"),
    }
    functions = load_functions(code(tmp_path, files))
    assert list(functions) == ["one", "three", "two"]
    assert functions["three"].call() == "three"


def test_a_directory_may_itself_be_a_package(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from .inner import inner\n",
        "inner.py": FUNCTION.format(name="inner"),
        "x/__init__.py": "",
    }
    assert list(load_functions(code(tmp_path / "bx_whole", files))) == ["inner"]
    assert "bx_whole.x" in sys.modules


def test_tests_scripts_and_private_modules_are_not_imported_by_themselves(tmp_path: Path) -> None:
    broken = "raise RuntimeError('imported')\n"
    left_out = ("_private.py", "test_it.py", "tests/__init__.py", "conftest.py", "setup.py", "bx_p/__main__.py")
    files = dict.fromkeys(left_out, broken) | {"bx_p/__init__.py": FUNCTION.format(name="kept")}
    assert list(load_functions(code(tmp_path, files))) == ["kept"]


def test_an_import_that_raises_is_told_with_its_stack(tmp_path: Path) -> None:
    path = code(tmp_path, {"bx_bad.py": "def f():\n    raise ValueError('at import')\nf()\n"})
    with pytest.raises(
        LoadFailed, match=r"importing bx_bad raised ValueError: at import\n(.|\n)*bx_bad.py., line 2, in f"
    ):
        load_functions(path)


@pytest.mark.parametrize(
    "text", ["import sys; sys.exit(1)", "import no_such_module_xyz", "def (", "raise KeyboardInterrupt"]
)
def test_whatever_an_import_does_is_a_failed_load(tmp_path: Path, text: str) -> None:
    with pytest.raises(LoadFailed, match="importing bx_bad raised"):
        load_functions(code(tmp_path, {"bx_bad.py": text}))


def test_a_name_taken_twice_is_told_with_both_places(tmp_path: Path) -> None:
    path = code(tmp_path, {"bx_a.py": FUNCTION.format(name="same"), "bx_b.py": "\n" + FUNCTION.format(name="same")})
    with pytest.raises(
        LoadFailed, match="two functions are named 'same': same in bx_a, line 2 and same in bx_b, line 3"
    ):
        load_functions(path)


def test_a_module_with_the_name_of_another_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="the module json has the name of another one"):
        load_functions(code(tmp_path, {"json.py": FUNCTION.format(name="f")}))


def test_a_directory_without_functions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="no function marked with @function was found"):
        load_functions(code(tmp_path, {"bx_empty.py": "def f(): pass\n"}))
    with pytest.raises(LoadFailed, match="is no directory"):
        load_functions(str(tmp_path / "missing"))


def test_requirements_that_are_satisfied_pass(tmp_path: Path) -> None:
    text = "# comment\n\ntrio>=0.1  # why\nattrs\nPyTest >=1\nnever-heard-of; python_version < '3'\n"
    check_requirements(Path(code(tmp_path, {"requirements.txt": text})))
    check_requirements(tmp_path / "nothing-here")


def test_requirements_that_are_missing_are_all_named(tmp_path: Path) -> None:
    path = code(
        tmp_path, {"requirements.txt": "trio>=9999\nno-such-thing\n-r other.txt\n", "bx_a.py": "raise ValueError"}
    )
    with pytest.raises(LoadFailed) as caught:
        load_functions(path)
    text = str(caught.value)
    assert "trio>=9999 is wanted, 0." in text
    assert "no-such-thing is not installed" in text
    assert "'-r other.txt' is no requirement" in text
