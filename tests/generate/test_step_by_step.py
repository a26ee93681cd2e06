"""The lecture's own sentence, decoded one step after the other: "je suis étudiant" → "I am a student"."""

import pytest
import torch
from torch.nn import functional as F

from regard.generate.sampler import Sampling, sample
from regard.look.watch import watch
from regard.models.build import translator
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.settings.schema import Tower

WORDS = ["<pad>", "<start>", "<end>", "je", "elle", "suis", "est", "étudiant", "médecin", "I", "she", "am", "is", "a",
         "student", "doctor"]
START, END = 1, 2
PAIRS = {"je suis étudiant": "I am a student", "je suis médecin": "I am a doctor",
         "elle est médecin": "she is a doctor"}


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    model = translator(Tower(width=32, depth=1, heads=2, dropout=0.0), sources=len(WORDS), targets=len(WORDS))
    initialize(model, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    source = torch.tensor([ids(text) for text in PAIRS])
    target = torch.tensor([[START, *ids(text), END] for text in PAIRS.values()])
    for _ in range(60):
        logits = model.logits(model(source, target[:, :-1]))
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


@torch.no_grad()
def test_je_suis_etudiant_is_read_once_and_answered_word_by_word(model: EncoderDecoder) -> None:
    """Six steps: the encoder's, then the decoder's for each word and for the end. None is taken before its time."""
    taken: list[str] = []
    hooks = [model.encoder.register_forward_hook(lambda *_: taken.append("encoder"))]
    plain, said = model.step, list[str]()

    def step(tokens: torch.Tensor, state: object) -> torch.Tensor:
        taken.append(" ".join(WORDS[token] for token in tokens[0].tolist()))
        return plain(tokens, state)  # type: ignore[arg-type]

    model.step = step  # type: ignore[method-assign]
    try:
        memory = model.encode(torch.tensor([ids("je suis étudiant")]))
        assert taken == ["encoder"]
        with watch(model, only="decoder*cross") as seen:
            for drawn in sample(model, torch.tensor([[START]]), memory=memory,
                                how=Sampling(end=END, longest=9, temperature=0)):
                said.append(WORDS[int(drawn.tokens[0])])
                # Each step reads the word before, and nothing after it has been worked out yet.
                assert taken == ["encoder", "<start>", *said[:-1]]
                assert seen["decoder.blocks.0.cross"].shape[2:] == (len(said), 3)
    finally:
        del model.step
        for hook in hooks:
            hook.remove()
    assert said == ["I", "am", "a", "student", "<end>"]
    assert len(taken) == 6
