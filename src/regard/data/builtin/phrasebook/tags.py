"""The part of speech of every English word of the book, by the tags of Universal Dependencies.

A word of an open class has its tag from where it is made: the grammar writes `cook_NOUN` and `cook_VERB`. So has a
small word where it is not what it mostly is, as in `to_PART` and `that_SCONJ`. All others are in the table below.
"""

from regard.data.builtin.phrasebook.pieces import MARK, English

__all__ = ["parts_of_speech"]

USUAL = {
    "ADJ": """
        afraid bad cold dressed enough few good hot hungry last little many much next nice old right several sleepy
        thirsty wrong
    """,
    "ADP": "about as at behind by for from in near of off on out past than to under up with",
    "ADV": """
        always badly fast here home how just less longer more never now o'clock often outside quite rarely really
        slowly sometimes soon together too very well when where why
    """,
    "AUX": "am are be can cannot did do does is must was were will would",
    "CCONJ": "and but",
    "DET": "a an any every no some the these this which",
    "INTJ": "goodbye hello please",
    "NOUN": """
        afternoon autumn bed bicycle boat car day euros evening foot front half lot midnight month morning night noon
        plane quarter spring summer taxi today tomorrow tonight train walk weather week winter year years yesterday
    """,
    "NUM": """
        one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
        eighteen nineteen twenty twenty-five thirty thirty-five forty forty-five fifty sixty seventy eighty ninety
    """,
    "PART": "not",
    "PRON": "I he her him his it me my our she that their them there they us we what who you your",
    "PUNCT": "?",
    "SCONJ": "because",
    "VERB": "going hurt hurts let like rain rained raining see snow snowed snowing thank",
}
TAGS = {word: tag for tag, words in USUAL.items() for word in words.split()}


def parts_of_speech(english: English) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words, and the tag of each. A question mark is a word; "Marie's" is one, and a name.

    >>> from regard.data.builtin.phrasebook.pieces import fixed
    >>> parts_of_speech(fixed("le café de Marie ?", "Marie's_PROPN/Marie coffee_NOUN/café ?/?").english)
    (("Marie's", 'coffee', '?'), ('PROPN', 'NOUN', 'PUNCT'))
    """
    words, tags = [], []
    for said, _ in english:
        word, _, tag = said.partition(MARK)
        words.append(word)
        # The remaining capitalized words are cities, countries and days.
        tags.append(tag or TAGS.get(word) or ("PROPN" if word[0].isupper() else _unknown(word)))
    return tuple(words), tuple(tags)


def _unknown(word: str) -> str:
    raise AssertionError(f"{word}: without a part of speech")
