"""Verb groups: finite verb, negation, pronouns and participle in French; auxiliary, "not" and verb in English.

English splits its verb in two, and so does a `Piece`: the operator ("do", "is", "can") goes before the subject in
a question. The operator is linked to the finite verb, which bears the tense in French; "not" to both ne and pas.
"""

from dataclasses import dataclass, replace
from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.french import inverted, participle
from regard.data.builtin.phrasebook.pieces import DENIED, English, Piece
from regard.data.builtin.phrasebook.subjects import PRONOUNS, Agreement
from regard.data.builtin.phrasebook.words import Verb, read_verbs, verb

__all__ = [
    "AVOIR",
    "CAN",
    "CATENATIVES",
    "ETRE",
    "FUTURE",
    "HOPE",
    "JUST",
    "MUST",
    "NEGATIONS",
    "PAST",
    "PRESENT",
    "SKILLS",
    "WANT",
    "WISH",
    "WOULD",
    "Adverb",
    "Clitic",
    "Tense",
    "verb_group",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Tense:
    """The tense of a verb: finite, or an infinitive after another verb."""

    is_past: bool = False
    head: Verb | None = None
    """The finite verb, where the verb itself is an infinitive."""
    operators: tuple[str, ...] = ()
    """The six persons of the English auxiliary, where it is not "do"."""
    words: tuple[str, ...] = ()
    """What English has between auxiliary and verb."""


@dataclass(frozen=True, slots=True, eq=False)
class Clitic:
    """An object pronoun before the verb."""

    french: str
    english: str
    is_feminine: bool = False
    is_plural: bool = False
    is_direct: bool = True
    """A direct object before it makes a participle agree: "je l'ai vue"."""


@dataclass(frozen=True, slots=True, eq=False)
class Adverb:
    """Stands after the finite verb in French; in English before the verb ("often") or after it ("well")."""

    french: str
    english: tuple[str, ...]
    is_last: bool


ETRE, AVOIR = verb("être", "be"), verb("avoir", "have, had")
BE = ("am", "are", "is", "are", "are", "are")
WOULD = ("voudrais", "voudrais", "voudrait", "voudrions", "voudriez", "voudraient")
NEGATIONS = {"pas": ("not",), "jamais": ("never",), "plus": ("no_ADV", "longer")}
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")

PRESENT, PAST = Tense(), Tense(is_past=True)
FUTURE = Tense(head=verb("aller", "go"), operators=BE, words=("going", "to_PART"))
CAN = Tense(head=verb("pouvoir", "can"), operators=("can",) * 6)
MUST = Tense(head=verb("devoir", "must"), operators=("must",) * 6)
WISH = Tense(head=replace(verb("vouloir", "want"), present=WOULD), operators=("would",) * 6, words=("like", "to_PART"))
JUST = Tense(head=verb("venir de", "come"))  # "il vient de partir": "he just left"
_CATENATIVES = read_verbs(lexicon.CATENATIVES)
CATENATIVES = [
    Tense(head=head, is_past=is_past)
    for head in _CATENATIVES
    for is_past in ((False, True) if "past" in head.columns else (False,))
    if "skill" not in head.columns
]
SKILLS = [Tense(head=head) for head in _CATENATIVES if "skill" in head.columns]
WANT, HOPE = (
    next(tense for tense in CATENATIVES if tense.head and tense.head.lemma == lemma) for lemma in ("vouloir", "espérer")
)


ANY_GENDER: dict[str | int, Agreement] = {
    **{subject.agreement.pronoun: subject.agreement for subject in PRONOUNS},
    **{subject.agreement.person: subject.agreement for subject in PRONOUNS},
}
Said = tuple[str, tuple[str, ...]]  # an English word, and the roles of the French words it renders
FINITE, PARTICIPLE, INFINITIVE = ("finite",), ("participle",), ("infinitive",)
CLITIC, ADVERB, NEGATION = ("clitic",), ("adverb",), ("ne", "negation")


def verb_group(
    verb: Verb,
    tense: Tense,
    agreement: Agreement,
    mood: str = "statement",
    *,
    negation: str | None = None,
    clitic: Clitic | None = None,
    adverb: Adverb | None = None,
) -> Piece:
    """All that belongs to the verb. The mood is "statement", "asked" (est-ce que …) or "inverted" (as-tu …)."""
    if not (tense.is_past and _is_with_etre(tense.head or verb)):
        # Only such a participle shows the gender. Fewer agreements are fewer groups to make.
        agreement = ANY_GENDER[agreement.pronoun if mood == "inverted" else agreement.person]
    return _verb_group(verb, tense, agreement, mood, negation, clitic, adverb)


def _is_with_etre(verb: Verb) -> bool:
    return verb.has_etre or verb.is_reflexive


@cache
def _verb_group(
    verb: Verb, tense: Tense, agreement: Agreement, mood: str, negation: str | None, clitic: Clitic | None,
    adverb: Adverb | None,
) -> Piece:  # fmt: skip
    french = [pair for pair in _french(verb, tense, agreement, mood, negation, clitic, adverb) if pair[1]]
    places = {role: place for place, (role, _) in enumerate(french)}
    operator, words = _english(verb, tense, agreement, mood, negation, clitic, adverb)
    kind = DENIED if negation else None
    return Piece(tuple([word for _, word in french]), _linked(words, places), _linked(operator, places), kind=kind)


def _linked(said: list[Said], places: dict[str, int]) -> English:
    return tuple([(word, tuple([places[role] for role in roles])) for word, roles in said])


def _french(
    verb: Verb, tense: Tense, agreement: Agreement, mood: str, negation: str | None, clitic: Clitic | None,
    adverb: Adverb | None,
) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """The words in their order, each after its role; a role that is not played has an empty word."""
    head = tense.head
    bearer = head or verb
    pronoun = clitic.french if clitic else REFLEXIVE[agreement.person] if verb.is_reflexive else ""
    is_with_etre = _is_with_etre(bearer)
    finite = ((ETRE if is_with_etre else AVOIR) if tense.is_past else bearer).present[agreement.person]
    past = bearer.participle if tense.is_past else ""
    if past and is_with_etre:
        past = participle(past, is_feminine=agreement.is_feminine, is_plural=agreement.is_plural)
    elif past and clitic and clitic.is_direct and not head:
        past = participle(past, is_feminine=clitic.is_feminine, is_plural=clitic.is_plural)
    return (
        ("ne", "ne" if negation else ""),
        ("clitic", "" if head else pronoun),
        ("finite", inverted(finite, agreement.pronoun) if mood == "inverted" else finite),
        ("negation", negation or ""),
        ("adverb", adverb.french if adverb else ""),
        ("participle", past),
        ("preposition", (head.preposition or "") if head else ""),
        ("clitic", pronoun if head else ""),
        ("infinitive", verb.lemma if head else ""),
    )


def _english(
    verb: Verb, tense: Tense, agreement: Agreement, mood: str, negation: str | None, clitic: Clitic | None,
    adverb: Adverb | None,
) -> tuple[list[Said], list[Said]]:  # fmt: skip
    """The operator, and the rest."""
    operator = tense.operators[agreement.person] if tense.operators else None
    if operator is None and (mood != "statement" or negation == "pas"):
        operator = "did" if tense.is_past else "does" if agreement.person == 2 else "do"
    start: list[Said] = [(operator, FINITE)] if operator else []
    words: list[Said] = [(word, NEGATION) for word in NEGATIONS[negation]] if negation else []
    if operator == "can" and negation:
        start, words = [("cannot", FINITE + NEGATION)], []
    if mood == "inverted":
        start.append((agreement.english, FINITE))
    if adverb and not adverb.is_last:
        words += [(word, ADVERB) for word in adverb.english]
    words += _predicate(verb, tense, is_third=agreement.person == 2, is_bare=operator is not None)
    if clitic:
        words.append((clitic.english, CLITIC))
    if adverb and adverb.is_last:
        words += [(word, ADVERB) for word in adverb.english]
    return start, words


def _predicate(verb: Verb, tense: Tense, *, is_third: bool, is_bare: bool) -> list[Said]:
    """The verb with its governing verb: "eats", "going to eat", "tried to eat"; bare after an operator."""
    reflexive = CLITIC if verb.is_reflexive else ()
    own = INFINITIVE + reflexive
    if tense is JUST:
        return [("just", ("finite", "preposition")), *[(word, own) for word in verb.past]]
    if tense.operators:  # "going" and "like" are the finite verb, "to" belongs to the infinitive
        between = [(word, INFINITIVE if word == "to_PART" else FINITE) for word in tense.words]
        return between + [(word, own) for word in verb.base]
    bearer = tense.head or verb
    forms = bearer.base
    if not is_bare:
        forms = bearer.past if tense.is_past else bearer.third_person if is_third else bearer.base
    role = FINITE if not tense.is_past else PARTICIPLE if is_bare else FINITE + PARTICIPLE
    if not tense.head:
        return [(word, role + reflexive) for word in forms]
    to = ("preposition",) if tense.head.preposition else INFINITIVE
    return [*[(word, role) for word in forms[:-1]], ("to_PART", to), *[(word, own) for word in verb.base]]
