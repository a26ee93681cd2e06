"""The verbs ask a language model what they ask a translator: nothing in them knows a task by its name."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.check.consistency import CHECKS
from regard.look.ablate import without
from regard.look.watch import sites
from regard.predictor import Predictor
from regard.settings.errors import Failure, NotFinite, UserError
from regard.tasks.base import loss_per_token
from regard.verbs import check, evaluate, explain, look, measure, wrong

Say = pytest.CaptureFixture[str]
WORDS = ["cat", "dog", "bird", "house", "tree", "flower", "book", "table", "man", "woman"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    lines = (f"the {WORDS[n % 10]} sees the {WORDS[n * n % 7]}, and says {n}.\n" for n in range(300))
    (folder / "text.txt").write_text("".join(lines), encoding="utf-8")
    settings = ["task=language", "model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0",
                "tokens.vocabulary=300", "train.steps=30", "train.warmup=2", "train.learning_rate=0.01",
                "train.batch_tokens=256", "data.max_tokens=32", "search.max_tokens=12", "device=cpu",
                f"data.paths={folder / 'text.txt'}"]
    regard.train(regard.recipe(overrides=settings), folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    predictor = regard.load(run, device="cpu")
    predictor.read_data()
    return predictor


def told(capsys: Say, verb: Callable[..., None], *arguments: object) -> dict:
    verb(*arguments)
    return json.loads(capsys.readouterr().out)


# What the verbs ask for.


def test_an_example_is_text_and_what_follows_it(predictor: Predictor) -> None:
    text = (Path(predictor.run.data.paths[0])).read_text(encoding="utf-8")
    examples = predictor.task.data.examples("val", 5)
    assert len(examples) == 5
    assert all(example.input + example.wanted in text for example in examples)
    assert predictor.task.data.examples("val")[:5] == examples
    with pytest.raises(UserError, match="train: no such split; there are val"):
        predictor.task.data.examples("train")


def test_an_attempt_is_right_if_it_is_what_was_wanted(predictor: Predictor) -> None:
    examples = predictor.task.data.examples("val", 8)
    for example, attempt in zip(examples, predictor.task.greedy_answers(predictor.model, examples), strict=True):
        [greedy] = predictor.predict([example.input], temperature=0.0, max_tokens=16)
        assert attempt == greedy[: len(example.wanted)]


def test_batches_count_what_follows_the_prompts_and_nothing_else(predictor: Predictor) -> None:
    task, examples = predictor.task, predictor.task.data.examples("val", 8)
    inputs, outputs = [example.input[n:] for n, example in enumerate(examples)], [e.wanted for e in examples]
    total = count = 0.0
    for text, output in zip(inputs, outputs, strict=True):
        whole = torch.tensor([[task.data.tokens.start, *task.data.tokens.encode([text + output])[0]]])
        prompt = 1 + len(task.data.tokens.encode([text])[0])
        with torch.no_grad():
            logits = predictor.model.logits(predictor.model(predictor.model.embed(whole[:, :-1])))
        chances = logits.log_softmax(-1).gather(2, whole[:, 1:, None])[0, prompt - 1 :]
        total, count = total - float(chances.sum()), count + len(chances)
    mean = loss_per_token(task, predictor.model, task.batches(inputs, outputs))
    assert mean == pytest.approx(total / count, rel=1e-5)


def test_greedy_tokens_are_likeliest_and_others_are_not(predictor: Predictor) -> None:
    task, model = predictor.task, predictor.model
    [answer] = predictor.predict(["the cat sees"], temperature=0.0)
    [batch] = task.batches(["the cat sees"], [answer])
    said = batch.write >= 0
    assert torch.equal(task.matches_greedy(model, batch), said)
    [batch] = task.batches(["the cat sees"], [" zebras"])
    assert not task.matches_greedy(model, batch)[batch.write >= 0].all()


# The verbs.


def test_all_checks_hold(run: Path, capsys: Say) -> None:
    said = told(capsys, check.main, run, "cpu", True)
    assert said["holds"]
    assert len(said["checks"]) == len(CHECKS)


def test_all_checks_hold_without_the_data(run: Path, capsys: Say) -> None:
    (run / "data").rename(run / "elsewhere")
    try:
        assert told(capsys, check.main, run, "cpu", True)["holds"]
    finally:
        (run / "elsewhere").rename(run / "data")


def test_the_tests_are_found_even_by_a_run_that_has_come_without_its_data(
        run: Path, tmp_path: Path, capsys: Say) -> None:
    for name in ("train", "test"):
        shutil.copy(run.parent / "text.txt", tmp_path / f"{name}.txt")
    bare = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("data", "checkpoints"))
    about = json.loads((bare / "run.json").read_text())
    about["data"]["paths"] = [str(tmp_path / "train.txt"), str(tmp_path / "test.txt")]
    (bare / "run.json").write_text(json.dumps(about))
    (bare / "MANIFEST.json").unlink()  # as of a run of before
    first = told(capsys, evaluate.main, bare, [], 1, "cpu", "float32", None, True)
    assert first["split"] == "test"
    assert told(capsys, evaluate.main, bare, [], 1, "cpu", "float32", None, True) == first


def test_a_loss_that_is_no_number_is_a_failure_and_no_score(run: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run, tmp_path / "run")
    weights = load_file(broken / "model.safetensors")
    save_file({name: torch.full_like(tensor, math.nan) for name, tensor in weights.items()},
              broken / "model.safetensors")
    with pytest.raises(NotFinite, match="its loss on val is not finite"):
        evaluate.main(broken, [], 1, "cpu", "float32", None, True, verify=False)
    with pytest.raises(Failure, match="checks failed"):
        check.main(broken, "cpu", True, verify=False)


def test_every_head_is_measured_and_removed(run: Path, predictor: Predictor, capsys: Say) -> None:
    said = told(capsys, measure.main, run, None, 6, True, False, None, "cpu", True)
    assert (said["split"], said["examples"], said["best"]) == ("val", 6, [])
    assert [(row["site"], row["head"]) for row in said["heads"]] == [("blocks.0.self", head) for head in (0, 1, None)]
    examples = predictor.task.data.examples("val", 6)
    before = predictor.task.greedy_answers(predictor.model, examples)
    for site in sites(predictor.model):
        for row in [row for row in said["heads"] if row["head"] is not None]:
            assert set(row) == {"site", "head", "entropy", "distance", "first", "loss", "changed"}
            with without(predictor.model, site, row["head"]):
                after = predictor.task.greedy_answers(predictor.model, examples)
            assert row["changed"] == sum(a != b for a, b in zip(before, after, strict=True))
    with pytest.raises(UserError, match="needs known word alignments"):
        measure.main(run, None, 6, False, True, None, "cpu", True)


def test_mistakes_are_shown_with_what_was_looked_at_while_they_were_made(
    run: Path, predictor: Predictor, capsys: Say, tmp_path: Path
) -> None:
    said = told(capsys, wrong.main, run, "val", 8, 3, tmp_path / "page.html", "cpu", True)
    examples = predictor.task.data.examples("val", 8)
    attempts = predictor.task.greedy_answers(predictor.model, examples)
    assert said["examples"] == 8
    assert said["wrong"] == sum(attempt != example.wanted for attempt, example in zip(attempts, examples, strict=True))
    losses = [each["loss"] for each in said["worst"]]
    assert losses == sorted(losses, reverse=True)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<article") == len(losses) > 0


def test_a_word_of_a_prompt_and_a_word_that_follows_are_explained(run: Path, capsys: Say) -> None:
    for word in ("0", "sees", "6"):
        said = told(capsys, explain.main, "the cat sees the", False, run, None, 1, word, "cpu", True)
        assert said["site"] == "blocks.0.self"
        assert said["difference"] <= 1e-5
        seen = [word for word, is_seen in zip(said["words"], said["seen"], strict=True) if is_seen]
        assert len(seen) == said["row"] + 1  # nothing of the future
    explain.main("the cat sees the", False, run, None, 0, "6", "cpu", False)
    title, site, act, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("the cat sees the → ")
    assert site.startswith("blocks.0.self, head 0 of 0 to 1")
    assert act.endswith("is written (word 6)")


def test_a_page_has_a_choice_for_every_row(run: Path, predictor: Predictor, capsys: Say, tmp_path: Path) -> None:
    said = told(capsys, look.main, "the cat", run, " sees", "*", tmp_path / "look.html", False, "cpu", True)
    assert said["output"] == " sees"
    record, output = predictor.look("the cat", " sees"), predictor.choices("the cat", " sees")
    [labels] = record.axes.values()
    assert labels.targets == tuple(choice.token for choice in output.choices)
    assert labels.sources[1:] == labels.targets[:-1]
    own = predictor.choices("the cat")
    assert own.text == predictor.predict(["the cat"])[0]
