"""ImageQuestion: an image and a text that asks about it, as one input; and how a person gives one."""

import json
from dataclasses import dataclass
from typing import Any

from regard.data.images.decode import ImageFile
from regard.data.images.reader import ImageReader, data_url
from regard.data.reader import Reader
from regard.data.tokenizer import checked_length
from regard.settings.errors import UserError

__all__ = ["MARK", "ImageQuestion", "QuestionReader"]

MARK = "<image>"
IMAGES = ImageReader()


@dataclass(frozen=True)
class ImageQuestion:
    """A text with an image in it. `<image>` marks its place; without this it comes first."""

    image: ImageFile
    question: str


class QuestionReader(Reader[ImageQuestion]):
    """The path of an image, then a space and the question; or `{"image": …, "question": …}`, in Python a pair."""

    noun = "image with a question"
    reads_files = False

    def parse(self, text: str, *, origin: str) -> ImageQuestion:
        if text.lstrip().startswith("{"):
            return self._of_json(text, origin)
        path, _, question = text.strip().partition(" ")
        return self._checked(path, question, origin)

    def check(self, given: Any, *, origin: str) -> ImageQuestion:
        match given:
            case ImageQuestion():
                return given
            case str():
                return self.parse(given, origin=origin)
            case (image, str(question)) | {"image": image, "question": str(question)}:
                return self._checked(image, question, origin)
        raise UserError(f"{origin}: expected an image and a question, as a pair")

    def show(self, given: ImageQuestion) -> str:
        return f"{given.image.path} {given.question}"

    def picture(self, given: ImageQuestion) -> str:
        return data_url(given.image)

    def _of_json(self, text: str, origin: str) -> ImageQuestion:
        try:
            match json.loads(text):
                case {"image": str(path), "question": str(question)}:
                    return self._checked(path, question, origin)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{origin}: broken JSON: {error}") from None
        raise UserError(f'{origin}: expected {{"image": "PATH", "question": "TEXT"}}')

    def _checked(self, image: Any, question: str, origin: str) -> ImageQuestion:
        if question.count(MARK) > 1:
            raise UserError(f"{origin}: {MARK} stands in it {question.count(MARK)} times; it may stand there once")
        return ImageQuestion(IMAGES.check(image, origin=origin), checked_length(question.strip(), origin))
