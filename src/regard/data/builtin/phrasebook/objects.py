"""Sentences in which someone does something to someone or something."""

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.clauses import PLAIN, WHEN, WHY, Clause, clause
from regard.data.builtin.phrasebook.determiners import BARE, BARE_MANY, WHICH, WHICH_MANY
from regard.data.builtin.phrasebook.noun_phrases import PEOPLE, after, noun_phrase, owned, phrase
from regard.data.builtin.phrasebook.pieces import EMPTY, OPEN, Dice, Piece, Rule, row
from regard.data.builtin.phrasebook.pronouns import ADDRESSED, INDIRECT, TO_THEM, pronoun
from regard.data.builtin.phrasebook.subjects import AND, ASKING, THIRD, anyone
from regard.data.builtin.phrasebook.verb_groups import FUTURE, PAST, PRESENT, Tense, verb_group
from regard.data.builtin.phrasebook.words import NOUNS, Noun, Verb, among, classes, read_verbs

__all__ = ["OBJECTS", "PERSONS", "STATIVES", "THINGS", "TRANSITIVES", "amount_question", "combined",
           "communication", "ditransitive", "listing", "object_question", "pronominal", "stative", "subject_question",
           "tenses", "thing", "transitive"]  # fmt: skip

TRANSITIVES, STATIVES = read_verbs(lexicon.TRANSITIVES), read_verbs(lexicon.STATIVES)
DITRANSITIVES, COMMUNICATION = read_verbs(lexicon.DITRANSITIVES), read_verbs(lexicon.COMMUNICATION)
THINGS = [verb for verb in TRANSITIVES if verb.columns[1] == "thing"]
PERSONS = [verb for verb in TRANSITIVES if verb.columns[1] == "person"]
COUNTING = among(TRANSITIVES + STATIVES, "manger boire acheter vendre commander lire prendre avoir vouloir")
LISTED = among(TRANSITIVES, "manger acheter vendre préparer apporter servir")
INVOLUNTARY = among(TRANSITIVES, "perdre casser recevoir oublier")  # no "she decides to lose her key"
OWNABLE = frozenset(("pet", "book", "garment", "accessory", "drivable", "vehicle", "furniture", "device", "object",
                     "container", "inside"))  # fmt: skip
GIFTS = [noun for of in ("book", "object", "accessory", "garment", "tableware") for noun in NOUNS[of]]
RECIPIENTS = [noun for noun in PEOPLE if noun.of != "person"]

WHAT_ASKED = Rule("qu'est-ce que S V ?", "what/qu'est-ce V^/que S V ?/?", kind=OPEN)
WHAT_INVERTED = Rule("que V ?", "what/que V^ V ?/?", kind=OPEN)
WHOM_ASKED = Rule("qui est-ce que S V ?", "who/qui V^/est-ce/que S V ?/?", kind=OPEN)
WHOM_INVERTED = Rule("qui V ?", "who/qui V^ V ?/?", kind=OPEN)
WHO = Rule("qui V X ?", "who/qui V^ V X ?/?", kind=OPEN)
WHICH_ONE = Rule("N V ?", "N V^ V ?/?", kind=OPEN)
HOW_MANY = Rule("combien de N V ?", "how/combien many/combien/de N V^ V ?/?", kind=OPEN)
HOW_MUCH = Rule("combien de N V ?", "how/combien much/combien/de N V^ V ?/?", kind=OPEN)


def _objects(verb: Verb) -> list[Noun]:
    named = classes(verb.columns[0])
    return [*(PEOPLE if "people" in named else ()), *(noun for of in named for noun in NOUNS.get(of, ()))]


OBJECTS = {verb: _objects(verb) for verb in (*TRANSITIVES, *STATIVES)}


def combined(verb: Verb, noun: Noun, piece: Piece) -> Piece:
    """The piece, and that this verb and this noun have met in it."""
    if noun.of == "name":
        return piece
    return piece._replace(combinations=((verb.lemma, noun.lemma), *piece.combinations))


def thing(dice: Dice, verb: Verb, context: str, owner: str | None) -> Piece:
    """An object of the verb."""
    return _this_thing(dice, verb, dice.pick(OBJECTS[verb]), context, owner)


def _this_thing(dice: Dice, verb: Verb, noun: Noun, context: str, owner: str | None) -> Piece:
    if noun.of in OWNABLE and dice.roll(16) == 0:
        return combined(verb, noun, owned(dice, noun))
    return combined(verb, noun, noun_phrase(dice, noun, context, owner))


def tenses(verb: Verb, here: Clause) -> list[Tense]:
    return PLAIN if verb in INVOLUNTARY else here.tenses()


def transitive(dice: Dice) -> Piece:
    """ "Marie a acheté une robe rouge hier" """
    here, verb = clause(dice), dice.pick(TRANSITIVES)
    tense = dice.pick(tenses(verb, here))
    negation = here.negation(dice, tense)
    adverb, time = here.adjunct(dice, tense, negation)
    group = verb_group(verb, tense, here.agreement, here.mood, negation=negation, adverb=adverb)
    return here.sentence(group, thing(dice, verb, here.context(negation), here.agreement.owner), time)


def pronominal(dice: Dice) -> Piece:
    """ "je la mange", "ils nous ont vues", "veux-tu m'aider ?" """
    here, is_person = clause(dice), dice.roll(3) > 0
    verb = dice.pick(PERSONS if is_person else THINGS)
    # Persons have the past three times as often: there the participle agrees, and has four forms.
    often_past = here.tenses() + 2 * [PAST] * here.tenses().count(PAST)
    tense = dice.pick(often_past if is_person else [tense for tense in here.tenses() if tense is not PAST])
    negation = here.negation(dice, tense)
    adverb, time = here.adjunct(dice, tense, negation)
    clitic = pronoun(dice, verb, tense, here.agreement)
    group = verb_group(verb, tense, here.agreement, here.mood, negation=negation, clitic=clitic, adverb=adverb)
    return here.sentence(group, time)


