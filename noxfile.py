"""What can be run on a clone: `nox` does what CI does, `nox -s demo` shows the main job, `nox --list` lists all."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.sessions = ["tests", "cover", "lint", "types", "layers", "protos"]
nox.options.reuse_existing_virtualenvs = True

PYPROJECT = nox.project.load_toml("pyproject.toml")
GROUPS = ("tests", "lint", "types", "layers", "protos")
CORES = "blockx/worker/core/*,blockx/coordinator/core.py,blockx/coordinator/fleet.py,blockx/coordinator/breaker.py"
STANDARD = "protos/standard"  # protocols of gRPC itself
GENERATED = {
    "blockx/proto": (("protos", STANDARD), ("python", "pyi")),
    "examples/grpcio_client": (("protos",), ("python", "grpc_python")),
}


def install(session: nox.Session, *groups: str, project: bool = True) -> None:
    """Install the project and dependency groups, in the versions of the lock."""
    requirements = nox.project.dependency_groups(PYPROJECT, *groups)
    editable = ["-e", "."] if project else []
    session.install("-c", "requirements.lock", *editable, *requirements)


@nox.session
def demo(session: nox.Session) -> None:
    """The main job: index a sample chain's ERC-20 transfers into SQLite with an embedded cluster."""
    install(session)
    session.run("python", "-m", "examples.demo", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test; in CI (the variable CI is set) a skipped test is a failure."""
    install(session, "tests")
    strictness = ["--fail-on-skip"] if os.environ.get("CI") else []
    session.run("pytest", *strictness, *session.posargs)


@nox.session
def cover(session: nox.Session) -> None:
    """The tests of the cores reach every branch of the cores."""
    install(session, "tests")
    session.run("coverage", "run", "-m", "pytest", "-q", "tests/core")
    session.run("coverage", "report", "--show-missing", "--skip-covered", "--fail-under=100", f"--include={CORES}")


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes; `nox -s lint -- --fix` mends what can be mended."""
    install(session, "lint", project=False)
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *([] if session.posargs else ["--check"]))


@nox.session
def types(session: nox.Session) -> None:
    """Static types, strict, tests included."""
    install(session, "tests", "types")
    session.run("mypy", *session.posargs)


@nox.session
def layers(session: nox.Session) -> None:
    """Who may import whom."""
    install(session, "layers")
    session.run("lint-imports", "--no-cache")


@nox.session
def protos(session: nox.Session) -> None:
    """Generated code agrees with protos/; `nox -s protos -- --write` writes it anew."""
    install(session, "protos", project=False)
    fresh = Path(session.create_tmp())
    shutil.rmtree(fresh)
    for kept, (folders, kinds) in GENERATED.items():
        generate(session, fresh / kept, folders, kinds)
    fit_into_package(fresh / "blockx/proto")
    if "--write" in session.posargs:
        shutil.copytree(fresh, ".", dirs_exist_ok=True)
    names = [str(path.relative_to(fresh)) for path in sorted(fresh.rglob("*_pb2*"))]
    _, different, missing = filecmp.cmpfiles(fresh, ".", names, shallow=False)
    if different or missing:
        session.error(f"not what protos/ gives: {', '.join(different + missing)}; run `nox -s protos -- --write`")


def generate(session: nox.Session, out: Path, folders: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    out.mkdir(parents=True)
    outputs = [f"--{kind}_out={out}" for kind in kinds]
    for folder in folders:
        sources = sorted(str(path) for path in Path(folder).glob("*.proto"))
        session.run("python", "-m", "grpc_tools.protoc", f"-I{folder}", *outputs, *sources)


def fit_into_package(out: Path) -> None:
    """What protoc does not know: the package of the modules, and that others declare the standard protocols too."""
    for path in out.iterdir():
        path.write_text(
            re.sub(r"^import (\w+_pb2)", r"from blockx.proto import \1", path.read_text(), flags=re.MULTILINE)
        )
    for source in Path(STANDARD).glob("*.proto"):
        path = out / f"{source.stem}_pb2.py"
        # In the default pool they would clash with the packages grpcio-health-checking and grpcio-reflection.
        path.write_text(path.read_text().replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()"))


@nox.session
def bench(session: nox.Session) -> None:
    """Figures of the main path and of gRPC, beside their references measured in the same run."""
    install(session, "tests")
    session.run("python", "-m", "benchmarks.main_path")
    session.run("python", "-m", "benchmarks.rpc", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Write the page of settings in the manual anew; a test compares it with the code."""
    install(session)
    session.run("python", "-m", "docs.settings")


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve all dependencies anew into requirements.lock; `-- --upgrade` takes newer versions."""
    session.install("uv")
    groups = [argument for group in GROUPS for argument in ("--group", group)]
    session.run(
        "uv", "pip", "compile", "--quiet", "--universal", "--no-header", *session.posargs,
        *groups, "--output-file", "requirements.lock", "pyproject.toml",
    )  # fmt: skip
