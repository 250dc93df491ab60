// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// `carillon top` on a terminal, as tmux shows it.
@Suite(
    "B3: the screen of carillon top", .serialized, .enabled(if: TmuxScreen.isInstalled, "tmux is not installed"),
    .limited)
struct TopScreenTests {
    /// The command on a screen, run by a shell there.
    private func start(
        on bus: PrivateBus, _ arguments: String = "--interval 0.2", columns: Int = 120, lines: Int = 30,
        environment: [String: String] = [:]
    ) throws -> TmuxScreen {
        let screen = try TmuxScreen(
            columns: columns, lines: lines,
            environment: bus.environment.merging(environment) { $1 })
        let program = "sh -c 'echo $$ >$HOME/pid; exec \"$0\" top \(arguments)' '\(try Bell.path())'"
        try screen.run("stty -g >$HOME/before; clear; \(program); echo END-$?")
        return screen
    }

    private func isTable(_ lines: [String]) -> Bool { lines.contains { $0.hasPrefix("name ") } }

    /// The first words of the rows below the titles.
    private func rows(_ lines: [String], below title: String) -> [String] {
        guard let start = lines.firstIndex(where: { $0.hasPrefix(title) }) else { return [] }
        return lines[(start + 1)...].prefix { !$0.isEmpty }.compactMap {
            $0.split(separator: " ").first.map(String.init)
        }
    }

    private func observers(_ lines: [String]) -> [Substring] {
        lines.filter { $0.hasPrefix(":") }.map { $0.split(separator: " ")[4] }
    }

    @Test("top shows clients and values with their rates; keys select order, filter, view, pause and help")
    func keys() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding")
        let poster = try ChattyClient(on: bell.bus, observing: "Dong")
        try poster.post("Ding", times: 2)
        let third = try bell.observe("a", "b", "c")
        try bell.post("org.b", "--retain", "--object", "鐘楼", "a=1")
        try bell.post("org.a", "--retain", "text=\(String(repeating: "x", count: 5000))")
        let screen = try start(on: bell.bus)
        let shown = try screen.wait(for: "process \(bell.service.pid), up ")
        #expect(shown.contains { $0.hasPrefix("posts/s ") && $0.contains("values 2") }, "\(shown)")
        #expect(shown.contains { $0.hasPrefix("activity ") }, "\(shown)")
        #expect(shown[29].hasPrefix("q quit  h help"), "\(shown)")
        let table = try #require(shown.first { $0.hasPrefix("name ") })
        for title in ["pid", "program", "observers", "post/s↓", "queued", "flow", "suspended", "dropped", "channel"] {
            #expect(table.contains(title), "\(table)")
        }
        #expect(rows(shown, below: "name ").count == 3)

        // Who posts most comes first.
        try eventually("a client posts") {
            try poster.post("Ding", times: 5)
            guard let row = try screen.lines().first(where: { $0.hasPrefix(":") })?.split(separator: " ") else {
                return false
            }
            return row[2] == "python3" && (Double(row[5]) ?? 0) > 0
        }

        // Whether it observes or not.
        let silent = try ChattyClient(on: bell.bus, observing: nil)
        try eventually("a program posts most that observes nothing") {
            try silent.post("Dong", times: 50)
            guard let row = try screen.lines().first(where: { $0.hasPrefix(":") })?.split(separator: " ") else {
                return false
            }
            return row[2] == "python3" && row[4] == "0" && (Double(row[5]) ?? 0) > 0
        }
        silent.end()
        try screen.wait("it is gone") { rows($0, below: "name ").count == 3 }

        try screen.press("O")
        try screen.wait("it is sorted by observers") { lines in
            lines.contains { $0.contains("by observers") } && observers(lines) == ["3", "1", "1"]
        }
        try screen.press("O")
        try screen.wait("the other way round") { lines in
            lines.contains { $0.contains("by observers, reversed") } && observers(lines) == ["1", "1", "3"]
        }
        try screen.press("<")
        try screen.wait(for: "by app")
        try screen.press(">", ">")
        try screen.wait(for: "post/s↓")

