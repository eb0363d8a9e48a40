"""Installs radofed from this checkout, with exactly the packages of constraints.txt, each checked by its SHA-256.

    python deploy/install.py                     a party or a coordinator
    python deploy/install.py learner report      with these extras of pyproject.toml

It runs pip twice. First `pip install --require-hashes` installs what radofed and the extras need, and what builds it:
pip refuses a file with another hash, and a package that is not listed. Then it installs the checkout itself, which
fetches nothing more (`--no-deps --no-build-isolation`).

For a machine without a network: fetch the packages on one that has one, with the same system, processor and version of
Python, carry the folder and this checkout over, and install from there. The hashes are checked on both machines:

    python deploy/install.py --download PACKAGES metrics
    python deploy/install.py --packages PACKAGES metrics

The extra `research` is a distribution of its own, built from a folder of the checkout. With `--editable` it is there
already.

constraints.txt says for each package who needs it (`# via`), so that only what is needed is installed. To renew it:

    uv pip compile pyproject.toml --all-extras --universal --python-version 3.11.7 --generate-hashes \
        --no-strip-extras --no-header --no-emit-package radofed --no-emit-package radofed-research --upgrade \
        --output-file constraints.txt
"""

# ruff: noqa: INP001  (a script beside samples: it runs before anything is installed)

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # of Python 3.11
    sys.exit(f"install.py: radofed needs Python 3.11 or newer, and this is {sys.version.split()[0]}")

ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VIA = re.compile(r"^    #(?: via |   )(\S+)", re.MULTILINE)


def normalised(name: str) -> str:
    """A package's name as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text: str) -> dict[str, str]:
    """The requirement of each package in constraints.txt, with its hashes and who needs it, by its name."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {normalised(found[0]): block for block in blocks if (found := _NAME.match(block))}


def direct(project: Mapping[str, Any], extras: Iterable[str]) -> set[str]:
    """The packages that radofed needs with these extras, and to be built, without what these need in turn.

    Distributions of the checkout are left out; the extra lists what they need.

    Raises:
        KeyError: an extra that there is not.
    """
    table = project["project"]
    groups = [project["build-system"]["requires"], table["dependencies"]]
    groups += [table["optional-dependencies"][extra] for extra in extras]
    found: set[str] = set()
    for requirement in (each for group in groups for each in group):
        if inner := re.match(rf"{table['name']}\[(.*)\]", requirement):
            found |= direct(project, inner[1].split(","))
        else:
            found.add(normalised(_NAME.findall(requirement)[0]))
    return found - sources(project).keys()


def sources(project: Mapping[str, Any]) -> dict[str, str]:
    """Folders of the checkout that are distributions of their own, by name."""
    paths: Mapping[str, Mapping[str, str]] = project.get("tool", {}).get("uv", {}).get("sources", {})
    return {normalised(name): source["path"] for name, source in paths.items()}


def folders(project: Mapping[str, Any], extras: Iterable[str]) -> list[str]:
    """Folders of the checkout that these extras name."""
    table = project["project"]["optional-dependencies"]
    names = {normalised(_NAME.findall(requirement)[0]) for extra in extras for requirement in table[extra]}
    return [path for name, path in sources(project).items() if name in names]


def needed(packages: Mapping[str, str], roots: Iterable[str]) -> list[str]:
    """Names of the packages and of all that they need. Raises KeyError for one that constraints.txt has not."""
    needs = defaultdict(set)
    for name, block in packages.items():
        for parent in _VIA.findall(block):
            needs[normalised(parent)].add(name)
    found: set[str] = set()
    waiting = [*roots]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs[name]
    return sorted(found, key=lambda name: (packages[name], name))


def main(arguments: list[str]) -> int:
    """Install, and return pip's exit code."""
    parser = argparse.ArgumentParser(prog="install.py", description=__doc__.partition("\n")[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="extras of pyproject.toml, such as learner")
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="more",
        metavar="PACKAGE",
        help="also this package of constraints.txt",
    )
    parser.add_argument("--editable", action="store_true", help="use the checkout itself, for work on it")
    parser.add_argument("--only-needed", action="store_true", help="install what radofed needs, and not radofed")
    parser.add_argument("--download", metavar="FOLDER", help="put the packages into this folder, and install nothing")
    parser.add_argument("--packages", metavar="FOLDER", help="install from this folder, without a network")
    parser.add_argument("--python", metavar="PLACE", help="environment to install into; default: that of this Python")
    given = parser.parse_args(arguments)
    extras = [extra for each in given.extras for extra in each.split(",") if extra]
    packages = locked((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if unknown := sorted(set(extras) - project["project"]["optional-dependencies"].keys()):
        known = ", ".join(project["project"]["optional-dependencies"])
        parser.error(f"no such extra: {', '.join(unknown)}; there are {known}")
    if missing := sorted({normalised(name) for name in given.more} - packages.keys()):
        parser.error(f"not in constraints.txt: {', '.join(missing)}")
    names = needed(packages, direct(project, extras) | {normalised(name) for name in given.more})
    if given.packages is not None and given.download is not None:
        parser.error("give --download on a machine with a network, and --packages on the one without")
    if given.packages is not None and not Path(given.packages).is_dir():
        parser.error(f"{given.packages} is no folder: make one with --download, on a machine with a network")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    into = [] if given.python is None else ["--python", given.python]
    # A node loads few of its libraries' modules, and compiles those when it first starts.
    compiling = [] if given.editable else ["--no-compile"]
    source = [] if given.packages is None else ["--no-index", "--find-links", str(Path(given.packages).resolve())]
    install = [*pip, *into, "install", "--quiet", *compiling, *source]
    # A source distribution would need its own build tools where it is installed.
    download = [*pip, "download", "--quiet", "--only-binary", ":all:", "--dest", given.download]
    with tempfile.TemporaryDirectory() as directory:
        requirements = Path(directory) / "requirements.txt"
        requirements.write_text("".join(packages[name] for name in names), encoding="utf-8")
        command = install if given.download is None else download
        code = subprocess.call([*command, "--require-hashes", "--requirement", str(requirements)])
    if code and given.packages is not None:
        sys.stderr.write(
            f"install.py: {given.packages} does not have all packages as constraints.txt lists them: fetch them again "
            "into a new folder, by --download with the same extras, from this checkout, on a machine with the same "
            "system, processor and version of Python\n"
        )
    if code or given.only_needed or given.download is not None:
        return code
    own = (
        ["--editable", str(ROOT)]
        if given.editable
        else [str(ROOT), *(str(ROOT / path) for path in folders(project, extras))]
    )
    return subprocess.call([*install, "--no-deps", "--no-build-isolation", *own])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