def stative(dice: Dice) -> Piece:
    """ "j'aime les pommes", "connaissez-vous Marie ?" """
    here, verb = clause(dice, (WHY,)), dice.pick(STATIVES)
    agreement, negation = here.agreement, here.negation(dice, PRESENT)
    if verb.columns[1] in ("thing", "person") and dice.roll(8) == 0:
        clitic = pronoun(dice, verb, PRESENT, agreement)
        group = verb_group(verb, PRESENT, agreement, here.mood, negation=negation, clitic=clitic)
        return here.sentence(group, EMPTY)
    group = verb_group(verb, PRESENT, agreement, here.mood, negation=negation)
    # Of people the definite: no "she loves two cooks".
    contexts = {"thing": here.context(negation), "person": "definite"}
    context = contexts.get(verb.columns[1], verb.columns[1])
    return here.sentence(group, thing(dice, verb, context, agreement.owner))


def object_question(dice: Dice) -> Piece:
    """ "que manges-tu ?", "qui est-ce que Marie a vu ?" """
    is_person = dice.roll(3) == 0
    verb, tense = dice.pick(PERSONS if is_person else THINGS), dice.pick(PLAIN)
    if dice.roll(2):
        group = verb_group(verb, tense, dice.pick(ASKING).agreement, "inverted")
        return (WHOM_INVERTED if is_person else WHAT_INVERTED)(group)
    subject = anyone(dice)
    group = verb_group(verb, tense, subject.agreement, "asked")
    return (WHOM_ASKED if is_person else WHAT_ASKED)(subject.piece, group)


def subject_question(dice: Dice) -> Piece:
    """ "qui a fermé la porte ?" """
    verb = dice.pick(TRANSITIVES)
    return WHO(verb_group(verb, dice.pick(PLAIN), THIRD[False, False]), thing(dice, verb, "definite", None))


def amount_question(dice: Dice) -> Piece:
    """ "combien de pommes veux-tu ?", "quelle robe achète-t-elle ?"; not in the past: its participle would agree."""
    is_which = dice.roll(2)
    verb = dice.pick(THINGS if is_which else COUNTING)
    tense = PRESENT if verb in STATIVES else dice.pick((PRESENT, PRESENT, FUTURE))
    group = verb_group(verb, tense, dice.pick(ASKING).agreement, "inverted")
    noun = dice.pick(OBJECTS[verb])
    if is_which:
        determiner = WHICH_MANY if noun.plural and (dice.roll(2) or not noun.singular) else WHICH
        return WHICH_ONE(combined(verb, noun, phrase(noun, determiner)), group)
    if noun.is_mass:
        return HOW_MUCH(combined(verb, noun, phrase(noun, BARE)), group)
    return HOW_MANY(combined(verb, noun, phrase(noun, BARE_MANY)), group)


def ditransitive(dice: Dice) -> Piece:
    """ "il me donne un livre", "elle montre sa robe à Marie" """
    here, verb = clause(dice, (WHEN, WHY)), dice.pick(DITRANSITIVES)
    agreement, tense, noun = here.agreement, dice.pick(here.tenses()), dice.pick(GIFTS)
    negation = here.negation(dice, tense)
    receivers = (TO_THEM, *(INDIRECT[person] for person in ADDRESSED[agreement.person]))
    receiver = dice.pick(receivers) if dice.roll(2) else None
    # No "il te donne votre livre": what is given to you is not another you's.
    owner = {"te": "tu", "vous": "vous"}.get(receiver.french, agreement.owner) if receiver else agreement.owner
    gift = combined(verb, noun, noun_phrase(dice, noun, here.context(negation), owner))
    group = verb_group(verb, tense, agreement, here.mood, negation=negation, clitic=receiver)
    if receiver:
        return here.sentence(group, gift)
    someone = noun_phrase(dice, dice.pick(RECIPIENTS), "definite", agreement.owner)
    return here.sentence(group, row(gift, after("à", "to", someone)))


def communication(dice: Dice) -> Piece:
    """ "je parle au médecin", "elle danse avec Paul" """
    here, verb, noun = clause(dice, (WHEN, WHY)), dice.pick(COMMUNICATION), dice.pick(PEOPLE)
    tense = dice.pick(here.tenses())
    negation = here.negation(dice, tense)
    adverb, time = here.adjunct(dice, tense, negation)
    group = verb_group(verb, tense, here.agreement, here.mood, negation=negation, adverb=adverb)
    assert verb.preposition
    someone = noun_phrase(dice, noun, "definite", here.agreement.owner)
    partner = combined(verb, noun, after(verb.preposition, verb.columns[0], someone))
    return here.sentence(group, partner, time)


def listing(dice: Dice) -> Piece:
    """ "nous achetons du pain et du fromage" """
    here, verb = Clause(anyone(dice)), dice.pick(LISTED)
    group = verb_group(verb, dice.pick(here.tenses()), here.agreement)
    noun = dice.pick(OBJECTS[verb])
    other = dice.pick([option for option in OBJECTS[verb] if option is not noun])
    first, second = (_this_thing(dice, verb, one, "plain", here.agreement.owner) for one in (noun, other))
    return here.sentence(group, row(first, AND, second))
