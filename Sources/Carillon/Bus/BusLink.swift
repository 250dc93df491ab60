// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import Foundation
import Synchronization

/// The way from the program's threads to the bus: a thread of the library's own, on which a ``ServiceSession`` runs,
/// and the outbox in front of it.
///
/// Whatever the program does with its own threads, it never waits for the service, and the service's pings are
/// answered also while the main thread is busy (A4, B4). The thread is started by the first request, sleeps in a poll
/// while nothing happens, and ends when this object goes away, after sending what waits.
final class BusLink: Sendable {
    private let context = MainContext()
    private let outbox: SharedOutbox
    /// How posts and notifications shall go.
    let transport = TransportWish(ofUser: .ofEnvironment)
    private let session: BusThreadConfined<ServiceSession>
    private let source: SignalledSource
    private let hasStarted = Atomic(false)

    /// - Parameters:
    ///   - address: of the bus, asked anew for every connection.
    ///   - receiver: gets what the service sends, on the bus thread.
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

    /// Hands a request over and returns at once. Threads: any.
    ///
    /// - Throws: ``ServiceError/tooManyUnsentPosts(limit:)`` for a post that would go beyond the bound.
    func submit(_ request: Request) throws(ServiceError) {
        let isToBeTold = try outbox.append(request)
        if hasStarted.exchange(true, ordering: .acquiringAndReleasing) {
            if isToBeTold { source.signal() }
        } else {
            startThread()
        }
    }

    /// Has posts and notifications go another way from now on, if whoever runs the program has nothing against it.
    /// Threads: any.
    func wish(_ transport: Transport) {
        self.transport.ofProgram = transport
        if !isUnused { source.signal() }
    }

    /// Another number whenever something has left, or was confirmed. Threads: any.
    var progress: UInt64 { outbox.progress }

    /// Posts that have not left the process, and those that have and were not confirmed. Threads: any.
    var unsentPosts: (waiting: Int, unconfirmed: Int) { outbox.unsentPosts }

    /// Whether nothing was ever asked for.
    var isUnused: Bool { !hasStarted.load(ordering: .acquiring) }

    private func startThread() {
        // Nothing of self: the thread must not keep this object.
        let (session, outbox, context) = (session, outbox, context)
        Thread {
            // Before the start Foundation would forget it.
            Thread.current.name = "carillon"
            session.value.start()
            while !(outbox.isClosed && session.value.mayStop()) { context.iterate(mayBlock: true) }
            session.value.stop()
        }.start()
    }
}

/// An object that is made on one thread and from then on used on the bus thread only.
struct BusThreadConfined<Value>: @unchecked Sendable {
    // Sendable: see above; the thread's start orders the two.
    let value: Value

    init(_ value: Value) {
        self.value = value
    }
}
