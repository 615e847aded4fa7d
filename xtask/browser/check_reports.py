"""Opens reports in a browser, as their readers do, and holds what they show against the profiles that they were made of.

    check_reports.py CHROMIUM FOLDER    FOLDER has NAME.html and NAME.json; takes the screenshots

What a tensor is, and where its rectangle lies, is computed here from NAME.json alone.
"""

import json
import sys
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAPTOP = {"width": 1280, "height": 860}
PHONE = {"width": 375, "height": 740}
LARGE = ["gpt48", "many"]
SECTIONS = ["timeline", "arena", "peak", "time", "planner", "frontier", "training", "pipeline", "summary"]
CLASSES = 9
# How many tensors of a report are clicked.
CLICKS = 12

# Pixels of a canvas that have exactly the colour of a class, by class.
COUNT_PIXELS = """(id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const style = getComputedStyle(document.documentElement);
  const colours = Array.from({ length: %d }, (_, c) => parseInt(style.getPropertyValue(`--class-${c}`).trim().slice(1), 16));
  const counts = colours.map(() => 0);
  for (let i = 0; i < data.length; i += 4) {
    const c = colours.indexOf((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    if (c >= 0) counts[c] += 1;
  }
  return counts;
}""" % CLASSES

# Where a chart draws, in pixels of the window, and how much of the step it shows.
PLOT = """(name) => {
  const chart = window.memfit[name], box = chart.canvas.getBoundingClientRect(), { plot } = chart;
  return { left: box.left + plot.left, right: box.left + plot.right, top: box.top + plot.top, bottom: box.top + plot.bottom, launches: window.memfit.view.full };
}"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = Path(sys.argv[2])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=sys.argv[1], args=FLAGS)
        for name in ["resnet18", "gpt", "gpt48"]:
            check_report(browser, folder, name)
        check_large(browser, folder)
        check_hostile(browser, folder)
        check_comparison(browser, folder)
        shoot_overview(browser, folder)
        browser.close()


class Opened:
    """A page that may not complain, and asks nobody for anything."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints = []
        self.page.on("console", lambda m: m.type == "error" and self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("request", lambda r: r.url.startswith("file:") or self.complaints.append(f"asks for {r.url}"))
        self.page.on("dialog", lambda d: (self.complaints.append(f"says {d.message}"), d.dismiss()))
        self.page.goto(path.resolve().as_uri())
        settle(self.page)

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            expect(not self.complaints, f"the page complains: {self.complaints}")


def settle(page):
    """Until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))")


def check_report(browser, folder, name):
    profile = json.loads((folder / f"{name}.json").read_text())
    path = folder / f"{name}.html"
    with Opened(browser, path, viewport=LAPTOP, color_scheme="light") as page:
        check_pixels(page, name)
        check_contrast(page, f"{name}, light")
        page.get_by_role("button", name="by kernel").click()
        check_hover(page, profile)
        check_clicks(page, profile)
        check_keys(page, profile)
        check_zoom(page)
        shoot(page, folder, f"{name}-light", SECTIONS)
    with Opened(browser, path, viewport=LAPTOP, color_scheme="dark") as page:
        check_pixels(page, name)
        check_contrast(page, f"{name}, dark")
        shoot(page, folder, f"{name}-dark", [])
        page.locator("button.theme").click()
        expect(page.evaluate("document.documentElement.dataset.theme") == "light", "the theme can be changed")
    phone = {"viewport": PHONE, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
    with Opened(browser, path, **phone) as page:
        check_width(page)
        check_tap(page, profile)
        shoot(page, folder, f"{name}-phone", [])
    print(f"{name}: drawn, hover and {CLICKS} clicks as the profile says, contrast, phone")


def check_pixels(page, name):
    for section, least in [("timeline", 4), ("arena", 3)]:
        counts = page.evaluate(COUNT_PIXELS, section)
        drawn = sum(count > 50 for count in counts)
        expect(drawn >= least, f"{section} of {name} shows {drawn} classes, pixels {counts}")


def check_contrast(page, name):
    for details in page.locator("details").all():
        details.evaluate("(d) => { d.open = true; }")
    settle(page)
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    words = [f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]}" for v in found]
    expect(not found, f"{name} is hard to read for some: {words}")
    for details in page.locator("details").all():
        details.evaluate("(d) => { d.open = false; }")
    settle(page)


def check_hover(page, profile):
    """The instant under the pointer: its kernel, and the largest tensor that lives there."""
    program = profile["programs"][0]
    count = len(program["launches"])
    for launch in [0, count // 3, count // 2, count - 1]:
        scroll_to(page, "timeline")
        plot = page.evaluate(PLOT, "timeline")
        x = plot["left"] + (launch + 0.5) / plot["launches"] * (plot["right"] - plot["left"])
        page.mouse.move(x, (plot["top"] + plot["bottom"]) / 2)
        settle(page)
        panel = page.locator("#timeline .inspector").inner_text()
        here = program["launches"][launch]
        live = [b["bytes"] for b in program["buffers"] if b["first"] <= launch < b["end"]] + [here["scratch_bytes"]]
        expect(f"{launch + 1} of {count}" in panel, f"kernel {launch + 1} is not in {panel!r}")
        expect(here["op"] in panel and here["layer"] in panel, f"{here['op']} of {here['layer']} is not in {panel!r}")
        expect(size(max(live)) in panel, f"{size(max(live))} is not in {panel!r}")


def check_clicks(page, profile):
    """A click on a rectangle names its tensor."""
    program = profile["programs"][0]
    for buffer in clickable(page, profile):
        scroll_to(page, "arena")
        page.mouse.click(*middle(page, profile, buffer))
        settle(page)
        panel = page.locator("#arena .inspector").inner_text()
        kept = "an output"
        if buffer["last_read"] is not None:
            reader = program["launches"][buffer["last_read"]]
            kept = f"kernel {buffer['last_read'] + 1} ({reader['part']})"
        for part in [buffer["type"], size(buffer["bytes"]), f"from {buffer['first'] + 1} to {buffer['end']}", kept, buffer["layer"]]:
            expect(part in panel, f"{part!r} is not in {panel!r}")
        expect(("second time" in panel) == buffer["recomputed"], f"recomputed: {buffer['recomputed']}, but {panel!r}")
        expect(("in place" in panel) == buffer["in_place"], f"in place: {buffer['in_place']}, but {panel!r}")


def clickable(page, profile):
    """Tensors of the first program whose rectangles are large enough to be hit, from all over it."""
    scroll_to(page, "arena")
    plot = page.evaluate(PLOT, "arena")
    per_launch = (plot["right"] - plot["left"]) / plot["launches"]
    per_byte = (plot["bottom"] - plot["top"]) / profile["memory"]["transient_bytes"]
    large = [b for b in profile["programs"][0]["buffers"] if (b["end"] - b["first"]) * per_launch > 3 and b["bytes"] * per_byte > 3]
    expect(len(large) >= CLICKS, f"only {len(large)} tensors are large enough to be hit")
    return [large[i * len(large) // CLICKS] for i in range(CLICKS)]


def middle(page, profile, buffer):
    plot = page.evaluate(PLOT, "arena")
    x = (buffer["first"] + buffer["end"]) / 2 / plot["launches"]
    y = (buffer["offset"] + buffer["bytes"] / 2) / profile["memory"]["transient_bytes"]
    return plot["left"] + x * (plot["right"] - plot["left"]), plot["bottom"] - y * (plot["bottom"] - plot["top"])


def check_keys(page, profile):
    canvas = page.locator("#timeline canvas")
    canvas.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    settle(page)
    count = len(profile["programs"][0]["launches"])
    panel = page.locator("#timeline .inspector").inner_text()
    expect(f"2 of {count}" in panel, f"the arrow goes to the second kernel, not {panel!r}")
    page.keyboard.press("p")
    settle(page)
    expect("the peak" in page.locator("#timeline .inspector").inner_text(), "P goes to the peak")


def check_zoom(page):
    shown = "() => memfit.view.x1 - memfit.view.x0"
    whole = page.evaluate(shown)
    page.locator("#timeline canvas").focus()
    scroll_to(page, "timeline")
    plot = page.evaluate(PLOT, "timeline")
    page.mouse.move((plot["left"] + plot["right"]) / 2, (plot["top"] + plot["bottom"]) / 2)
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"({shown})() < {whole} * 0.9")
    page.keyboard.press("0")
    expect(page.evaluate(shown) == whole, "0 shows the whole step again")
    x = [plot["left"] + share * (plot["right"] - plot["left"]) for share in (0.25, 0.75)]
    page.mouse.move(x[0], plot["top"] + 40)
    page.mouse.down()
    page.mouse.move(x[1], plot["top"] + 50, steps=4)
    page.mouse.up()
    expect(abs(page.evaluate(shown) / whole - 0.5) < 0.02, "a drag shows what it was drawn over")
    page.keyboard.press("0")
    settle(page)


def check_width(page):
    width, inner = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    expect(width <= inner == PHONE["width"], f"the page is {width} wide on a screen of {inner}")


def check_tap(page, profile):
    scroll_to(page, "arena")
    page.get_by_role("button", name="by kernel").tap()
    scroll_to(page, "arena")
    buffer = max(profile["programs"][0]["buffers"], key=lambda b: (b["end"] - b["first"]) * b["bytes"])
    page.touchscreen.tap(*middle(page, profile, buffer))
    settle(page)
    panel = page.locator("#arena .inspector").inner_text()
    expect(buffer["type"] in panel and size(buffer["bytes"]) in panel, f"{buffer} is not in {panel!r}")


def check_large(browser, folder):
    """How long a redraw takes is told, not judged: this machine may be busy."""
    for name in LARGE:
        with Opened(browser, folder / f"{name}.html", viewport=LAPTOP) as page:
            check_pixels(page, name)
            told = page.evaluate("memfit.benchPan()")
            expect(name != "many" or told["rectangles"] >= 20000, f"{told['rectangles']} rectangles")
            print(f"{name}: {told['rectangles']} rectangles; a redraw while moving takes {told['median']:.1f} ms, "
                  f"1 in 20 over {told['p95']:.1f} ms, at most {told['most']:.1f} ms")


def check_hostile(browser, folder):
    """Names that are markup are shown as they are."""
    with Opened(browser, folder / "hostile.html", viewport=LAPTOP) as page:
        name = json.loads((folder / "hostile.json").read_text())["run"]["model"]
        expect(page.locator("h1").inner_text() == name, "the name is shown as it is")
        expect(page.locator("img").count() == 0, "no name becomes an element")
        expect(page.locator("script").count() == 2, "no name becomes a script")
        for details in page.locator("details").all():
            details.evaluate("(d) => { d.open = true; }")
        settle(page)
    print("hostile: shown as text")


def check_comparison(browser, folder):
    with Opened(browser, folder / "compare.html", viewport=LAPTOP) as page:
        check_contrast(page, "the comparison")
        expect("B against A" in page.locator(".versus").inner_text(), "the comparison has its table")
        page.screenshot(path=folder / "compare.png", full_page=True)
    print("compare: drawn")


def scroll_to(page, section):
    page.evaluate("(id) => document.querySelector(`#${id} canvas`).scrollIntoView({ block: 'center', behavior: 'instant' })", section)
    settle(page)


def shoot(page, folder, name, sections):
    page.mouse.move(0, 0)
    # It would stand over what is below it.
    page.evaluate("document.querySelector('.bar').style.position = 'static'")
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    for section in sections:
        part = page.locator(f"#{section}")
        if part.count():
            part.screenshot(path=folder / f"{name}-{section}.png")


def shoot_overview(browser, folder):
    """What the README shows: docs/report.png is this picture, in 256 colours."""
    profile = json.loads((folder / "planned.json").read_text())
    with Opened(browser, folder / "planned.html", viewport=LAPTOP, color_scheme="light") as page:
        page.get_by_role("button", name="by kernel").click()
        scroll_to(page, "arena")
        kept = [b for b in profile["programs"][0]["buffers"] if b["op"] == "conv2d"]
        largest = max(kept, key=lambda b: (b["end"] - b["first"]) * b["bytes"])
        page.mouse.click(*middle(page, profile, largest))
        page.get_by_role("button", name="by time").click()
        page.mouse.move(0, 0)
        # The pictures and the tensor that is chosen, without what surrounds them.
        page.evaluate("""() => {
          const hide = ".bar, .controls, .hint, .lead, details, #timeline .inspector, #timeline .small, #arena h3, #arena figure:nth-of-type(2)";
          document.querySelectorAll(hide).forEach((e) => { e.style.display = "none"; });
          document.querySelector("#arena .inspector").style.minHeight = "0";
          document.activeElement.blur();
          memfit.view.go(memfit.view.track.peak());
        }""")
        settle(page)
        boxes = [page.locator(f"#{section}").bounding_box() for section in ["timeline", "arena"]]
        top, bottom = boxes[0]["y"] - 12, boxes[1]["y"] + boxes[1]["height"] + 12
        clip = {"x": boxes[0]["x"] - 12, "y": top + page.evaluate("scrollY"), "width": boxes[0]["width"] + 24, "height": bottom - top}
        page.screenshot(path=folder / "overview.png", full_page=True, clip=clip)


def size(count):
    """As the report words it."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(units):
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return f"{count} B"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {units[unit]}"


def expect(holds, words):
    if not holds:
        sys.exit(f"check_reports.py: {words}")


if __name__ == "__main__":
    main()
