"""Settings that contradict each other, and settings that would have no effect, are refused."""

from collections.abc import Mapping
from typing import Any

from regard.settings.errors import UserError, count
from regard.settings.schema import Image, Run, Tower, Train
from regard.settings.setting import SETTINGS, of, written

__all__ = ["check_decoder", "check_heads", "check_image", "check_positions", "refuse_contradictions", "refuse_ignored"]

MAX_CUT = 4  # times the size: of a larger image too little would be cut out


def refuse_contradictions(run: Run) -> None:
    """Refuse a run whose settings do not go together, whoever gave them."""
    check_recurrent(run.model)
    check_heads(run.model)
    check_positions(run.model)
    check_image(run.model)
    check_init(run.model)
    check_batch(run)
    check_optimizer(run.train)
    check_tuning(run)


def refuse_ignored(run: Run, given: Mapping[str, Any]) -> None:
    """Refuse what was asked for and would have no effect. Defaults and presets may have such settings."""
    check_momentum(run.train, given)
    check_lora(run.train, given)
    check_places(run, given)


def check_image(model: Tower) -> None:
    image = model.image
    if model.layer_scale is not None and (image is None or image.stem == "resnet"):
        raise UserError(f"model.layer_scale={model.layer_scale}: is for blocks over the patches of an image; remove it")
    if image is None:
        return
    channels = 1 if image.grey else 3
    for name, numbers in (("mean", image.mean), ("std", image.std)):
        if len(numbers) not in (1, channels):
            raise UserError(f"model.image.{name}={written(numbers)}: must be one number, or {channels}: one for each "
                            "channel")
    if image.fit == "crop" and image.resize is not None and image.resize > MAX_CUT * image.size:
        raise UserError(f"model.image.resize={image.resize}: only the middle {image.size} pixels would be left of it; "
                        f"set model.image.resize=none, or to at most {MAX_CUT * image.size}")
    if image.resize is not None and image.resize < image.size:
        raise UserError(f"model.image.resize={image.resize}: is smaller than model.image.size={image.size}, which is "
                        f"cut out of it; take at least {image.size}")
    if image.stem == "resnet":
        check_resnet(model, image)
    else:
        check_grid(model, image)
    if image.stem != "resnet" and image.size % image.patch:
        size = max(1, round(image.size / image.patch)) * image.patch
        raise UserError(f"model.image.patch={image.patch}: does not divide model.image.size={image.size}; take a patch "
                        f"of {divisor(image.size, near=image.patch)}, or a size of {size}")


def check_grid(model: Tower, image: Image) -> None:
    """Refuse what needs places in a line, and numbers that do not come in halves for rows and columns."""
    if image.width is not None:
        raise UserError(f"model.image.width={image.width}: has no effect with model.image.stem={image.stem}; set "
                        "model.width")
    if image.stem == "convolutions" and (image.patch < 2 or image.patch.bit_count() > 1):
        raise UserError(f"model.image.patch={image.patch}: each of the stem's convolutions halves the image; take 2, "
                        "4, 8 or 16")
    for name in ("window", "global_projections", "embedding.segments"):
        if value := of(model, name):
            raise UserError(f"model.{name}={written(value)}: has no effect on images; remove it")
    kind, width = model.positions, model.position_width or model.embedding.width or model.width
    if kind in ("sinusoidal", "fourier") and width % 4:
        raise UserError(f"model.width: {kind} positions of rows and columns need a multiple of 4, got {width}; take "
                        f"{width + -width % 4}, or other model.positions")
    if kind == "rotary" and (head_width := max(model.widths_of_heads)) % 4:
        raise UserError(f"model.heads: rotary positions of rows and columns need heads whose width is a multiple of 4, "
                        f"got {head_width}; change model.heads, model.width or model.head_width, or take other "
                        "model.positions")


def check_resnet(model: Tower, image: Image) -> None:
    """Refuse sizes that a resnet cannot have."""
    if image.patch not in (1, 4):
        raise UserError(f"model.image.patch={image.patch}: a resnet's first convolution takes 4, or 1 for small images")
    if not image.stages:
        raise UserError("model.image.stages: must be at least one number")
    width, parts = image.width or model.width, 2 ** (len(image.stages) - 1) * (4 if image.bottleneck else 1)
    if width % parts:
        raise UserError(f"model.image.stages={written(image.stages)}: a last stage of {width} channels cannot be "
                        f"halved so often; take model.image.width={max(parts, width - width % parts)}, or other stages")


def check_init(model: Tower) -> None:
    """Refuse a beginning of attention for which there is none of its kind."""
    given, other = f"model.init={model.init}", "; take plain"
    if model.init == "plain":
        return
    image = model.image
    if image is None or image.stem == "resnet":
        raise UserError(f"{given}: is for attention over the patches of an image; remove it")
    if model.init == "convolution":
        if model.positions != "relative":
            raise UserError(f"{given}: needs model.positions=relative, by which a head finds a neighbour")
        return
    if model.score not in ("scaled-dot", "dot"):
        raise UserError(f"{given}: is about products of queries and keys, not about model.score={model.score}{other}")
    if model.kv_heads not in (None, model.heads):
        raise UserError(f"{given}: each head needs keys of its own, not model.kv_heads={model.kv_heads}{other}")
    if (together := sum(model.widths_of_heads)) != model.width:
        raise UserError(f"{given}: needs heads that are together as wide as model.width={model.width}, not {together}"
                        f"{other}")


