"""Encoders of transformers compute the same here, and ours there; their files come back as they were."""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from towers import close, shaken

pytest.importorskip("transformers")
import transformers
from encoders import CLASSES, KINDS, LABELS, SMALL, VOCABULARY, batch, opened, ours, peer, published, theirs

from regard.checkpoint import load_weights, named_tensors, write_json
from regard.convert.backbone import backbone_of
from regard.convert.directory import read_directory
from regard.convert.families import FAMILIES, family_of, why_none
from regard.convert.import_export import export_run, import_run, write_run_model
from regard.convert.keys import canonical
from regard.convert.model_spec import ModelSpec
from regard.data.tokenizer import Tokenizer, train
from regard.predictor import load as predictor_of
from regard.settings.errors import UserError
from regard.settings.load import load, to_json
from regard.settings.presets import PRESETS
from regard.settings.schema import Data, Head, Masking, Run, Tower
from regard.settings.setting import replaced
from regard.tasks.traits import defaults, for_task
from regard.verbs.evaluate import Others
from regard.verbs.evaluate import main as measure

transformers.utils.logging.enable_propagation()
every = pytest.mark.parametrize(("name", "kind"), KINDS)
TASK = {"backbone": "encode", "masked-lm": "mask", "sentences": "mask", "sequence-labels": "classify",
        "token-labels": "tag", "discriminator": "detect"}
LOGITS = {"backbone": "last_hidden_state", "sentences": "prediction_logits"}


@pytest.fixture(scope="module")
def tokens() -> Tokenizer:
    return train(["the theory of it", "then the theme"] * 3, kind="bpe", vocabulary=300, mask=True)


def same(model: Any, there: Any, kind: str) -> None:
    """On a padded batch, where there is something to compare."""
    ids, segments, real = batch(there.config.pad_token_id)
    got, wanted = ours(model, ids, segments, real), theirs(there, ids, segments, real)[LOGITS.get(kind, "logits")]
    each = got.shape[:2] == real.shape
    close(got[real] if each else got, wanted[real] if each else wanted)


# There and back


@every
def test_what_transformers_saved_computes_the_same_here(tmp_path: Path, tokens: Tokenizer, name: str,
                                                        kind: str) -> None:
    there = peer(name, kind)
    import_run(published(tmp_path / "in", there, tokens), tmp_path / "run")
    run = load(tmp_path / "run" / "run.json")
    assert (run.task, run.masking.next_sentence) == (TASK[kind], kind == "sentences")
    same(opened(tmp_path / "run"), there, kind)
    if kind in ("sequence-labels", "token-labels"):
        assert json.loads((tmp_path / "run" / "labels.json").read_text()) == {"labels": list(LABELS.values())}


