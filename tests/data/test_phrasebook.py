"""The phrase-book: one French sentence has one English one, and what is tested is never trained on."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

import pytest

from regard.data.builtin import phrasebook
from regard.data.builtin.phrasebook import SPLITS, Phrase, lexicon, phrases, sentences, words
from regard.data.builtin.phrasebook.determiners import Determiner, determiners
from regard.data.builtin.phrasebook.grammar import TEMPLATES, derive
from regard.data.builtin.phrasebook.noun_phrases import attributes, phrase
from regard.data.builtin.phrasebook.pieces import Dice, Piece, Rule, written
from regard.data.builtin.phrasebook.subjects import Subject
from regard.data.builtin.phrasebook.verb_groups import Clitic, Tense
from regard.settings.errors import UserError

TRAIN = 100_000
T = TypeVar("T")


@cache
def book(split: str) -> list[Phrase]:
    return phrases(split, TRAIN if split == "train" else 1000)


@cache
def lemmas() -> dict[str, tuple[str, ...]]:
    """Each noun, adjective and verb, and its forms."""
    found: dict[str, tuple[str, ...]] = {}
    tables = (lexicon.INSTRUMENTS, lexicon.GAMES, lexicon.STUDIES, lexicon.BODY_PARTS)
    for noun in [*sum(words.NOUNS.values(), []), *(n for table in tables for n in words.nouns(table, "other"))]:
        forms = [form for form in (noun.singular, noun.plural if noun.of != "other" else None) if form]
        found[noun.lemma] = (*found.get(noun.lemma, ()), *(form[0] for form in forms))
    for adjective in [*words.ADJECTIVES, *words.COLOURS, *words.PERSONAL, *words.NATIONALITIES]:
        forms = [adjective.form(is_feminine=f, is_plural=p) for f in (False, True) for p in (False, True)]
        found[adjective.lemma] = tuple(forms)
    for table in (lexicon.TRANSITIVES, lexicon.STATIVES, lexicon.DITRANSITIVES, lexicon.COMMUNICATION,
                  lexicon.INTRANSITIVES, lexicon.MOTIONS, lexicon.REFLEXIVES):  # fmt: skip
        for verb in words.read_verbs(table):
            participle = () if table is lexicon.STATIVES else (verb.participle,)
            found[verb.lemma] = (*found.get(verb.lemma, ()), *verb.present, *participle)
    return found


def spoken(source: str) -> list[str]:
    """The words of a sentence, taken apart at apostrophes and at the hyphens of an inversion."""
    return re.sub(r"-(t-)?(tu|il|elle|nous|vous|ils|elles|toi)\b", r" \2", source.replace("'", "' ")).split()


# --- one French sentence, one English one ---------------------------------------------------------------------


def test_a_french_sentence_has_one_translation_one_alignment_and_one_split() -> None:
    seen: dict[str, tuple[str, tuple[tuple[int, int], ...], str]] = {}
    for index in range(200_000):
        piece = derive(phrasebook._number(f"functions {index}"))
        source, target, alignment = written(piece)
        fate = target, alignment, phrasebook._split(source, piece.combinations)
        assert seen.setdefault(source, fate) == fate, source
    assert len(seen) > 150_000


class Guided(Dice):
    """Dice that know the sentence they want: of the options they take one whose words occur in it."""

    def __init__(self, number: int, wanted: frozenset[str]) -> None:
        super().__init__(number)
        self.wanted = wanted

    def pick(self, options: Sequence[T]) -> T:
        return super().pick([option for option in options if self.fits(option)] or options)

    def fits(self, option: object) -> bool:
        match option:
            case words.Noun():
                return any(form and self.has(form) for form in (option.singular, option.plural))
            case words.Verb():
                return any(self.has([form]) for form in (*option.present, option.participle, option.lemma))
            case words.Adjective():
                return any(self.has([form]) for form in (option.masculine, option.feminine, option.before_vowel))
            case Determiner():
                return any(self.has(form) for form in (option.masculine, option.feminine))
            case Tense(head=words.Verb() as head):
                return self.fits(head)
            case Clitic():
                return self.has([option.french])
            case Subject():
                return self.has(option.piece.french)
            case Piece():
                return self.has(option.french)
            case Rule():
                return self.has([word for word, slot in option.french if slot is None])
            case (str() as french, str()):
                return self.has(french.split())
            case (first, *_):
                return self.fits(first)
        return True

    def has(self, forms: Iterable[str]) -> bool:
        return all(any(part in self.wanted for part in (form, form + "s", form + "x")) for form in forms)


def translations(source: str) -> set[str]:
    """What the book makes of a sentence: it is derived again and again, by guided dice, in every template."""
    elided = {"j'": "je", "n'": "ne", "d'": "de", "m'": "me", "t'": "te", "s'": "se", "qu'": "que", "l'": "le la"}
    merged = {"du": "de le", "des": "de les", "au": "à le", "aux": "à les"}
    parts = [*source.split(), *spoken(source), *re.findall(r"[\w']+", source)]
    wanted = frozenset(word for part in parts for word in f"{part} {elided.get(part, '')} {merged.get(part, '')}".split())
    found = set()
    for template in TEMPLATES:
        for attempt in range(400):
            dice = Guided(phrasebook._number(f"{source} {attempt}"), wanted)
            french, english, _ = written(template(dice))
            if french == source:
                found.add(english)
                break
    return found


@pytest.mark.parametrize(
    ("source", "target"),
    [line.strip().split(" | ") for line in """
        je suis étudiant | I am a student
        je suis étudiante | I am a student
        elle est médecin | she is a doctor
        il est devenu ingénieur | he became an engineer
        je mange une pomme | I eat an apple
        j'ai mangé une orange | I ate an orange
        je ne mange pas de pain | I do not eat any bread
        nous avons acheté des pommes | we bought some apples
        as-tu une voiture ? | do you have a car?
        je n'ai pas de voiture | I do not have a car
        elle boit de l'eau | she drinks some water
        veux-tu du café ? | do you want any coffee?
        j'aime le chocolat | I like chocolate
        il aime sa sœur | he loves his sister
        elle aime son chien | she likes her dog
        je le connais | I know him
        je la mange | I eat it
        il l'a vue | he saw her
        tu m'aides | you help me
        je veux t'aider | I want to help you
        je vais acheter une petite voiture rouge | I am going to buy a small red car
        elle porte une belle robe blanche | she wears a beautiful white dress
        nous cherchons un vieil hôtel | we look for an old hotel
        il ne peut pas venir à l'école | he cannot come to the school
        elle est allée au marché hier | she went to the market yesterday
        ils sont partis en train | they left by train
        où habites-tu ? | where do you live?
        quand est-ce que vous partez ? | when do you leave?
        que manges-tu ? | what do you eat?
        qui a fermé la porte ? | who closed the door?
        combien de pommes avez-vous ? | how many apples do you have?
        est-ce qu'il y a du lait dans la cuisine ? | is there any milk in the kitchen?
        il y a un chat sous la table | there is a cat under the table
        où est la gare ? | where is the station?
        j'ai faim | I am hungry
        j'ai vingt ans | I am twenty years old
        j'ai mal à la tête | my head hurts
        elle a besoin d'un manteau | she needs a coat
        je me lève à sept heures | I get up at seven o'clock
        il vient de partir | he just left
        je joue du piano | I play the piano
        elle sait nager | she knows how to swim
        il me donne un livre | he gives me a book
        elle montre la photo à Marie | she shows the photo to Marie
        ferme la porte s'il te plaît | close the door please
        ne mangez pas cette pomme | do not eat this apple
        je voudrais une tasse de thé | I would like a cup of tea
        Paul est plus grand que moi | Paul is taller than me
        la femme qui chante est célèbre | the woman who sings is famous
        Marie dort parce qu'elle est fatiguée | Marie sleeps because she is tired
        je pense que tu as faim | I think that you are hungry
        c'est la voiture de mon frère | it is my brother's car
        il est trois heures et demie | it is half past three
        il fait froid à Paris | it is cold in Paris
    """.strip().splitlines()],
)  # fmt: skip
def test_the_book_translates(source: str, target: str) -> None:
    assert translations(source) == {target}
