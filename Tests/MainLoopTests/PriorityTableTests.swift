// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Foundation
import Testing

@Suite("M2, M6: the table of priorities", .limited)
struct PriorityTableTests {
    private static let modes: [RunLoopMode] = [.eventTracking, .modalPanel, .default]

    private func number(_ work: LoopWork, _ mode: RunLoopMode = .default) -> Int32 {
        EventSource.Priority.of(work, in: mode).rawValue
    }

    @Test("The documented table has a row with numbers and a reason for every kind of work")
    func documented() throws {
        struct Row: Equatable {
            let work: String
            let numbers: [Int32?]
        }
        let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("Sources/MainLoop/PriorityTable.swift")
        var rows: [Row] = []
        for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard cells.first == "///", cells.count == 6, cells[1].hasPrefix("`") else { continue }
            let work = cells[1].trimmingCharacters(in: ["`"])
            rows.append(Row(work: work, numbers: cells[2...4].map(Self.number(of:))))
            #expect(cells[5].count > 20, "\(cells[1]) has a reason")
        }
        let values = LoopWork.allCases.map { work in
            Row(work: "\(work)", numbers: Self.modes.map { number(work, $0) })
        }
        #expect(rows == values)
        for work in LoopWork.allCases { #expect(number(work, "own") == number(work), "custom modes") }
    }

    /// `−20`, `max` or `max − 2`.
    private static func number(of cell: String) -> Int32? {
        let text = cell.replacingOccurrences(of: "−", with: "-").replacingOccurrences(of: " ", with: "")
        guard text.hasPrefix("max") else { return Int32(text) }
        let rest = text.dropFirst(3)
        return rest.isEmpty ? .max : Int32(rest).map { Int32.max + $0 }
    }

    @Test("M2: event tracking has precedence over modal panel, and modal panel over default, for every kind of work")
    func modes() {
        for work in LoopWork.allCases {
            let numbers = Self.modes.map { number(work, $0) }
            #expect(numbers == numbers.sorted(), "\(work)")
        }
        for work in [LoopWork.asap, .ordinary, .whenIdle, .delivery] {
            #expect(Set(Self.modes.map { number(work, $0) }).count == 3, "\(work)")
        }
    }

    @Test("M2: asap work has precedence over deliveries, and deliveries over when-idle work, in every mode")
    func inAProgram() {
        for mode in Self.modes + ["own"] {
            #expect(number(.asap, mode) < number(.ordinary, mode) && number(.ordinary, mode) < number(.whenIdle, mode))
        }
        // Ahead of all of GLib's; with timers and events, before GTK's resize and redraw; behind G_PRIORITY_LOW.
        #expect(number(.asap) < EventSource.Priority.high.rawValue)
        #expect(EventSource.Priority.of(.ordinary) == .default)
        #expect(number(.whenIdle, .eventTracking) > 300)
    }

    @Test("M6: the service's order is control, immediate, event tracking, modal panel, default, when idle")
    func inTheService() {
        let numbers =
            [number(.control), number(.immediate)] + Self.modes.map { number(.delivery, $0) }
            + [number(.queuedWhenIdle)]
        #expect(zip(numbers, numbers.dropFirst()).allSatisfy { $0 < $1 })
        #expect(EventSource.Priority.of(.control) == .high)
        #expect(EventSource.Priority.of(.delivery) == .default)
        #expect(EventSource.Priority.of(.queuedWhenIdle) == .idle)
    }

    @Test("M6, Q7: reading comes after modal panel and before default deliveries, and asap posts have its priority")
    func reading() {
        #expect(number(.delivery, .modalPanel) < number(.reading))
        #expect(number(.reading) < number(.delivery))
        #expect(number(.queuedAsap) == number(.reading))
        #expect(number(.queuedAsap) < number(.queuedWhenIdle))
        #expect(number(.reading) < number(.waitingCalls) && number(.waitingCalls) < number(.delivery))
    }
}
