// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import Foundation

/// What observers of a test received.
final class Inbox<Value: Sendable>: Sendable {
    private let values = Locked<[Value]>([])

    func add(_ value: Value) { values.withLock { $0.append(value) } }
    var all: [Value] { values.withLock { $0 } }
    func contains(where condition: (Value) -> Bool) -> Bool { values.withLock { $0.contains(where: condition) } }

    /// Blocks until so many are there.
    func wait(for count: Int, within patience: Patience = .event) throws -> [Value] {
        try eventually("\(count) values, got \(all)", within: patience, progress: { self.all.count }) {
            all.count >= count
        }
        return all
    }

    /// The same for what runs on the pool's threads, one of which a test that blocks would hold.
    func values(_ count: Int) async throws -> [Value] {
        try await eventuallyInTask("\(count) values, got \(all)", progress: { self.all.count }) {
            self.all.count >= count
        }
        return all
    }
}

/// The service's own view of its clients.
func gdbusCall(_ method: String, _ arguments: [String] = [], on bus: PrivateBus) throws -> String {
    let result = try Command.run(
        "gdbus",
        [
            "call", "--address", bus.address, "--dest", ServiceProcess.busName, "--object-path",
            ServiceProcess.objectPath, "--method", "org.carillon.NotificationCenter1.\(method)",
        ] + arguments, environment: bus.environment)
    guard result.exitCode == 0 else { throw NotInTime("\(method): \(result)") }
    return result.standardOutput
}

/// The numbers of observers of the service's clients, smallest first.
func observerCounts(on bus: PrivateBus) throws -> [Int] {
    try gdbusCall("ListClients", on: bus)
        .matches(of: /'observers': <(?:uint32 )?(\d+)>/).compactMap { Int($0.1) }.filter { $0 > 0 }.sorted()
}

/// Waits until clients have so many observers: what an answer makes the library ask for next comes behind what it was
/// asked to wait for.
func expectObserverCounts(_ expected: [Int], on bus: PrivateBus) throws {
    try eventually("clients have \(expected) observers") { try observerCounts(on: bus) == expected }
}
