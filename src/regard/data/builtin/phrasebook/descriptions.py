"""Sentences about things: what they are like, where they are, what they cost."""

from regard.data.builtin.phrasebook.being import TENSES, be
from regard.data.builtin.phrasebook.clauses import STATEMENT, Clause
from regard.data.builtin.phrasebook.determiners import (
    NUMBERS,
    OWNERS,
    THESE,
    THIS,
    UNPOSSESSED,
    A,
    determiners,
)
from regard.data.builtin.phrasebook.noun_phrases import PEOPLE, attributes, decorated, owned, phrase
from regard.data.builtin.phrasebook.pieces import DENIED, EMPTY, OPEN, YES_NO, Dice, Piece, Rule, fixed
from regard.data.builtin.phrasebook.places_and_times import HOUSE_PETS, spot
from regard.data.builtin.phrasebook.states import adjective, compared
from regard.data.builtin.phrasebook.subjects import ASKING, nominal, plain
from regard.data.builtin.phrasebook.verb_groups import PRESENT, verb_group
from regard.data.builtin.phrasebook.words import ADJECTIVES, COLOURS, NOUNS, Adjective, Noun, verb

__all__ = ["PREDICATES", "description", "existence", "identity", "placement", "presentation", "price",
           "thing_comparison", "where_is"]  # fmt: skip

HUMAN = ("kin", "friend", "person", "profession")
DESCRIBED = [noun for of, group in NOUNS.items() if of not in HUMAN for noun in group]
UNPREDICATED = frozenset(("nouveau", "jeune"))  # "la voiture est nouvelle" would be "neuve"


def _predicates(noun: Noun) -> list[Adjective]:
    before, after, _ = attributes(noun)
    return [a for a in (*before, *after) if a.lemma not in UNPREDICATED]


PREDICATES = {noun: _predicates(noun) for noun in DESCRIBED}
# Chosen from the adjective to its noun, an adjective of few nouns is seen as often as the others.
DESCRIBABLE = [
    (chosen, [noun for noun in DESCRIBED if chosen in PREDICATES[noun]])
    for chosen in (*ADJECTIVES, *COLOURS)
    if chosen.lemma not in UNPREDICATED
]
COMPARABLE = [(chosen, nouns) for chosen, nouns in DESCRIBABLE if chosen.comparative]


def description(dice: Dice) -> Piece:
    """ "les pommes sont délicieuses", "est-ce que la voiture est rouge ?" """
    chosen, nouns = dice.pick(DESCRIBABLE)
    here = Clause(plain(dice, dice.pick(nouns)), "statement" if dice.roll(4) else "asked")
    negation = "pas" if here.mood == "statement" and dice.roll(6) == 0 else None
    group = be("être", dice.pick(TENSES), here.agreement, here.mood, negation=negation)
    return here.sentence(group, adjective(dice, chosen, here.subject))


def thing_comparison(dice: Dice) -> Piece:
    """ "ce livre est plus intéressant que ce journal" """
    chosen, nouns = dice.pick(COMPARABLE)
    noun = dice.pick(nouns)
    subject, other = plain(dice, noun), plain(dice, dice.pick([n for n in NOUNS[noun.of] if n is not noun]))
    group = be("être", "present", subject.agreement, negation="pas" if dice.roll(5) == 0 else None)
    return STATEMENT(subject.piece, group, compared(dice, chosen, subject, other.piece))


PLACED = [noun for of in ("book", "object", "accessory", "tableware", "garment", "text") for noun in NOUNS[of]]
PLACED += HOUSE_PETS


def placement(dice: Dice) -> Piece:
    """ "les clés sont sur la table" """
    here = Clause(plain(dice, dice.pick(PLACED)), "statement" if dice.roll(4) else "asked")
    negation = "pas" if here.mood == "statement" and dice.roll(5) == 0 else None
    tense = dice.pick(("present",) * 3 + ("past",))
    return here.sentence(be("être", tense, here.agreement, here.mood, negation=negation), spot(dice))


WHERE_IS = Rule("où V S ?", "where/où V^ S V ?/?", kind=OPEN)
SOUGHT = [*DESCRIBED, *PEOPLE]


