// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A4: never more than two windows of what a service sends lie unread before a client that answers it, but replies that
/// it may wait for.
///
/// Of one that has never answered the service at hand nobody knows whether it reads (B6): it is sent more as time goes
/// by. So the rule holds from the moment when the service has an answer and what lies there is within it.
final class WindowWatch {
    private struct Pair: Hashable {
        let client: Int
        /// The service's main connection.
        let service: Int
    }

    private let world: World
    private let ledger: Ledger
    private var answered: Set<Pair> = []
    private var bounded: Set<Pair> = []
    /// Connections that answer what they have not read.
    private var liars: Set<Int> = []

    /// `FlowWindow`: two windows of 64 messages. One event may send a word about losses along with what was next.
    private static let most = 2 * 64 + 4
    /// When a channel ends two windows may come behind what is on the bus.
    private static let maxBehindChannel = 128
    /// Of a client that has stopped after many calls each reply that is the only one kept goes alone: it may wait for it.
    private static let maxReplies = 4 * 128

    init(_ world: World, _ ledger: Ledger) {
        self.world = world
        self.ledger = ledger
    }

    func exempt(_ peer: Peer) {
        liars.insert(peer.number)
    }

    /// A message stands before a connection now.
    func delivered(from sender: Peer, to receiver: Peer) {
        guard let name = sender.name, ledger.services.contains(name) else { return }
        let pair = Pair(client: receiver.number, service: sender.number)
        guard answered.contains(pair), !liars.contains(receiver.number) else { return }
        let count = receiver.unreadMessages(from: sender)
        let hadChannel = receiver.name.map(ledger.channelClients.contains) == true
        let unasked = count - receiver.unreadReplies(from: sender)
        if count <= Self.most {
            bounded.insert(pair)
        } else if unasked > Self.most + (hadChannel ? Self.maxBehindChannel : 0) || count > unasked + Self.maxReplies,
            bounded.contains(pair)
        {
            world.violate("A4", "\(count) messages lie unread before \(receiver.name?.rawValue ?? "?")")
        }
    }

    /// A connection has read a message of another: an answer to a Ping, where it is a service's control connection,
    /// which comes right behind its main one.
    func read(_ message: Message, from sender: Int, by reader: Peer) {
        guard message.kind == .methodReturn || message.kind == .error else { return }
        answered.insert(Pair(client: sender, service: reader.number - 1))
    }
}
