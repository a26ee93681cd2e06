"""`regard wrong`: every answer that is not its reference is counted, and the worst are on the page."""

import json
from pathlib import Path

import pytest

from regard.predictor import load as load_predictor
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.training.loop import train
from regard.verbs.wrong import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for split, numbers in (("train", range(30)), ("val", range(30, 38))):
        lines = (f"le chat {'noir ' * (n % 4)}{n} dort\tthe {'black ' * (n % 4)}cat {n} sleeps\n" for n in numbers)
        (folder / f"{split}.tsv").write_text("".join(lines))
    settings = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
                "train.batch_tokens=64", "search.max_tokens=8", "device=cpu",
                "train.precision=float32", f"data.paths={folder / 'train.tsv'}"]
    train(load(None, settings), folder / "run", quiet=True)
    return folder / "run"


def told(run: Path, capsys: pytest.CaptureFixture[str], *, limit: int | None = None, worst: int = 50,
         out: Path | None = None) -> dict[str, object]:
    main(run, "val", limit, worst, out, "cpu", True)
    return json.loads(capsys.readouterr().out)


def test_it_counts_what_the_evaluation_counts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said, scores = told(run, capsys), load_predictor(run, device="cpu").evaluate("val")
    assert said["examples"] == scores["sentences"] == 8
    assert said["wrong"] == round(8 * (1 - scores["exact"] / 100)) > 0
    assert all(each["answer"] != each["reference"] for each in said["worst"])


def test_the_worst_are_those_with_the_highest_loss(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every, some = told(run, capsys)["worst"], told(run, capsys, worst=3)["worst"]
    losses = [each["loss"] for each in every]
    assert losses == sorted(losses, reverse=True)
    assert some == every[:3]


def test_a_mistake_s_loss_is_the_validation_s(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of an untrained model's answers are wrong, so that their losses make up the split's."""
    predictor = load_predictor(run, device="cpu")
    worst = told(run, capsys)["worst"]
    assert len(worst) == 8
    counts = [len(row) + 1 for row in predictor.task.data.target_tokens.encode([each["reference"] for each in worst])]
    mean = sum(each["loss"] * count for each, count in zip(worst, counts, strict=True)) / sum(counts)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert mean == pytest.approx([line["loss"] for line in lines if line["kind"] == "evaluation"][-1], rel=1e-5)


def test_the_page_goes_into_the_run_or_where_it_is_wanted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(run, "val", 2, 50, None, "cpu", False)
    said = capsys.readouterr()
    assert said.out == f"{run / 'wrong-val.html'}\n"
    assert said.err == "2 of 2 answers of val are not their reference\n"
    assert (run / "wrong-val.html").read_text(encoding="utf-8").count("<article") == 2
    assert told(run, capsys, limit=1, out=tmp_path / "page.html")["page"] == str(tmp_path / "page.html")


def test_an_unknown_split_and_an_unknown_folder_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tset: no such split; there are val"):
        main(run, "tset", None, 50, tmp_path / "page.html", "cpu", False)
    with pytest.raises(UserError, match="a/b: no such split; there are val"):
        main(run, "a/b", None, 50, None, "cpu", False)
    with pytest.raises(UserError, match="no such folder"):
        main(run, "val", None, 50, tmp_path / "none" / "page.html", "cpu", False)
    with pytest.raises(UserError, match="a folder, not a file"):
        main(run, "val", None, 50, tmp_path, "cpu", False)
    assert list(tmp_path.iterdir()) == []