def where_is(dice: Dice) -> Piece:
    """ "où est la gare ?", "où étiez-vous ?" """
    tense = dice.pick(("present",) * 3 + ("past", "future"))
    if dice.roll(6) == 0:
        return WHERE_IS(be("être", tense, dice.pick(ASKING).agreement, "inverted"), EMPTY)
    subject = nominal(dice, dice.pick(SOUGHT))
    return WHERE_IS(be("être", tense, subject.agreement, "asked"), subject.piece)


# Each opening with its determiners, in the singular and in the plural.
THERE = [
    (context, (Rule(french, english, kind=kind),
               Rule(french, english.replace("is_", "are_").replace("was_", "were_"), kind=kind)))
    for context, french, english, kind in (
        ("existing", "il y a X Y", "there/il/y is_VERB/a X Y", None),
        ("existing", "il y a X Y", "there/il/y is_VERB/a X Y", None),
        ("existing", "il y avait X Y", "there/il/y was_VERB/avait X Y", None),
        ("absent", "il n'y a X Y", "there/il/n'y is_VERB/a X Y", DENIED),
        ("existing asked", "y a-t-il X Y ?", "is_VERB/a-t-il there/y X Y ?/?", YES_NO),
        ("existing asked", "est-ce qu'il y a X Y ?", "is_VERB/a/est-ce there/qu'il/y X Y ?/?", YES_NO),
    )
]
EXISTING = [noun for of in ("fruit", "dish", "solid", "drink", "book", "object", "tableware", "container")
            for noun in NOUNS[of]] + HOUSE_PETS  # fmt: skip


def existence(dice: Dice) -> Piece:
    """ "il y a un chat sous la table", "y a-t-il du lait dans la cuisine ?" """
    context, rules = dice.pick(THERE)
    noun = dice.pick(EXISTING)
    determiner = dice.pick(determiners(noun, context, None))
    return rules[determiner.is_plural](decorated(dice, noun, determiner), spot(dice))


IDENTITIES = (
    Rule("c'est X", "it/c'est is/c'est X"),
    Rule("c'est X", "it/c'est is/c'est X"),
    Rule("ce n'est pas X", "it/ce is/n'est not/n'est/pas X", kind=DENIED),
    Rule("est-ce X ?", "is/est-ce it/est-ce X ?/?", kind=YES_NO),
)
MINE = [OWNERS[owner][0] for owner in ("je", "tu", "nous", "vous", "ils")]
SINGLE = [noun for noun in DESCRIBED if noun.singular and not noun.is_mass]


def identity(dice: Dice) -> Piece:
    """ "c'est un livre intéressant", "est-ce ta voiture ?", "c'est le chat de Marie" """
    noun, rule, side = dice.pick(SINGLE), dice.pick(IDENTITIES), dice.roll(3)
    if noun.of in UNPOSSESSED or side == 0:
        return rule(decorated(dice, noun, A))
    return rule(owned(dice, noun) if side == 1 else decorated(dice, noun, dice.pick(MINE)))


HERE = (Rule("voici X", "here/voici is/voici X"), Rule("voici X", "here/voici are/voici X"))


def presentation(dice: Dice) -> Piece:
    """ "voici mon frère", "voici tes clés" """
    noun = dice.pick(SOUGHT)
    options = [option for option in determiners(noun, "definite", None) if option not in (THIS, THESE)]
    determiner = dice.pick(options)
    return HERE[determiner.is_plural](phrase(noun, determiner))


COST = verb("coûter", "cost, cost")
HOW_MUCH = Rule("combien V S ?", "how/combien much/combien V^ S V ?/?", kind=OPEN)
EUROS = [fixed(f"{french} euros", f"{english} euros") for french, english in NUMBERS]
PRICED = [noun for of in ("garment", "accessory", "object", "book", "dish", "tableware") for noun in NOUNS[of]]


def price(dice: Dice) -> Piece:
    """ "combien coûte cette robe ?", "ce stylo coûte deux euros" """
    subject = nominal(dice, dice.pick(PRICED))
    if dice.roll(2):
        return HOW_MUCH(verb_group(COST, PRESENT, subject.agreement, "asked"), subject.piece)
    return STATEMENT(subject.piece, verb_group(COST, PRESENT, subject.agreement), dice.pick(EUROS))
