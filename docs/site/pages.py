# SPDX-License-Identifier: Apache-2.0
"""Markdown as GitHub shows it, as HTML, with links that the caller resolves."""

import html
import re

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound


def slug(text, used):
    """The id that GitHub gives a heading."""
    base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    name, number = base, 0
    while name in used:
        number += 1
        name = f"{base}-{number}"
    used.add(name)
    return name


def highlighted(code, language="", filename=""):
    """Code with its colors."""
    try:
        lexer = get_lexer_by_name(language) if language else get_lexer_for_filename(filename) if filename else TextLexer()
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(code, lexer, HtmlFormatter(nowrap=True))


class Page:
    """A Markdown text, rendered."""

    def __init__(self, text, link, image):
        """link and image turn an address of the text into one of the site."""
        text = re.sub(r"^<!--.*?-->\n?", "", text, flags=re.MULTILINE | re.DOTALL)
        parser = MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough")
        tokens = parser.parse(text)
        used = set()
        self.title = ""
        #: Level, id and text of each heading.
        self.headings = []
        #: The text of the page, for the search.
        self.words = []
        for index, token in enumerate(tokens):
            if token.type == "heading_open":
                plain = plain_text(tokens[index + 1])
                token.attrSet("id", slug(plain, used))
                level = int(token.tag[1])
                self.headings.append((level, token.attrGet("id"), plain))
                if not self.title:
                    self.title = plain
            elif token.type == "inline":
                self.words.append(plain_text(token))
                for child in token.children:
                    if child.type == "link_open":
                        child.attrSet("href", link(child.attrGet("href")))
                    elif child.type == "image":
                        child.attrSet("src", image(child.attrGet("src")))
                        child.attrSet("loading", "lazy")
            elif token.type in ("fence", "code_block"):
                self.words.append(token.content)
        parser.add_render_rule("fence", _fence)
        parser.add_render_rule("code_block", _fence)
        parser.add_render_rule("table_open", lambda *_: '<div class="table"><table>\n')
        parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
        parser.add_render_rule("heading_close", _heading_close)
        self.html = parser.renderer.render(tokens, parser.options, {})


def _fence(_renderer, tokens, index, _options, _env):
    token = tokens[index]
    language = token.info.split()[0] if token.info.split() else ""
    code = highlighted(token.content, "console" if language == "console" else language)
    return f'<pre class="code"><code>{code}</code></pre>\n'


def _heading_close(_renderer, tokens, index, _options, _env):
    heading = tokens[index - 2]
    name = heading.attrGet("id")
    anchor = f' <a class="anchor" href="#{name}" aria-label="Link to this section">#</a>' if heading.tag != "h1" else ""
    return f"{anchor}</{heading.tag}>\n"


def plain_text(inline):
    """The text of an inline token, without marks."""
    parts = []
    for child in inline.children or []:
        if child.type in ("text", "code_inline"):
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "image":
            parts.append(child.content)
    return "".join(parts)


def escaped(text):
    return html.escape(text, quote=True)
