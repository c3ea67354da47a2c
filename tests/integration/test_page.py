"""The page in a real browser, on a cloud that runs: what it shows is what the interface says, it follows what happens without
being loaded again, and it survives hostile names, small screens, and the death of the monitor.

One cloud and one browser for all; nothing that any page wrote to the console is left unread."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from services.admission.http import openapi
from tests.integration.up_cloud import Cloud, until
from tests.support.reference import Reference
from tests.support.tools import packages, tool

pytestmark = pytest.mark.timeout(240)
HOSTS, CORES = 6, 2
WAIT_MS = 30_000  # a busy machine; nothing is measured here
LOST_MS = 15_000  # a page says within about ten seconds that nothing comes any more
expect.set_options(timeout=WAIT_MS)
HOSTILE = "<img src=x onerror=\"window.hacked='name'\">"
GONE = ("ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")


class Site:
    """The cloud, and what its interface says to an operator."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.url = str(cloud.status()["monitor_url"])

    def token(self, user: str) -> str:
        return (self.cloud.data / "credentials" / f"{user}.token").read_text().strip()

    def code(self, user: str) -> str:
        return str(self.get("/v1/session/code", user, "POST")["code"])

    def get(self, path: str, user: str = "oscar", method: str = "GET") -> Any:
        headers = {"Authorization": f"Bearer {self.token(user)}"}
        asked = urllib.request.Request(self.url + path, headers=headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cloud = Cloud(tmp_path_factory.mktemp("cloud") / "data")
    cloud.ok("up", "--detach", "--hosts", str(HOSTS), "--cores", str(CORES))
    found = Site(cloud)
    until(lambda: all(row["state"] == "held" for row in found.get("/v1/hosts")["hosts"]), "hosts stay free")
    yield found
    cloud.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
        yield found
        found.close()


class Window:
    """A browser's window on the page.  `said`: what its console finds wrong."""

    def __init__(self, browser: Browser, width: int, scheme: str) -> None:
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(WAIT_MS)
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") or message.text.startswith("[DOM]"):
            self.said.append(message.text)

    def enter(self, site: Site, user: str = "oscar", at: str = "/") -> Page:
        self.page.goto(site.url + at)
        self.page.get_by_label("Your token").fill(site.token(user))
        self.said[:] = [t for t in self.said if "401" not in t]  # before the login: browsers report it
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.locator("#link")).to_have_attribute("data-state", "live")
        expect(self.page.locator("#grid .host")).to_have_count(HOSTS)
        return self.page


