"""A small run of each task, which many processes can share: its name and its settings.

It needs no files, drops nothing at random and computes in float32. Its width is divided evenly by no number of
processes, some batches have an odd number of rows, and some fewer examples than there are processes.
"""

__all__ = ["JOBS"]

SMALL = ("device=cpu", "train.precision=float32", "train.log_every=1", "train.warmup=2", "model.width=18",
         "model.depth=1", "model.heads=2", "model.dropout=0", "search.max_tokens=4", "search.beam=1")

JOBS: dict[str, tuple[str, ...]] = {
    "classify": (*SMALL, "model.image.size=12", "model.image.patch=4", "data.built_in_size=61",
                 "train.batch_tokens=100", "train.augment.colour=0.2", "train.learning_rate=0.001"),
    "translate": (*SMALL, "data.built_in_size=61", "tokens.vocabulary=300", "train.batch_tokens=96"),
}
