"""The page in a real browser: three sizes, light and dark, by keyboard alone. No request leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.server.served import Served
from tests.support.browser import SIZES, chromium, needs_chromium, violations
from tests.support.clinics import by

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_chromium
PAY = "main button.pay"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def opened(browser: Browser, port: int, token: str, size: str = "desktop", scheme: str = "light") -> Page:
    """A page of somebody who has logged in by the keyboard."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/")
    assert violations(page) == []
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    page.wait_for_selector("header nav")
    return page


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("size", "scheme"), [("phone", "light"), ("phone", "dark"), ("tablet", "light"), ("desktop", "dark")]
)
def test_every_state_keeps_the_rules_of_accessibility(
    browser: Browser, served: Served, port: int, size: str, scheme: str
) -> None:
    """axe-core finds nothing in any state: logging in, views, typing, price, answer, refusal. Nothing is cut off."""
    page = opened(browser, port, served.tokens["alice"], size, scheme)

    def looks_well() -> None:
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits the screen"

    looks_well()
    for path in ("/view/ages", "/view/ward_cube", "/view/ward_cube?sort=n&down=1&filter=w&row=2#row-2", "/ask"):
        page.goto(f"http://127.0.0.1:{port}{path}")
        looks_well()
    page.fill("#statement", "")
    page.type("#statement", "SELECT 'text', 1.5 -- note\nFROM wa")
    page.keyboard.press("ArrowDown")
    looks_well()
    page.keyboard.press("Escape")
    page.fill("#statement", by("sex", "0.02"))
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(PAY)
    looks_well()
    page.click(PAY)
    page.wait_for_selector("#result table")
    looks_well()
    page.fill("#statement", "SELECT secret FROM nowhere")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".refusal")
    looks_well()
    page.context.close()


def test_no_request_leaves_the_page(browser: Browser, served: Served, port: int) -> None:
    """Everything comes from its own origin. Its policy stops a hostile page's attempts and never its own work."""
    page = opened(browser, port, served.tokens["alice"])
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.context.on("request", lambda request: asked.append(request.url))
    for path in ("/", "/view/ages", "/ask"):
        page.goto(f"http://127.0.0.1:{port}{path}")
    own = f"http://127.0.0.1:{port}/"
    assert said == [] and len(asked) >= 9 and all(one.startswith(own) for one in asked)
    assert served.tokens["alice"] not in "".join(asked) and page.evaluate("document.cookie") == ""
    tried = page.evaluate(
        """async () => {
          const broken = [];
          document.addEventListener("securitypolicyviolation", (event) => broken.push(event.effectiveDirective));
          const add = (tag, given) => document.body.append(Object.assign(document.createElement(tag), given));
          const script = document.createElement("script");
          try { script.src = "data:text/javascript,window.evil=1"; } catch (error) { broken.push("script"); }
          try { document.body.innerHTML += "<b>x</b>"; } catch (error) { broken.push("innerHTML"); }
          add("img", { src: "https://example.invalid/x.png" });
          add("iframe", { src: "/" });
          add("style", { textContent: "body { display: none }" });
          await fetch("/").catch(() => broken.push("fetch"));
          await new Promise((done) => setTimeout(done, 300));
          return broken;
        }"""
    )
    assert {"script", "innerHTML", "img-src", "frame-src", "style-src-elem", "connect-src"} <= set(tried), tried
    assert page.evaluate("window.evil") is None
    page.context.close()


