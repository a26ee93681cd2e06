"""Images and text in one sequence: who sees whom, and every way of reading gives the same."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
import torch
from torch import Tensor

from regard.generate.beam import Beam, beam
from regard.kernels.kernel import use
from regard.models.build import mixed_decoder
from regard.models.mixed import MixedDecoder
from regard.nn.init import initialize
from regard.settings.schema import Image, Tower

VOCABULARY, WIDTH, PLACES = 40, 16, 4
POSITIONS = get_args(get_type_hints(Tower)["positions"])
TOWER = Tower(width=WIDTH, depth=2, heads=2, ffn_width=24, max_positions=48, dropout=0.0,
              image=Image(size=8, patch=4, class_token=False))
RESNET = replace(TOWER, image=Image(size=8, patch=4, class_token=False, stem="resnet", stages=(1,), width=8))
TOWERS = [*(replace(TOWER, positions=kind) for kind in POSITIONS), replace(TOWER, position_width=4),
          replace(TOWER, norm_place="post", kv_heads=1)]
# Where images stand: the number of tokens before, between and after them.
LAYOUTS = [(0, 3), (2, 1), (2, 3, 1), (0, 0, 2)]


def ready(tower: Tower) -> MixedDecoder:
    model = mixed_decoder(tower, vocabulary=VOCABULARY)
    initialize(model, seed=0)
    with torch.no_grad():  # a learned table begins at nearly nothing
        for name, parameter in model.named_parameters():
            if "positions" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    return model.eval()


def spans_of(layout: tuple[int, ...], more: int = 0) -> Tensor:
    before, *others = layout
    row = [0] * before
    for number, after in enumerate(others, 1):
        row += [number] * PLACES + [0] * after
    return torch.tensor([row + [0] * more])


def example(layout: tuple[int, ...], *, rows: int = 2, more: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(layout))
    spans = spans_of(layout, more).expand(rows, -1)
    tokens = torch.randint(1, VOCABULARY, spans.shape, generator=generator)
    return tokens, spans, torch.randn(rows * (len(layout) - 1), 3, 8, 8, generator=generator)


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tower", [TOWER, RESNET, replace(TOWER, positions="rotary")], ids=[
    "patches", "resnet", "rotary"])
def test_a_place_sees_what_comes_before_it_and_its_own_image(tower: Tower, layout: tuple[int, ...]) -> None:
    model, (tokens, spans, pixels) = ready(tower), example(layout, rows=1)
    mixed = model.mix(tokens, spans, pixels)
    x = mixed.states.detach().requires_grad_()
    states = model.decoder(model.decoder.place(x), mask=model.mask(mixed.spans))
    places = torch.arange(spans.shape[1])
    same_image = (spans[0][:, None] == spans[0]) & (spans[0] > 0)
    sees = (places <= places[:, None]) | same_image
    for query in places.tolist():
        [gradient] = torch.autograd.grad(states[0, query].square().sum(), x, retain_graph=True)
        assert torch.equal(gradient[0].abs().sum(-1) > 0, sees[query])


@pytest.mark.parametrize(("layout", "capacity"), [((0, 3), 8), ((2, 3, 1), None)])
@pytest.mark.parametrize("tower", TOWERS, ids=[*POSITIONS, "concatenated", "post"])
def test_a_prompt_and_then_token_by_token_is_the_whole_at_once(
    tower: Tower, layout: tuple[int, ...], capacity: int | None
) -> None:
    more = 5
    model, (tokens, spans, pixels) = ready(tower), example(layout, more=more)
    with torch.no_grad():
        whole = model(tokens, spans, pixels)[:, -more:]
        prompt = model.mix(tokens[:, :-more], spans[:, :-more], pixels)
        state = model.begin(2, prompt, capacity=capacity)
        apart = [model.step(tokens[:, place : place + 1], state) for place in range(tokens.shape[1] - more,
                                                                                 tokens.shape[1])]
        together = model.step(tokens[:, -more:], model.begin(2, prompt, capacity=capacity))
    same(torch.cat(apart, 1), whole)
    same(together, whole)


def test_images_go_to_the_places_of_their_own_row() -> None:
    model, (tokens, spans, pixels) = ready(TOWER), example((1, 2, 3), rows=3)
    with torch.no_grad():
        together = model(tokens, spans, pixels)
        for row in range(3):
            same(model(tokens[row : row + 1], spans[row : row + 1], pixels[2 * row : 2 * row + 2]),
                 together[row : row + 1])
        other = pixels.clone()
        other[2] += 1.0  # the first of the second row
        assert [not torch.equal(a, b) for a, b in zip(model(tokens, spans, other), together, strict=True)] == [
            False, True, False]


def test_rows_of_other_layouts_and_lengths_share_a_batch_and_padding_changes_nothing() -> None:
    model, rows = ready(TOWER), [example(layout, rows=1) for layout in [(0, 3), (4, 2), (1, 1, 5), (6,)]]
    longest = max(tokens.shape[1] for tokens, _, _ in rows)
    tokens, spans = (torch.cat([torch.nn.functional.pad(row[part], (0, longest - row[part].shape[1])) for row in rows])
                     for part in (0, 1))
    with torch.no_grad():
        together = model(tokens, spans, torch.cat([pixels for _, _, pixels in rows]))
        for row, (alone, own, pixels) in enumerate(rows):
            same(model(alone, own, pixels)[0], together[row, : alone.shape[1]])


def test_tokens_in_the_places_of_an_image_are_not_read() -> None:
    model, (tokens, spans, pixels) = ready(TOWER), example((1, 2))
    with torch.no_grad():
        assert torch.equal(model(tokens, spans, pixels),
                           model(tokens.where(spans == 0, (tokens + 7) % VOCABULARY), spans, pixels))


def test_without_an_image_it_is_a_decoder() -> None:
    model, (tokens, spans, pixels) = ready(TOWER), example((6,))
    assert pixels.shape[0] == 0
    with torch.no_grad():
        assert torch.equal(model(tokens, spans, pixels), model.decoder(model.decoder.embed(tokens)))


@pytest.mark.parametrize("size", [1, 3])
def test_beam_search_goes_on_from_a_mixed_prompt_as_from_each_row_in_one_pass(size: int) -> None:
    model, (tokens, spans, pixels) = ready(TOWER), example((2, 2), rows=3)
    start, end, longest = 1, 2, 4
    with torch.no_grad():
        prompt = model.mix(tokens, spans, pixels)
        found = beam(model, torch.full((3, 1), start), memory=prompt, how=Beam(
            end=end, longest=longest, size=size, length_penalty=0.0))
        for row, hypotheses in enumerate(found):
            for each in hypotheses:
                written = [*each.tokens, *([end] if len(each.tokens) < longest else [])]
                read = torch.tensor([[*tokens[row].tolist(), start, *written[:-1]]])
                seen = torch.nn.functional.pad(spans[row : row + 1], (0, len(written)))
                logits = model.logits(model(read, seen, pixels[row : row + 1]))[0, -len(written):].log_softmax(-1)
                total = float(logits.gather(1, torch.tensor(written)[:, None]).sum())
                assert each.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("capacity", [None, 8])
def test_what_is_forgotten_are_tokens_and_never_the_prompt(capacity: int | None) -> None:
    model, (tokens, spans, pixels) = ready(TOWER), example((2, 2), more=4)
    with torch.no_grad():
        prompt = model.mix(tokens[:, :-4], spans[:, :-4], pixels)
        state = model.begin(2, prompt, capacity=capacity)
        model.step(tokens[:, -2:], state)  # others than those that follow
        model.step(tokens[:, -1:], state)
        state.truncate(torch.tensor([[0], [0]]))
        same(model.step(tokens[:, -4:], state), model(tokens, spans, pixels)[:, -4:])


def test_the_kernels_give_what_the_definition_gives() -> None:
    model, (tokens, spans, pixels) = ready(TOWER), example((1, 2, 3))
    with torch.no_grad():
        fast = model(tokens, spans, pixels)
        with use():
            same(model(tokens, spans, pixels), fast)


@pytest.mark.parametrize("tower", [TOWER, RESNET], ids=["patches", "resnet"])
def test_the_first_matrix_over_pixels_learns_from_the_text_after_them(tower: Tower) -> None:
    model, (tokens, spans, pixels) = ready(tower), example((1, 2))
    model(tokens, spans, pixels)[:, -1, 0].sum().backward()
    gradient = next(parameter for parameter in model.images.parameters() if parameter.dim() > 1).grad
    assert gradient is not None
    assert gradient.abs().sum() > 0
