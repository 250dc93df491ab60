// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonTestLimits
import Testing

@testable import CarillonActivity

/// The messages by which desktops report. Programs of others send them: what is checked is what stands in the message.
@Suite("A3: messages of org.carillon.Activity1", .limited)
struct ActivityInterfaceTests {
    /// What a message is, without its arguments.
    private func heading(_ message: Message) -> String {
        [
            message.destination?.rawValue, message.path?.rawValue, message.interface?.rawValue,
            message.member?.rawValue, message.signature.rawValue,
        ].map { $0 ?? "-" }.joined(separator: " ")
    }

    /// Coded, looked at, and decoded again.
    private func check<Report: ActivityReport>(_ report: Report, _ expected: String) throws {
        let message = report.call(to: UniqueName(":1.1"))
        #expect(message.kind == .methodCall)
        #expect(heading(message) == ":1.1 /org/carillon/Activity org.carillon.Activity1 " + expected)
        #expect(message.signature.rawValue == Report.arguments.map(\.signature.rawValue).joined())
        var reader = MessageReader(message)
        #expect(try Report(from: &reader) == report)
        let isAtEnd = reader.isAtEnd
        #expect(isAtEnd)
    }

    @Test(
        "Focused is encoded with the signature sis, and decoded unchanged",
        arguments: [("1", 4711, "org.x.Y"), ("", 0, ""), ("w", -1, "")] as [(String, Int32, String)])
    func focused(window: String, processID: Int32, application: String) throws {
        try check(
            ActivityInterface.Focused(window: window, processID: processID, application: application), "Focused sis")
    }

    @Test(
        "WindowFocused decodes to the value with which it was encoded, for every kind of window",
        arguments: [
            ("1", "application", 7, "org.x.Z"), ("1", "shell", 0, ""), ("1", "passing", 0, ""), ("", "", 0, ""),
        ]
            as [(String, String, Int32, String)])
    func windowFocused(window: String, kind: String, owner: Int32, application: String) throws {
        try check(
            ActivityInterface.WindowFocused(
                focused: .init(window: window, processID: 3, application: "a"), kind: kind, ownerProcessID: owner,
                ownerApplication: application), "WindowFocused sissis")
    }

    @Test("A WindowFocused message with an unknown kind of window is an error")
    func unknownKind() {
        let report = ActivityInterface.WindowFocused(
            focused: .init(window: "1", processID: 3, application: ""), kind: "carpet")
        var reader = MessageReader(report.call(to: UniqueName(":1.1")))
        #expect(throws: BusError.self) { try ActivityInterface.WindowFocused(from: &reader) }
    }

    @Test("ShellWindow is encoded with the signature sis, and decoded unchanged")
    func shellWindow() throws {
        try check(
            ActivityInterface.ShellWindow(window: "1", processID: 4711, application: "org.x.Y"), "ShellWindow sis")
    }

    @Test("WindowVisibility is encoded and decoded unchanged, and an unknown kind of window is an error")
    func windowVisibility() throws {
        for isHidden in [true, false] {
            try check(
                ActivityInterface.WindowVisibility(
                    window: .init(window: "1", processID: 4711, application: "org.x.Y"), kind: "application",
                    isHidden: isHidden), "WindowVisibility sissb")
        }
        let report = ActivityInterface.WindowVisibility(
            window: .init(window: "1", processID: 3, application: ""), kind: "carpet", isHidden: true)
        var reader = MessageReader(report.call(to: UniqueName(":1.1")))
        #expect(throws: BusError.self) { try ActivityInterface.WindowVisibility(from: &reader) }
    }

    @Test("Ended is encoded without arguments")
    func ended() throws {
        try check(ActivityInterface.Ended(), "Ended ")
    }

    @Test("Closed is encoded with the signature s, and decoded unchanged")
    func closed() throws {
        try check(ActivityInterface.Closed(window: "1"), "Closed s")
    }

    @Test("ReportRequested is a signal without arguments, and no other message is taken for one")
    func reportRequested() {
        let signal = ActivityInterface.ReportRequested().signal(to: ":1.2")
        #expect(signal.kind == .signal)
        #expect(heading(signal) == ":1.2 /org/carillon/Activity org.carillon.Activity1 ReportRequested ")
        #expect(ActivityInterface.ReportRequested(signal) != nil)
        #expect(
            ActivityInterface.ReportRequested(ActivityInterface.Closed(window: "1").call(to: UniqueName(":1.1"))) == nil
        )
    }

    @Test("A message with arguments of another type can't be decoded")
    func wrongType() {
        var reader = MessageReader(ActivityInterface.Closed(window: "1").call(to: UniqueName(":1.1")))
        #expect(throws: BusError.self) { try ActivityInterface.Focused(from: &reader) }
    }
}
