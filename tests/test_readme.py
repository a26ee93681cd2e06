"""What the documentation says can be typed, followed and found."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from regard.cli import app
from regard.settings.load import override
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
        given = options["setting"] or []
        # Adapters need --tune lora, and that a source, which is not here.
        adapters = [setting for setting in given if setting.startswith("train.lora.")]
        assert not adapters or options["tune"] == "lora"
        assert all(override(setting) for setting in adapters)
        settled(options["task"], [], None, None, None, [setting for setting in given if setting not in adapters])


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


def test_every_file_of_this_repository_that_a_page_names_is_there() -> None:
    """By its whole path, or from src/regard on, as the tour does."""
    package = ROOT / "src" / "regard"
    ours = {place.name for place in [*ROOT.iterdir(), *package.iterdir()] if place.is_dir()}
    found = 0
    for page in PAGES:
        for path in re.findall(r"(?<![\w/.~-])((?:[\w-]+/)+[\w-]+\.(?:py|toml|md|js))\b", page.read_text("utf-8")):
            if path.partition("/")[0] in ours:
                found += 1
                assert any((place / path).exists() for place in (ROOT, package, page.parent)), f"{page.name}: {path}"
    assert found > 150


@pytest.mark.parametrize(("page", "least"), [("tour.md", 6), ("glossary.md", 50)])
def test_what_a_page_points_at_in_a_file_is_in_it(page: str, least: int) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    pointed = re.findall(r"`((?:\w+/)+\w+\.py)` \(`(\w+)`", text)
    assert len(pointed) >= least
    for file, name in pointed:
        code = (ROOT / "src" / "regard" / file).read_text(encoding="utf-8")
        assert re.search(rf"\b(def|class) {name}\b", code), (file, name)


# Figures


def row(title: str, name: str) -> list[str]:
    """The cells of a row in docs/results.md, of the first table after a text; without what stands around a number."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    _, found, after = text.partition(title)
    assert found, title
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in after.splitlines() if line[:1] == "|"]
    return next(cells for cells in rows if cells[0] == name)[1:]


QUOTED = [
    # What README says, with a group for each figure; where docs/results.md has them: table, row, column, and times.
    (r"in one run .*?: regard ([\d.]+) ms; `nn.Transformer` compiled\s+with `reduce-overhead` ([\d.]+) ms, "
     r"compiled plainly ([\d.]+) ms; Marian ([\d.]+) and ([\d.]+) ms",
     [("| H200 | ms | target", name, 0, 1) for name in (
         "regard", 'nn.Transformer, `mode="reduce-overhead"`', "nn.Transformer, compiled",
         'Marian (transformers), `mode="reduce-overhead"`', "Marian, compiled")]),
    (r"a small one takes ([\d.]+) ms in\s+bfloat16 where the peers take ([\d.]+), and ([\d.]+) ms in float32 where "
     r"they take ([\d.]+)",
     [("| CPU | float32, ms", name, column, 1) for column in (2, 0) for name in ("regard", "Marian (transformers)")]),
    (r"on the H200: ([\d.]+) ms \(([\d.]+) in\s+bfloat16\)",
     [("| H200 | regard, s", "TF32 products (regard's default on a GPU)", 0, 1000),
      ("| H200 | regard, s", "bfloat16", 0, 1000)]),
    (r"on the CPU ([\d.]+) s against ([\d.]+) s in float32, ([\d.]+) against ([\d.]+) s in bfloat16",
     [("| CPU | float32, s", name, column, 1) for column in (0, 1)
      for name in ("regard", "Marian's `generate`, in a process of its own")]),
    (r"learns ([\d,]+) tokens a second on the H200, nanoGPT ([\d,]+)",
     [("| | ms a step | tokens/s", name, 1, 1) for name in ("regard", "nanoGPT")]),
    (r"It writes ([\d,]+) tokens a second\s+there, .*? static cache ([\d,]+)\.",
     [("| | rows | tokens/s", name, 1, 1) for name in ("GPT-2 124M, regard", "transformers, static cache, compiled")]),
    (r"MiniLM's shape .*? takes ([\d.]+) ms, with transformers\s+([\d.]+) ms, compiled ([\d.]+\d)",
     [("| H200 | ms a step | |", name, 0, 1) for name in ("regard", "transformers", "transformers, compiled")]),
]


@pytest.mark.parametrize(("said", "places"), QUOTED, ids=[said[:30] for said, _ in QUOTED])
def test_a_figure_of_the_readme_is_that_of_the_results(said: str, places: list[tuple[str, str, int, int]]) -> None:
    match = re.search(said, (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None, said
    for figure, (title, name, column, times) in zip(match.groups(), places, strict=True):
        [measured, *_] = row(title, name)[column].replace(",", "").split(" ")
        whole, _, digits = figure.replace(",", "").partition(".")
        last = 10.0 ** (-len(digits) if digits else len(whole) - len(whole.rstrip("0")))  # what the last digit counts
        assert abs(float(measured) * times - float(f"{whole}.{digits}")) <= 0.501 * last, (name, figure, measured)