Open = Callable[..., Window]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Makes windows; at the end none of them may have complained."""
    windows: list[Window] = []

    def make(width: int = 1280, scheme: str = "light") -> Window:
        windows.append(Window(browser, width, scheme))
        return windows[-1]

    yield make
    said = [text for window in windows for text in window.said]
    for window in windows:
        window.context.close()
    assert said == []


def ids_shown(page: Page) -> list[str]:
    return list(page.locator("#stream > li").evaluate_all("all => all.flatMap(one => one.dataset.ids.split(' '))"))


def test_it_shows_what_the_interface_says(site: Site, opened: Open) -> None:
    window = opened()
    address = site.cloud.ok("dashboard").strip()
    page = window.page
    page.goto(address)
    expect(page.locator("#link-words")).to_have_text("live")
    assert "code" not in page.url
    told = site.get("/v1/picture")
    expect(page.locator("#cloud")).to_have_text(told["cloud"])
    expect(page.locator("#grid .host .name")).to_have_text([row["host"] for row in told["hosts"]])
    for row in told["hosts"]:
        label = page.locator(f'#grid [data-host="{row["host"]}"]').get_attribute("aria-label")
        assert label is not None
        assert f"held by {row['department']}" in label
    for row in told["departments"]:
        card = page.locator("#cards .card", has=page.get_by_role("heading", name=row["department"]))
        expect(card.locator("dd").nth(0)).to_have_text(str(row["hosts_held"]))
        expect(card.locator("dd").nth(2)).to_have_text(str(row["hosts_demanded"]))

    def told_ids() -> list[str]:
        return sorted(one["id"] for one in site.get("/v1/picture")["decisions"])

    until(lambda: sorted(ids_shown(page)) == told_ids(), "other decisions are shown than were reported")
    for part in ("banner", "main", "search"):
        expect(page.get_by_role(part)).to_be_visible()  # type: ignore[arg-type]
    expect(page.locator("#chart .area").first).to_be_attached()
    assert page.locator("#chart table tbody tr").count() > 0
    assert page.evaluate("window.phoenix.chart.loads") == [0, 5, 10]  # no requests: not an axis of fractions


def test_a_spike_is_seen_without_loading_the_page_again(site: Site, opened: Open) -> None:
    page = opened().enter(site)
    page.evaluate("window.same = true")
    site.cloud.ok("scale", "web", "3")
    card = page.locator("#cards .card", has=page.get_by_role("heading", name="web"))
    expect(card.locator("dd").nth(3)).to_have_text("3 of 3", timeout=WAIT_MS)
    held = until(lambda: [r["host"] for r in site.get("/v1/hosts")["hosts"] if r["department"] == "web"], "no host")
    for name in held:
        expect(page.locator(f'#grid [data-host="{name}"].own-2.is-held')).to_be_visible(timeout=WAIT_MS)
    expect(page.locator("#stream li", has_text=f"{held[-1]} is granted to web").first).to_be_visible()
    assert page.evaluate("window.same") is True


def test_each_step_of_an_array_has_its_own_cause_among_those_decided_together(site: Site, opened: Open) -> None:
    page = opened().enter(site)
    site.cloud.ok("submit", "--wait", "-a", "1-2", "--wrap", "true")
    job = max((int(row["job"]) for row in site.get("/v1/jobs")["jobs"]), default=0)
    steps = site.get(f"/v1/story/{job}?kind=job")["steps"]
    known = {(step["position"], step["index"]): step for step in steps}
    assert len({position for position, _ in known}) < len(known)  # both elements were placed at once
    expected = []
    for earlier, step in zip([None, *steps], steps, strict=False):
        cause = known.get((step["cause"], step["cause_index"]))
        expected.append([f"because {cause['sentence']}"] if cause is not None and cause is not earlier else [])
    assert any(expected)
    page.goto(f"{site.url}/#/job/{job}")
    expect(page.locator("#story .life > li")).to_have_count(len(steps))
    buttons = "all => all.map(li => [...li.querySelectorAll('button.cause')].map(one => one.textContent))"
    assert page.locator("#story .life > li").evaluate_all(buttons) == expected
    assert page.locator("#story .more").count() == 0


def test_what_a_job_has_used_is_told_and_what_nobody_knows_is_unknown(site: Site, opened: Open) -> None:
    page = opened().enter(site)
    site.cloud.ok("submit", "--wait", "--wrap", "true")
    over = max(int(row["job"]) for row in site.get("/v1/jobs")["jobs"])
    page.goto(f"{site.url}/#/job/{over}")
    expect(page.locator("#story dt:text-is('CPU time') + dd")).to_have_text("0 s")
    expect(page.locator("#story dt:text-is('Peak memory') + dd")).to_contain_text("MiB")
    runs = site.cloud.ok("submit", "--wrap", "sleep 600").strip()
    until(lambda: site.get(f"/v1/jobs/{runs}")["state"] == "running", "it does not run")
    page.goto(f"{site.url}/#/job/{runs}")
    expect(page.locator("#story dt:text-is('CPU time') + dd")).to_have_text(re.compile("unknown|0 s so far"))
    site.cloud.ok("cancel", runs)


def test_another_departments_life_is_not_asked_for(site: Site, opened: Open) -> None:
    page = opened().enter(site, user="alice")
    page.goto(f"{site.url}/#/department/web")
    expect(page.locator("#story .past")).to_have_text("LifeOnly members of web and operators can see its history.")
    expect(page.locator("#story dd").first).to_contain_text("held")
    page.goto(f"{site.url}/#/department/hpc")
    expect(page.locator("#story .now ol")).to_be_visible()


def test_names_of_jobs_are_text_whatever_they_are(site: Site, opened: Open) -> None:
    page = opened().enter(site)
    site.cloud.ok("submit", "-c", str(CORES), "-a", f"1-{HOSTS + 4}", "--job-name", HOSTILE, "--wrap", "sleep 600")
    name = page.locator("#queue .jobs .name").first
    expect(name).to_have_text(HOSTILE, timeout=WAIT_MS)
    waiting = page.locator("#queue .reasons button").first
    expect(waiting).to_be_visible()
    waiting.click()
    expect(waiting).to_have_attribute("aria-pressed", "true")
    page.locator("#queue .jobs .id a").first.click()
    expect(page.locator("#story dd", has_text=HOSTILE)).to_be_visible()
    assert page.locator("img:not(.mark)").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_click_and_a_key_open_a_story_and_esc_gives_the_focus_back(site: Site, opened: Open) -> None:
    page = opened().enter(site)
    story = page.locator("#story")
    page.locator("#grid .host").nth(1).click()
    expect(page.locator("#story-title")).to_have_text("Host host001")
    expect(page.locator("#story-title")).to_be_focused()
    expect(story.get_by_text("Why now")).to_be_visible()
    page.get_by_role("button", name="Log out").click(trial=True)  # nothing lies on it
    expect(story.locator(".life li", has_text="host001").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(story).to_be_hidden()
    assert page.url.endswith("/")
    cell = page.locator("#grid .host").nth(1)
    cell.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#grid .host").nth(3)).to_be_focused()
    assert page.locator('#grid .host[tabindex="0"]').count() == 1
    page.keyboard.press("Enter")
    expect(page.locator("#story-title")).to_have_text("Host host003")
    assert page.url.endswith("#/host/host003")
    page.keyboard.press("Escape")
    expect(page.locator("#grid .host").nth(3)).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#jump")).to_be_focused()
    page.keyboard.type("host005")
    page.keyboard.press("Enter")
    expect(page.locator("#story-title")).to_have_text("Host host005")


def test_a_reader_is_not_moved_about(site: Site, opened: Open) -> None:
    page = opened().enter(site)
    page.locator("#stream").focus()
    before = ids_shown(page)
    site.cloud.ok("submit", "--wrap", "true")
    expect(page.locator("#held")).to_be_visible(timeout=WAIT_MS)
    assert ids_shown(page) == before
    page.locator("#held").click()
    expect(page.locator("#held")).to_be_hidden()
    assert ids_shown(page)[0] != before[0]


def test_a_phone_scrolls_in_one_direction_only(site: Site, opened: Open) -> None:
    page = opened(width=320).enter(site)
    expect(page.locator("#chart .area").first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    beyond = "[...document.querySelectorAll('main .panel, .figures, .top, .alerts li')]"
    assert page.evaluate(f"{beyond}.every(one => one.getBoundingClientRect().right <= 320)")
    page.locator("#grid .host").first.click()
    expect(page.locator("#story-title")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.locator("#story").evaluate("one => one.scrollWidth <= one.clientWidth && one.matches(':modal')")


def test_light_and_dark_follow_the_system_until_somebody_chooses(site: Site, opened: Open) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light, dark = opened().enter(site), opened(scheme="dark").enter(site)
    seen = {light.evaluate(ground), dark.evaluate(ground)}
    assert len(seen) == 2
    dark.get_by_label("Colours: as the system").click()
    assert dark.evaluate(ground) == light.evaluate(ground)
    dark.reload()
    expect(dark.locator("#link-words")).to_have_text("live")
    assert dark.evaluate(ground) == light.evaluate(ground)


def test_who_may_not_in_is_told_and_a_department_sees_its_own(site: Site, opened: Open) -> None:
    window = opened()
    page = window.page
    page.goto(site.url)
    page.get_by_label("Your token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#login-why")).to_have_text("This token is not valid.")
    page = window.enter(site, "wendy")
    expect(page.locator("#who")).to_have_text("wendy of web")
    expect(page.locator("#queue .jobs tbody tr")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("#login-why")).to_have_text("You are logged out.")
    assert page.locator("#board").is_hidden()


def test_who_logs_in_next_sees_nothing_of_who_was_there_before(site: Site, opened: Open) -> None:
    window = opened()
    page = window.enter(site)
    expect(page.locator("#stream li", has_text="hpc").first).to_be_visible()
    page.locator("#grid .host").first.click()
    expect(page.locator("#story .life li").first).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("#login-why")).to_have_text("You are logged out.")
    assert (
        page.locator("#stream > li, #grid .host, #cards .card, #queue tbody tr, #story .life, #chart path").count() == 0
    )
    assert page.evaluate("window.phoenix.model.decisions.length + window.phoenix.model.queues.size") == 0
    assert page.url == f"{site.url}/"
    page.get_by_label("Your token").fill(site.token("wendy"))  # in the same page
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#who")).to_have_text("wendy of web")
    expect(page.locator("#grid .host")).to_have_count(HOSTS)
    shown = page.evaluate("window.phoenix.model.decisions.map(one => one.department)")
    assert set(shown) <= {"web"}
    assert list(page.evaluate("[...window.phoenix.model.queues.keys()]")) == ["web"]


LOGIN = """token => fetch("/v1/session", {
  method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token}),
}).then(answer => answer.status)"""


def test_a_tab_becomes_the_person_whom_another_tab_has_logged_in(site: Site, opened: Open) -> None:
    window = opened()
    page = window.enter(site)
    other = window.context.new_page()
    other.goto(site.url)
    assert other.evaluate(LOGIN, site.token("wendy")) == 200
    page.evaluate("window.phoenix.live.open()")  # at the latest after the server's next look at the session
    expect(page.locator("#who")).to_have_text("wendy of web")
    expect(page.locator("#grid .host")).to_have_count(HOSTS)
    assert set(page.evaluate("window.phoenix.model.decisions.map(one => one.department)")) <= {"web"}
    assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 0]
    page.goto(f"{site.url}/#code={site.code('oscar')}")  # in the same tab: nothing is loaded again
    expect(page.locator("#who")).to_have_text("oscar, operator")
    assert "code" not in page.url


UNITS = """async () => {
  const {Model} = await import("/model.js"), {append, bands, seriesOf, ticks} = await import("/series.js");
  const {linked, entityOf} = await import("/links.js"), {clock, duration, whole} = await import("/format.js");
  const {bursts} = await import("/bursts.js"), {shown} = await import("/hidden.js");
  const told = {};
  const one = (p, i = 0) => ({id: `${p}.${i}`, at: p, kind: "k", sentence: "s"});
  const model = new Model();
  const rows = {hosts: [{host: "h10"}, {host: "h9"}], departments: [{department: "web"}]};
  model.take("picture", {...rows, decisions: [one(1), one(2)]});
  model.take("decisions", {decisions: [one(2), one(3), one(3, 1)]});
  told.merged = model.decisions.map(d => d.id);
  model.take("picture", {...rows, missed: true, decisions: [one(9), one(3)]});
  told.gap = model.decisions.map(d => d.gap ? "gap" : d.id);
  for (let p = 10; p < 2000; p += 1) model.take("decisions", {decisions: [one(p)]});
  told.kept = model.decisions.length;
  told.order = model.order;
  const words = t => linked(t, model).map(n => typeof n === "string" ? n : `[${n.getAttribute("href")}]`).join("");
  told.links = [words("h9 is granted to web: a web department wants 3 hosts"), words("job 17 and 17_3 and web.5, <b>17</b>")];
  const [since, time] = linked("since 2020-11-22T06:18:00Z", model);
  told.time = [since, time.textContent === whole("2020-11-22T06:18:00Z"), clock("2020-11-22T06:18:00Z").length];
  const done = (n, at, d = "hpc") => ({id: `${n}.0`, at, kind: "k", department: d, sentence: `job ${n} is done after ${n}s`});
  const burst = bursts([done(9, 16), done(8, 14), done(7, 13), done(6, 13, "web"), done(5, 12), {gap: true, id: "4"}]);
  told.bursts = burst.map(b => [b.ids, b.at]);
  told.addresses = [entityOf("#/job/17"), entityOf("#/nothing/17"), entityOf("#/job/%E0%A4%A"), entityOf("#/host/a/b")];
  const owners = {web: [1, 2, 3], "(free)": [null, 0, 1]}, load = {web: {utilisation: [0.5, null, 1]}};
  const series = seriesOf({at: [10, 20, 30], step_s: 10, owners, load});
  for (let at = 31; at <= 39; at += 1) append(series, {at, owners: {web: 4, hpc: 1}, load: {}}, 100);
  told.provisional = structuredClone([series.at, series.owners.get("hpc"), series.load.get("web").utilisation]);
  for (let at = 40; at <= 100000; at += 10) append(series, {at, owners: {web: 4}, load: {}}, 100);
  told.bounded = series.at.length;
  told.bands = bands(series, model.slots);
  told.ticks = [ticks(16, 4, true), ticks(0, 4), ticks(1, 4)];
  told.hidden = ["a\\u202eb\\x1b", "日本 🎉\\n", "\\u{e0041}\\u200b"].map(shown);
  const {told: inWords} = await import("/hosts.js"), host = {host: "h9", cores: 8, cores_used: 2};
  told.gpus = [inWords(host, "free"), inWords({...host, gpus: 4, gpus_used: 1}, "free")];
  told.durations = [0, 59.6, 61, 3600, 5000, 90000].map(duration);
  return told;
}"""


def test_its_parts_keep_their_rules(site: Site, opened: Open) -> None:
    told = opened().enter(site).evaluate(UNITS)
    assert told["merged"] == ["3.1", "3.0", "2.0", "1.0"]
    assert told["gap"] == ["9.0", "gap", "3.1", "3.0", "2.0", "1.0"]
    assert told["kept"] == 500
    assert told["order"] == ["h9", "h10"]
    assert told["links"] == [
        "[#/host/h9] is granted to [#/department/web]: a web department wants 3 hosts",
        "job [#/job/17] and [#/job/17_3] and [#/instance/web.5], <b>17</b>",
    ]
    assert told["time"] == ["since ", True, 8]
    assert told["bursts"] == [[["9.0"], 16], [["6.0"], 13], [["8.0", "7.0", "5.0"], 12], [["4"], None]]
    assert told["addresses"] == [{"kind": "job", "name": "17"}, None, None, None]
    assert told["provisional"] == [[10, 20, 30, 39], [0, 0, 0, 1], [0.5, None, 1, None]]
    assert told["gpus"] == ["h9: free, 2 of 8 cores in use", "h9: free, 2 of 8 cores in use, 1 of 4 GPUs in use"]
    assert told["bounded"] < 15
    assert told["hidden"] == ["a\\u{202e}b\\x1b", "日本 🎉\n", "\\u{e0041}\\u{200b}"]
    assert told["bands"] == ["web", "hpc", "(free)"]
    assert told["ticks"][0] == [0, 5, 10, 15, 20]
    assert told["durations"] == ["0 s", "1 min", "1 min 1 s", "1 h", "1 h 23 min", "1 d 1 h"]


OPERATIONS = {call["operationId"] for of in json.loads(openapi.document())["paths"].values() for call in of.values()}


def test_the_reference_of_the_interfaces_is_drawn_within_the_policy(site: Site, browser: Browser) -> None:
    """The long tests below look at all of it."""
    packages("redoc")
    reference = Reference(browser, f"{site.url}/api/", 1280)
    reference.page.locator(".menu-content a[href='#/jobs']").click()
    expect(reference.page.locator(".menu-content a[href='#/jobs/submit_job']")).to_be_visible()
    expect(reference.page.get_by_text(site.cloud.status()["http_url"]).first).to_be_attached()
    assert reference.complaints == []
    reference.close()


def test_the_page_leads_to_the_reference_before_and_after_the_login(site: Site, opened: Open) -> None:
    link = opened().enter(site).get_by_role("link", name="The interfaces for programs")
    assert link.evaluate("one => one.href") == f"{site.url}/api/"


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["index.html", "messages.html"])
def test_the_reference_of_the_interfaces_is_read_on_a_desk_and_on_a_phone(
    site: Site, browser: Browser, width: int, name: str
) -> None:
    packages("redoc")
    reference = Reference(browser, f"{site.url}/api/{name}", width)
    reference.read_on()
    assert not reference.is_wider_than_the_window()
    if width == 390:
        reference.open_menu()
    listed = reference.listed()
    channels = site.get("/api/asyncapi.json")["channels"]
    assert len(listed & OPERATIONS) == len(OPERATIONS) if name == "index.html" else len(listed) >= len(channels)
    assert not reference.is_wider_than_the_window()
    if (width, name) == (1280, "index.html"):
        expect(reference.page.get_by_test_id("search-trigger")).to_contain_text("Search")  # not "Loading"
        reference.page.keyboard.press("Control+k")
        found = reference.page.get_by_test_id("search-dialog")
        found.locator("input").fill("cancel")
        expect(found.get_by_text("End a lease", exact=True)).to_be_visible()  # by its path
    assert reference.complaints == []
    reference.close()


def test_a_monitor_that_hangs_is_lost_within_some_seconds(site: Site, opened: Open) -> None:
    window = opened()
    page = window.enter(site)
    monitor = next(p for p in site.cloud.json("status")["processes"] if p["name"] == "monitor")
    os.kill(monitor["pid"], signal.SIGSTOP)
    try:
        expect(page.locator("#link-words")).to_contain_text("reconnecting since", timeout=LOST_MS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have been replaced
            os.kill(monitor["pid"], signal.SIGCONT)
    expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=2 * WAIT_MS)
    expect(page.locator("#login")).to_be_hidden()
    assert [text for text in window.said if not any(word in text for word in GONE)] == []
    window.said.clear()


def test_a_monitor_that_dies_costs_no_decision_and_shows_none_twice(site: Site, opened: Open) -> None:
    window = opened()
    page = window.enter(site)
    monitor = next(p for p in site.cloud.json("status")["processes"] if p["name"] == "monitor")
    os.kill(monitor["pid"], signal.SIGKILL)
    expect(page.locator("#link-words")).to_contain_text("reconnecting since", timeout=WAIT_MS)
    site.cloud.ok("submit", "--wrap", "true")
    expect(page.locator("#link")).to_have_attribute(
        "data-state", "live", timeout=2 * WAIT_MS
    )  # and no login is needed again
    expect(page.locator("#login")).to_be_hidden()
    told = site.get("/v1/picture")["decisions"]
    ids = "window.phoenix.model.decisions.map(one => one.id)"
    until(lambda: told[-1]["id"] in page.evaluate(ids), "the newest decision does not come")
    known = page.evaluate(ids)
    assert len(known) == len(set(known))
    assert {one["id"] for one in told} <= set(known)
    assert not [one for one in known if one.endswith(".999999999")]
    assert [text for text in window.said if not any(word in text for word in GONE)] == []
    window.said.clear()
