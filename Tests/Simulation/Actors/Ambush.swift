// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// A liar that answers the service in the bus's name, for as long as it lasts (E6).
struct Ambush {
    let client: PlainClient
    let end: Int64

    /// How long one is, in microseconds.
    static let time: Int64 = 2_000_000

    /// One of the service's connections sends this: what is told the service about it is under way at the same moment.
    func meet(_ message: Message, from service: Peer, of all: [Peer]) {
        guard client.isThere, message.kind == .methodCall, let name = service.name else { return }
        if message.destination == "org.freedesktop.DBus", !message.expectsNoReply {
            let error = BusError(name: BusError.nameHasNoOwnerName, message: "a lie")
            client.send(.errorReply(error, to: name, serial: message.serial))
        } else if message.hasMember("Barrier") {
            var arguments = MessageReader(message)
            guard let number = try? arguments.read(UInt64.self) else { return }
            for peer in all where peer !== service { sendBarrier(number, to: peer) }
        }
    }

    private func sendBarrier(_ number: UInt64, to peer: Peer) {
        guard let name = peer.name else { return }
        let call = Message.methodCall(
            to: name, path: Wire.path, interface: "org.carillon.Internal1", member: "Barrier", startsService: false)
        var writer = MessageWriter(call)
        writer.append(number)
        client.send(call)
    }
}
