"""English inflection by rule: plurals, the third person, the past, and a or an."""

__all__ = ["article", "past", "plural", "possessive", "third_person"]

VOWELS = "aeiou"


def article(word: str) -> str:
    """
    >>> [article(word) for word in ("apple", "hotel", "uniform", "umbrella", "honest")]
    ['an', 'a', 'a', 'an', 'an']
    """
    if word.startswith(("hon", "hour")):
        return "an"
    return "an" if word[0] in VOWELS + "AEIOU" and not word.startswith("uni") else "a"


def plural(word: str) -> str:
    """
    >>> [plural(word) for word in ("apple", "box", "city", "boy", "potato", "radio")]
    ['apples', 'boxes', 'cities', 'boys', 'potatoes', 'radios']
    """
    if word in ("tomato", "potato"):
        return word + "es"
    return word + "s" if word[-1] == "o" else third_person(word)


def third_person(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith("y") and verb[-2] not in VOWELS:
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "ch", "sh", "o")) else "s")


def past(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in VOWELS:
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def possessive(noun: str) -> str:
    return noun + ("'" if noun.endswith("s") else "'s")