def check_batch(run: Run) -> None:
    """Refuse to split the batch of a model that normalizes over it."""
    image = run.model.image
    norms_learn = run.train.trainable == "all" and not run.train.freeze_layers
    if image is not None and image.stem == "resnet" and run.train.accumulate > 1 and norms_learn:
        raise UserError(f"train.accumulate={run.train.accumulate}: the norms of a resnet need the whole batch; lower "
                        "train.batch_tokens instead")


def check_heads(model: Tower) -> None:
    width, heads, kv_heads = model.width, model.heads, model.kv_heads
    if model.recurrent is not None and model.image is None:  # attention to a source has one head there
        return
    if model.head_widths:
        check_head_widths(model)
    elif model.head_width is None and width % heads:
        other_heads = divisor(width, near=heads)
        other_width = max(1, (width + heads // 2) // heads) * heads
        raise UserError(f"model.heads: {heads} heads do not divide model.width {width}; "
                        f"take {count(other_heads, 'head')}, or a width of {other_width}, or set model.head_width")
    if kv_heads is not None and heads % kv_heads:
        raise UserError(f"model.kv_heads: {kv_heads} does not divide model.heads {heads}; "
                        f"take {divisor(heads, near=kv_heads)}")


def check_head_widths(model: Tower) -> None:
    given = f"model.head_widths={written(model.head_widths)}"
    if len(model.head_widths) != model.heads:
        raise UserError(f"{given}: must be one width for each head, and there are model.heads={model.heads}; make them "
                        "as many")
    if model.head_width is not None:
        raise UserError(f"{given}: has the width of every head already; remove model.head_width={model.head_width}")
    if len(set(model.head_widths)) == 1:
        return
    shared = model.kv_heads is not None and model.kv_heads != model.heads
    rotary = model.positions == "rotary"
    for name, is_given in {"kv_heads": shared, "qk_norm": model.qk_norm, "positions": rotary}.items():
        if is_given:
            value = written(getattr(model, name))
            raise UserError(f"{given}: model.{name}={value} needs heads of one width; give all the same, or change "
                            f"model.{name}")


def divisor(number: int, *, near: int) -> int:
    near = min(near, number)
    found = [d for d in range(max(1, near - 100), near + 100) if number % d == 0]
    return min(found, key=lambda d: abs(d - near), default=1)


def check_positions(model: Tower) -> None:
    kind, width, position_width = model.positions, model.width, model.position_width
    if position_width is not None:
        if kind not in ("sinusoidal", "fourier", "learned"):
            raise UserError(f"model.position_width: {kind} positions are not concatenated to the tokens; "
                            "remove it, or take model.positions sinusoidal, fourier or learned")
        if position_width >= width:
            raise UserError(f"model.position_width: {position_width} leaves no room for the token "
                            f"in model.width {width}; take less")
        if position_width % 2:
            raise UserError(f"model.position_width: must be even, got {position_width}; take {position_width - 1}")
    elif kind in ("sinusoidal", "fourier") and width % 2:
        raise UserError(f"model.width: {kind} positions need an even width, got {width}; "
                        f"take {width + 1}, or other model.positions")
    if kind == "rotary" and (head_width := max(model.widths_of_heads)) % 2:
        raise UserError(f"model.heads: rotary positions need an even width per head, got {head_width}; change "
                        "model.heads, model.width or model.head_width, or take other model.positions")


def check_recurrent(model: Tower) -> None:
    """Refuse settings of attention that a recurrent model would ignore."""
    if (recurrent := model.recurrent) is None:
        return
    blocks = f"a recurrent model ({recurrent.cell})"
    if model.window is not None:
        raise UserError(f"model.window={model.window}: has no effect on {blocks}; remove it")
    if model.head_widths:
        raise UserError(f"model.head_widths={written(model.head_widths)}: has no effect on {blocks}; remove it")
    if model.positions in ("rotary", "relative", "alibi"):
        raise UserError(f"model.positions={model.positions}: has no effect on {blocks}; take model.positions=none")
    if model.position_width is not None:
        raise UserError(f"model.position_width={model.position_width}: has no effect on {blocks}; remove it")
    if recurrent.direction == "bilm" and recurrent.bptt is not None:
        raise UserError(f"model.recurrent.bptt={recurrent.bptt}: only a forward language model uses this; with "
                        "model.recurrent.direction=bilm set a shorter data.max_tokens instead")
    if recurrent.direction in ("bidirectional", "bilm") and model.width % 2:
        raise UserError(f"model.width: must be even, half of it for each direction, got {model.width}; take "
                        f"{model.width + 1}")
    if recurrent.input_feeding and recurrent.context != "output":
        raise UserError("model.recurrent.input_feeding: needs attention after each step, which model.recurrent.context="
                        f"{recurrent.context} does not have; take model.recurrent.context=output")
    if recurrent.direction != "forward" and model.image is not None:
        raise UserError(f"model.recurrent.direction={recurrent.direction}: the encoder of images is not recurrent; "
                        "remove it")
    places = recurrent.context == "input" and recurrent.cell == "lstm"
    for name, is_given in {"attention": recurrent.attention == "hard", "gate": recurrent.gate}.items():
        if is_given and not places:
            raise UserError(f"model.recurrent.{name}={written(getattr(recurrent, name))}: needs attention before each "
                            "step of an lstm; take model.recurrent.cell=lstm and model.recurrent.context=input")


def check_decoder(run: Run, *, has_memory: bool) -> None:
    """Refuse settings of a recurrent decoder that it cannot have: with a memory of a source, or as a language model."""
    model, recurrent = run.model, run.model.recurrent
    if recurrent is None:
        return
    direction = f"model.recurrent.direction={recurrent.direction}"
    if not has_memory:
        if recurrent.direction not in ("forward", "bilm"):
            raise UserError(f"{direction}: a language model can only read forward")
        if run.data.documents == "apart":
            raise UserError("data.documents=apart: recurrent blocks read on from one text to the next; take joined")
        return
    if recurrent.bptt is not None:
        raise UserError(f"model.recurrent.bptt={recurrent.bptt}: only a language model uses this; remove it")
    if recurrent.context == "input" and recurrent.cell not in ("gru", "lstm"):
        raise UserError(f"model.recurrent.cell={recurrent.cell}: attention before each step is that of a gru or an "
                        "lstm; take one of them, or model.recurrent.context=output")
    if recurrent.context != "fixed" or model.image is not None:
        return
    if recurrent.direction == "bilm":
        raise UserError(f"{direction}: two separate models leave no single vector for the decoder; take forward, "
                        "backward or bidirectional, or model.recurrent.context=output")
    if model.decoder_depth not in (None, model.depth):
        raise UserError(f"model.decoder_depth={model.decoder_depth}: each layer starts from one of the encoder's, and "
                        f"there are model.depth={model.depth}; remove it")


def check_places(run: Run, given: Mapping[str, Any]) -> None:
    """Refuse settings of attention to places for a model whose attention has none."""
    recurrent = run.model.recurrent
    looks = recurrent is not None and recurrent.context == "input" and recurrent.cell == "lstm"
    draws = recurrent is not None and recurrent.attention == "hard"
    for path, acts, way in (
            ("train.coverage", looks, "attention before each step of an lstm"),
            *((path, draws, "model.recurrent.attention=hard") for path in SETTINGS
              if path == "model.recurrent.expected" or path.startswith("train.reinforce."))):
        if not acts and path in given and given[path] != SETTINGS[path].default:
            raise UserError(f"{path}={written(given[path])}: has no effect without {way}; remove it")


def check_momentum(how: Train, given: Mapping[str, Any]) -> None:
    """Refuse a setting of another optimizer, which this one would ignore."""
    idle = {"adamw": ("momentum",), "sgd": ("muon_learning_rate", "weight_decay", "beta1", "beta2", "epsilon")}
    for name in idle.get(how.optimizer, ()):
        value = given.get(f"train.{name}", getattr(Train(), name))
        if value and value != getattr(Train(), name):
            raise UserError(f"train.{name}={written(value)}: has no effect on train.optimizer={how.optimizer}; remove "
                            f"it, or take {'muon or sgd' if name == 'momentum' else 'adamw or muon'}")


def check_lora(how: Train, given: Mapping[str, Any]) -> None:
    """Refuse a setting of adapters where there are none."""
    for path, value in given.items():
        if path.startswith("train.lora.") and how.trainable != "lora" and value != SETTINGS[path].default:
            raise UserError(f"{path}={written(value)}: has no effect with train.trainable={how.trainable}; remove it, "
                            "or set train.trainable=lora")


def check_optimizer(how: Train) -> None:
    if how.optimizer == "muon" and (how.trainable != "all" or how.layer_decay != 1):
        other = f"trainable={how.trainable}" if how.trainable != "all" else f"layer_decay={how.layer_decay}"
        raise UserError(f"train.optimizer=muon: updates all matrices of the blocks at one rate, so train.{other} has "
                        "no effect on them; take adamw")


def check_tuning(run: Run) -> None:
    how, depth = run.train, run.model.depth
    if how.trainable != "all" and how.init_from is None:
        raise UserError(f"train.trainable={how.trainable}: the rest of the model would never learn; start from a "
                        "trained model with --from DIR")
    if how.freeze_layers > depth:
        raise UserError(f"train.freeze_layers={how.freeze_layers}: the model has only model.depth={depth} blocks")
