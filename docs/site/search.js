// SPDX-License-Identifier: Apache-2.0
// Looks for words in the texts of all pages, which pages.js has. Nothing else of the site needs a script.
"use strict";
const field = document.getElementById("words");
const results = document.getElementById("results");

function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.replaceChildren();
    if (!words.length) return;
    const found = [];
    for (const [address, page, section, text] of window.carillonPages) {
        const title = `${page} ${section}`.toLowerCase();
        const all = `${title} ${text.toLowerCase()}`;
        if (!words.every((word) => all.includes(word))) continue;
        const points = words.reduce((sum, word) => sum + (title.includes(word) ? 5 : 0) + (section.toLowerCase() === word ? 5 : 0), 0);
        found.push([points, address, page, section, text]);
    }
    found.sort((one, other) => other[0] - one[0]);
    for (const [, address, page, section, text] of found.slice(0, 40)) {
        const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 70);
        const result = document.createElement("div");
        result.className = "result";
        const link = result.appendChild(document.createElement("a"));
        link.href = address;
        link.textContent = section && section !== page ? `${page}: ${section}` : page;
        result.appendChild(document.createElement("p")).textContent = (at ? "… " : "") + text.slice(at, at + 220);
        results.appendChild(result);
    }
    if (!found.length) results.textContent = "Nothing has all of these words.";
}

field.value = new URLSearchParams(location.search).get("q") ?? "";
field.addEventListener("input", show);
show();
