// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import CarillonThreadDelivery
import Dispatch
import Foundation
import LocalNotifications

typealias NotificationCenter = LocalNotifications.NotificationCenter
typealias NotificationQueue = LocalNotifications.NotificationQueue

/// What needs the main thread of a process of its own. The tests run it; each scenario prints "ok" at its end, or what
/// went otherwise.
///
///     carillon-main-thread-probe SCENARIO
@main
struct MainThreadProbe {
    static let scenarios: [String: @Sendable () throws -> Void] = [
        "main-queue": mainQueue,
        "main-actor-modes": mainActorModes,
        "operation-queue": operationQueue,
        "main-actor-observers": mainActorObservers,
        "nested": nested,
        "never-starves": neverStarves,
        "run-loop": runLoop,
        "dispatch-main": afterDispatchMain,
        "not-run": notRun,
        "default-queue": defaultQueue,
        "gtk": gtk,
        "chain-to-main": chainToMain,
        "crossing-main": crossingMain,
        "idle-last": idleLast,
        "breath-glib": breathGLib,
        "breath-dialog": breathDialog,
        "breath-run-loop": breathRunLoop,
        "breath-dispatch-main": breathDispatchMain,
    ]

    static func main() {
        guard CommandLine.arguments.count == 2, let scenario = scenarios[CommandLine.arguments[1]] else {
            printLine("carillon-main-thread-probe \(scenarios.keys.sorted().joined(separator: "|"))")
            exit(1)
        }
        do {
            try scenario()
            succeed()
        } catch {
            printLine("failed: \(error)")
            exit(1)
        }
    }

    static func succeed() -> Never {
        printLine("ok")
        exit(0)
    }

    /// Runs the default context until a condition holds.
    static func run(_ what: @autoclosure () -> String, until condition: () -> Bool) throws {
        // Conditions may be of other threads, which do not wake this one.
        let timer = EventSource.timer(milliseconds: 100, on: .default) { .keep }
        try MainContext.default.run(what(), until: condition)
        withExtendedLifetime(timer) {}
    }

    static func require(_ condition: Bool, _ what: @autoclosure () -> String) throws {
        guard condition else { throw NotInTime(what()) }
    }
}

/// What happened, in its order.
final class Events: Sendable {
    private let names = Locked<[String]>([])

    func add(_ name: String) { names.withLock { $0.append(name) } }
    var all: [String] { names.withLock { $0 } }
    var count: Int { names.withLock { $0.count } }
}
