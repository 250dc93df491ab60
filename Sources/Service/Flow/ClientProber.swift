// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Asks clients for a sign that they have read what was sent to them, by `Peer.Ping` (A4).
///
/// An answer on the connection that carries the posts would wait behind all posts that the bus holds for it: under a
/// burst every client would look as if it did not read. So the answers have a **control connection** of their own.
/// The Ping is sent there when a ``BusBarrier`` has come out, so that it stands behind the notifications in the client's
/// queue.
///
/// Any answer will do, an error too: it shows that the client's end was read up to here. An error of the bus for want
/// of room is none: the probe is sent again until it gets through. Both are calls, as every bus answers a call that it
/// can't carry; and each is repeated in the end when no answer comes, so that nothing waits for what is lost.
final class ClientProber {
    /// Of what an answer is asked for.
    enum Line {
        /// Of what goes to the client, as the core decides.
        case client
        /// Of the replies on the bus to one that has a channel.
        case replies
    }

    private let bus: any MessageBus
    /// Called when a client has answered.
    var onAnswer: ((ClientName, Line) -> Void)?
    /// Called when the bus had no room for a probe of a client. What it says of signals that it refused before has been
    /// received by then.
    var onRefusal: ((ClientName, Line) -> Void)?
    private let barrier: BusBarrier
    /// How many barriers for each client have not come out.
    private var barriers: [ClientName: Int] = [:]
    /// Probes that the bus had no room for, until they are sent again.
    private var retries: [ClientName: [EventSource]] = [:]

    private static let maxRetries = 5
    /// Until a Ping is sent again, in milliseconds; twice as long each time, so that a client that sleeps for a day is
    /// not owed thousands.
    private static let patience = (first: Int32(60_000), last: Int32(3_600_000))

    private static let form = MessageForm.methodCall(
        path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping", signature: "")

    /// - Parameter barrier: says over which connection probes go.
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

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        barriers.releaseRoom()
        retries.releaseRoom()
    }

    /// For how many clients something is kept, to look at.
    var keptCount: Int { retries.count + barriers.count }

    /// Whether the bus may still have something before it that was sent to the client ahead of a probe.
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
                // The bus has no room for this client: nothing was read, and the probe itself never got through.
                refused(client, line, retry: retry)
            case .failure(let error) where error.name == BusError.disconnectedName: break
            // By the time: a client can answer with any error.
            case .failure(let error) where error.name == BusError.noReplyName && self.bus.context.now >= end:
                guard let bus else { return }
                self.ping(client, line, over: bus, retry: retry, patience: min(patience * 2, Self.patience.last))
            default:
                forgetPassedRetries(of: client)
                onAnswer?(client, line)
            }
        }
    }

    /// A client that left while a probe was refused is asked once more, after it was forgotten.
    private func forgetPassedRetries(of client: ClientName) {
        guard let left = retries[client]?.filter(\.isPending) else { return }
        retries[client] = left.isEmpty ? nil : left
    }

    private func refused(_ client: ClientName, _ line: Line, retry: Int) {
        // Its answer comes behind whatever the bus says of the signals that went before.
        bus.passBus { [weak self] _ in self?.onRefusal?(client, line) }
        retries[client, default: []].removeAll { !$0.isPending }
        retries[client, default: []].append(
            .once(milliseconds: 1000 << UInt32(retry), on: bus.context, priority: .of(.control)) { [unowned self] in
                probe(client, line, retry: min(retry + 1, Self.maxRetries))
            })
    }
}
