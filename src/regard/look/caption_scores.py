"""How good captions are, beside all references of their images: BLEU-1 to BLEU-4, CIDEr-D and exact matches."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from regard.look.metrics import Scores

__all__ = ["caption_scores", "cider_d", "normalized"]

LONGEST = 4  # words of an n-gram
SIGMA = 6.0  # words by which a caption may be too long or too short before it counts much less
WORD = re.compile(r"\w+(?:['’]\w+)*")
SIGNATURE = "own tokenizer: lower case, without punctuation"

Grams = Counter[tuple[str, ...]]


def caption_scores(answers: Sequence[str], references: Sequence[Sequence[str]]) -> Scores:
    """Of one answer for each image. BLEU is in percent, CIDEr-D from 0 to 10."""
    from sacrebleu.metrics.bleu import BLEU

    told, wanted = [*map(normalized, answers)], [[*map(normalized, each)] for each in references]
    most = max(map(len, wanted))
    streams = [[each[number] if number < len(each) else None for each in wanted] for number in range(most)]
    found: Scores = {}
    for longest in range(1, LONGEST + 1):
        bleu = BLEU(max_ngram_order=longest, tokenize="none", force=True)
        found[f"bleu_{longest}"] = bleu.corpus_score(told, streams).score  # type: ignore[arg-type]
    signature = bleu.get_signature()
    exact = sum(answer in each for answer, each in zip(told, wanted, strict=True))
    return found | {
        "cider_d": cider_d(told, wanted),
        "exact": 100 * exact / len(answers),
        "examples": len(answers),
        "bleu_signature": f"{signature}|{SIGNATURE}",
        "cider_d_signature": f"CIDEr-D|n:{LONGEST}|sigma:{SIGMA:g}|{SIGNATURE}",
    }


def normalized(text: str) -> str:
    """The words of a caption in lower case, without punctuation.

    >>> normalized("A dog's ball , on the grass .")
    "a dog's ball on the grass"
    """
    return " ".join(WORD.findall(text.lower()))


def cider_d(answers: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over all images of 10 · the similarity to the references (Vedantam et al. 2015, "CIDEr-D").

    An n-gram weighs its count · log(images / images with it in a reference). The similarity is the cosine of these
    weights; but an n-gram of the answer weighs at most as much as in the reference, and an answer of another length
    counts less. It is the mean for n = 1 to 4.

    >>> references = [["a red dog"], ["a blue cat"]]
    >>> round(cider_d(["a red dog", "a blue cat"], references), 3), cider_d(["a cow", "a cow"], references)
    (7.5, 0.0)
    """
    every = [[_grams(text) for text in each] for each in references]
    seen_in = Counter(gram for each in every for gram in set().union(*each))
    total = 0.0
    for answer, each in zip(answers, every, strict=True):
        own = _grams(answer)
        total += sum(_similarity(own, reference, seen_in, len(references)) for reference in each) / len(each)
    return 10 * total / len(answers)


def _similarity(own: Grams, reference: Grams, seen_in: Counter[tuple[str, ...]], sources: int) -> float:
    def weight(gram: tuple[str, ...]) -> float:
        return math.log(sources / max(1, seen_in[gram]))

    longer = _words(own) - _words(reference)
    found = 0.0
    for size in range(1, LONGEST + 1):
        one, other = ({gram: count * weight(gram) for gram, count in grams.items() if len(gram) == size}
                      for grams in (own, reference))
        shared = sum(min(one[gram], other[gram]) * other[gram] for gram in one.keys() & other.keys())
        norms = math.hypot(*one.values()) * math.hypot(*other.values())
        found += shared / norms if norms else 0.0
    return found / LONGEST * math.exp(-(longer**2) / (2 * SIGMA**2))


def _words(grams: Grams) -> int:
    return sum(count for gram, count in grams.items() if len(gram) == 1)


def _grams(text: str) -> Grams:
    return Counter(_all_grams(text.split()))


def _all_grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(1, LONGEST + 1):
        yield from (tuple(words[start : start + size]) for start in range(len(words) - size + 1))
