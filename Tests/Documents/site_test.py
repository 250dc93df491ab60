#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Opens the site that tools/docs made, as a reader does, and follows everything in it.

    site_test.py SITE --pictures DIRECTORY [--chromium PROGRAM] [--driver PROGRAM]

First every link, picture and anchor of every page, from the files. Then in headless Chromium, from a server of its own:
each page has text, fits a narrow screen, and has nothing to complain of in the console, and the pages of the Swift libraries,
which are programs in JavaScript, show their text. At last pictures of the main pages, light and dark, wide and narrow.
Exit status: 0 nothing is wrong, 1 something is.
"""

import argparse
import collections
import functools
import html.parser
import http.server
import json
import os
import sys
import tempfile
import threading
import time
import urllib.parse

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

#: Seconds that a page may take to show its text. Only one that fails takes so long.
PATIENCE = 60

WIDE, NARROW = (1280, 900), (390, 844)

#: Pages to take pictures of.
PICTURES = ["index.html", "introduction.html", "guides/troubleshooting.html", "guides/panel-applet.html", "comparison.html",
            "semantics.html", "performance.html", "reference/org.carillon.NotificationCenter1.html",
            "reference/carillon.1.html", "api/index.html", "api/Carillon/documentation/carillon/",
            "search.html?q=retained"]  # fmt: skip


class Links(html.parser.HTMLParser):
    """The links, pictures and anchors of a page."""

    def __init__(self):
        super().__init__()
        self.targets, self.anchors, self.text = [], set(), 0
        self.is_hidden = 0

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        for key in ("href", "src"):
            if values.get(key):
                self.targets.append((tag, values[key]))
        for key in ("id", "name"):
            if values.get(key):
                self.anchors.add(values[key])
        self.is_hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.is_hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.is_hidden:
            self.text += len(data.strip())


class Site:
    """The files of the site."""

    def __init__(self, directory):
        self.directory = directory
        self.problems = []
        self.pages = {}
        self.archives = sorted(
            name for name in os.listdir(f"{directory}/api") if os.path.isdir(f"{directory}/api/{name}/documentation"))  # fmt: skip
        for folder, _, files in os.walk(directory):
            for name in files:
                path = os.path.relpath(f"{folder}/{name}", directory)
                if name.endswith(".html") and not self.archive_of(path):
                    links = Links()
                    with open(f"{directory}/{path}", encoding="utf-8") as file:
                        links.feed(file.read())
                    self.pages[path] = links

    def archive_of(self, path):
        parts = path.split("/")
        return parts[1] if len(parts) > 2 and parts[0] == "api" and parts[1] in self.archives else None

    def follow(self):
        """Every link of every page; gives their number, and the pages of archives that are linked to."""
        count, linked = 0, set()
        for path, page in sorted(self.pages.items()):
            for tag, target in page.targets:
                url = urllib.parse.urlsplit(target)
                if url.scheme or url.netloc:
                    # A page is read without a network: nothing but what a reader clicks leads elsewhere.
                    if tag != "a" or url.scheme not in ("https", "http", "mailto"):
                        self.problems.append(f"{path}: <{tag}> takes {target} from elsewhere")
                    continue
                count += 1
                there = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path))) if url.path else path
                if os.path.isdir(f"{self.directory}/{there}"):
                    there += "/index.html"
                if not os.path.isfile(f"{self.directory}/{there}"):
                    self.problems.append(f"{path}: {target} leads nowhere")
                elif url.fragment and there in self.pages and urllib.parse.unquote(url.fragment) not in self.pages[there].anchors:
                    self.problems.append(f"{path}: {target}: there is no such place on that page")
                if self.archive_of(there):
                    linked.add(os.path.dirname(there) + "/")
        return count, sorted(linked)

    def follow_archives(self):
        """Every link within the archives of the Swift libraries, which stand in their data."""
        count = 0
        for module in self.archives:
            data = f"{self.directory}/api/{module}/data"
            for folder, _, files in os.walk(data):
                for name in sorted(files):
                    if not name.endswith(".json"):
                        continue
                    with open(f"{folder}/{name}", encoding="utf-8") as file:
                        page = json.load(file)
                    for reference in page.get("references", {}).values():
                        url = reference.get("url", "")
                        if reference.get("type") != "topic" or not url.startswith("/documentation/"):
                            continue
                        count += 1
                        place, _, _ = url.partition("#")
                        for there in (f"{data}{place.lower()}.json", f"{self.directory}/api/{module}{place.lower()}/index.html"):
                            if not os.path.isfile(there):
                                self.problems.append(f"{module}: {name} leads to {url}, and there is no {there}")
        return count

    def page_of_archive(self, path):
        """The route to a page within its archive, and its title."""
        _, module, *parts = path.strip("/").split("/")
        route = "/" + "/".join(parts)
        with open(f"{self.directory}/api/{module}/data{route.lower()}.json", encoding="utf-8") as file:
            return route, json.load(file)["metadata"]["title"]

    def check_programs(self):
        """Whether each page of an archive is the same program, so that it may begin with any."""
        for module in self.archives:
            programs = collections.defaultdict(list)
            for folder, _, files in os.walk(f"{self.directory}/api/{module}/documentation"):
                if "index.html" in files:
                    with open(f"{folder}/index.html", "rb") as file:
                        programs[file.read()].append(os.path.relpath(folder, self.directory))
            if len(programs) != 1:
                self.problems.append(f"{module}: its pages are {len(programs)} programs: {[paths[0] for paths in programs.values()]}")

    def check_orphans(self):
        """Whether each page can be reached from the index."""
        reached, waiting = set(), ["index.html"]
        while waiting:
            path = waiting.pop()
            if path in reached or path not in self.pages:
                continue
            reached.add(path)
            for _, target in self.pages[path].targets:
                url = urllib.parse.urlsplit(target)
                if not url.scheme and url.path:
                    there = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path)))
                    waiting.append(f"{there}/index.html" if os.path.isdir(f"{self.directory}/{there}") else there)
        for path in sorted(set(self.pages) - reached):
            self.problems.append(f"{path}: no way leads there from the index")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, without a word about each."""

    missing = []

    def log_message(self, *_):
        pass

    def send_error(self, code, message=None, explain=None):
        Handler.missing.append(f"{code}: {self.path}")
        super().send_error(code, message, explain)


