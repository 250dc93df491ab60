#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one static site of all that people read: the Markdown of the repository, the D-Bus interfaces, the manual pages,
and an index of the Swift libraries' archives, which `tools/docs` has put there.

    make_site.py OUTPUT [--archives DIRECTORY] [MODULE …]

What a page links to is there in the site, or this fails: a page, a picture, or a file of the source, which becomes a page
of its own. Nothing is fetched from elsewhere.
"""

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys

from interface import KINDS, TYPES, Interface
from pages import Page, escaped, highlighted

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))

#: Sections of the side bar: title, and documents in their order. Languages are all of docs/languages, and what is in no
#: section stands under "More".
SECTIONS = [
    ("Begin", ["README.md", "docs/guides/from-macos.md", "docs/guides/from-dbus-signals.md", "docs/guides/from-mqtt.md"]),
    ("Guides", ["docs/guides/desktop-application.md", "docs/guides/panel-applet.md", "docs/guides/troubleshooting.md",
                "docs/beyond.md", "docs/comparison.md"]),
    ("Languages", []),
    ("Rules", ["docs/semantics.md", "docs/rules.md", "docs/posting-queue.md", "docs/activity.md", "docs/flow-control.md",
               "docs/recovery.md", "docs/channel.md", "docs/main-loop.md",
               "docs/configuration.md", "docs/glossary.md"]),
    ("Quality", ["docs/performance.md", "docs/security.md", "docs/testing.md", "SECURITY.md"]),
    ("Development", ["CONTRIBUTING.md", "docs/architecture.md", "docs/packaging.md", "CHANGELOG.md"]),
]  # fmt: skip

#: Titles in the side bar, where that of the page is too long.
SHORT = {
    "README.md": "Introduction", "docs/guides/desktop-application.md": "A desktop application",
    "docs/guides/panel-applet.md": "A panel applet", "docs/flow-control.md": "Flow control", "docs/rules.md": "Rules and tests",
    "docs/testing.md": "Testing", "SECURITY.md": "Reporting a fault", "docs/security.md": "Access control",
}  # fmt: skip

#: Pages whose names would be those of others, or say nothing.
ADDRESSES = {"README.md": "introduction.html", "SECURITY.md": "security-policy.html"}

#: Files larger than this are linked as they are.
LARGE = 400_000

TEXT = {".md", ".swift", ".py", ".c", ".h", ".cpp", ".xml", ".conf", ".js", ".in", ".build", ".txt", ".json", ".sh", ".1",
        ".css", ".rb", ".el", ".toml", ".go", ".rs", ".lua", ".pl", ".vala", ".java", ".ts", ".yml", ".yaml"}  # fmt: skip


class SiteError(Exception):
    """What is wrong with the documents."""


def documents():
    """The Markdown files that become pages in any case: those of the root and of docs."""
    found = sorted(name for name in os.listdir(ROOT) if name.endswith(".md"))
    for directory, folders, files in os.walk(f"{ROOT}/docs"):
        folders.sort()
        found += sorted(os.path.relpath(f"{directory}/{name}", ROOT) for name in files if name.endswith(".md"))
    return found


class Site:
    """All pages, and what they need of each other."""

    def __init__(self, output, modules, archives):
        self.output = output
        self.modules = modules
        self.archives = archives
        self.documents = {path: self.address(path) for path in documents()}
        for path, address in self.documents.items():
            if twins := [other for other in self.documents if other != path and self.documents[other] == address]:
                raise SiteError(f"{path} and {twins[0]} would both be {address}")
        languages = sorted(path for path in self.documents if path.startswith("docs/languages"))
        # The one that is about all of them goes first.
        languages.sort(key=lambda path: path not in ("docs/languages.md", "docs/languages/README.md"))
        self.sections = [(title, languages if title == "Languages" else paths) for title, paths in SECTIONS]
        self.interfaces = {}
        for name in sorted(os.listdir(f"{ROOT}/dbus-interfaces")):
            if name.endswith(".xml"):
                self.interfaces[f"dbus-interfaces/{name}"] = f"reference/{name.removesuffix('.xml')}.html"
        self.manuals = {}
        self.sources = set()
        self.listings = set()
        self.images = set()
        #: For the search: address, page, section, text.
        self.index = []
        self.titles = {}

    @staticmethod
    def address(path):
        if path in ADDRESSES:
            return ADDRESSES[path]
        path = path.removeprefix("docs/").removesuffix(".md").removesuffix("/README")
        return path.lower() + ".html"

    # Links

    def link(self, source, address, target):
        """Where a link leads that stands in a file of the repository, seen from the page with this address."""
        if re.match(r"[a-z][a-z+.-]*:", target) or target.startswith("#"):
            return target
        path, _, fragment = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        there = self.place(source, path)
        return posixpath.relpath(there, posixpath.dirname(address) or ".") + ("/" if there.endswith("/") else "") + (
            f"#{fragment}" if fragment else "")  # fmt: skip

    def place(self, source, path):
        if path in self.documents:
            return self.documents[path]
        if path in self.interfaces:
            return self.interfaces[path]
        if path.endswith("/README.md") and os.path.isfile(f"{ROOT}/{path}"):
            # What stands beside sources, and is linked to, is a page as well.
            self.documents[path] = self.address(path)
            return self.documents[path]
        if match := re.match(r"Sources/(\w+)/\1\.docc/(\w+)\.md$", path):
            module, page = match.groups()
            if module in self.modules and self.archives:
                deeper = "" if page == module else f"/{page.lower()}"
                return f"api/{module}/documentation/{module.lower()}{deeper}/"
        full = f"{ROOT}/{path}"
        if path.startswith("..") or not os.path.exists(full):
            raise SiteError(f"{source}: there is no {path}")
        if os.path.isdir(full):
            self.listings.add(path)
            return f"source/{path}/index.html"
        if os.path.splitext(path)[1] in (".png", ".svg", ".jpg"):
            self.images.add(path)
            return f"files/{path}"
        self.sources.add(path)
        return f"source/{path}.html"

    # Pages

    def write(self, address, title, body, source="", headings=(), wide=False, words=None):
        base = posixpath.relpath(".", posixpath.dirname(address) or ".")
        base = "" if base == "." else base + "/"
        contents = "".join(
            f'<li{" class=deep" if level == 3 else ""}><a href="#{name}">{escaped(text)}</a></li>'
            for level, name, text in headings if level in (2, 3))  # fmt: skip
        contents = f'<aside class="side contents"><nav aria-label="On this page"><h2>On this page</h2><ul>{contents}</ul></nav></aside>'
        if len([1 for level, _, _ in headings if level in (2, 3)]) < 3 or wide:
            contents, wide = "", True
        wideness = ' class="wide"' if wide else ""
        page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(title)}{"" if title == "Carillon" else " – Carillon"}</title>
<link rel="icon" href="{base}icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{base}style.css">
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header><a class="home" href="{base}index.html"><span aria-hidden="true">♪</span> Carillon</a>
<nav aria-label="Parts of the site"><a class="menu" href="#menu">Pages</a> <a class="begin" href="{base}introduction.html">Introduction</a> <a href="{base}introduction.html#install">Install</a>
<a href="{base}reference/index.html">D-Bus</a> <a href="{base}api/index.html">Swift</a> <a class="begin" href="{base}search.html">Search</a></nav>
<form class="search" role="search" action="{base}search.html"><input type="search" name="q" placeholder="Search"
aria-label="Words that are all on a page"></form></header>
<div class="frame">
<div class="side" id="menu"><nav aria-label="Pages">{self.menu(address, base)}</nav></div>
<main id="main"{wideness}>
{body}
</main>
{contents}
</div>
<footer>Carillon, a distributed notification center for the Linux desktop. Apache 2.0.{f" From <code>{escaped(source)}</code>." if source else ""}</footer>
</body>
</html>
"""
        path = f"{self.output}/{address}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
        if words:
            self.index.append([address, title, "", re.sub(r"\s+", " ", words)[:6000]])
            for level, name, text in headings:
                if level > 1:
                    self.index.append([f"{address}#{name}", title, text, ""])

    def menu(self, address, base):
        parts = []
        listed = {path for _, paths in self.sections for path in paths}
        more = [path for path in self.documents if path not in listed and path.startswith("docs/")]
        reference = [("reference/index.html", "D-Bus interfaces")]
        reference += [(place, name.split("/")[1].split(".")[2]) for name, place in self.interfaces.items()]
        reference += [(place, f"{name}(1)") for name, place in self.manuals.items()]
        reference += [("api/index.html", "Swift libraries")]
        for title, paths in [*self.sections, ("More", more)]:
            pages = [(self.documents[path], SHORT.get(path) or self.titles.get(path, path)) for path in paths
                     if path in self.documents]  # fmt: skip
            if title == "Rules":
                parts.append(self.menu_section("Reference", reference, address, base))
            if pages:
                parts.append(self.menu_section(title, pages, address, base))
        return "".join(parts)

    @staticmethod
    def menu_section(title, pages, address, base):
        items = "".join(
            f'<li><a href="{base}{place}"{" aria-current=page" if place == address else ""}>{escaped(text)}</a></li>'
            for place, text in pages)  # fmt: skip
        return f"<h2>{escaped(title)}</h2><ul>{items}</ul>"

    def make(self):
        os.makedirs(self.output, exist_ok=True)
        shutil.copyfile(f"{HERE}/style.css", f"{self.output}/style.css")
        shutil.copyfile(f"{HERE}/icon.svg", f"{self.output}/icon.svg")
        shutil.copyfile(f"{HERE}/search.js", f"{self.output}/search.js")
        for path in self.documents:
            with open(f"{ROOT}/{path}", encoding="utf-8") as file:
                match = re.search(r"^# (.*)$", file.read(), re.MULTILINE)
            if not match:
                raise SiteError(f"{path} has no heading of the first level")
            self.titles[path] = match[1].replace("`", "")
        self.find_manuals()
        self.made = set()
        self.make_documents()
        self.make_reference()
        self.make_libraries()
        self.make_home()
        self.make_search()
        # Folders have documents in them, and those have links to files and folders.
        while self.listings or self.sources - self.made or set(self.documents) - self.made:
            self.make_sources()
            self.make_documents()
        for path in self.images:
            there = f"{self.output}/files/{path}"
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copyfile(f"{ROOT}/{path}", there)
        with open(f"{self.output}/pages.js", "w", encoding="utf-8") as file:
            file.write("window.carillonPages = " + json.dumps(self.index, ensure_ascii=False) + ";\n")

    def make_documents(self):
        while remaining := [path for path in self.documents if path not in self.made]:
            self.made.add(remaining[0])
            self.make_document(remaining[0], self.documents[remaining[0]])

    def make_document(self, path, address):
        with open(f"{ROOT}/{path}", encoding="utf-8") as file:
            text = file.read()

        def link(target):
            return self.link(path, address, target)

        page = Page(text, link, link)
        self.write(address, page.title, page.html, path, page.headings, words=" ".join(page.words))

    # The D-Bus reference

    def make_reference(self):
        rows = []
        for path, address in self.interfaces.items():
            interface = Interface(f"{ROOT}/{path}")
            names = {member.name for member in interface.members}
            rows.append(f'<tr><td><a href="{posixpath.basename(address)}">{escaped(interface.name)}</a></td>'
                        f"<td>{escaped(interface.summary)}</td><td>{len(names)}</td></tr>")  # fmt: skip
            self.make_interface(interface, path, address)
        manuals = "".join(f'<li><a href="{posixpath.relpath(place, "reference")}">{name}(1)</a></li>'
                          for name, place in self.manuals.items())  # fmt: skip
        body = f"""<h1>Reference</h1>
<p>The D-Bus interfaces, as their XML explains them; the XML itself is installed in <code>/usr/share/dbus-1/interfaces</code>,
where generators of code look for it.</p>
<div class="table"><table><thead><tr><th>interface</th><th>what it is</th><th>members</th></tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>
<h2 id="commands">Commands</h2>
<p>Their manual pages:</p><ul>{manuals or "<li>not part of this copy of the site, as <code>mandoc</code> was not installed</li>"}</ul>
<h2 id="swift">Swift</h2><p><a href="../api/index.html">The libraries</a> have an index of their own.</p>"""
        self.write("reference/index.html", "Reference", body, "dbus-interfaces", words="reference D-Bus interfaces")

    def make_interface(self, interface, path, address):
        def page_of(name):
            other = self.interfaces.get(f"dbus-interfaces/{name}.xml")
            if other is None:
                raise SiteError(f"{path}: there is no interface {name}")
            return posixpath.basename(other)

        def link(target):
            return target

        def text(comment):
            return Page(interface.markdown(comment, page_of), link, link)

        def inline(comment):
            return text(comment).html.strip().removeprefix("<p>").removesuffix("</p>")

        parts = [f"<h1>{escaped(interface.name)}</h1>", f"<p><strong>{escaped(interface.summary)}.</strong></p>"]
        headings = [(1, "", interface.name)]
        words = [interface.text]
        links = []
        for kind, title in KINDS.items():
            members = [member for member in interface.members if member.kind == kind]
            if members:
                links.append((title, members))
        parts.append('<div class="table"><table><tbody>' + "".join(
            f"<tr><td>{title}</td><td>" + ", ".join(f'<a href="#{member.anchor}">{member.name}</a>' for member in members)
            + "</td></tr>" for title, members in links) + "</tbody></table></div>")  # fmt: skip
        parts.append(text(interface.text).html)
        for title, members in links:
            parts.append(f'<h2 id="{title.lower()}">{title}</h2>')
            headings.append((2, title.lower(), title))
            for member in members:
                headings.append((3, member.anchor, member.name))
                parts.append(f'<h3 id="{member.anchor}">{member.name} <a class="anchor" href="#{member.anchor}" '
                             f'aria-label="Link to this section">#</a></h3><p class="signature">{escaped(member.signature)}</p>')  # fmt: skip
                if member.arguments:
                    rows = "".join(
                        f'<tr><td><code>{name}</code></td><td><code title="{escaped(TYPES.get(type_, ""))}">{escaped(type_)}</code>'
                        f"</td><td>{direction}</td><td>{inline(what)}</td></tr>"
                        for name, type_, direction, what in member.arguments)  # fmt: skip
                    parts.append('<div class="table"><table><thead><tr><th>argument</th><th>type</th><th></th><th></th></tr>'
                                 f"</thead><tbody>{rows}</tbody></table></div>")  # fmt: skip
                parts.append(text(member.text).html)
                words += [member.name, member.text]
        self.write(address, interface.name, "\n".join(parts), path, headings, words=" ".join(words))

    # Manual pages

    def find_manuals(self):
        if shutil.which("mandoc") is None:
            print("site: there is no mandoc: the manual pages are left out", file=sys.stderr)
            return
        for name in sorted(os.listdir(f"{ROOT}/data/man")):
            if name.endswith(".1"):
                self.manuals[name.removesuffix(".1")] = f"reference/{name.removesuffix('.1')}.1.html"
        for name, address in self.manuals.items():
            result = subprocess.run(
                ["mandoc", "-T", "html", "-O", "fragment", f"{ROOT}/data/man/{name}.1"], check=True, capture_output=True,
                encoding="utf-8")  # fmt: skip
            body = re.sub(r"<b class=\"Xr\">|</b class=\"Xr\">", "", result.stdout)
            for other, place in self.manuals.items():
                body = body.replace(f'<a class="Xr">{other}(1)</a>', f'<a href="{posixpath.basename(place)}">{other}(1)</a>')
            headings = [(2, match[1], re.sub("<.*?>", "", match[2])) for match in
                        re.finditer(r'<h1 class="Sh" id="([^"]+)">(.*?)</h1>', body)]  # fmt: skip
            words = re.sub(r"\s+", " ", re.sub("<.*?>", " ", body))
            self.titles[f"data/man/{name}.1"] = f"{name}(1)"
            self.manual_bodies = getattr(self, "manual_bodies", {})
            self.manual_bodies[name] = (address, f'<div class="manual">{body}</div>', headings, words)

    # The Swift libraries

    def make_libraries(self):
        for name, (address, body, headings, words) in getattr(self, "manual_bodies", {}).items():
            self.write(address, f"{name}(1)", body, f"data/man/{name}.1", headings, words=words)
        parts = ["<h1>Swift libraries</h1>"]
        headings = [(1, "", "Swift libraries")]
        words = ["Swift libraries API"]
        if not self.archives:
            parts.append("<p>This copy of the site was made without them.</p>")
        else:
            parts.append("<p>Every type with a line about it. The pages behind the links are made by DocC, and need a "
                         "browser with JavaScript and a web server, as <code>python3 -m http.server</code> is one.</p>")  # fmt: skip
        for module in self.modules if self.archives else []:
            parts.append(self.library(module, headings, words))
        self.write("api/index.html", "Swift libraries", "\n".join(parts), "", headings, words=" ".join(words))

    def library(self, module, headings, words):
        """The topics of a library's page, and those of its types."""
        def load(url):
            with open(f"{self.output}/api/{module}/data{url.lower()}.json", encoding="utf-8") as file:
                return json.load(file)

        def abstract(reference):
            return "".join(part.get("text") or part.get("code") or "" for part in reference.get("abstract", []))

        def items(page, depth):
            result = []
            for section in page.get("topicSections", []):
                if depth == 0:
                    anchor = f"{module}-{section['title']}".replace(" ", "-").lower()
                    headings.append((3, anchor, section["title"]))
                    result.append(f'<h3 id="{escaped(anchor)}">{escaped(section["title"])}</h3>')
                rows = []
                for identifier in section["identifiers"]:
                    reference = page["references"].get(identifier)
                    if reference is None or "url" not in reference:
                        continue
                    url = reference["url"]
                    words.append(f"{reference['title']} {abstract(reference)}")
                    rows.append(f'<dt><a href="{module}{url.lower()}/">{escaped(reference["title"])}</a></dt>'
                                f"<dd>{escaped(abstract(reference))}</dd>")  # fmt: skip
                    if depth == 0 and reference.get("role") == "symbol":
                        members = items(load(url), 1)
                        if members:
                            rows.append(f'<dd><details class="members"><summary>its members</summary>{members}</details></dd>')
                if rows:
                    result.append(f'<dl class="symbols">{"".join(rows)}</dl>')
            return "".join(result)

        page = load(f"/documentation/{module}")
        what = "".join(part.get("text") or part.get("code") or "" for part in page.get("abstract", []))
        headings.append((2, module.lower(), module))
        topics = items(page, 0)
        if not topics:
            raise SiteError(f"the archive of {module} has no topics")
        return (f'<h2 id="{module.lower()}">{module}</h2><p>{escaped(what)} '
                f'<a href="{module}/documentation/{module.lower()}/">Its documentation</a>.</p>{topics}')  # fmt: skip

    # The rest

    def make_home(self):
        def card(title, pages):
            items = "".join(f'<li><a href="{place}">{escaped(text)}</a></li>' for place, text in pages)
            return f'<section class="card"><h2>{escaped(title)}</h2><ul>{items}</ul></section>'

        cards = []
        for title, paths in self.sections:
            pages = [(self.documents[path], self.titles[path] if path != "README.md" else "Introduction")
                     for path in paths if path in self.documents]  # fmt: skip
            if title == "Rules":
                reference = [(place, name.split("/")[1].removesuffix(".xml")) for name, place in self.interfaces.items()]
                reference += [(place, f"{name}(1)") for name, place in self.manuals.items()]
                cards.append(card("Reference", reference + [("api/index.html", "Swift: all types of the libraries")]))
            if pages:
                cards.append(card(title, pages))
        terminal = self.link("README.md", "index.html", "docs/images/terminal.svg")
        way = self.link("README.md", "index.html", "docs/images/way.svg")
        body = f"""<div class="hero"><h1>Carillon</h1>
<p>A publish/subscribe event bus for the Linux desktop: one process posts a named notification, and each process that
registered for the name receives it, in every language with a D-Bus library.</p>
<p class="start"><a href="introduction.html#install">Install</a> <a href="introduction.html#five-uses">Five uses</a>
<a href="reference/index.html">Reference</a>
<a href="guides/troubleshooting.html">Something does not arrive</a></p>
<div class="picture" tabindex="0"><img src="{terminal}" alt="An observer in one terminal, and posts in another"></div></div>
<div class="cards">{"".join(cards)}</div>
<img src="{way}" alt="The way of a notification, from the poster over the bus to the service, and from there to each observer">"""
        self.write("index.html", "Carillon", body, wide=True)

    def make_search(self):
        body = """<h1>Search</h1>
<p><label for="words">Words that are all on a page:</label></p>
<input type="search" id="words" autofocus><noscript><p>This page, and no other but those of the Swift libraries, needs
JavaScript. <a href="index.html">The index</a> has all pages.</p></noscript>
<div id="results" aria-live="polite"></div>
<script src="pages.js"></script><script src="search.js"></script>"""
        self.write("search.html", "Search", body)

    def make_sources(self):
        """The files and folders that pages link to."""
        while self.listings:
            path = self.listings.pop()
            address = f"source/{path}/index.html"
            if os.path.exists(f"{self.output}/{address}"):
                continue
            rows = []
            for name in sorted(os.listdir(f"{ROOT}/{path}")):
                inner = f"{path}/{name}"
                is_folder = os.path.isdir(f"{ROOT}/{inner}")
                if name.startswith((".", "__")) or not is_folder and not self.is_text(inner):
                    continue
                target = self.link(f"{path}/x", address, name)
                rows.append(f'<li><a href="{target}">{escaped(name)}{"/" if is_folder else ""}</a></li>')
            self.write(address, path, f"<h1>{escaped(path)}</h1><ul>{''.join(rows)}</ul>", path)
        for path in sorted(self.sources - self.made):
            self.made.add(path)
            if not self.is_text(path):
                raise SiteError(f"a page links to {path}, which is no text")
            with open(f"{ROOT}/{path}", encoding="utf-8") as file:
                text = file.read()
            name = posixpath.basename(path)
            code = highlighted(text, filename=name)
            body = f'<h1>{escaped(name)}</h1><p><code>{escaped(path)}</code></p><pre class="code"><code>{code}</code></pre>'
            self.write(f"source/{path}.html", path, body, path)

    @staticmethod
    def is_text(path):
        full = f"{ROOT}/{path}"
        if os.path.getsize(full) > LARGE:
            return False
        if os.path.splitext(path)[1] in TEXT:
            return True
        with open(full, "rb") as file:
            start = file.read(2000)
        return b"\0" not in start and not os.path.splitext(path)[1]


def main():
    parser = argparse.ArgumentParser(description="Makes the site of all documents.")
    parser.add_argument("output")
    parser.add_argument("--archives", action="store_true", help="api/MODULE is there for each module")
    parser.add_argument("modules", nargs="*")
    options = parser.parse_args()
    try:
        site = Site(options.output, options.modules, options.archives)
        site.make()
    except (SiteError, ValueError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
