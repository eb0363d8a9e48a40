"""docs/how-to/check-your-data.md: its table is made, its commands are typed in order, and they print what it says."""

import io
import re
import shlex
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from radofed.cli.entry_point import run
from tests.docs.examples import assert_says, examples_of, rado

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/check-your-data.md"
BLOCKS, COMMANDS = examples_of("how-to/check-your-data.md")
RECODES = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
DIGEST = re.compile("[0-9a-f]{64}")
#: Where the page's party has its files.
SHOWN = "/srv/north"


def typed(command: str, where: Path) -> str:
    """What a command line prints, its notes first; a check of a party without a coordinator fails at last."""
    with chdir(where), redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as notes:
        run(shlex.split(command)[1:])
    return notes.getvalue() + printed.getvalue()


def assert_prints(found: str, said: str) -> None:
    assert_says(DIGEST.sub("digest", found), DIGEST.sub("digest", said))


def test_each_command_prints_what_the_page_says(tmp_path):
    make, clean = (code for code, _ in BLOCKS)
    infer, check, infer_again, check_again, check_recoded, check_party = COMMANDS
    with chdir(tmp_path):
        exec(compile(make, "example", "exec"), {})
        for command, said in (infer, check):
            assert_prints(typed(command, tmp_path), said)
        exec(compile(clean, "example", "exec"), {})
        Path("recode.toml").write_text(RECODES[-1], encoding="utf-8")
        for command, said in (infer_again, check_again, check_recoded):
            assert_prints(typed(command, tmp_path), said)
    members = "".join(f" --party {name}=400" for name in ("north", "south", "west")) + " --learner lab"
    rado(
        f"rado provision init --federation clinics --directory clinics --coordinator localhost:1{members}",
        tmp_path,
    )
    north = tmp_path / "clinics" / "members" / "north"
    shutil.copy(tmp_path / "clean.toml", north / "schema.toml")
    shutil.copy(tmp_path / "clean.csv", north / "data.csv")
    command, said = check_party
    (found,) = re.findall(r"^advice +data: .*\n(?: {10}.*\n)*", typed(command, north), re.MULTILINE)
    assert_prints(found.replace(str(north), SHOWN), said)
