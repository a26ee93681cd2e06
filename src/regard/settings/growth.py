"""The settings that a model grows with, each with a usual value, to find the setting to blame for a model too large."""

__all__ = ["GROWTH"]

GROWTH = {"model.width": 256, "model.depth": 3, "model.decoder_depth": 3, "model.ffn_width": 1024,
          "model.heads": 8, "model.head_width": 64, "model.head_widths": 512,
          "model.max_positions": 1024, "model.embedding.width": 256, "model.embedding.segments": 2,
          "model.position_width": 64, "model.image.size": 224, "model.image.width": 512, "model.image.stages": 16,
          "tokens.vocabulary": 8000, "train.lora.rank": 8}
