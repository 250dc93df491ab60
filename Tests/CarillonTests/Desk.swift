// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestSupport
import Foundation
import Testing

/// A bus with the service, and centers on it in this process, each of which is a client of its own.
final class Desk: Sendable {
    let bus: PrivateBus
    let service: ServiceProcess

    init(_ kind: BusKind = .dbusDaemon) throws {
        bus = try PrivateBus(kind)
        service = try ServiceProcess(on: bus)
    }

    /// A center whose observers run on a thread of its own, as the main thread of a test runner runs no loop.
    func center() -> DistributedNotificationCenter {
        let center = DistributedNotificationCenter(busAddress: bus.address)
        center.defaultDelivery = .ownQueue
        return center
    }
}

extension DistributedNotificationCenter {
    /// Blocks until the service has taken all that was asked of it, which may be thousands of registrations.
    func settle(within patience: Patience = .start) throws {
        var wait = Wait(patience)
        while !flush(timeout: 1) {
            try wait.look(for: "the service has taken everything: \(connectionState)")
            letPass(.milliseconds(10), because: "without a connection it says no at once")
        }
    }

    /// Posts a notification with a number in its userInfo.
    func post(_ name: String, _ object: String? = nil, number: Int, options: Options = []) {
        postNotificationName(.init(name), object: object, userInfo: ["number": number], options: options)
    }
}

/// A center that observes, and what its observers heard, as `tag number`.
final class Ear: Sendable {
    let center: DistributedNotificationCenter
    let heard = Inbox<String>()
    private let end = Notification.Name("end of what was posted")

    init(_ desk: Desk) throws {
        center = desk.center()
        center.addObserver(forName: end, object: nil, queue: nil) { [heard] note in
            heard.add("end \(note.object ?? "")")
        }
        try center.settle()
    }

    /// Observes, and returns when the service knows it.
    @discardableResult
    func listen(
        _ name: String?, _ object: String? = nil,
        _ behavior: DistributedNotificationCenter.SuspensionBehavior = .coalesce, tag: String,
        queue: OperationQueue? = nil
    ) throws -> any NSObjectProtocol {
        let token = center.addObserver(
            forName: name.map { .init($0) }, object: object, suspensionBehavior: behavior, queue: queue
        ) { [heard, end] note in
            guard note.name != end else { return }
            heard.add("\(tag) \(note.userInfo?["number"] as? Int ?? -1)")
        }
        try center.settle()
        return token
    }

    func suspend(_ isSuspended: Bool) throws {
        center.suspended = isSuspended
        try center.settle()
    }

    /// What was heard of all that `poster` has posted until now, and that nothing is left.
    func everything(from poster: DistributedNotificationCenter) throws -> [String] {
        let mark = UUID().uuidString
        poster.postNotificationName(end, object: mark)
        try eventually("the end of what was posted: \(heard.all)") { heard.contains { $0 == "end \(mark)" } }
        return heard.all.filter { !$0.hasPrefix("end ") }
    }

    /// How many notifications the service has sent so far, after everything that `poster` has posted until now.
    func arrived(from poster: DistributedNotificationCenter) throws -> Int {
        try poster.settle()
        // Its answer comes behind what it sent before.
        try center.settle()
        return Int(center.statistics.received)
    }
}

/// A token that a block can hold.
struct Token: @unchecked Sendable {
    // Sendable: observers may be removed on any thread.
    let value: any NSObjectProtocol

    init(_ value: any NSObjectProtocol) {
        self.value = value
    }
}
