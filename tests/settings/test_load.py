"""Files and overrides become a run, or a sentence that helps."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.settings.errors import UserError
from regard.settings.load import differences, from_json, load, to_json
from regard.settings.presets import PRESETS
from regard.settings.schema import Head, Recurrence, Reinforce, Run, Tower, Train
from regard.settings.setting import COARSEST, FINEST, SECTIONS, SETTINGS, of, written
from wording import says


def message(*overrides: str, recipe: Path | None = None) -> str:
    with pytest.raises(UserError) as error:
        load(recipe, overrides)
    return str(error.value)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return tmp_path / "recipe.toml"


# Any run.

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def values(kind: Any, limits: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is str:
        return texts
    if get_origin(kind) is tuple:
        one = get_args(kind)[0]
        return st.lists(values(one, limits), min_size=get_origin(one) is Literal, max_size=3).map(tuple)
    if kind is int:
        return st.integers(int(limits.get("least", -100)), int(limits.get("most", 2**63 - 1)))
    if kind is float:
        least, most = limits.get("least", limits.get("above")), limits.get("most", limits.get("below"))
        # Drawn from the range itself: of numbers that are filtered, too few sections would be left.
        high = COARSEST if most is None else most
        found = st.floats(max(FINEST, least or 0.0), high, exclude_min=bool(limits.get("above")),
                          exclude_max="below" in limits)
        if least is None:
            found |= st.floats(-COARSEST, -FINEST)
        return found if least or "above" in limits else found | st.just(0.0)
    kind = next(part for part in get_args(kind) if part is not type(None))
    return st.none() | (sections(kind) if is_dataclass(kind) else values(kind, limits))


def sections(cls: Any) -> st.SearchStrategy[Any]:
    parts = {}
    for field in fields(cls):
        kind = get_type_hints(cls)[field.name]
        parts[field.name] = sections(kind) if is_dataclass(kind) else values(kind, field.metadata)
    return st.builds(cls, **parts)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    run: Run = draw(sections(Run))
    kv_heads = draw(st.integers(1, 8))
    heads = kv_heads * draw(st.integers(1, 8))
    even = 2 if run.model.image is None else 4  # for rows and columns
    width = even * heads * draw(st.integers(1, 64))
    concatenated = run.model.positions in ("sinusoidal", "fourier", "learned") and width > even
    trainable = "all" if run.train.init_from is None else run.train.trainable
    is_plain = trainable == "all" and run.train.layer_decay == 1
    optimizer = run.train.optimizer if is_plain else "adamw"
    mine = run.train if optimizer != "sgd" else replace(Train(), **{
        field.name: getattr(run.train, field.name) for field in fields(Train)
        if field.name not in ("muon_learning_rate", "weight_decay", "beta1", "beta2", "epsilon")})
    train = replace(mine, trainable=trainable, optimizer=optimizer,
                    momentum=None if optimizer == "adamw" else mine.momentum,
                    freeze_layers=draw(st.integers(0, run.model.depth)))
    recurrent = run.model.recurrent if run.model.positions in ("none", "sinusoidal") else None
    is_recurrent = recurrent is not None
    if recurrent is not None:
        recurrent = replace(recurrent, input_feeding=recurrent.input_feeding and recurrent.context == "output",
                            bptt=None if recurrent.direction == "bilm" else recurrent.bptt)
        if (recurrent.cell, recurrent.context) != ("lstm", "input"):
            recurrent = replace(recurrent, attention="soft", gate=False)
            train = replace(train, coverage=0.0)
        if recurrent.attention == "soft":
            recurrent = replace(recurrent, expected=0.5)
    if recurrent is None or recurrent.attention == "soft":
        train = replace(train, reinforce=Reinforce(), coverage=0.0 if recurrent is None else train.coverage)
    image = run.model.image
    if image is not None:
        recurrent = recurrent and replace(recurrent, direction="forward")
        numbers = st.lists(st.floats(0.1, 1.0), min_size=1, max_size=1).map(tuple)
        patch = draw(st.integers(1, 64))
        size = patch * draw(st.integers(1, 9))
        image = replace(image, stem="patches", width=None, mean=draw(numbers), std=draw(numbers), patch=patch,
                        size=size, resize=draw(st.none() | st.integers(size, 4 * size)))
    embedding = run.model.embedding if image is None else replace(run.model.embedding, width=None, segments=0)
    head = replace(run.model.head, pool=draw(st.sampled_from(["first", "mean"])))
    one_width = is_recurrent or kv_heads != heads or run.model.qk_norm or run.model.positions == "rotary"
    head_widths = () if one_width else draw(st.sampled_from([(), tuple(range(3, 3 + heads))]))
    return replace(run, train=train, model=replace(
        run.model,
        recurrent=recurrent, image=image, init="plain", layer_scale=None, embedding=embedding, head=head,
        window=None if is_recurrent or image is not None else run.model.window,
        global_projections=run.model.global_projections and image is None,
        preset=draw(st.none() | st.sampled_from(list(PRESETS))),
        width=width, heads=heads,
        kv_heads=draw(st.sampled_from([None, kv_heads])),
        head_width=None if head_widths else draw(st.sampled_from([None, even * draw(st.integers(1, 64))])),
        head_widths=head_widths,
        position_width=draw(st.none() | st.integers(1, width // even - 1).map(lambda part: even * part))
        if concatenated and not is_recurrent else None))


@given(runs())
def test_any_run_survives_being_saved(run: Run) -> None:
    assert from_json(json.loads(json.dumps(to_json(run), allow_nan=False))) == run
    assert json.loads(json.dumps(to_json(run))) == to_json(run)


@given(runs())
def test_a_run_written_as_overrides_is_that_run(run: Run) -> None:
    # Text that override syntax cannot say: none, commas, and spaces at its ends.
    data = replace(run.data, source=None, target="de", paths=("a b", "c=d"))
    run = replace(run, task="translate", data=data, model=replace(run.model, score="dot", head=Head()),
                  tokens=replace(run.tokens, file="gpt2"), search=replace(run.search, stop=("a b",)),
                  train=replace(run.train, trainable="lora", init_from="bert", optimizer="adamw", momentum=None))
    absent = [path for path in SECTIONS if of(run, path) is None]
    overrides = [f"{path}=none" for path in absent]
    overrides += [f"{path}={written(of(run, path))}" for path in SETTINGS if path.rpartition(".")[0] not in absent]
    assert load(overrides=overrides) == run


@given(runs(), runs())
def test_the_differences_name_every_setting_that_differs(a: Run, b: Run) -> None:
    different = [path for path in SETTINGS if of(a, path) != of(b, path)]
    assert [line.partition(": ")[0] for line in differences(a, b)] == different
    assert differences(a, a) == []


def test_a_difference_reads_from_old_to_new() -> None:
    a, b = Run(), load(overrides=["model.width=128", "train.grad_clip=none", "data.paths=x,y", "tokens.joint=no"])
    assert differences(a, b) == ["data.paths: none → x, y", "tokens.joint: true → false",
                                 "model.width: 256 → 128", "train.grad_clip: 1.0 → none"]


# Any input.

PATHS = list(SETTINGS)
KEYS = st.sampled_from([*PATHS, *(path.rpartition(".")[2] for path in PATHS),
                        "format", "model", "train", "data", "x"])
SNIPPETS = st.sampled_from([
    "[model]\n", "[train]\n", "width", "heads", "preset", "=", '"', ".", "[", "]", "{", "}", "\n", "true",
    "none", "nan", "1e400", "-1", "9" * 30, "0x" + "f" * 30, "2020-01-01", "'transformer-base'", *PATHS])


@settings(max_examples=1_000)
@given(text=st.text() | st.lists(SNIPPETS | st.text(max_size=3)).map("".join))
@example(text="seed = " + "1" * 5_000)
@example(text="seed = 0x" + "f" * 5_000)
@example(text="tokens.kind = 0x" + "f" * 5_000)
@example(text="data.paths = [0x" + "f" * 5_000 + "]")
@example(text="data.paths = " + "[" * 5_000)
@example(text='"a\\nb\\u0000" = 1')
@example(text="\ufeffseed = 1")
def test_any_toml_is_a_run_or_a_sentence(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    assert_run_or_sentence(file)


@settings(max_examples=1_000)
@given(content=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12))
@example(content={"format": 2, "model": {"width": "x"}})
@example(content={"format": 2, "data": {"paths": ["\ud800"]}})
def test_any_json_is_a_run_or_a_sentence(content: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps(content))
    assert_run_or_sentence(file)
    if isinstance(content, dict):
        file.write_text(json.dumps({**content, "format": 2}))
        assert_run_or_sentence(file)


@settings(max_examples=1_000)
@given(content=st.binary())
def test_any_bytes_are_a_run_or_a_sentence(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("bytes.toml", "bytes.json"):
        file = tmp_path_factory.getbasetemp() / name
        file.write_bytes(content)
        assert_run_or_sentence(file)


@settings(max_examples=2_000)
@given(st.text() | st.builds("{}={}".format, st.sampled_from(PATHS) | st.text(),
                             st.text() | st.integers().map(str) | st.floats().map(str) | SNIPPETS))
@example("seed=" + "1" * 5_000)
@example("train.learning_rate=" + "1" * 5_000)
@example("data.source=\udc80")
@example("x" * 100_000 + "=1")
def test_any_override_is_a_run_or_a_sentence(text: str) -> None:
    assert_run_or_sentence(None, text)


def assert_run_or_sentence(recipe: Path | None, *overrides: str) -> None:
    try:
        run = load(recipe, overrides)
    except UserError as error:
        sentence = str(error)
    else:
        assert from_json(to_json(run)) == run
        return
    assert sentence.isprintable()
    assert len(sentence) < 700


# What is said.

@pytest.mark.parametrize(("override", "said"), [
    ("model.widht=8", "model.widht: no such setting; did you mean model.width?"),
    ("model.width", "'model.width': … setting and its value, as in model.width=128"),
    ("=8", "'=8': … setting and its value, as in model.width=128"),
    ("model.preset=transformer-bse", "model.preset: no preset called 'transformer-bse'; "
                                     "did you mean transformer-base? There are … transformer-base, "),
    ("model.preset=bert", "model.preset: no preset called 'bert'; did you mean bert-base?"),
    ("model.preset=gpt-2", "model.preset: no preset called 'gpt-2'; did you mean gpt2?"),
    ("model.preset=xyz", "model.preset: no preset called 'xyz'; there are encoder-decoders: transformer-base, "),
    ("model.preset=llama", "model.preset: no preset called 'llama'; there are … transformer-tiny; decoders: gpt1, "),
    ("model.heads=7", "model.heads: 7 heads … model.width 256; … 8 heads … 259 … model.head_width"),
    ("model.heads=1000", "model.heads: 1000 heads … model.width 256; … 256 heads … 1000"),
    ("model.kv_heads=3", "model.kv_heads: 3 … model.heads 8; take 2"),
    ("model.kv_heads=16", "model.kv_heads: 16 … model.heads 8; take 8"),
    ("model.position_width=256", "model.position_width: 256 … model.width 256; take less"),
    ("model.position_width=5", "model.position_width: … even … 5; take 4"),
])
def test_a_bad_override_is_refused_with_the_way_out(override: str, said: str) -> None:
    assert says(message(override), said)


@pytest.mark.parametrize(("overrides", "said"), [
    (["model.positions=rotary", "model.position_width=8"],
     "model.position_width: rotary … remove it, or take model.positions sinusoidal, fourier or learned"),
    (["model.width=9", "model.heads=3"],
     "model.width: sinusoidal … even … 9; take 10"),
    (["model.width=9", "model.heads=3", "model.positions=fourier"],
     "model.width: fourier … even … 9; take 10"),
    (["model.width=24", "model.positions=rotary"],
     "model.heads: rotary … even … 3; change model.heads, model.width or model.head_width"),
    (["model.head_width=5", "model.positions=rotary"],
     "model.heads: rotary … even … 5; change model.heads, model.width or model.head_width"),
    (["train.trainable=lora"], "train.trainable=lora: … --from DIR"),
    (["train.lora.targets=q,qkv"], "train.lora.targets: … list of q, k, v, out, up, down, got 'qkv'"),
    (["train.lora.targets=none"], "train.lora.targets: … list of q, k, v, out, up, down, got 'none'"),
    (["train.lora.rank=4"], "train.lora.rank=4: … train.trainable=all; … set train.trainable=lora"),
    (["train.freeze_layers=4"], "train.freeze_layers=4: … model.depth=3"),
    (["train.optimizer=muon", "train.layer_decay=0.9"], "train.optimizer=muon: … train.layer_decay=0.9 … take adamw"),
    (["model.preset=lstm", "model.positions=sinusoidal", "model.position_width=4"],
     "model.position_width=4: … lstm … remove it"),
    (["model.recurrent.cell=lstm", "model.positions=rotary", "model.width=12", "model.heads=4"],
     "model.positions=rotary: … lstm … take model.positions=none"),
    (["model.preset=lstm", "model.window=8"], "model.window=8: … lstm … remove it"),
    (["model.preset=lstm", "model.positions=rotary"], "model.positions=rotary: … lstm … take model.positions=none"),
    (["model.preset=bilstm", "model.width=9"], "model.width: … even … 9; take 10"),
    (["model.preset=bahdanau", "model.recurrent.input_feeding=true"],
     "model.recurrent.input_feeding: … model.recurrent.context=input … take model.recurrent.context=output"),
    (["model.preset=bahdanau", "model.recurrent.attention=hard"],
     "model.recurrent.attention=hard: … take model.recurrent.cell=lstm and model.recurrent.context=input"),
    (["model.preset=luong", "model.recurrent.gate=true"], "model.recurrent.gate=true: … model.recurrent.context=input"),
    (["train.coverage=1"], "train.coverage=1.0: … attention before each step of an lstm; remove it"),
    (["model.preset=bahdanau", "train.reinforce.entropy=0"], "train.reinforce.entropy=0.0: … attention=hard; remove"),
    (["model.recurrent.cell=lstm", "model.positions=none", "model.recurrent.expected=0"],
     "model.recurrent.expected=0.0: … attention=hard; remove it"),
])
def test_settings_that_do_not_fit_each_other_are_refused(overrides: list[str], said: str) -> None:
    assert says(message(*overrides), said)


@pytest.mark.parametrize("overrides", [
    ["model.heads=7", "model.head_width=64"],
    ["model.width=9", "model.heads=3", "model.positions=learned"],
    ["model.width=9", "model.heads=3", "model.position_width=4"],
    ["model.width=24", "model.positions=rotary", "model.head_width=4"],
    ["model.heads=8", "model.kv_heads=1"],
    ["model.recurrent.cell=gru", "model.positions=none", "model.width=100", "model.heads=8"],
    ["train.average_checkpoints=5", "train.keep_checkpoints=2"],
])
def test_settings_that_fit_each_other_are_taken(overrides: list[str]) -> None:
    load(overrides=overrides)


@pytest.mark.parametrize(("content", "said"), [
    ("[model]\nwidht = 8", "model.widht: no such setting; did you mean model.width? (in "),
    ("[modle]\nwidth = 8", "modle.width: no such setting; did you mean model.width? (in "),
    ("[modle]", "modle: no such setting; did you mean model? (in "),
    ("[model.recurrent]", "model.recurrent: is empty; set model.recurrent.cell, or remove the section (in "),
    ("model = 8", "model: is a section, not a setting; it has preset, recurrent.*, "),
    ("width = 8", "width: no such setting; did you mean model.width? (in "),
    ("[model]\nwidth = 'abc'", "model.width: … whole number, got 'abc' (in "),
    ("[model]\nwidth = true", "model.width: … whole number, got true (in "),
    ("[model]\nwidth = 8.0", "model.width: … whole number, got 8.0; write 8 (in "),
    ("[model]\nwidth = inf", "model.width: … whole number, got inf, which is not finite (in "),
    ("[model.width]\nx = 1", "model.width: … whole number, got a table (in "),
    ("[tokens]\njoint = 1", "tokens.joint: … true or false, got 1 (in "),
    ("[tokens]\nkind = 1", "tokens.kind: … one of bpe, unigram, characters, bytes, words, got 1 (in "),
    ("[train]\nlearning_rate = nan", "train.learning_rate: … number, got nan, which is not finite (in "),
    ("[train]\nlearning_rate = 1e400", "train.learning_rate: … number, got inf, which is not finite (in "),
    ("[train]\nlearning_rate = '0.1'", "train.learning_rate: … number, got '0.1' (in "),
    ("[train]\nlearning_rate = 2020-01-01", "train.learning_rate: … number, got 2020-01-01 (in "),
    ("task = 1", "task: … text, got 1 (in "),
    ("[data]\npaths = 'a'", "data.paths: … list of texts, got 'a'; write ['a'] (in "),
    ("[data]\npaths = ['a', 1]", "data.paths: … list of texts, got 1 (in "),
    ("'model.width' = 8\n[model]\nwidth = 9", "model.width: is given twice (in "),
])
def test_a_bad_recipe_is_refused_with_the_way_out(content: str, said: str, recipe: Path) -> None:
    recipe.write_text(content)
    assert says(message(recipe=recipe), said)


@pytest.mark.parametrize(("content", "said"), [
    ('{"format": 2\n"seed": 1}', ": line 2, column 1: "),
    ('{"format": 2, "seed": 1, "seed": 2}', ": seed: is given twice"),
    ('{"format": 2, "model": {"width": 8, "width": 8}}', ": width: is given twice"),
    ("[]", 'not a saved run: it has no "format" (in '),
    ("{}", 'not a saved run: it has no "format" (in '),
    ('{"format": 3}', "format: … version 3 … version 2; … (in "),
    ('{"format": 1}', "format: … version 1 … version 2; … train it again (in "),
    ('{"format": true}', "format: … version true … version 2; … (in "),
    ('{"format": 2, "train": {"learning_rate": NaN}}',
     "train.learning_rate: … number, got nan, which is not finite"),
    ('{"format": 2, "train": {"learning_rate": 1e400}}',
     "train.learning_rate: … number, got inf, which is not finite"),
    ('{"format": 2, "seed": null}', "seed: … whole number, got none (in "),
    ('{"format": 2, "model": {"widht": 8}}', "model.widht: no such setting; did you mean model.width? (in "),
])
def test_a_bad_saved_run_is_refused_with_the_way_out(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)
    assert says(message(recipe=file).removeprefix(str(file)), said)


# What is taken.

def test_the_last_override_wins_and_beats_the_file(recipe: Path) -> None:
    recipe.write_text("seed = 1")
    assert load(recipe).seed == 1
    assert load(recipe, ["seed=2"]).seed == 2
    assert load(recipe, ["seed=2", "seed=3"]).seed == 3


def test_what_nobody_says_comes_from_the_base(recipe: Path) -> None:
    recipe.write_text("[train]\nsteps = 5")
    base = Run(seed=7, model=Tower(width=64))
    run = load(recipe, ["search.beam=2"], base=base)
    assert (run.seed, run.model.width, run.train.steps, run.search.beam) == (7, 64, 5, 2)
    assert load() == Run()


def test_a_recipe_can_say_none(recipe: Path) -> None:
    recipe.write_text("model.positions = 'none'\ntrain.grad_clip = 'none'")
    run = load(recipe)
    assert run.train.grad_clip is None
    assert run.model.positions == "none"


LSTM = Recurrence(cell="lstm")


@pytest.mark.parametrize(("overrides", "recurrent"), [
    ([], None),
    (["model.recurrent.cell=lstm"], LSTM),
    (["model.recurrent.bptt=20", "model.recurrent.cell=lstm"], replace(LSTM, bptt=20)),
    (["model.preset=bilstm", "model.recurrent.cell=gru"], Recurrence(cell="gru", direction="bidirectional")),
    (["model.preset=bilstm", "model.recurrent=none"], None),
    (["model.preset=bilstm", "model.recurrent=none", "model.recurrent.cell=lstm"], LSTM),
    (["model.recurrent.cell=lstm", "model.recurrent=none"], None),
    (["model.preset=bilstm", "model.recurrent.bptt=20", "model.recurrent=none"], None),
])
def test_a_section_is_absent_or_whole(overrides: list[str], recurrent: Recurrence | None) -> None:
    assert load(overrides=overrides).model.recurrent == recurrent


@pytest.mark.parametrize(("content", "overrides", "recurrent"), [
    ("[model.recurrent]\ncell = 'lstm'\nbptt = 20", [], replace(LSTM, bptt=20)),
    ("[model]\nrecurrent.cell = 'lstm'", ["model.recurrent.bptt=20"], replace(LSTM, bptt=20)),
    ("[model.recurrent]\nbptt = 20", ["model.recurrent.cell=lstm"], replace(LSTM, bptt=20)),
    ("[model.recurrent]\ncell = 'lstm'\nbptt = 20", ["model.recurrent=none"], None),
    ("[model]\npreset = 'bilstm'\nrecurrent = 'none'", [], None),
    ("[model]\npreset = 'bilstm'\nrecurrent = 'none'", ["model.recurrent.cell=lstm"], LSTM),
])
def test_a_recipe_nests_sections(content: str, overrides: list[str], recurrent: Recurrence | None,
                                 recipe: Path) -> None:
    recipe.write_text(content)
    assert load(recipe, overrides).model.recurrent == recurrent


@pytest.mark.parametrize(("override", "said"), [
    ("model.recurrent.bptt=20", "model.recurrent.bptt=20: has no effect without model.recurrent.cell; set it too"),
    ("model.recurrent.cel=lstm", "model.recurrent.cel: no such setting; did you mean model.recurrent.cell?"),
    ("model.cell=lstm", "model.cell: no such setting; did you mean model.recurrent.cell?"),
    ("model.recurrent.xyz=1", "model.recurrent.xyz: no such setting; model.recurrent has cell, direction, context, "),
    ("model.recurrent=lstm", "model.recurrent: is a section, not a setting; it has cell, direction, context, "
                             "attention, gate, expected, input_feeding, bptt; model.recurrent=none removes it"),
    ("model=none", "model: is a section, not a setting; it has preset, "),
])
def test_a_section_that_cannot_be_is_refused(override: str, said: str, recipe: Path) -> None:
    assert message(override).startswith(said)
    path, _, value = override.partition("=")
    recipe.write_text(f"{path} = {value if value.isdigit() else repr(value)}")
    assert message(recipe=recipe).startswith(said)


def test_a_setting_of_a_removed_section_needs_the_one_that_makes_it() -> None:
    assert message("model.preset=lstm", "model.recurrent=none", "model.recurrent.bptt=20") == (
        "model.recurrent.bptt=20: has no effect without model.recurrent.cell; set it too")


def test_a_preset_is_what_the_other_model_settings_start_from(recipe: Path) -> None:
    big = PRESETS["transformer-big"]()
    for content in ("[model]\npreset = 'transformer-big'\ndropout = 0.2",
                    "[model]\ndropout = 0.2\npreset = 'transformer-big'"):
        recipe.write_text(content)
        assert load(recipe).model == replace(big, dropout=0.2)
    for overrides in (["model.preset=transformer-big", "model.dropout=0.2"],
                      ["model.dropout=0.2", "model.preset=transformer-big"]):
        assert load(overrides=overrides).model == replace(big, dropout=0.2)
        assert load(base=Run(model=Tower(width=64)), overrides=overrides).model == replace(big, dropout=0.2)
    recipe.write_text("[model]\npreset = 'transformer-base'\ndropout = 0.2")
    assert load(recipe, ["model.preset=transformer-big"]).model == replace(big, dropout=0.2)


def test_without_a_preset_the_model_starts_from_the_base_or_the_defaults() -> None:
    plain, named = Run(model=Tower(width=64)), Run(model=PRESETS["transformer-big"]())
    assert load(base=plain, overrides=["model.preset=none"]) == plain
    assert load(base=named, overrides=["model.preset=none"]) == Run()


def test_a_saved_run_can_be_loaded_and_overridden(tmp_path: Path) -> None:
    run = load(overrides=["model.preset=transformer-base", "model.depth=2", "data.source=en"])
    file = tmp_path / "run.json"
    file.write_text(json.dumps(to_json(run)))
    assert load(file) == run
    assert load(file, ["seed=5"]) == replace(run, seed=5)
    assert load(file, ["model.preset=transformer-big"]).model == PRESETS["transformer-big"]()


def test_every_preset_is_called_by_its_name_and_fits_together() -> None:
    for name, preset in PRESETS.items():
        assert load(overrides=[f"model.preset={name}"]).model == preset()
        assert preset().preset == name