class Browser:
    """Chromium with a directory of its own, which reaches nothing but this machine."""

    def __init__(self, chromium, driver, directory):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                         "--disable-background-networking", "--disable-component-update", "--disable-extensions",
                         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={directory}/profile"):
            options.add_argument(argument)  # fmt: skip
        if os.geteuid() == 0:
            # Chromium refuses to run as root with its sandbox, and this is its own documentation that it shows.
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        environment = os.environ | {
            "HOME": directory, "XDG_CONFIG_HOME": directory, "XDG_CACHE_HOME": directory, "XDG_RUNTIME_DIR": directory,
            "DBUS_SESSION_BUS_ADDRESS": "disabled:", "LC_ALL": "C.UTF-8"}  # fmt: skip
        self.driver = webdriver.Chrome(service=Service(driver, env=environment), options=options)
        self.driver.set_page_load_timeout(PATIENCE)

    def screen(self, size, scheme="light"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False})  # fmt: skip
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})  # fmt: skip

    def open(self, url, is_program=False):
        """Shows a page; gives its text."""
        self.driver.get_log("browser")
        self.driver.get(url)
        # A page of an archive is empty until its program has fetched what it shows.
        script = ("const main = document.querySelector('main'); return main && main.innerText.length > 20 ? document.body.innerText : ''"
                  if is_program else "return document.body.innerText")  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not (text := self.driver.execute_script(script)):
            if time.monotonic() > deadline:
                return self.driver.execute_script("return document.body.innerText")
            time.sleep(0.02)
        return text

    def follow(self, route, title):
        """Goes to another page of the archive that is shown, as its links do, which has another title; gives its text."""
        self.driver.get_log("browser")
        self.driver.execute_script("document.getElementById('app').__vue__.$router.push(arguments[0])", route)
        script = ("const heading = document.querySelector('main h1'); return heading && heading.textContent.replace(/\u200b/g, '')"
                  " === arguments[0] ? document.body.innerText : ''")  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not (text := self.driver.execute_script(script, title)):
            if time.monotonic() > deadline:
                return f"an error occurred: not {title}, but {self.driver.execute_script('return document.body.innerText')}"
            time.sleep(0.02)
        return text

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def look(browser, site, address, linked, problems):
    """Opens every page in the browser."""
    browser.screen(NARROW)
    for path in sorted(site.pages):
        text = browser.open(f"{address}/{path}")
        if len(text) < 150:
            problems.append(f"{path}: there is nearly nothing on it: {text!r}")
        width = browser.driver.execute_script("return document.documentElement.scrollWidth")
        if width > NARROW[0]:
            problems.append(f"{path}: is {width} wide on a screen of {NARROW[0]}")
        broken = browser.driver.execute_script(
            "return [...document.images].filter(i => (i.loading = 'eager') && i.complete && !i.naturalWidth).map(i => i.src)")  # fmt: skip
        problems += [f"{path}: the picture {source} can't be shown" for source in broken]
        problems += [f"{path}: console: {message}" for message in browser.complaints()]
    browser.screen(WIDE)
    shown = (None, None)
    for path in linked:
        module = site.archive_of(path)
        route, title = site.page_of_archive(path)
        # All pages of an archive are one program, which begins with its first page and then follows links. A page with the
        # title of the one before could not be told from that.
        if module == shown[0] and title != shown[1]:
            text = browser.follow(route, title)
        else:
            text = browser.open(f"{address}/{path}", is_program=True)
        shown = (module, title)
        if len(text) < 60 or "can’t be found" in text or "can't be found" in text or "error occurred" in text:
            problems.append(f"{path}: does not show its text, but {text[:200]!r}")
        problems += [f"{path}: console: {message}" for message in browser.complaints()]


