"""Commands on pages of the user guide, and what they print."""

import re
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

USER_GUIDE = Path(__file__).parents[2] / "docs" / "user_guide"


def commands(page):
    """Whose machine, command and output, one after the other."""
    text = (USER_GUIDE / page).read_text()
    blocks = re.findall(r"code-block:: console\n\n((?:   .*\n|\n)+)", text)
    for block in blocks:
        prompt, *output = block.rstrip().splitlines()
        host, command = re.fullmatch(r"   (\w+)\$ skslot (.*)", prompt).groups()
        yield host, command, "\n".join(line[3:] for line in output) + "\n"


def check_printed(command, expected, printed):
    """Refuse another output than the page has."""
    flags = ELLIPSIS | NORMALIZE_WHITESPACE
    assert OutputChecker().check_output(expected, printed, flags), (
        f"{command}\n{printed}"
    )
