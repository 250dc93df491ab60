// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// The examples that say by themselves whether they are active, built as their first lines say, on an X server.
@Suite("A2: examples that report their own activity", .serialized, .limited)
struct ExampleTests {
    enum Example: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case pythonGTK = "python-gtk"
        case cGTK = "c-gtk"
        case qt

        var testDescription: String { rawValue }

        /// Builds it, where there is something to build.
        ///
        /// - Returns: the command that runs it.
        func build(in directory: TemporaryDirectory) throws -> [String] {
            let source = Executables.packageRoot + "/Examples/\(rawValue)"
            let program = directory.entry("inbox")
            switch self {
            case .pythonGTK: return [DesktopSupport.python, "-B", "\(source)/inbox.py"]
            case .cGTK:
                try requirePackages("gtk+-3.0")
                try shell(
                    "cc -Wall -Wextra -Werror -o '\(program)' '\(source)/inbox.c' $(pkg-config --cflags --libs gtk+-3.0)"
                )
            case .qt:
                try requirePackages("Qt5Widgets", "Qt5DBus")
                let moc = "$(pkg-config --variable=host_bins Qt5Core)/moc"
                try shell("\(moc) '\(source)/inbox.cpp' -o '\(directory.entry("inbox.moc"))'")
                try shell(
                    "c++ -fPIC -Wall -Wextra -Werror -I'\(directory.path)' -o '\(program)' '\(source)/inbox.cpp'"
                        + " $(pkg-config --cflags --libs Qt5Widgets Qt5DBus)")
            }
            return [program]
        }

        private func requirePackages(_ names: String...) throws {
            let missing = try names.filter { try Command.run("pkg-config", ["--exists", $0]).exitCode != 0 }
            if !missing.isEmpty { try DesktopSupport.skip("\(missing.joined(separator: ", ")) not installed") }
        }

        private func shell(_ command: String) throws {
            let result = try Command.run(
                "sh", ["-c", command], within: .work(.seconds(600), because: "it is a compiler's run"))
            guard result.exitCode == 0 else { throw NotInTime("\(result)") }
        }
    }

    @Test(
        "An example suspends itself on a desktop without a source, and follows activity with --automatic",
        arguments: Example.allCases)
    func ownWord(example: Example) async throws {
        let (bus, desktop) = try DesktopSupport.x11()
        let directory = try TemporaryDirectory()
        let command = try example.build(in: directory)
        try bus.configure("[Activity]\nsource=none\n")
        let service = try ServiceProcess(on: bus, environment: desktop.environment)
        let client = try Client(on: bus)
        // Follows when it can; here it can't.
        try run(command, "explicit", desktop, client)

        try bus.configure("")
        try client.call(ReloadConfiguration())
        try client.waitForActivity()
        try run(command + ["--automatic"], "activity", desktop, client)
        #expect(service.isRunning)
    }

    private func run(_ command: [String], _ cause: String, _ desktop: X11Desktop, _ client: Client) throws {
        let inbox = try RunningCommand(
            command[0], Array(command.dropFirst()),
            environment: desktop.environment.merging(["QT_QPA_PLATFORM": "xcb"]) { $1 })
        /// In any order.
        func expect(_ lines: Set<String>) throws {
            var missing = lines
            while !missing.isEmpty { missing.remove(try inbox.nextLine { missing.contains($0) }) }
        }
        func expect(_ line: String) throws { try expect([line]) }
        try eventually("it observes: \(inbox.transcript)", within: .desktop) {
            try client.post("org.example.Mail") == 1
        }
        try eventually("its window is there: \(inbox.transcript)", within: .desktop) {
            (try? desktop.activate("Inbox")) != nil
        }
        // Its window may have been there, and active, before it observed.
        try expect(cause == "activity" ? ["got org.example.Mail", "resumed activity"] : ["got org.example.Mail"])

        let other = try WindowProgram("Other", on: desktop, control: client)
        try expect("suspended \(cause)")
        try client.post("org.example.Mail", "1")
        try client.post("org.example.Mail", "1")
        try desktop.activate("Inbox")
        try expect("resumed \(cause)")
        try expect("got org.example.Mail")
        // One, not two: they coalesced.
        try client.post("org.example.Mail", "last")
        try expect("got org.example.Mail")
        #expect(inbox.standardOutput.split(separator: "\n").filter { $0.hasPrefix("got") }.count == 3)
        inbox.kill()
        _ = try inbox.waitForExit()
        try other.kill()
    }
}
