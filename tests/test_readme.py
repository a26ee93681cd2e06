"""What the documentation says can be typed, followed and found."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from regard.cli import app
from regard.verbs.train import settled

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BEYOND = re.compile(r"\s[<>|&].*|\s…|\s#\s.*")  # of a line: where the shell or the reader takes over


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `regard …` in a page's blocks of commands."""
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines() if kind in ("", "bash") else ():
            if typed := re.match(r"(?:\$ )?(?:torchrun .* -m |srun .* -m )?(regard [a-z]+\b.*)", line):
                yield shlex.split(BEYOND.sub(" ", typed[1]).replace("$'", "'"))[1:]


TYPED = [pytest.param(words, id=f"{page.name}: {' '.join(words)}") for page in PAGES for words in commands(page)]


def test_the_readme_shows_every_verb() -> None:
    shown = {words[0] for words in commands(ROOT / "README.md")}
    assert shown == set(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", TYPED)
def test_a_command_of_the_documentation_is_one_that_regard_knows(words: list[str]) -> None:
    verb = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    options = verb.make_context(words[0], words[1:]).params
    if words[0] in ("train", "plan"):
        settled(options["task"], [], None, None, None, options["setting"] or [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, section = target.partition("#")
        place = page.parent / file if file else page
        assert place.exists(), target
        assert not section or section in headings(place), target


def headings(page: Path) -> set[str]:
    """As links name them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_file_that_the_tour_visits_is_there() -> None:
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`", tour)
    assert len(places) > 30
    assert not [place for place in places if not (ROOT / "src" / "regard" / place).exists()]
