// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// A process with many connections that all want a channel (E4).
final class ChannelHog {
    private final class Mouth {
        let peer: Peer
        var calls: [UInt32: (Message) -> Void] = [:]
        var stream: Stream?

        init(_ peer: Peer) {
            self.peer = peer
        }
    }

    private let world: World
    private let ledger: Ledger
    private let streams: Streams
    private let most: Int
    private var mouths: [Mouth] = []

    /// - Parameter most: channels of a process, by the service's limits.
    init(_ world: World, _ bus: Bus, _ ledger: Ledger, _ streams: Streams, processID: UInt32, count: Int, most: Int) {
        self.world = world
        self.ledger = ledger
        self.streams = streams
        self.most = most
        for _ in 0..<count {
            let mouth = Mouth(bus.connect(processID: processID))
            mouths.append(mouth)
            mouth.peer.onReadable = { [unowned self, unowned mouth] in read(mouth) }
            let hello = Message.methodCall(
                to: AnyBusName("org.freedesktop.DBus"), path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus", member: "Hello")
            call(hello, by: mouth) { [unowned self, unowned mouth] _ in
                call(OpenChannel().message(), by: mouth) { [unowned self, unowned mouth] reply in
                    opened(reply, by: mouth)
                }
            }
        }
    }

    func leave() {
        for mouth in mouths {
            mouth.stream?.client.close()
            mouth.peer.close(losing: false)
        }
        mouths = []
    }

    private func call(_ message: Message, by mouth: Mouth, _ completion: @escaping (Message) -> Void) {
        mouth.calls[mouth.peer.send(message)] = completion
    }

    private func read(_ mouth: Mouth) {
        while let message = mouth.peer.receive() {
            if message.kind == .methodCall, !message.expectsNoReply {
                _ = mouth.peer.send(message.methodReturn())
            } else if message.kind == .methodReturn || message.kind == .error,
                message.isFromBus || message.sender.map(ledger.services.contains) == true
            {
                mouth.calls.removeValue(forKey: message.replySerial)?(message)
            }
        }
    }

    private func opened(_ reply: Message, by mouth: Mouth) {
        guard let descriptor = try? OpenChannel.reply(in: reply) else { return }
        mouth.stream = streams.take(descriptor)
        let count = mouths.count { $0.stream?.service.isOpen == true }
        if count > most { world.violate("E4", "a process has \(count) channels, and the limit is \(most)") }
    }
}
