// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestSupport
import CarillonWire
import Foundation
import Synchronization

/// Something that has the service's name, answers registrations, and sends whatever a test wants: for what the real
/// service never does.
final class FakeService: @unchecked Sendable {
    // Sendable: the connection and the questions are used on the connection's thread only, to which all work is handed;
    // the rest is locked.
    private let context = MainContext()
    private let connection: Connection
    private let client = Locked<UniqueName?>(nil)
    private let isStopped = Atomic(false)
    /// Calls of `Get` without an answer.
    private var questions: [Message] = []
    private let readings = Locked((count: 0, unanswered: 0))

    init(on bus: PrivateBus, ownsName: Bool = true) throws {
        connection = try Connection(address: bus.address, context: context)
        let ready = Doorbell()
        // Weak: a message may arrive while this ends.
        connection.onMessage = { [weak self] message in self?.answer(message) ?? false }
        let (connection, context) = (connection, context)
        // unsafe: from its start on the thread is the only one that uses the connection.
        nonisolated(unsafe) let theConnection = connection
        let thread = Thread { [weak self] in
            theConnection.hello { _ in
                guard ownsName else {
                    ready.ring()
                    return
                }
                theConnection.requestName(Wire.busName) { _ in ready.ring() }
            }
            while self?.isStopped.load(ordering: .relaxed) == false { context.iterate(mayBlock: true) }
        }
        thread.start()
        try ready.wait("the fake service's name")
    }

    deinit {
        isStopped.store(true, ordering: .relaxed)
        context.wakeUp()
    }

    /// The client that registered.
    var observer: UniqueName { client.withLock { $0 ?? ":0.0" } }

    func waitForObserver() throws {
        try eventually("an observer") { client.withLock { $0 } != nil }
    }

    private func answer(_ message: Message) -> Bool {
        guard message.kind == .methodCall, message.hasInterface(Wire.interface), let member = message.member else {
            return false
        }
        let reply = message.methodReturn()
        var writer = MessageWriter(reply)
        switch member {
        case ListObservers.member: ListObservers.append([], to: &writer)
        case AddObserver.member:
            AddObserver.append(ObserverID(rawValue: 1), to: &writer)
            client.withLock { $0 = message.sender }
        case Get.member:
            questions.append(message)
            readings.withLock { readings in
                readings.count += 1
                readings.unanswered += 1
            }
            return true
        default: break
        }
        if !message.expectsNoReply { connection.send(reply) }
        return true
    }

    /// Sends `Notification` with {"n": number}.
    func notify(_ number: Int, sequence: UInt64, to client: UniqueName? = nil) {
        send(
            NotificationSignal(
                name: "x", object: "", userInfo: ["n": .int64(Int64(number))], observers: [ObserverID(rawValue: 1)],
                poster: ":1.0", serial: UInt64(number), sequence: sequence), to: client)
    }

    func drop(_ count: UInt64) {
        send(DroppedSignal(count: count, observers: [ObserverID(rawValue: 1)], reason: "queue-full"), to: nil)
    }

    /// How often it was asked what it keeps.
    var readingCount: Int { readings.withLock { $0.count } }
    /// How many of these questions have no answer yet: each waits for ``answerReading(_:object:serial:)``.
    var unansweredReadings: Int { readings.withLock { $0.unanswered } }

    /// Answers the oldest question: it keeps a number for an object.
    func answerReading(_ number: Int, object: String, serial: UInt64) throws {
        try eventually("a question") { unansweredReadings > 0 }
        readings.withLock { $0.unanswered -= 1 }
        run { [weak self] connection in
            guard let self else { return }
            let reply = questions.removeFirst().methodReturn()
            var writer = MessageWriter(reply)
            let value = RetainedValueInfo(
                name: "x", object: object, userInfo: ["value": .int64(Int64(number))],
                details: ["serial": .uint64(serial)])
            Get.append([value], to: &writer)
            connection.send(reply)
        }
    }

    /// Policy takes the observer away.
    func revoke() {
        send(
            DroppedSignal(count: 0, observers: [ObserverID(rawValue: 1)], reason: DroppedSignal.notAllowed), to: nil)
    }

    /// Waits until the bus has taken what was sent.
    func barrier() throws {
        let done = Doorbell()
        run { $0.busID { _ in done.ring() } }
        try done.wait("the bus")
    }

    private func send(_ signal: some CenterSignal, to client: UniqueName?) {
        let destination = client ?? observer
        run { connection in connection.send(signal.message(to: destination)) }
    }

    private func run(_ body: @escaping @Sendable (Connection) -> Void) {
        let source = SourceHolder()
        source.value.withLock {
            $0 = SignalledSource(on: context, priority: .default) { [unowned self] in
                body(connection)
                source.value.withLock { $0 = nil }
            }
            $0?.signal()
        }
    }
}

private final class SourceHolder: Sendable {
    let value = Locked<SignalledSource?>(nil)
}
