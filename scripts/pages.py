"""Tries the pages of made-up timelines in a headless Chromium: pages.py FOLDER

The folder is what `cargo run -p gpustream-timeline-view --example pictures -- FOLDER` wrote. A page is used as a person uses
it, and what it shows is compared with the times that were made up; a logged error or a request fails the test.
"""

import os
import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

FOLDER = Path(sys.argv[1]).resolve()
BROWSERS = ["chromium-headless-shell", "chromium", "google-chrome"]
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


@contextmanager
def opened(browser, name, **options):
    """Opens a page, and checks at the end that nothing went wrong in it."""
    context = browser.new_context(viewport={"width": 1000, "height": 700}, **options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    url = (FOLDER / name).as_uri()
    page.on("request", lambda request: None if request.url == url else wrong.append(f"asks for {request.url}"))
    page.goto(url)
    yield page
    assert not wrong, wrong
    context.close()


def shown(page):
    """Returns the window of time that the page says it shows: from, to, in nanoseconds."""
    # The text is written with the next frame.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = re.match(r"([\d.]+) (\S+) to ([\d.]+) (\S+),", page.inner_text("#range"))
    start, start_unit, end, end_unit = found.groups()
    return float(start) * UNITS[start_unit], float(end) * UNITS[end_unit]


def canvas(page):
    """Returns the box of the canvas, in the window."""
    return page.locator("#canvas").bounding_box()


def hover_over(page, label):
    """Moves the pointer down the middle of the window until the tooltip has a label; returns its lines and place."""
    box = canvas(page)
    for y in range(int(box["y"]) + 26, int(box["y"] + box["height"]), 5):
        for x in range(int(box["x"] + box["width"] * 0.45), int(box["x"] + box["width"] * 0.65), 15):
            page.mouse.move(x, y)
            if page.locator("#tip").is_visible() and page.inner_text("#tip").startswith(label):
                return page.inner_text("#tip").split("\n"), (x, y)
    raise AssertionError(f"no tooltip says {label}")


def search(page, label):
    page.fill("#search", label)
    page.press("#search", "Enter")


def pixel(page, x, y):
    """Returns the colour of the canvas at a place of the window."""
    box, ratio = canvas(page), page.evaluate("devicePixelRatio")
    # Reading the page's own canvas would make the browser advise against it.
    return page.evaluate(
        """([x, y]) => {
            const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
            pen.drawImage(document.getElementById("canvas"), -Math.round(x), -Math.round(y));
            return [...pen.getImageData(0, 0, 1, 1).data];
        }""",
        [(x - box["x"]) * ratio, (y - box["y"]) * ratio],
    )


def details(browser):
    with opened(browser, "everything.html") as page:
        assert shown(page) == (0, 420e3), shown(page)
        expect(page.locator("h1")).to_have_text("everything that a picture can show")
        legend = page.locator("#legend li").all_inner_texts()
        assert legend[0] == "kernel" and "copy to the host" in legend and "host waits" in legend, legend
        search(page, "normal")
        # The operation and its submission.
        expect(page.locator("#found")).to_have_text("1 of 2")
        kept = page.inner_text("#details").split(" · ")
        assert kept == [
            "normalize",
            "95.00 µs to 150.0 µs: 55.00 µs, stream 2",
            "grid 256, block 128",
            "src/main.rs:22",
            "submitted by main at 14.00 µs in 4.000 µs, 77.00 µs before the start",
            "waited for copy on stream 1",
        ], kept
        page.press("#search", "Enter")
        expect(page.locator("#found")).to_have_text("2 of 2")
        assert page.inner_text("#details").split(" · ")[2] == "submission of normalize on stream 2"
        page.press("#search", "Escape")
        expect(page.locator("#found")).to_have_text("")
        page.keyboard.press("0")
        lines, where = hover_over(page, "step")
        assert lines[1] == "172.0 µs to 290.0 µs: 118.0 µs, stream 1", lines
        page.mouse.click(*where)
        expect(page.locator("#details b")).to_have_text("step")
        page.keyboard.press(".")
        expect(page.locator("#details b")).to_have_text("copy")
        assert "2 MiB at 43.7 GB/s to the host" in page.inner_text("#details")


def movement(browser):
    with opened(browser, "everything.html") as page:
        lines, (x, y) = hover_over(page, "step")
        for _ in range(4):
            page.mouse.wheel(0, -200)
        start, end = shown(page)
        assert end - start < 420e3 / 3 and start > 0, (start, end)
        # The pointer is still on the slice, since the time under it stayed where it was.
        page.mouse.move(x + 1, y)
        assert page.inner_text("#tip").startswith("step")
        page.mouse.down()
        page.mouse.move(x + 101, y, steps=4)
        page.mouse.up()
        earlier, _ = shown(page)
        assert earlier < start, (earlier, start)
        page.mouse.wheel(0, 100_000)
        assert shown(page)[1] - shown(page)[0] > 420e3
        page.click("#all")
        assert shown(page) == (0, 420e3), shown(page)
        page.click("#in")
        first = shown(page)
        assert first[0] > 0 and first[1] < 420e3
        page.click("#right")
        assert shown(page)[0] > first[0]
        page.focus("#canvas")
        page.keyboard.press("ArrowLeft")
        assert abs(shown(page)[0] - first[0]) < 1e3
        page.keyboard.press("-")
        page.keyboard.press("Home")
        assert shown(page) == (0, 420e3), shown(page)


def pinch(browser):
    with opened(browser, "everything.html", has_touch=True) as page:
        touch = page.context.new_cdp_session(page)

        def fingers(kind, *places):
            points = [{"x": x, "y": 200, "id": number} for number, x in enumerate(places)]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        fingers("touchStart", 450, 550)
        for step in range(1, 6):
            fingers("touchMove", 450 - 20 * step, 550 + 20 * step)
        fingers("touchEnd")
        start, end = shown(page)
        assert 420e3 / 4 < end - start < 420e3 / 2, (start, end)


def schemes(browser):
    seen = []
    for scheme in ("light", "dark"):
        with opened(browser, "everything.html", color_scheme=scheme) as page:
            _, (x, y) = hover_over(page, "step")
            box = canvas(page)
            seen.append((pixel(page, box["x"] + 1, box["y"] + 1), pixel(page, x, y)))
            # The page follows when the scheme changes.
            other = {"light": "dark", "dark": "light"}[scheme]
            page.emulate_media(color_scheme=other)
            shown(page)
            assert pixel(page, box["x"] + 1, box["y"] + 1) != seen[-1][0]
    (page_light, step_light), (page_dark, step_dark) = seen
    assert sum(page_light[:3]) > 700 and sum(page_dark[:3]) < 100, seen
    assert step_light != step_dark, seen
    for scheme, light in (("light", True), ("dark", False)):
        with opened(browser, "everything.svg", color_scheme=scheme) as page:
            assert page.evaluate("document.documentElement.tagName") == "svg"
            fill = page.evaluate("getComputedStyle(document.querySelector('.page')).fill")
            assert (fill == "rgb(255, 255, 255)") == light, fill


def many(browser):
    with opened(browser, "many.html") as page:
        box = canvas(page)
        page.mouse.move(box["x"] + 500, box["y"] + 50)
        tip = page.inner_text("#tip")
        assert re.search(r"\d+ slices here are narrower than a pixel", tip), tip
        for _ in range(40):
            page.mouse.wheel(0, -120)
        start, end = shown(page)
        assert end - start < 20e3, (start, end)
        search(page, "reduce")
        expect(page.locator("#found")).to_have_text("1 of 50000")


def hostile(browser):
    with opened(browser, "hostile.html") as page:
        lines, where = hover_over(page, "</script>")
        assert lines[0].endswith("onerror=window.harmed=1>"), lines
        page.mouse.click(*where)
        assert page.evaluate("window.harmed") is None
        assert page.locator("img").count() == 0


def others(browser):
    for name in ("ways", "ways-without-threads", "zoomed"):
        with opened(browser, f"{name}.html") as page:
            shown(page)
        with opened(browser, f"{name}.svg") as page:
            assert page.locator("rect").count() > 20


def main():
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("no browser: scripts/setup.sh browser")
    # Chromium's own sandbox does not work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        for test in (details, movement, pinch, schemes, many, hostile, others):
            test(browser)
            print(f"{test.__name__}: ok")
        browser.close()


main()