@every
def test_files_come_back_as_they_were(tmp_path: Path, tokens: Tokenizer, name: str, kind: str) -> None:
    there = peer(name, kind)
    if name in ("roberta", "longformer"):  # the first two positions are nobody's: they are written as zeros
        there.base_model.embeddings.position_embeddings.weight.data[:2] = 0
    first = published(tmp_path / "first", there, tokens)
    config = json.loads((first / "config.json").read_text())
    about = json.loads((first / "tokenizer_config.json").read_text())
    (first / "tokenizer_config.json").write_text(json.dumps(about | {
        "pad_token": tokens.pieces([config["pad_token_id"]])[0]}))
    import_run(first, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in (first, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    read = [transformers.AutoConfig.from_pretrained(folder).to_dict() for folder in (first, tmp_path / "out")]
    differ = {key for key in {*read[0], *read[1]} if read[0].get(key) != read[1].get(key)}
    told = {"_name_or_path", "bos_token_id", "eos_token_id", "position_embedding_type", "problem_type", "torch_dtype",
            "transformers_version"}
    assert differ <= told | (set() if kind in ("sequence-labels", "token-labels") else {"id2label", "label2id"})


@every
def test_what_was_made_here_opens_there(tmp_path: Path, tokens: Tokenizer, caplog: pytest.LogCaptureFixture, name: str,
                                        kind: str) -> None:
    family = FAMILIES[name]
    there = peer(name, kind)
    tower = family.tower(there.config.to_dict(), kind, names=there.state_dict(), origin="there")
    run = Run(task=TASK[kind], model=replace(tower, tied="all"), data=Data(max_tokens=20),
              masking=Masking(next_sentence=kind == "sentences", generator=1 / 3))
    spec = ModelSpec.of(run, {"vocabulary": VOCABULARY, "labels": 3}, pad=tokens.pad)
    model = shaken(spec.model())
    tokens.save(tmp_path / "tokenizer.json")
    write_json(tmp_path / "run.json", to_json(run))
    if kind in ("sequence-labels", "token-labels"):
        write_json(tmp_path / "labels.json", {"labels": list(LABELS.values())})
    write_run_model(tmp_path, run, {"vocabulary": VOCABULARY, "labels": 3}, named_tensors(model))
    with caplog.at_level(logging.WARNING, logger="transformers"):
        again = getattr(transformers, CLASSES[kind]).from_pretrained(tmp_path).eval()
        reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert [text for text in caplog.messages if "padded to be a multiple" not in text] == []
    assert again.config.model_type == name
    same(model, again, kind)
    same(opened(tmp_path), again, kind)
    (row,) = tokens.encode(["the theory"])
    read = reader("the theory")
    assert read["input_ids"] == [tokens.start, *row, tokens.end]
    assert ("token_type_ids" in read) == (tower.embedding.segments > 1)


def test_a_detector_keeps_its_generator_in_a_folder_of_its_own(tmp_path: Path, tokens: Tokenizer) -> None:
    tower = replaced(PRESETS["electra-small"](), {"width": 12, "heads": 3, "embedding.width": 5, "ffn_width": 24,
                                                  "depth": 2, "max_positions": 20})
    run = Run(task="detect", model=tower, data=Data(max_tokens=20), masking=Masking(generator=1 / 3))
    model = shaken(ModelSpec.of(run, {"vocabulary": VOCABULARY}, pad=0).model())
    tokens.save(tmp_path / "tokenizer.json")
    write_json(tmp_path / "run.json", to_json(run))
    write_run_model(tmp_path, run, {"vocabulary": VOCABULARY}, named_tensors(model))
    generator = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "generator").eval()
    same(model.generator, generator, "masked-lm")
    export_run(tmp_path, tmp_path / "out")
    import_run(tmp_path / "out", tmp_path / "again")
    back = opened(tmp_path / "again")
    assert load(tmp_path / "again" / "run.json").masking.generator == pytest.approx(1 / 3)
    assert all(torch.equal(tensor, named_tensors(model)[key]) for key, tensor in named_tensors(back).items())


def test_what_no_family_has_keeps_our_names(tmp_path: Path, tokens: Tokenizer) -> None:
    base = replace(PRESETS["bert-base"](), width=12, heads=3, depth=1, ffn_width=None, max_positions=20)
    for change in ({"norm_place": "pre"}, {"positions": "rotary"}, {"head.pool": "mean"}, {"head.hidden": "none"}):
        spec = ModelSpec(tower=replaced(base, change), vocabulary=9, kind="sequence-labels", labels=2)
        assert family_of(spec) is None
        assert f"model.{next(iter(change))}=" in why_none(spec)
    plain = ModelSpec(tower=base, vocabulary=9, kind="sequence-labels", labels=2)
    assert family_of(plain) is FAMILIES["bert"]
    assert family_of(replace(plain, tower=replace(base, preset="roberta-large"))) is FAMILIES["roberta"]
    pooled = replace(plain, kind="token-labels", tower=replace(base, head=Head(pool="mean")))
    assert family_of(pooled) is FAMILIES["bert"]
    hidden = replace(plain, kind="token-labels")  # whose labels transformers reads from a state by one linear layer
    assert family_of(hidden) is None
    assert "model.head.hidden=tanh" in why_none(hidden)
    assert family_of(replace(plain, kind="masked-lm", tower=replace(base, tied="none"))) is None
    assert "no family of models with such a head (none)" in why_none(replace(plain, kind="none"))


@pytest.mark.parametrize("preset", ["bert-base", "bert-large", "roberta-base", "roberta-large", "distilbert",
                                    "electra-small", "electra-base", "longformer-base"])
def test_every_preset_of_an_encoder_is_of_its_family(preset: str) -> None:
    for kind in ("masked-lm", "sequence-labels", "token-labels"):
        tower = for_task(None, [f"task={TASK[kind]}", f"model.preset={preset}"]).model
        family = family_of(ModelSpec(tower=tower, vocabulary=99, kind=kind, labels=2))
        assert family is not None
        assert preset.startswith(family.name)
        spec = ModelSpec(tower=tower, vocabulary=99, kind=kind, labels=2, pad=1)
        back = family.tower(family.config(spec), kind, origin="config.json")
        assert canonical(replace(back, head=tower.head)) == canonical(tower)


# Files of other times and makers


def rewritten(folder: Path, change: Callable[[str], str]) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({change(key): tensor.clone() for key, tensor in tensors.items()}, folder / "model.safetensors")


def added(folder: Path, **tensors: torch.Tensor) -> None:
    save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors")


def change(file: Path, **content: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | content))


