"""The weights that are shown are those of the winning beam, whatever beams it changed places with on its way."""

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from regard.look.watch import sites, watch
from regard.predictor import Predictor
from regard.predictor import load as load_predictor
from regard.settings.load import load
from regard.training.loop import train

SIZE = 4
TEXTS = ["le chat noir 7 dort", "le chien dort", "le chat noir noir 12 mange"]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """Trained just enough to end its sentences, and not enough to be sure of them."""
    folder = tmp_path_factory.mktemp("run")
    lines = (f"le {'chat' if n % 2 else 'chien'} {'noir ' * (n % 3)}{n} {'dort' if n % 5 else 'mange'}\t"
             f"the {'black ' * (n % 3)}{'cat' if n % 2 else 'dog'} {n} {'sleeps' if n % 5 else 'eats'}\n"
             for n in range(60))
    (folder / "pairs.tsv").write_text("".join(lines))
    settings = ["model.width=32", "model.depth=2", "model.heads=4", "tokens.vocabulary=300", "train.steps=40",
                "train.batch_tokens=256", "train.learning_rate=0.01", "train.warmup=5", f"search.beam={SIZE}",
                "device=cpu", f"data.paths={folder / 'pairs.tsv'}"]
    train(load(None, settings), folder / "run", quiet=True)
    return load_predictor(folder / "run", device="cpu")


@dataclass
class Live:
    """A hypothesis, with the weights of each of its steps: by site, (heads, keys)."""

    tokens: list[int] = field(default_factory=list)
    total: float = 0.0
    beams: list[int] = field(default_factory=list)
    steps: list[dict[str, Tensor]] = field(default_factory=list)

    @property
    def score(self) -> float:
        return self.total / len(self.tokens)


@torch.no_grad()
def searched(predictor: Predictor, text: str, *, longest: int) -> Live:
    """Beam search as it is written on a blackboard: every step watched, every beam's weights carried along by hand."""
    model, task = predictor.model, predictor.task
    source = torch.tensor([[*task.data.source_tokens.encode([text])[0], task.data.source_tokens.end]])
    state = model.begin(1, model.encode(source))
    never = [task.data.target_tokens.pad, task.data.target_tokens.start]
    live, ended = [Live()], []
    for step in range(1, longest + 1):
        newest = torch.tensor([[beam.tokens[-1] if beam.tokens else task.data.target_tokens.start] for beam in live])
        with watch(model, "decoder.*") as seen:
            logits = model.logits(model.step(newest, state))[:, 0]
        logits[:, [*never, *range(len(task.data.target_tokens), logits.shape[1])]] = -math.inf
        chances = logits.log_softmax(-1) + torch.tensor([beam.total for beam in live])[:, None]
        best = chances.flatten().topk(2 * SIZE)
        candidates = []
        for total, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            beam, token = divmod(place, logits.shape[1])
            # All beams of a source are queries of one row to it, and rows of their own to themselves.
            weights = {site: seen[site][0, :, beam] if site.endswith("cross") else seen[site][beam, :, 0]
                       for site in seen}
            parent = live[beam]
            candidates.append(Live([*parent.tokens, token], total, [*parent.beams, beam], [*parent.steps, weights]))
        ends = [one.tokens[-1] == task.data.target_tokens.end or step == longest for one in candidates]
        ended += [one for one, end in list(zip(candidates, ends, strict=True))[:SIZE] if end]
        ended = sorted(ended, key=lambda one: -one.score)[:SIZE]
        live = [one for one, end in zip(candidates, ends, strict=True) if not end][:SIZE]
        if not live or (len(ended) == SIZE and live[0].score <= ended[-1].score):
            break
        state.reorder(torch.tensor([one.beams[-1] for one in live]))
    return ended[0]


@pytest.mark.parametrize("text", TEXTS)
def test_the_weights_are_those_of_an_eager_search_reordered_by_hand(predictor: Predictor, text: str) -> None:
    record = predictor.look(text, only="decoder.*")
    by_hand = searched(predictor, text, longest=32)
    end = predictor.task.data.target_tokens.end
    written = [token for token in by_hand.tokens if token != end]
    assert predictor.task.data.target_tokens.decode([written]) == predictor.predict([text])
    assert set(record) == {site for site in sites(predictor.model) if site.startswith("decoder")}
    for site, weights in record.items():
        for row, step in enumerate(by_hand.steps):
            expected = step[site]
            shown = torch.from_numpy(weights[:, row])
            torch.testing.assert_close(shown[:, : expected.shape[1]], expected, rtol=0, atol=1e-5)
            assert shown[:, expected.shape[1] :].abs().sum() == 0  # what a step did not have yet, it does not see


def test_the_winners_did_change_places(predictor: Predictor) -> None:
    """Or the test above would show nothing."""
    assert any(len(set(searched(predictor, text, longest=32).beams)) > 1 for text in TEXTS)