        try screen.press("Tab")
        try screen.wait("the values") { lines in
            rows(lines, below: "name↑ ") == ["org.a", "org.b"] && lines.contains { $0.contains("鐘楼") }
        }
        try screen.press("S")
        try screen.wait("the largest first") { rows($0, below: "name ") == ["org.a", "org.b"] }
        try screen.press("r")
        try screen.wait("the smallest first") { rows($0, below: "name ") == ["org.b", "org.a"] }

        try screen.press("/")
        try screen.type("楼x")
        try screen.press("BSpace")
        try screen.wait("it is filtered while it is typed") { lines in
            rows(lines, below: "name ") == ["org.b"] && lines[29] == "filter: 楼"
        }
        #expect(try screen.variable("cursor_flag") == "1" && screen.variable("cursor_x") == "10")
        try screen.press("Enter")
        try screen.wait("it stays filtered") { lines in
            rows(lines, below: "name ") == ["org.b"] && lines[29].hasPrefix("q quit")
        }
        try screen.press("Escape")
        try screen.wait("all again") { rows($0, below: "name ") == ["org.b", "org.a"] }

        try screen.press("3")
        try screen.wait(for: "observers-per-client")
        try screen.press("h")
        try screen.wait("the help") { lines in
            lines.contains { $0.hasPrefix("r   ") } && lines.contains { $0.hasPrefix("U   ") }
        }
        try screen.press("x")
        try screen.wait(for: "observers-per-client")
        try screen.press("1", "p")
        try screen.wait(for: "paused")
        try bell.post("Dong", "--retain")
        // Pausing has nothing to wait for but a question that would have been answered by then.
        _ = try bell.run("top", "--json", "-n", "4", "--interval", "0.2")
        #expect(try screen.lines().contains { $0.contains("values 2") })
        try screen.press("p")
        try screen.wait(for: "values 3")
        try screen.press("q")
        try screen.wait(for: "END-0")
        observer.terminate()
        third.terminate()
    }

    @Test(
        "G2: top shows the state and rates of a bridge while one runs, and is not delayed by one that does not respond")
    func bridge() throws {
        let bell = try Bell()
        let screen = try start(on: bell.bus)
        let before = try screen.wait(for: "process \(bell.service.pid), up ")
        #expect(!before.contains { $0.hasPrefix("bridge ") }, "\(before)")
        let bridge = try StubBridge(on: bell.bus)
        try screen.wait(for: "bridge connected to tower:8883, 0 other hosts; 0 (0/s) out, 0 (0/s) in")
        var count = 0
        try eventually("something goes out in a second") {
            count += 100
            try bridge.count(out: count, in: 7)
            return try screen.lines().contains {
                $0.firstMatch(of: /^bridge .*; [0-9]+ \([1-9][0-9.]*\/s\) out, 7 \(/) != nil
            }
        }
        try bridge.stop()
        try screen.wait(for: "bridge does not answer")
        try bell.post("Dong", "--retain")
        try screen.wait("the rest goes on") { lines in
            lines.contains { $0.contains("values 1") } && lines.contains("bridge does not answer")
        }
        bridge.signal(SIGCONT)
        try screen.wait(for: "bridge connected to ")
        bridge.end()
        try screen.wait("it is gone") { !$0.contains { $0.hasPrefix("bridge ") } }
        try screen.press("q")
        try screen.wait(for: "END-0")
    }

    @Test("top adapts to the size of the terminal, and scrolls to rows beyond it")
    func size() throws {
        let bell = try Bell()
        for n in 1...30 { try bell.post("value.\(n)", "--retain") }
        let screen = try start(on: bell.bus, "--interval 0.2 --view values", lines: 24)
        try screen.wait("the first rows") { lines in
            rows(lines, below: "name").first == "value.1" && lines[23].hasSuffix("rows 1-17 of 30")
        }
        try screen.press("NPage")
        try screen.wait("the last rows") { rows($0, below: "name").contains("value.30") }
        try screen.press("Home", "Down")
        try screen.wait("one row on") { rows($0, below: "name").first == "value.2" }
        try screen.resize(columns: 60, lines: 12)
        let small = try screen.wait("it is drawn for the new size") {
            // tmux itself keeps the last lines of what was there.
            $0[0].hasPrefix("carillon top") && $0[11].hasPrefix("q quit")
        }
        #expect(rows(small, below: "name").count == 6, "\(small)")
        try screen.resize(columns: 140, lines: 40)
        let large = try screen.wait("and for a larger one") { $0.count >= 40 && $0[39].hasPrefix("q quit") }
        #expect(rows(large, below: "name").contains("value.30"), "\(large)")
        try screen.press("q")
        try screen.wait(for: "END-0")
    }

    @Test("E3: top waits for a service and for its successor, and starts none")
    func waits() throws {
        let bus = try PrivateBus(.dbusDaemon, activations: [.service()])
        let screen = try start(on: bus)
        try screen.wait(for: "waiting for the service")
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
        let first = try ServiceProcess(on: bus)
        try screen.wait(for: "process \(first.pid), up ")
        try first.kill()
        let waiting = try screen.wait(for: "waiting for the service; the data below is from ")
        #expect(isTable(waiting), "what was known stays")
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
        let second = try ServiceProcess(on: bus)
        try screen.wait(for: "process \(second.pid), up ")
        try screen.press("q")
        try screen.wait(for: "END-0")
    }

    /// A key that ends it, or the number of a signal.
    static let ends = ["q", "C-c", "C-\\", "\(SIGINT)", "\(SIGTERM)", "\(SIGQUIT)", "\(SIGHUP)"]

    @Test("top restores the terminal, whether a key or a signal ends the program", arguments: ends)
    func restores(end: String) throws {
        let bell = try Bell()
        let screen = try start(on: bell.bus)
        try screen.wait(for: "process \(bell.service.pid), up ")
        #expect(try screen.variable("alternate_on") == "1" && screen.variable("cursor_flag") == "0")
        if let signal = Int32(end) {
            let text = try String(contentsOfFile: bell.bus.directory.entry("home/pid"), encoding: .utf8)
            let pid = try #require(pid_t(text.trimmingCharacters(in: .newlines)))
            try #require(kill(pid, signal) == 0)
        } else {
            try screen.press(end)
        }
        let after = try screen.wait(for: "END-0")
        #expect(
            after.filter { !$0.isEmpty }.allSatisfy { $0.hasPrefix("END-") || ["$", "#"].contains($0) }, "\(after)")
        #expect(try screen.variable("alternate_on") == "0" && screen.variable("cursor_flag") == "1")
        try screen.run("stty -g >$HOME/after; cmp $HOME/before $HOME/after && echo SAME")
        try screen.wait("the modes are as before") { $0.contains("SAME") }
    }

    @Test("Control-Z returns the terminal to the shell, and fg resumes top")
    func stopped() throws {
        let bell = try Bell()
        let screen = try TmuxScreen(environment: bell.bus.environment)
        try screen.run("bash --norc")
        try screen.run("clear; '\(try Bell.path())' top --interval 0.2")
        try screen.wait(for: "process \(bell.service.pid), up ")
        try screen.press("C-z")
        try screen.wait(for: "Stopped")
        #expect(try screen.variable("alternate_on") == "0")
        try screen.run("fg")
        try screen.wait(for: "process \(bell.service.pid), up ")
        #expect(try screen.variable("alternate_on") == "1")
        try screen.press("q")
        try screen.wait("the shell is back") { !isTable($0) }
    }

    @Test(
        "Without ncurses or a known terminal, carillon top reports the cause and the --batch alternative",
        arguments: [
            ("LD_LIBRARY_PATH=$HOME", "libncursesw.so.6"), ("TERM=dumb", "TERM"), ("TERM=no-such", "'no-such'"),
            ("TERM=", "TERM"),
        ])
    func missing(variable: String, text: String) throws {
        let bell = try Bell()
        // Found before the real one, and no library.
        try bell.bus.directory.write("", to: "home/libncursesw.so.6")
        let screen = try TmuxScreen(environment: bell.bus.environment)
        try screen.run("clear; \(variable) '\(try Bell.path())' top; echo END-$?")
        let lines = try screen.wait(for: "END-1")
        #expect(lines.contains { $0.hasPrefix("carillon: no full screen: ") && $0.contains(text) }, "\(lines)")
        #expect(lines.contains("'carillon top --batch' needs none."), "\(lines)")
    }
}
