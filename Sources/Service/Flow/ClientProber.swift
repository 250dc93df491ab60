// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The prober of clients: it asks them with `Peer.Ping` to acknowledge their messages (A4).
///
/// A reply on the connection that carries the posts would wait behind all posts that the bus holds for it, and in a
/// burst every client would look like a slow consumer. Therefore Pings are sent on the **control connection**. A Ping
/// is sent when a ``BusBarrier`` has arrived there, so that it is behind the notifications in the client's queue.
///
/// Any reply is an acknowledgment, also an error: it shows that the client has read its messages up to the Ping. The
/// exception is an error of the bus that a limit is exceeded: the probe is then repeated until the bus carries it.
/// Barrier and Ping are calls, because every bus returns an error for a call that it can't carry. A Ping without a
/// reply is repeated too, so that a lost reply blocks nothing.
///
/// Threads: that of the bus's context.
final class ClientProber {
    /// The messages that a probe asks a client to acknowledge.
    enum Line {
        /// All messages to the client that the core counts in its window.
        case client
        /// The replies on the bus to a client that has a channel.
        case replies
    }

    private let bus: any MessageBus
    /// Called when a client has answered a Ping.
    var onAnswer: ((ClientName, Line) -> Void)?
    /// Called when the bus refused a probe of a client because of a limit. Errors of the bus for earlier signals have
    /// been received by then.
    var onRefusal: ((ClientName, Line) -> Void)?
    private let barrier: BusBarrier
    /// The number of barriers that have not arrived, for each client.
    private var barriers: [ClientName: Int] = [:]
    /// The timers of probes that the bus refused, until they are sent again.
    private var retries: [ClientName: [EventSource]] = [:]

    private static let maxRetries = 5
    /// The time after which an unanswered Ping is sent again, in milliseconds. It doubles each time, so that a client
    /// that sleeps for a day does not get thousands of Pings.
    private static let patience = (first: Int32(60_000), last: Int32(3_600_000))

    private static let form = MessageForm.methodCall(
        path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping", signature: "")

    /// - Parameters:
    ///   - bus: the main connection.
    ///   - barrier: the barrier ahead of each Ping. Its control connection sends the Pings; `bus` does while there is
    ///     none.
    init(bus: any MessageBus, barrier: BusBarrier) {
        self.bus = bus
        self.barrier = barrier
    }

    func probe(_ client: ClientName, of line: Line = .client) {
        probe(client, line, retry: 0)
    }

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

    /// Whether the bus may still hold messages to the client that were sent ahead of a probe.
    func isOnTheWay(to client: ClientName) -> Bool { barriers[client] != nil }

    private func probe(_ client: ClientName, _ line: Line, retry: Int) {
        barriers[client, default: 0] += 1
        barrier.pass { [weak self] result in
            guard let self else { return }
            let left = barriers[client, default: 1] - 1
            barriers[client] = left > 0 ? left : nil
            switch result {
            case .success: ping(client, line, over: barrier.control ?? bus, retry: retry)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            case .failure: refused(client, line, retry: retry)
            }
        }
    }

    private func ping(
        _ client: ClientName, _ line: Line, over bus: any MessageBus, retry: Int,
        patience: Int32 = ClientProber.patience.first
    ) {
        let ping = Message(laidOut: Self.form.message(to: client, size: 0) { _ in })
        let end = bus.context.now + .milliseconds(patience)
        bus.call(ping, timeout: .milliseconds(patience)) { [weak self, weak bus] result in
            guard let self else { return }
            switch result {
            #if CARILLON_PLANTED
                case .failure(let error)
                where error.name == BusError.limitsExceededName && PlantedFault.strikes(.refusedPing):
                    onAnswer?(client, line)
            #endif
            case .failure(let error) where error.name == BusError.limitsExceededName:
                // The bus has no quota left for this client: the client has read nothing, and did not get the probe.
                refused(client, line, retry: retry)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            // The elapsed time tells the two apart, because a client can answer with the error NoReply as well.
            case .failure(let error) where error.name == BusError.noReplyName && self.bus.context.now >= end:
                guard let bus else { return }
                self.ping(client, line, over: bus, retry: retry, patience: min(patience * 2, Self.patience.last))
            default:
                forgetPassedRetries(of: client)
                onAnswer?(client, line)
            }
        }
    }

    /// Forgets the retries of a client that have run. A client that left while a probe was refused is probed once more
    /// after ``forget(_:)``.
    private func forgetPassedRetries(of client: ClientName) {
        guard let left = retries[client]?.filter(\.isPending) else { return }
        retries[client] = left.isEmpty ? nil : left
    }

    private func refused(_ client: ClientName, _ line: Line, retry: Int) {
        // The reply to this call is behind the bus's errors for the signals that were sent before.
        bus.passBus { [weak self] _ in self?.onRefusal?(client, line) }
        retries[client, default: []].removeAll { !$0.isPending }
        retries[client, default: []].append(
            .once(milliseconds: 1000 << UInt32(retry), on: bus.context, priority: .of(.control)) { [unowned self] in
                probe(client, line, retry: min(retry + 1, Self.maxRetries))
            })
    }
}
