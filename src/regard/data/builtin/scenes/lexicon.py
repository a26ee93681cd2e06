"""The words of the scenes: what there is, and how it looks."""

__all__ = ["BACKGROUNDS", "COLOURS", "NUMBERS", "RADIUS", "RELATIONS", "SHAPES", "SMALL_RADIUS",
           "is_held_out"]  # fmt: skip

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "star")

COLOURS = {
    "red": (208, 36, 44),
    "orange": (246, 132, 24),
    "yellow": (244, 212, 40),
    "green": (40, 152, 64),
    "blue": (36, 84, 196),
    "purple": (136, 48, 160),
}

BACKGROUNDS = (196, 208, 220, 232, 244, 255)  # greys

RADIUS, SMALL_RADIUS = 10, 6  # in units; the side of an image has 64

RELATIONS = ("left of", "right of", "above", "below")

NUMBERS = ("one", "two", "three")


def is_held_out(colour: int, shape: int) -> bool:
    """Whether training never shows this colour on this shape: each shape lacks one colour, each colour one shape.

    >>> [f"{colour} {shape}" for c, colour in enumerate(COLOURS) for s, shape in enumerate(SHAPES) if is_held_out(c, s)]
    ['red diamond', 'orange triangle', 'yellow square', 'green circle', 'blue star', 'purple cross']
    """
    return (colour + shape) % len(COLOURS) == 3
