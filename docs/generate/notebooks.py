"""Run the tutorials and store their outputs: `python -m docs.generate.notebooks`."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"


def run(file: Path) -> None:
    """Run a notebook from top to bottom in a new process and store what it prints and draws."""
    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call, unused-ignore]
    NotebookClient(notebook, timeout=600, record_timing=False, coalesce_streams=True).execute(cwd=str(file.parent))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    # What the kernel says of itself changes with every version of Python.
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, file)  # type: ignore[no-untyped-call, unused-ignore]


if __name__ == "__main__":
    for file in sorted(TUTORIALS.glob("*.ipynb")):
        run(file)
