"""The pages in a real browser, from `file://`: they load without complaint, and do what they promise."""

from __future__ import annotations

import shutil

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install 'xcbench[dev]')")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here (apt-get install chromium chromium-driver)"
)
PAGES = (
    "index",
    "datasets/toy",
    "datasets/toy-predictions",
    "methods/knn",
    "methods/eclare",
    "augmentations/gandalf",
    "tables/mine",
)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    for argument in ("--disable-background-networking", "--disable-component-update", "--no-first-run"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def open_page(browser, site):
    def go(name: str, width: int = 1280, scheme: str = "light"):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get((site / f"{name}.html").as_uri())
        return browser

    return go


def shown_runs(browser) -> list[str]:
    rows = browser.find_elements(By.CSS_SELECTOR, "table.board tbody tr")
    return [row.get_attribute("data-name") for row in rows if row.is_displayed()]


def figures_of(browser, column: str) -> list[float]:
    cells = browser.find_elements(By.CSS_SELECTOR, f"table.board td[data-column='{column}']")
    return [float(cell.get_attribute("data-value")) for cell in cells]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_without_complaint_and_fits_a_phone(open_page, name):
    for width, scheme in ((1280, "light"), (360, "dark")):
        browser = open_page(name, width, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.get_log("browser") == []
    assert "taken over" not in browser.title


def test_dark_and_light_have_papers_of_their_own(open_page):
    def brightness(scheme: str) -> int:
        browser = open_page("index", scheme=scheme)
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        return int(colour.strip("rgb()").split(",")[0])

    assert brightness("light") > 200
    assert brightness("dark") < 60


def test_columns_are_sorted_by_mouse_and_by_keyboard(open_page):
    browser = open_page("datasets/toy")
    header = browser.find_element(By.CSS_SELECTOR, "table.board th[data-column='P@1']")
    assert header.get_attribute("aria-sort") == "descending"
    assert figures_of(browser, "P@1") == sorted(figures_of(browser, "P@1"), reverse=True)
    header.find_element(By.TAG_NAME, "button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert figures_of(browser, "P@1") == sorted(figures_of(browser, "P@1"))

    name = browser.find_element(By.CSS_SELECTOR, "table.board th[data-column='name'] button")
    name.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element == name
    assert header.get_attribute("aria-sort") is None
    rows = browser.find_elements(By.CSS_SELECTOR, "table.board tbody tr")
    names = [row.get_attribute("data-name") for row in rows]
    assert names == sorted(names)


def test_focus_can_be_seen(open_page):
    browser = open_page("index")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB, Keys.TAB)
    focused = browser.switch_to.active_element
    assert focused.text == "xcbench report"
    assert focused.value_of_css_property("outline-style") == "solid"


def test_runs_are_searched_and_chosen_by_kind_and_columns_by_name(open_page):
    browser = open_page("datasets/toy")
    assert sorted(shown_runs(browser)) == ["knn", "popularity"]
    browser.find_element(By.CSS_SELECTOR, "input[value='ablation']").click()
    assert sorted(shown_runs(browser)) == ["knn", "knn + text", "popularity"]
    browser.find_element(By.NAME, "search").send_keys("KNN te")
    assert shown_runs(browser) == ["knn + text"]
    assert browser.find_element(By.ID, "count").text == "1 of 5 runs shown"

    column = "td[data-column='nDCG@5']"
    cell = browser.find_element(By.CSS_SELECTOR, f"tr[data-name='knn + text'] {column}")
    assert not cell.is_displayed()
    browser.find_element(By.CSS_SELECTOR, ".filter summary").click()
    browser.find_element(By.CSS_SELECTOR, "input[value='nDCG@5']").click()
    assert cell.is_displayed()


def test_a_point_of_the_cost_picture_says_its_name_and_figures(open_page):
    browser = open_page("datasets/toy")
    browser.find_element(By.CSS_SELECTOR, "input[value='settings']").click()
    points = browser.find_elements(By.CSS_SELECTOR, "#tradeoff .point")
    assert len(points) == 3  # popularity is far below, and named in the note
    assert "popularity" in browser.find_element(By.ID, "tradeoff-notes").text
    browser.execute_script("arguments[0].focus()", points[0])
    tip = browser.find_element(By.CSS_SELECTOR, "#tradeoff .tip")
    assert tip.is_displayed()
    assert points[0].get_attribute("aria-label").startswith(tip.text.splitlines()[0])
    assert "P@1" in tip.text
    assert "train s" in tip.text


def test_the_bins_of_two_runs_stand_side_by_side(open_page):
    browser = open_page("datasets/toy")
    Select(browser.find_element(By.ID, "bins-first")).select_by_visible_text("popularity")
    table = browser.find_element(By.ID, "bins-table").text
    assert "popularity" in table.splitlines()[0]
    bars = browser.find_elements(By.CSS_SELECTOR, "#bins-chart rect.bar")
    assert len(bars) == 10


def test_titles_are_searched_and_true_labels_marked(open_page):
    browser = open_page("datasets/toy-predictions")
    wait = WebDriverWait(browser, 5)
    wait.until(lambda b: b.find_elements(By.CSS_SELECTOR, "#titles button"))
    Select(browser.find_element(By.ID, "first")).select_by_visible_text("knn")
    Select(browser.find_element(By.ID, "second")).select_by_visible_text("popularity")
    browser.find_element(By.ID, "title-search").send_keys("NUMBER 17 ")
    wait.until(lambda b: len(b.find_elements(By.CSS_SELECTOR, "#titles button")) == 1)
    browser.find_element(By.CSS_SELECTOR, "#titles button").send_keys(Keys.ENTER)
    wait.until(lambda b: b.find_element(By.CSS_SELECTOR, "#point h2").text.startswith("title number 17 </script>"))
    marked = browser.find_elements(By.CSS_SELECTOR, "#point .right")
    assert marked[0].text.startswith("✓ label 7 ")
    assert "point=17" in browser.current_url
    assert browser.get_log("browser") == []
