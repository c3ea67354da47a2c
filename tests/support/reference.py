"""The pages of the interfaces in a browser: what they list, and what they must not do."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

VIOLATIONS: Final = """window.refused = [];
document.addEventListener("securitypolicyviolation", (e) => window.refused.push([e.effectiveDirective, e.blockedURI]));"""
LISTED: Final = "[...document.querySelectorAll('.menu-content a[href]')].map(one => one.getAttribute('href'))"
WAIT_MS: Final = 30_000


class Reference:
    """One page, drawn; `complaints` is what went wrong until now: of the console, refused by the policy, or asked elsewhere."""

    def __init__(self, browser: Browser, address: str, width: int) -> None:
        self.address, self._said = address, list[str]()
        self._context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        self._context.set_default_timeout(WAIT_MS)
        self.page = self._context.new_page()
        self.page.add_init_script(VIOLATIONS)
        self.page.on("console", lambda one: self._said.append(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._said.append(str(error)))
        self.page.on("request", lambda one: self._asked(one.url))
        self.page.goto(address)
        expect(self.page.locator("redoc h1").first).to_be_attached(timeout=WAIT_MS)

    def _asked(self, url: str) -> None:
        if urlsplit(url).netloc != urlsplit(self.address).netloc and not url.startswith("data:"):
            self._said.append(f"asked for {url}")

    @property
    def complaints(self) -> list[Any]:
        return [*self._said, *self.page.evaluate("window.refused"), *self.page.context.cookies()]

    def groups(self) -> list[str]:
        """Their addresses."""
        return [href for href in self.page.evaluate(LISTED) if href.count("/") == 1 and len(href) > 2]

    def open_menu(self) -> None:
        """On a phone."""
        self.page.get_by_test_id("floating-button").click()

    def listed(self) -> set[str]:
        """The last parts of the addresses in the menu, of all groups."""
        found = set[str]()
        for group in self.groups():
            self.page.locator(f".menu-content a[href='{group}']").click()
            expect(self.page.locator(f".menu-content a[href^='{group}/']").first).to_be_attached(timeout=WAIT_MS)
            found |= {href.rpartition("/")[2] for href in self.page.evaluate(LISTED)}
        return found

    def read_on(self, turns: int = 12) -> None:
        """To the end of what is drawn, which draws more."""
        for _ in range(turns):
            self.page.mouse.wheel(0, 4000)
            self.page.evaluate("() => new Promise(requestAnimationFrame)")

    def is_wider_than_the_window(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def close(self) -> None:
        self._context.close()
