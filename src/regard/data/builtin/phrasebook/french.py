"""French inflection by rule: plurals, feminines, the present tense, and what happens between words."""

from regard.data.builtin.phrasebook.lexicon import IRREGULAR_VERBS

__all__ = ["ELISIONS", "contract", "feminine", "inverted", "participle", "plural", "present", "starts_with_vowel"]

VOWELS = frozenset("aeiouéèêàâîôœhAEIOUÉ")
ASPIRATED = frozenset(("haricot", "haricots", "huit", "onze"))  # "le haricot", never "l'haricot"

# Words that lose their vowel before another one, with the elided form.
ELISIONS = {word: word[:-1] + "'" for word in ("je", "me", "te", "se", "le", "la", "ne", "de", "que")}


def starts_with_vowel(word: str) -> bool:
    return word[0] in VOWELS and word not in ASPIRATED


def contract(preposition: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """à or de before a noun phrase: à + le is au, de + les is des; an elided l' keeps them apart.

    >>> contract("à", ("le", "médecin")), contract("de", ("le", "homme"))
    (('au', 'médecin'), ('de', 'le', 'homme'))
    """
    if words[0] == "les":
        return {"à": "aux", "de": "des"}[preposition], *words[1:]
    if words[0] == "le" and not starts_with_vowel(words[1]):
        return {"à": "au", "de": "du"}[preposition], *words[1:]
    return preposition, *words


def plural(word: str) -> str:
    """
    >>> [plural(word) for word in ("pomme", "gâteau", "cheval", "bleu", "gris")]
    ['pommes', 'gâteaux', 'chevaux', 'bleus', 'gris']
    """
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    if word.endswith(("au", "eu")) and word != "bleu":
        return word + "x"
    return word + "s"


def feminine(word: str) -> str:
    """
    >>> [feminine(word) for word in ("petit", "rouge", "heureux", "italien")]
    ['petite', 'rouge', 'heureuse', 'italienne']
    """
    if word.endswith("e"):
        return word
    if word.endswith("eux"):
        return word[:-1] + "se"
    return word + ("ne" if word.endswith("ien") else "e")


def participle(word: str, *, is_feminine: bool, is_plural: bool) -> str:
    """The participle in agreement: allé, allée, allés, allées; but pris stays pris in the plural.

    >>> participle("allé", is_feminine=True, is_plural=True), participle("pris", is_feminine=False, is_plural=True)
    ('allées', 'pris')
    """
    word = word + "e" if is_feminine else word
    return plural(word) if is_plural else word


def inverted(finite: str, pronoun: str) -> str:
    """Verb and subject in a question.

    >>> inverted("aime", "elle"), inverted("prend", "il"), inverted("avez", "vous")
    ('aime-t-elle', 'prend-il', 'avez-vous')
    """
    between = "-t-" if pronoun[0] in VOWELS and finite[-1] in "ae" else "-"
    return finite + between + pronoun


def present(infinitive: str) -> tuple[str, ...]:
    """The six persons of the present, then the past participle.

    >>> " ".join(present("manger"))
    'mange manges mange mangeons mangez mangent mangé'
    >>> " ".join(present("traduire"))
    'traduis traduis traduit traduisons traduisez traduisent traduit'
    """
    if infinitive in _IRREGULAR:
        return _IRREGULAR[infinitive]
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "re":
        return stem + "s", stem + "s", stem, stem + "ons", stem + "ez", stem + "ent", stem + "u"
    if ending == "ir":
        return stem + "is", stem + "is", stem + "it", stem + "issons", stem + "issez", stem + "issent", stem + "i"
    silent = _before_silent_e(stem)
    soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
    return silent + "e", silent + "es", silent + "e", soft + "ons", stem + "ez", silent + "ent", stem + "é"


def _before_silent_e(stem: str) -> str:
    """The stem before a silent e: j'achète, j'appelle, je répète, je nettoie."""
    if stem.endswith("y"):
        return stem[:-1] + "i"
    if stem.endswith("appel"):
        return stem + "l"
    if stem[-2] in "eé" and stem[-1] in "tvnr":
        return stem[:-2] + "è" + stem[-1]
    return stem


def _irregular() -> dict[str, tuple[str, ...]]:
    verbs = {}
    for line in IRREGULAR_VERBS.strip().splitlines():
        (head, *prefixes), forms = (part.split() for part in line.split("|"))
        for prefix in ("", *prefixes):
            start = prefix.removesuffix("-")
            verbs[start + head] = tuple(start + form for form in forms)
    return verbs


_IRREGULAR = _irregular()
