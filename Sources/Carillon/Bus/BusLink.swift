// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import Foundation
import Synchronization

/// The link between the program's threads and the bus: an outbox, and a thread of the library (the **bus thread**) that
/// runs a ``ServiceSession``. Each ``DistributedNotificationCenter`` has one.
///
/// The program's threads append requests and never wait for the service. The bus thread answers the Pings of the
/// service even while the main thread is busy (A4, B4). The first request starts the thread. It ends after this object
/// is released and the waiting requests are sent.
final class BusLink: Sendable {
    /// The loop of the bus thread.
    private let context = MainContext()
    private let outbox: SharedOutbox
    /// The requested transport of posts and notifications.
    let transport = TransportPreference(ofUser: .ofEnvironment)
    private let session: BusThreadConfined<ServiceSession>
    /// Wakes the bus thread, which then sends requests.
    private let source: SignalledSource
    /// Whether the bus thread was started.
    private let hasStarted = Atomic(false)

    /// - Parameters:
    ///   - address: the address of the bus, requested again for every connection.
    ///   - limits: the limits of posts that wait in the outbox.
    ///   - receiver: the receiver of the service's messages, called on the bus thread.
    init(
        address: @escaping BusAddress, limits: Outbox<Request>.Limits = .init(), receiver: any ServiceReceiver
    ) {
        outbox = SharedOutbox(limits: limits)
        let session = BusThreadConfined(
            ServiceSession(
                bus: LoopBus(address: address, context: context), wish: transport, outbox: outbox,
                receiver: receiver))
        self.session = session
        source = SignalledSource(on: context, priority: .default) { session.value.pump() }
    }

    deinit {
        outbox.close()
        context.wakeUp()
    }

    /// Appends a request to the outbox and returns at once. Threads: any.
    ///
    /// - Throws: ``ServiceError/tooManyUnsentPosts(limit:)`` for a post beyond the limit.
    func submit(_ request: Request) throws(ServiceError) {
        let needsNotice = try outbox.append(request)
        if hasStarted.exchange(true, ordering: .acquiringAndReleasing) {
            if needsNotice { source.signal() }
        } else {
            startThread()
        }
    }

    /// Changes the program's requested transport. An environment variable of the user takes precedence. Threads: any.
    func wish(_ transport: Transport) {
        self.transport.ofProgram = transport
        if !isUnused { source.signal() }
    }

    /// A number that changes whenever a request leaves or is confirmed. Threads: any.
    var progress: UInt64 { outbox.progress }

    /// The numbers of posts that have not left the process, and of sent posts that are not confirmed. Threads: any.
    var unsentPosts: (waiting: Int, unconfirmed: Int) { outbox.unsentPosts }

    /// Whether no request was ever submitted.
    var isUnused: Bool { !hasStarted.load(ordering: .acquiring) }

    /// Starts the bus thread, which finds the first request in the outbox.
    private func startThread() {
        // The thread captures the properties and not `self`, so that it does not keep this object alive.
        let (session, outbox, context) = (session, outbox, context)
        Thread {
            // Set on the running thread, because Foundation would lose a name that is set before the start.
            Thread.current.name = "carillon"
            session.value.start()
            while !(outbox.isClosed && session.value.mayStop()) { context.iterate(mayBlock: true) }
            session.value.stop()
        }.start()
    }
}

/// An object that is created on one thread, and afterwards used on the bus thread only. The compiler can't check this.
struct BusThreadConfined<Value>: @unchecked Sendable {
    // Sendable: one thread at a time uses the object, and the start of the bus thread follows the creation.
    let value: Value

    init(_ value: Value) {
        self.value = value
    }
}
