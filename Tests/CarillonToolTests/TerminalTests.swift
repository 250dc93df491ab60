// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonTool

/// Tables, sizes and times for people, and what becomes of them where there is no terminal.
@Suite("B3: tables, numbers and colors for people", .limited)
struct TerminalTests {
    private let paper = Terminal(width: nil, hasColors: false)

    private func table() -> Table {
        var table = Table([Table.Column("name"), Table.Column("count", .right), Table.Column("object")])
        table.append(["鐘楼", "7", "the door"])
        table.append(["e\u{301}", "1200", "*"])
        table.append(["Ding\u{1B}[2J\n", "", ""])
        return table
    }

    @Test("Table columns align by display width, cells have no control characters, and lines no trailing blanks")
    func aligned() {
        #expect(
            table().lines(on: paper) == [
                "name             count  object",
                "鐘楼                 7  the door",
                "e\u{301}                 1200  *",
                "Ding\\u001b[2J\\n",
            ])
    }

    @Test("A table can be printed without titles")
    func titles() {
        #expect(table().lines(on: paper, showsTitles: false).count == 3)
    }

    @Test("A table fits the width of the terminal, and shortens texts before it omits columns", arguments: 1...60)
    func narrow(width: Int) {
        let lines = table().lines(on: Terminal(width: width, hasColors: false))
        for line in lines { #expect(DisplayWidth.columns(of: line) <= width, "\(line)") }
        if (25..<32).contains(width) {
            #expect(lines[1].split(separator: " ").contains("7"))
            #expect(lines[3].hasSuffix("…"), "\(lines)")
        }
        if width >= 32 { #expect(lines == table().lines(on: paper)) }
        let hidden = table().hiddenColumns(on: Terminal(width: width, hasColors: false))
        #expect(hidden == (width < 15 ? ["count", "object"] : width < 25 ? ["object"] : []), "\(lines)")
        for title in hidden { #expect(!lines[0].contains(title), "\(lines)") }
    }

    @Test("A column that is too narrow for its title is omitted")
    func titlesAreWhole() {
        var table = Table([Table.Column("name"), Table.Column("suspended"), Table.Column("flow")])
        table.append(["Ding", "true", "open"])
        #expect(
            table.lines(on: Terminal(width: 21, hasColors: false)) == [
                "name  suspended  flow", "Ding  true       open",
            ])
        #expect(table.lines(on: Terminal(width: 20, hasColors: false)) == ["name  suspended", "Ding  true"])
    }

    @Test(
        "A sentence is broken between words",
        arguments: [
            (nil, "Ding is not observed", ["Ding is not observed"]),
            (20, "Ding is not observed", ["Ding is not observed"]),
            (19, "Ding is not observed", ["Ding is not", "  observed"]),
            (6, "Ding is not observed", ["Ding", "  is", "  not", "  observed"]), (3, "", [""]),
            (5, "鐘 樓", ["鐘 樓"]), (4, "鐘 樓", ["鐘", "  樓"]),
        ])
    func wrapped(width: Int?, text: String, lines: [String]) {
        #expect(Terminal(width: width, hasColors: false).wrapped(text) == lines)
    }

    @Test("A number that does not fit is omitted, not shortened")
    func numbers() {
        var table = Table([Table.Column("name"), Table.Column("count", .right)])
        table.append(["Ding", "123456"])
        #expect(table.lines(on: Terminal(width: 12, hasColors: false)) == ["name   count", "Ding  123456"])
        #expect(table.lines(on: Terminal(width: 11, hasColors: false)).last == "Ding")
    }

    @Test("Cell styles apply on a terminal with colors, and take no width")
    func styles() {
        var table = Table([Table.Column("name"), Table.Column("count")])
        table.append([Table.Cell("Ding", .bad), "1"])
        let lines = table.lines(on: Terminal(width: 80, hasColors: true))
        #expect(lines == ["\u{1B}[1mname\u{1B}[0m  \u{1B}[1mcount\u{1B}[0m", "\u{1B}[31mDing\u{1B}[0m  1"])
    }

    @Test(
        "Sizes are shown with binary units",
        arguments: [
            (0, "0 B"), (812, "812 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (4_928_307, "4.7 MiB"),
            (1_048_575, "1.0 MiB"), (102_348, "99.9 KiB"), (102_400, "100 KiB"), (128 << 20, "128 MiB"),
            (UInt64.max, "16.0 EiB"),
        ])
    func sizes(bytes: UInt64, text: String) {
        #expect(Readable.size(bytes) == text)
    }

    @Test(
        "Durations are shown in readable units",
        arguments: [
            (-1, "0.0 s"), (0, "0.0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (9.95, "10 s"), (59.6, "1 min"),
            (200, "3 min 20 s"), (18_120, "5 h 2 min"), (792_000, "9 d 4 h"), (.infinity, "for ever"),
        ])
    func durations(seconds: Double, text: String) {
        #expect(Readable.duration(seconds: seconds) == text)
    }

    @Test(
        "Durations in whole seconds are rounded and have no tenths",
        arguments: [(-1, "0 s"), (0.4, "0 s"), (4.6, "5 s"), (3600, "1 h")])
    func wholeDurations(seconds: Double, text: String) {
        #expect(Readable.duration(wholeSeconds: seconds) == text)
    }

    @Test(
        "Ages are shown in one readable unit",
        arguments: [
            (-5, "now"), (0.9, "now"), (12.7, "12 s ago"), (185, "3 min ago"), (7300, "2 h ago"), (200_000, "2 d ago"),
        ])
    func ages(seconds: Double, text: String) {
        #expect(Readable.ago(seconds: seconds) == text)
    }

    @Test(
        "Rates have one decimal below ten, and none above",
        arguments: [(0, "0"), (0.01, "<0.1"), (0.23, "0.2"), (9.96, "10"), (3400.4, "3400")])
    func rates(perSecond: Double, text: String) {
        #expect(Readable.rate(perSecond) == text)
    }

    // MARK: The command

    @Test("--color overrides NO_COLOR and TERM, and a pipe gets no colors without --color")
    func colors() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding")
        func isColored(_ arguments: String..., environment: [String: String] = [:]) throws -> Bool {
            let result = try Command.run(
                try Bell.path(), arguments, environment: bell.bus.environment.merging(environment) { $1 })
            try #require(result.exitCode == 0, "\(result)")
            return result.standardOutput.unicodeScalars.contains("\u{1B}")
        }
        for command in ["clients", "observers", "status", "retained"] {
            #expect(try isColored(command, "--color=always", environment: ["NO_COLOR": "1", "TERM": "dumb"]))
            #expect(try !isColored(command, environment: ["TERM": "xterm"]), "a pipe is no terminal")
            #expect(try !isColored(command, "--color", "never"))
            let wrong = try bell.run(command, "--color=blue")
            #expect(wrong.exitCode == 1 && wrong.standardError.contains("auto, always, never"), "\(wrong)")
        }
        #expect(try !isColored("clients", "--json", "--color=always"))
        observer.terminate()
    }
}