def search(browser, address, problems):
    """The search finds what there is, and says when there is nothing."""
    browser.open(f"{address}/search.html?q=AddObserver")
    found = browser.driver.execute_script("return [...document.querySelectorAll('#results a')].map(a => a.href)")
    if not any(link.endswith("org.carillon.NotificationCenter1.html#method-AddObserver") for link in found):
        problems.append(f"the search for AddObserver finds {found[:5]}")
    text = browser.open(f"{address}/search.html?q=zzqqxx")
    if "Nothing has all" not in text:
        problems.append("the search for what is nowhere does not say so")


def take_pictures(browser, address, directory, problems):
    os.makedirs(directory, exist_ok=True)
    for path in PICTURES:
        is_program = "/documentation/" in path
        for size_name, size in (("wide", WIDE), ("narrow", NARROW)):
            for scheme in ("light", "dark"):
                browser.screen(size, scheme)
                browser.open(f"{address}/{path}", is_program)
                name = path.partition(".html")[0].strip("/").replace("/", "-")
                file = f"{directory}/{name}-{size_name}-{scheme}.png"
                if not browser.driver.save_screenshot(file) or os.path.getsize(file) < 2000:
                    problems.append(f"{path}: no picture can be taken")
                paper = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
                light = sum(int(part) for part in paper.strip("rgba()").split(",")[:3]) > 384 if "(" in paper else None
                if not is_program and light is not (scheme == "light"):
                    problems.append(f"{path}: has the background {paper} where {scheme} is wanted")


def main():
    parser = argparse.ArgumentParser(description="Opens the site that tools/docs made, and follows everything in it.")
    parser.add_argument("site")
    parser.add_argument("--pictures", required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--driver", required=True)
    options = parser.parse_args()

    site = Site(options.site)
    links, linked = site.follow()
    inner = site.follow_archives()
    site.check_orphans()
    site.check_programs()
    problems = site.problems
    pictures = [path for path in PICTURES if os.path.exists(f"{options.site}/{path.partition('?')[0]}")]
    problems += [f"{path}: is not there" for path in sorted(set(PICTURES) - set(pictures))]

    handler = functools.partial(Handler, directory=options.site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory(prefix="carillon-docs-", ignore_cleanup_errors=True) as directory:
        try:
            browser = Browser(options.chromium, options.driver, directory)
        except WebDriverException as error:
            print(f"FAILED: Chromium does not start: {error}")
            return 1
        try:
            look(browser, site, address, linked, problems)
            search(browser, address, problems)
            PICTURES[:] = pictures
            take_pictures(browser, address, options.pictures, problems)
        finally:
            browser.driver.quit()
            server.shutdown()
    problems += [f"the browser asked for what is not there: {what}" for what in sorted(set(Handler.missing))]
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{len(site.pages)} pages and {len(linked)} of {len(site.archives)} libraries opened, {links + inner} links followed, "
          f"{4 * len(pictures)} pictures in {options.pictures}: {len(problems)} failed")  # fmt: skip
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
