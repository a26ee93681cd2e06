"""Verb groups: finite verb, negation, pronouns and participle in French; auxiliary, "not" and verb in English.

English splits its verb in two, and so does a `Piece`: the operator ("do", "is", "can") goes before the subject in
a question. The operator is linked to the finite verb, which bears the tense in French; "not" to both ne and pas.
"""

from dataclasses import dataclass
from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.french import inverted, participle
from regard.data.builtin.phrasebook.pieces import English, Piece
from regard.data.builtin.phrasebook.subjects import Agreement
from regard.data.builtin.phrasebook.words import Verb, rows, verb

__all__ = ["CAN", "CATENATIVES", "FUTURE", "JUST", "MUST", "PAST", "PRESENT", "SKILLS", "WISH", "Adverb", "Clitic",
           "Tense", "command", "state", "verb_group"]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Tense:
    """How a verb is put: by itself, or as the infinitive of another one."""

    is_past: bool = False
    head: Verb | None = None
    """The finite verb, where the verb itself is an infinitive."""
    operators: tuple[str, ...] | None = None
    """The six persons of the English auxiliary, where it is not "do"."""
    words: tuple[str, ...] = ()
    """What English has between auxiliary and verb."""
    is_recent: bool = False


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


BE = ("am", "are", "is", "are", "are", "are")
ÊTRE, AVOIR = verb("être", "be"), verb("avoir", "have, had")
WOULD = Verb("vouloir", ("voudrais", "voudrais", "voudrait", "voudrions", "voudriez", "voudraient"), "", None,
             (), (), (), ())  # fmt: skip

PRESENT, PAST = Tense(), Tense(is_past=True)
FUTURE = Tense(head=verb("aller", "go"), operators=BE, words=("going", "to"))
CAN = Tense(head=verb("pouvoir", "can"), operators=("can",) * 6)
MUST = Tense(head=verb("devoir", "must"), operators=("must",) * 6)
WISH = Tense(head=WOULD, operators=("would",) * 6, words=("like", "to"))
JUST = Tense(head=verb("venir de", "come"), is_recent=True)
_CATENATIVES = [verb(*line) for line in rows(lexicon.CATENATIVES)]
CATENATIVES = [
    Tense(head=head, is_past=is_past)
    for head in _CATENATIVES
    for is_past in ((False, True) if "past" in head.columns else (False,))
    if "skill" not in head.columns
]
SKILLS = [Tense(head=head) for head in _CATENATIVES if "skill" in head.columns]
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")


@cache
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
    french, places = _french(verb, tense, agreement, mood, negation, clitic, adverb)
    operator, words = _english(verb, tense, agreement, mood, negation, clitic, adverb)

    def linked(said: list[tuple[str, str]]) -> English:
        return tuple((word, tuple(places[role] for role in roles.split() if role in places)) for word, roles in said)

    return Piece(french, linked(words), linked(operator))


def _french(
    verb: Verb, tense: Tense, agreement: Agreement, mood: str, negation: str | None, clitic: Clitic | None,
    adverb: Adverb | None,
) -> tuple[tuple[str, ...], dict[str, int]]:  # fmt: skip
    """The words, and where each stands by its role."""
    finite_verb = tense.head or verb
    before = clitic.french if clitic else REFLEXIVE[agreement.person] if verb.is_reflexive else None
    takes_être = finite_verb.has_être or finite_verb.is_reflexive
    finite = ((ÊTRE if takes_être else AVOIR) if tense.is_past else finite_verb).present[agreement.person]
    bent = finite_verb.participle
    if tense.is_past and takes_être:
        bent = participle(bent, is_feminine=agreement.is_feminine, is_plural=agreement.is_plural)
    elif clitic and clitic.is_direct and not tense.head:
        bent = participle(bent, is_feminine=clitic.is_feminine, is_plural=clitic.is_plural)
    order = (
        ("ne", "ne" if negation else None),
        ("clitic", None if tense.head else before),
        ("finite", inverted(finite, agreement.pronoun) if mood == "inverted" else finite),
        ("negation", negation),
        ("adverb", adverb.french if adverb else None),
        ("participle", bent if tense.is_past else None),
        ("preposition", tense.head.preposition if tense.head else None),
        ("clitic", before if tense.head else None),
        ("infinitive", verb.lemma if tense.head else None),
    )
    said = [(role, word) for role, word in order if word]
    return tuple(word for _, word in said), {role: place for place, (role, _) in enumerate(said)}


