"""A page in a browser, with all that it asked for, said and did."""

import re
from pathlib import Path
from typing import Any


class Tab:
    """A page of the browser."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1100, "height": 760}, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))

    def open(self, file: Path, address: str = "") -> "Tab":
        self.page.goto("about:blank")
        self.page.goto(f"{file.as_uri()}{address}")
        self.settle()
        return self

    def settle(self) -> None:
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    @property
    def address(self) -> str:
        return str(self.page.evaluate("decodeURIComponent(location.hash)"))

    @property
    def status(self) -> str:
        return re.sub("[\u2068\u2069]", "", self.page.locator("#status").inner_text())

    def shown(self) -> list[str]:
        panels = self.page.locator("[role=tabpanel]:visible").all()
        return [str(panel.get_attribute("id")).removeprefix("panel-") for panel in panels]