def test_nobody_can_frame_it(browser: Browser, served: Served, port: int) -> None:
    """Another site's frame shows nothing, and its forms neither log in nor pay."""
    page = opened(browser, port, served.tokens["alice"])
    before = served.spent()
    evil = f"""<iframe src="http://127.0.0.1:{port}/ask"></iframe>
      <form method="post" action="http://127.0.0.1:{port}/run"><input name="statement" value="x"></form>"""
    page.route("http://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
    page.goto("http://evil.example/")
    page.wait_for_timeout(300)
    assert not any("statement" in frame.content() for frame in page.frames[1:])
    page.evaluate("document.forms[0].submit()")
    page.wait_for_url(f"http://127.0.0.1:{port}/run")
    assert page.inner_text("body").strip() == "There is nothing here." and served.spent() == before
    page.context.close()


def test_names_are_completed_by_the_keyboard(browser: Browser, served: Served, port: int) -> None:
    """Typing suggests, arrows choose, Enter takes, Escape closes. Without that Enter is a new line as ever."""
    page = opened(browser, port, served.tokens["alice"])
    page.goto(f"http://127.0.0.1:{port}/ask")
    page.focus("#statement")
    page.keyboard.type("SELECT wa")
    assert page.locator("#suggestions li").all_inner_texts()[0].startswith("ward")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#statement", "aria-activedescendant") == "suggestion0"
    page.keyboard.press("Enter")
    assert page.input_value("#statement") == "SELECT ward" and page.is_hidden("#suggestions")
    page.keyboard.press("Enter")
    page.keyboard.type("FROM vi")
    page.keyboard.press("Escape")
    assert page.is_hidden("#suggestions")
    page.keyboard.type("s")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.input_value("#statement") == "SELECT ward\nFROM visits"
    page.context.close()


def test_a_statement_is_coloured_and_names_come_in_by_a_click(browser: Browser, served: Served, port: int) -> None:
    """The coloured text is the typed one, letter for letter. A column's name goes where the cursor is."""
    page = opened(browser, port, served.tokens["alice"])
    page.goto(f"http://127.0.0.1:{port}/ask")
    page.fill("#statement", "SELECT 'it''s' AS a, 1.5 -- SELECT\nFROM \"GROUP\" /* 1 */ WHERE selected = 'open")
    said = [(one.get_attribute("class"), one.inner_text()) for one in page.query_selector_all(".colours span")]
    assert said == [
        ("sql-word", "SELECT"), ("sql-text", "'it''s'"), ("sql-word", "AS"), ("sql-digit", "1.5"),
        ("sql-note", "-- SELECT"), ("sql-word", "FROM"), ("sql-quoted", '"GROUP"'), ("sql-note", "/* 1 */"),
        ("sql-word", "WHERE"), ("sql-text", "'open"),
    ]  # fmt: skip
    assert page.evaluate("document.querySelector('.colours').textContent") == f"{page.input_value('#statement')}\n"
    places = page.evaluate(
        """() => ['.colours', '#statement'].map((one) => {
          const found = document.querySelector(one);
          const box = found.getBoundingClientRect(), style = getComputedStyle(found);
          return [box.top + parseFloat(style.paddingTop) + parseFloat(style.borderTopWidth),
                  box.left + parseFloat(style.paddingLeft) + parseFloat(style.borderLeftWidth),
                  style.fontSize, style.lineHeight, style.fontFamily];
        })"""
    )
    assert places[0] == places[1], "the colours lie where the letters are"
    page.fill("#statement", "SELECT ")
    page.click(".tables button.name >> text=ward")
    assert page.input_value("#statement") == "SELECT ward" and page.evaluate("document.activeElement.id") == "statement"
    page.context.close()


def test_an_example_shows_its_price_at_a_click(browser: Browser, served: Served, port: int) -> None:
    """The statement stands in its place with its price, and nothing is charged. Later it is among those before."""
    page = opened(browser, port, served.tokens["alice"])
    page.goto(f"http://127.0.0.1:{port}/ask")
    before = len(served.spent())
    page.click(".again button >> nth=0")
    page.wait_for_selector(PAY)
    assert page.input_value("#statement").startswith("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1)")
    assert len(served.spent()) == before and "You asked before" in page.inner_text(".beside")
    page.context.close()


def test_the_price_is_shown_before_the_button_that_pays(browser: Browser, served: Served, port: int) -> None:
    """Price, errors and the rest are above the button. Pressing it twice pays once. The share is watched."""
    page = opened(browser, port, served.tokens["alice"], "phone")
    page.goto(f"http://127.0.0.1:{port}/ask")
    before = len(served.spent())
    page.fill("#statement", by("ward", "0.037"))
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(PAY)
    assert len(served.spent()) == before
    shown = page.inner_text("#result")
    words = (
        "epsilon = 0.037",
        "of your budget will remain",
        "typical standard error",
        "whether one privacy unit is in the data is right at most 51 of 100 times, not 50.",
        "Nothing is charged before",
        "Pay",
    )
    places = [shown.index(word) for word in words]
    assert places == sorted(places), shown
    page.dblclick(PAY)
    page.wait_for_selector("#result table")
    assert len(served.spent()) == before + 1
    assert "of 5 spent, your share of 50%" in page.inner_text(".budgets") and page.locator("#result svg").count() == 1
    page.context.close()


@pytest.mark.slow
def test_it_works_without_its_script(browser: Browser, served: Served, port: int) -> None:
    """Without scripts a user logs in, sees the price, and pays."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/")
    page.fill("#token", served.tokens["bob"])
    page.click("main button")
    page.goto(f"http://127.0.0.1:{port}/ask")
    page.fill("#statement", by("sex", "0.041"))
    page.click("main button")
    page.click(PAY)
    assert "The answer" in page.inner_text("#result")
    context.close()