def _english(
    verb: Verb, tense: Tense, agreement: Agreement, mood: str, negation: str | None, clitic: Clitic | None,
    adverb: Adverb | None,
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:  # fmt: skip
    """The operator and the rest, each word with the roles of the French words it renders."""
    lexical = tense.head or verb
    own = "infinitive" if tense.head else "participle" if tense.is_past else "finite"
    own += " clitic" if verb.is_reflexive else ""
    bearer = "participle finite" if tense.is_past else "finite"
    third = agreement.person == 2

    operator: str | None = None
    if tense.operators:
        operator = tense.operators[agreement.person]
    elif mood != "statement" or negation == "pas":
        operator = "did" if tense.is_past else "does" if third else "do"

    words = [(word, "ne negation") for word in {"pas": "not", "jamais": "never", "plus": "no longer"}.get(negation or "", "").split()]
    if adverb and not adverb.is_last:
        words += [(word, "adverb") for word in adverb.english]
    if tense.is_recent:
        words += [("just", "finite preposition"), *((word, own) for word in verb.past)]
    elif tense.operators:
        words += [(word, "finite") for word in tense.words[:-1]] + [(word, "infinitive") for word in tense.words[-1:]]
        words += [(word, own) for word in verb.base]
    else:
        is_bare = operator is not None
        inflected = lexical.base if is_bare else lexical.past if tense.is_past else lexical.third_person if third else lexical.base
        if tense.head:
            role = "participle" if tense.is_past and is_bare else bearer
            words += [(word, role) for word in inflected[:-1]]
            words += [("to", "preposition" if lexical.preposition else "infinitive")]
            words += [(word, own) for word in verb.base]
        else:
            role = own if is_bare else f"{own} finite"
            words += [(word, role) for word in inflected]
    if clitic:
        words.append((clitic.english, "clitic"))
    if adverb and adverb.is_last:
        words += [(word, "adverb") for word in adverb.english]

    start = [(operator, "finite")] if operator else []
    if operator == "can" and negation:
        start, words = [("cannot", "finite ne negation")], words[1:]
    if mood == "inverted":
        start.append((agreement.english, "finite"))
    return start, words


# avoir and être as "be": the three tenses in which they tell of a state.
STATES = {
    ("être", "present"): ÊTRE.present,
    ("être", "past"): ("étais", "étais", "était", "étions", "étiez", "étaient"),
    ("être", "future"): ("serai", "seras", "sera", "serons", "serez", "seront"),
    ("avoir", "present"): AVOIR.present,
    ("avoir", "past"): ("avais", "avais", "avait", "avions", "aviez", "avaient"),
    ("avoir", "future"): ("aurai", "auras", "aura", "aurons", "aurez", "auront"),
}
WERE = ("was", "were", "was", "were", "were", "were")


@cache
def state(
    verb: str,
    tense: str,
    agreement: Agreement,
    mood: str = "statement",
    *,
    negation: str | None = None,
    adverb: Adverb | None = None,
) -> Piece:
    """être, or avoir in "j'ai faim": "be" in English."""
    finite = STATES[verb, tense][agreement.person]
    french = [inverted(finite, agreement.pronoun) if mood == "inverted" else finite]
    place = 0
    words: list[tuple[str, tuple[int, ...]]] = []
    if negation:
        french = ["ne", *french, negation]
        place = 1
        words.append(({"pas": "not", "jamais": "never", "plus": "no longer"}[negation], (0, 2)))
    if adverb:
        words += [(word, (len(french),)) for word in adverb.english]
        french.append(adverb.french)
    if tense == "future":
        words.append(("be", (place,)))
    be = {"present": BE, "past": WERE, "future": ("will",) * 6}[tense][agreement.person]
    operator: English = ((be, (place,)),)
    if mood == "inverted":
        operator = (*operator, (agreement.english, (place,)))
    return Piece(tuple(french), tuple(words), operator)


@cache
def command(verb: Verb, person: int, negation: str | None = None) -> Piece:
    """The imperative of tu (1), nous (3) or vous (4): "mange", "let us eat", "ne mangez pas"."""
    form = verb.present[person]
    form = form[:-1] if person == 1 and form.endswith(("es", "as")) else form
    pronoun = {1: "te", 3: "nous", 4: "vous"}[person] if verb.is_reflexive else None
    if negation:
        french = ("ne", *((pronoun,) if pronoun else ()), form, negation)
    else:
        french = (f"{form}-{'toi' if pronoun == 'te' else pronoun}" if pronoun else form,)
    place = french.index(form) if negation else 0
    own = tuple(range(1, place + 1)) if negation else (0,)
    no = ((("not", (0, place + 1)),) if negation else ())
    start = [("let", (place,)), ("us", (place,))] if person == 3 else [("do", (place,))] if negation else []
    return Piece(french, (*start, *no, *((word, own) for word in verb.base)))