def test_old_names_of_norms_and_lists_of_numbers_are_read(tmp_path: Path, tokens: Tokenizer) -> None:
    folder = published(tmp_path / "in", there := peer("bert", "masked-lm"), tokens)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    rewritten(folder, lambda key: re.sub(r"LayerNorm\.\w+$", lambda found: old[found[0]], key))
    table = load_file(folder / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    bias = load_file(folder / "model.safetensors")["cls.predictions.bias"]
    added(folder, **{"bert.embeddings.position_ids": torch.arange(24)[None],
                     "cls.predictions.decoder.bias": bias.clone(), "cls.predictions.decoder.weight": table.clone(),
                     "bert.pooler.dense.weight": torch.ones(15, 15),
                     "bert.pooler.dense.bias": torch.ones(15)})
    import_run(folder, tmp_path / "run")
    same(opened(tmp_path / "run"), there, "masked-lm")


def test_berts_own_files_hold_the_second_task_whatever_class_they_name(tmp_path: Path, tokens: Tokenizer) -> None:
    folder = published(tmp_path / "in", there := peer("bert", "sentences"), tokens)
    change(folder / "config.json", architectures=["BertForMaskedLM"])
    import_run(folder, tmp_path / "run")
    model: Any = opened(tmp_path / "run")
    same(model, there, "sentences")
    ids, segments, real = batch(0)
    with torch.no_grad():
        first = model.encoder(model.encoder.embed(ids[:1], segments=segments[:1]))[:, 0]
        close(model.head(first), theirs(there, ids[:1], segments[:1], real[:1])["seq_relationship_logits"])


@pytest.mark.parametrize("pooler", [True, False])
def test_a_bare_body_may_have_a_prefix_and_may_have_no_pooler(tmp_path: Path, tokens: Tokenizer, pooler: bool) -> None:
    there = shaken(transformers.BertModel(peer("bert", "backbone").config, add_pooling_layer=pooler))
    folder = published(tmp_path / "in", there, tokens)
    rewritten(folder, lambda key: f"bert.{key}")
    import_run(folder, tmp_path / "run")
    same(opened(tmp_path / "run"), there, "backbone")
    backbone = backbone_of(folder)
    assert ("head.hidden.weight" in backbone.weights) == pooler
    if pooler:
        assert torch.equal(backbone.weights["head.hidden.weight"], there.pooler.dense.weight)
    export_run(tmp_path / "run", tmp_path / "out")
    assert ("pooler.dense.weight" in load_file(tmp_path / "out" / "model.safetensors")) == pooler


@every
def test_a_body_is_the_same_out_of_a_run_and_out_of_a_directory(tmp_path: Path, tokens: Tokenizer, name: str,
                                                                kind: str) -> None:
    folder = published(tmp_path / "in", peer(name, kind), tokens)
    import_run(folder, tmp_path / "run")
    one, other = backbone_of(folder), backbone_of(tmp_path / "run")
    assert (one.task, one.tower, one.longest) == (other.task, other.tower, other.longest)
    assert one.weights.keys() == other.weights.keys()
    assert all(torch.equal(one.weights[key], other.weights[key]) for key in one.weights)
    assert Tokenizer.load(one.tokens).encode(["the"]) == Tokenizer.load(other.tokens).encode(["the"])
    bare = ModelSpec(tower=replace(one.tower, head=Head()), vocabulary=VOCABULARY, kind="backbone").model()
    load_weights(bare, {key: tensor for key, tensor in one.weights.items() if key.startswith("encoder.")}, origin="")


# What is refused


@pytest.mark.parametrize(("name", "config", "said"), [
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key': regard only"),
    ("bert", {"is_decoder": True}, "is_decoder=true"), ("bert", {"add_cross_attention": True}, "add_cross_attention"),
    ("bert", {"hidden_act": "mish"}, "hidden_act='mish'"), ("bert", {"num_attention_heads": 4}, "4 heads do not"),
    ("bert", {"embedding_size": 9}, "embedding_size=9: regard does not know it"),
    ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings=false: regard only supports true"),
    ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings=0: must be"),
    ("longformer", {"attention_window": [4, 8]}, "attention_window=a list"),
    ("longformer", {"attention_window": 5}, "attention_window=2.5: must be a whole number"),
    ("distilbert", {"n_layers": 0}, "n_layers=0"), ("electra", {"embedding_size": 0}, "embedding_size=0"),
])
def test_what_a_config_asks_for_and_we_have_not_is_refused(name: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        FAMILIES[name].tower(SMALL[name] | config, "masked-lm", origin="config.json")
    assert str(caught.value).startswith("config.json: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=60)
@given(key=st.text(max_size=5) | st.sampled_from([*SMALL["longformer"], *SMALL["distilbert"], "pad_token_id"]),
       value=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
                          lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner,
                                                                                      max_size=2)))
def test_any_config_is_read_or_refused(name: str, key: str, value: object) -> None:
    said = ""
    try:
        FAMILIES[name].tower(SMALL[name] | {key: value}, "masked-lm", origin="config.json")
    except UserError as error:
        said = str(error)
    assert not said or said.startswith("config.json: ")


@pytest.mark.parametrize(("kind", "harm", "said"), [
    ("sequence-labels", {"architectures": ["BertForQuestionAnswering"]}, "regard has BertModel, BertForMaskedLM"),
    ("sequence-labels", {"architectures": "BertModel"}, "architectures='BertModel'"),
    ("sequence-labels", {"problem_type": "regression"}, "problem_type='regression'"),
    ("sequence-labels", {"id2label": {"0": "a", "1": "a", "2": "b"}}, "all different"),
    ("sequence-labels", {"id2label": {"0": "a"}}, "each of the 3 labels"),
    ("sequence-labels", {"id2label": ["a", "b", "c"]}, "each of the 3 labels"),
    ("backbone", {"pad_token_id": -1}, "pad_token_id=-1: must be the id of a token"),
    ("masked-lm", {"hidden_act": "relu"}, "activation='relu': for BertForMaskedLM regard only supports 'gelu'"),
    ("backbone", {"num_hidden_layers": 3}, "encoder.layer.2.attention.output.dense.bias: missing"),
])
def test_a_directory_that_is_wrong_is_refused(tmp_path: Path, tokens: Tokenizer, kind: str, harm: dict[str, Any],
                                              said: str) -> None:
    folder = published(tmp_path / "in", peer("bert", kind), tokens)
    change(folder / "config.json", **harm)
    with pytest.raises(UserError) as caught:
        import_run(folder, tmp_path / "out")
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_words_that_are_not_the_tokens_vectors_are_refused(tmp_path: Path, tokens: Tokenizer) -> None:
    folder = published(tmp_path / "in", peer("bert", "masked-lm"), tokens)
    added(folder, **{"cls.predictions.decoder.weight": torch.zeros(VOCABULARY, 15)})
    with pytest.raises(UserError, match=r"decoder\.weight is not bert\.embeddings\.word_embeddings\.weight"):
        import_run(folder, tmp_path / "out")


def test_a_generator_of_another_shape_is_refused(tmp_path: Path, tokens: Tokenizer) -> None:
    folder = published(tmp_path / "in", peer("electra", "discriminator"), tokens)
    other = {"hidden_size": 10, "num_attention_heads": 2, "intermediate_size": 9}
    published(folder / "generator", peer("electra", "masked-lm", **other), tokens)
    with pytest.raises(UserError, match="is no generator for the model beside it"):
        import_run(folder, tmp_path / "out")


# Vectors of sentences


def sentence_files(folder: Path, *, pool: dict[str, Any], normal: bool, parts: tuple[str, ...] = ()) -> None:
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normal else []), *parts]
    modules = [{"idx": number, "name": str(number), "path": "" if number == 0 else f"{number}_{kind}",
                "type": f"sentence_transformers.models.{kind}"} for number, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 15, **pool}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12, "do_lower_case": False}))


