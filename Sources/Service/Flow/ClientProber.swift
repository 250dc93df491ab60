// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The sender of probes. A probe is a `Peer.Ping` behind the messages to a client; its answer acknowledges them (A4).
///
/// The core requests a probe, mostly because a window of messages to a client is full. The Ping is sent on the
/// **control connection**, because its reply on the main connection would wait behind all posts that the bus holds for
/// the service. In a burst of posts every client would then look like a slow consumer. A ``BusBarrier`` precedes each
/// Ping: when it has arrived, the messages sent on the main connection are in the client's queue, and the Ping gets
/// behind them.
///
/// Any reply of the client is an acknowledgment, also an error: it shows that the client has read its messages up to
/// the Ping. These cases are no acknowledgment:
/// - The bus reports that a limit is exceeded: the bus has no space for the client. The probe is repeated after 1 s,
///   then after pauses that double up to 32 s.
/// - No reply arrives within the timeout: the Ping is sent again, so that a lost reply does not block the client.
/// - The connection to the bus has ended: no answer follows.
///
/// Threads: only that of the service's main loop.
final class ClientProber {
    /// The window that a probe is for. A client with a channel has two.
    enum ProbedWindow {
        /// The window of notifications and, without a channel, of replies.
        case client
        /// The window of replies on the bus to a client that has a channel.
        case replies
    }

    /// The main connection.
    private let bus: any MessageBus
    /// Called when a client has answered a Ping.
    var onAnswer: ((ClientName, ProbedWindow) -> Void)?
    /// Called when the bus refused a probe of a client because of a limit. By then all errors of the bus for earlier
    /// signals have been received.
    var onRefusal: ((ClientName, ProbedWindow) -> Void)?
    /// The barrier ahead of each Ping.
    private let barrier: BusBarrier
    /// The number of barriers that have not arrived, for each client.
    private var barriers: [ClientName: Int] = [:]
    /// The timers of probes that the bus refused, until they are sent again.
    private var retries: [ClientName: [EventSource]] = [:]

    /// The number of refusals after which the pause before the next probe, 1 s at first, doubles no more.
    private static let maxRetries = 5
    /// The time after which an unanswered Ping is sent again, in milliseconds. It doubles each time, so that a client
    /// that is stopped for a day does not get thousands of Pings.
    private static let timeout = (first: Int32(60_000), last: Int32(3_600_000))

    private static let form = MessageTemplate.methodCall(
        path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping", signature: "")

    /// - Parameters:
    ///   - bus: the main connection.
    ///   - barrier: the barrier ahead of each Ping. Its control connection sends the Pings; `bus` does while there is
    ///     none.
    init(bus: any MessageBus, barrier: BusBarrier) {
        self.bus = bus
        self.barrier = barrier
    }

    /// Probes a client behind all messages that were sent to it so far. ``onAnswer`` follows when it has read them.
    func probe(_ client: ClientName, of window: ProbedWindow = .client) {
        probe(client, window, retry: 0)
    }

    /// Cancels the pending retries for a client that has left.
    func forget(_ client: ClientName) {
        retries[client] = nil
    }

    /// Releases the memory of clients that are gone (E8).
    func releaseMemory() {
        barriers.releaseMemory()
        retries.releaseMemory()
    }

    /// The number of clients that the prober keeps state for. For inspection.
    var keptCount: Int { retries.count + barriers.count }

    /// Whether a probe of the client still waits for its barrier, so that the bus may hold earlier messages to the
    /// client.
    func mayBeInBus(to client: ClientName) -> Bool { barriers[client] != nil }

    /// Sends the barrier of a probe, and the Ping when the barrier has arrived.
    ///
    /// - Parameter retry: the number of refusals of the probe so far.
    private func probe(_ client: ClientName, _ window: ProbedWindow, retry: Int) {
        barriers[client, default: 0] += 1
        barrier.pass { [weak self] result in
            guard let self else { return }
            let left = barriers[client, default: 1] - 1
            barriers[client] = left > 0 ? left : nil
            switch result {
            case .success: ping(client, window, over: barrier.control ?? bus, retry: retry)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            case .failure: refused(client, window, retry: retry)
            }
        }
    }

    /// Sends the Ping of a probe whose barrier has arrived.
    ///
    /// - Parameters:
    ///   - retry: the number of refusals of the probe so far.
    ///   - timeout: the timeout, in milliseconds.
    private func ping(
        _ client: ClientName, _ window: ProbedWindow, over bus: any MessageBus, retry: Int,
        timeout: Int32 = ClientProber.timeout.first
    ) {
        let ping = Message(marshalled: Self.form.message(to: client, size: 0) { _ in })
        let end = bus.context.now + .milliseconds(timeout)
        bus.call(ping, timeout: .milliseconds(timeout)) { [weak self, weak bus] result in
            guard let self else { return }
            switch result {
            #if CARILLON_PLANTED
                case .failure(let error)
                where error.name == BusError.limitsExceededName && PlantedFault.strikes(.refusedPing):
                    onAnswer?(client, window)
            #endif
            case .failure(let error) where error.name == BusError.limitsExceededName:
                // The bus has no space left for messages to this client, so the client did not get the Ping.
                refused(client, window, retry: retry)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            // A timeout is reported as the error NoReply. A client can return the same error, but only before the time
            // is over.
            case .failure(let error) where error.name == BusError.noReplyName && self.bus.context.now >= end:
                guard let bus else { return }
                self.ping(client, window, over: bus, retry: retry, timeout: min(timeout * 2, Self.timeout.last))
            default:
                forgetPassedRetries(of: client)
                onAnswer?(client, window)
            }
        }
    }

    /// Removes the timers of a client's retries that have fired. ``forget(_:)`` can't remove the timer of a probe that
    /// the bus refuses after the client has left, so that timer still fires once.
    private func forgetPassedRetries(of client: ClientName) {
        guard let left = retries[client]?.filter(\.isPending) else { return }
        retries[client] = left.isEmpty ? nil : left
    }

    /// Reports the refusal of a probe, and schedules its repetition.
    private func refused(_ client: ClientName, _ window: ProbedWindow, retry: Int) {
        // The reply to this call arrives behind the bus's errors for signals that were sent before.
        bus.makeBusRoundTrip { [weak self] _ in self?.onRefusal?(client, window) }
        retries[client, default: []].removeAll { !$0.isPending }
        retries[client, default: []].append(
            .once(milliseconds: 1000 << UInt32(retry), on: bus.context, priority: .of(.control)) { [unowned self] in
                probe(client, window, retry: min(retry + 1, Self.maxRetries))
            })
    }
}
