"""classify: an input to its label, or to several. Each kind of input is a file."""

from regard.tasks.classify.task import Classify

__all__ = ["Classify"]
