"""How large the house is: `python -m tests.structure.size` prints files and lines of Python, without generated code."""

from tests.structure.sources import PACKAGES, ROOT


def counted(folder: str) -> tuple[int, int]:
    """Files and lines below a folder."""
    files = [path for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name]
    return len(files), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def main() -> None:
    sizes = {folder: counted(folder) for folder in (*PACKAGES, "tests")}
    sizes |= {"product": tuple(sum(sizes[each][n] for each in PACKAGES) for n in (0, 1))}
    for folder, (files, lines) in sizes.items():
        print(f"{folder:12} {files:5,} files {lines:8,} lines")  # noqa: T201  (a command)


if __name__ == "__main__":
    main()