@pytest.mark.parametrize(("pool", "found"), [
    ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
    ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"), ({"pooling_mode": "mean"}, "mean")])
@pytest.mark.parametrize("normal", [True, False])
def test_how_sentences_become_vectors_is_read_and_written_again(tmp_path: Path, tokens: Tokenizer, normal: bool,
                                                                pool: dict[str, Any], found: str) -> None:
    folder = published(tmp_path / "in", peer("bert", "backbone"), tokens)
    sentence_files(folder, pool=pool, normal=normal)
    import_run(folder, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    for place in (folder, tmp_path / "out"):
        tower = read_directory(place).tower
        assert (tower.head.pool, tower.head.normalize) == (found, normal)
    assert load(tmp_path / "run" / "run.json").data.max_tokens == 12


@pytest.mark.parametrize(("pool", "parts", "said"), [
    ({"pooling_mode_max_tokens": True}, (), "by the first token or by the mean of all"),
    ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, (), "only pools by"),
    ({"pooling_mode_mean_tokens": True}, ("Dense",), "'Dense' as part 2"),
])
def test_other_ways_to_a_vector_are_refused(tmp_path: Path, tokens: Tokenizer, pool: dict[str, Any],
                                            parts: tuple[str, ...], said: str) -> None:
    folder = published(tmp_path / "in", peer("bert", "backbone"), tokens)
    sentence_files(folder, pool=pool, normal=False, parts=parts)
    with pytest.raises(UserError) as caught:
        import_run(folder, tmp_path / "out")
    assert said in str(caught.value)


@pytest.mark.parametrize(("file", "about"), [
    ("sentence_bert_config.json", {"do_lower_case": True}),
    ("config_sentence_transformers.json", {"prompts": {"query": "query: "}, "default_prompt_name": "query"}),
])
def test_texts_that_would_be_changed_before_they_are_read_are_refused(tmp_path: Path, tokens: Tokenizer, file: str,
                                                                      about: dict[str, Any]) -> None:
    folder = published(tmp_path, peer("bert", "backbone"), tokens)
    sentence_files(folder, pool={"pooling_mode": "mean"}, normal=False)
    (folder / file).write_text(json.dumps(about))
    with pytest.raises(UserError, match=rf"{file}: {[*about][-1]}="):
        read_directory(folder)


def test_a_tower_has_one_spelling_whatever_it_does_not_use() -> None:
    tower = Tower(decoder_depth=7)
    assert ModelSpec(tower=tower, vocabulary=9, kind="token-labels").canonical.depth == tower.depth


def test_a_comma_in_a_label_is_refused_where_it_stands_between_labels(tmp_path: Path, tokens: Tokenizer) -> None:
    several = peer("bert", "sequence-labels", problem_type="multi_label_classification")
    with pytest.raises(UserError, match=r"config.json: id2label: .*a, b.* has a comma, which stands between"):
        read_directory(published(tmp_path, several, tokens))


# Asked


@pytest.mark.parametrize("kind", ["masked-lm", "sentences"])
def test_a_published_filler_of_blanks_names_as_many_candidates_as_one_that_was_trained_here(
    tmp_path: Path, tokens: Tokenizer, kind: str
) -> None:
    import_run(published(tmp_path / "in", peer("bert", kind), tokens), tmp_path / "run")
    predictor = predictor_of(tmp_path / "run")
    [answer] = predictor.answers(["the [MASK] of it"])
    trained = defaults("mask", built_in=False).search.best
    assert [len(choice.best) for choice in answer.choices] == [trained]
    assert trained == 5


# Measured


def test_a_published_classifier_is_measured_on_files_by_its_own_order_of_labels(
    tmp_path: Path, tokens: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {0: "zebra", 1: "ant", 2: "mole"}
    there = peer("bert", "sequence-labels", id2label=names, label2id={name: id for id, name in names.items()})
    folder, data = published(tmp_path / "in", there, tokens), tmp_path / "texts.tsv"
    import_run(folder, tmp_path / "run", data=[data])
    texts = [f"the {word} of {other}" for word in ("theory", "theme", "it") for other in ("it", "then", "the theme")]
    said = predictor_of(tmp_path / "run").predict(texts)
    data.write_text("".join(f"{text}\t{label}\n" for text, label in zip(texts, said, strict=True)))
    measure(tmp_path / "run", [], None, "cpu", "float32", None, True, Others([data]))
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1

    other = next(name for name in names.values() if name != said[0])
    data.write_text("".join(f"{text} {n}\t{label}\n" for n in range(4) for text, label in (
        *zip(texts, said, strict=True), ("it", other))))
    predictor = predictor_of(tmp_path / "run")
    predictor.read_data()
    assert json.loads((tmp_path / "run" / "labels.json").read_text()) == {"labels": list(names.values())}
    [wanted] = predictor.task.data.examples("val", 1)
    [batch] = predictor.task.batches([wanted.input], predictor.predict([wanted.input]))
    on_device = batch.to(next(predictor.model.parameters()).device)
    assert predictor.task.matches_greedy(predictor.model, on_device).all()


def test_a_published_classifier_without_data_of_its_own_says_how_it_is_measured(
    tmp_path: Path, tokens: Tokenizer
) -> None:
    import_run(published(tmp_path / "in", peer("bert", "sequence-labels"), tokens), tmp_path / "run")
    with pytest.raises(UserError, match=r"the built-in data: has the labels .*; the run has .*eval --data FILE"):
        predictor_of(tmp_path / "run").read_data()


def test_a_published_tagger_is_measured_without_a_baseline(
    tmp_path: Path, tokens: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    import_run(published(tmp_path / "in", peer("roberta", "token-labels"), tokens), tmp_path / "run")
    (tmp_path / "words.tsv").write_text("the\tneither\ntheory\tSpaß\n", encoding="utf-8")
    measure(tmp_path / "run", [], None, "cpu", "float32", None, True, Others([tmp_path / "words.tsv"]))
    said = json.loads(capsys.readouterr().out)
    assert (said["words"], "baseline" in said) == (2, False)
