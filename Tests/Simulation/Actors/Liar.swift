// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// Sends what nobody should believe (E2, E6).
struct Liar {
    let client: PlainClient
    let service: [Peer]
    let others: [Peer]

    func tell(_ lie: Lie, _ random: inout Random) {
        switch lie {
        case .repliesToService:
            for peer in service { sendReplies(to: peer, &random) }
        case .repliesToClient: if !others.isEmpty { sendReplies(to: random.pick(others), &random) }
        case .signalsToClient:
            guard !others.isEmpty, let victim = random.pick(others).name else { return }
            client.send(
                NotificationSignal(
                    name: Names.name(0), object: "", userInfo: [Ledger.numberKey: .uint64(1 << 40)], observers: [],
                    poster: victim, serial: 1 << 50, sequence: 1 << 50
                ).message(to: victim))
            client.send(DroppedSignal(count: 1000, observers: [], reason: "queue-full").message(to: victim))
            client.send(SuspensionChangedSignal(isSuspended: true, cause: "explicit").message(to: victim))
        case .departures:
            let names = others.compactMap(\.name)
            for receiver in service.compactMap(\.name) + names {
                for name in names.map(\.rawValue) + [Wire.busName.rawValue] {
                    let signal = Message.signal(
                        to: receiver, path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
                        member: "NameOwnerChanged")
                    var writer = MessageWriter(signal)
                    for text in [name, name, ""] { writer.append(text) }
                    client.send(signal)
                }
            }
        case .barriers:
            for peer in service {
                guard let name = peer.name else { continue }
                for number in 1...UInt64(30) {
                    let call = Message.methodCall(
                        to: name, path: Wire.path, interface: "org.carillon.Internal1", member: "Barrier",
                        startsService: false)
                    var writer = MessageWriter(call)
                    writer.append(number)
                    client.send(call)
                }
            }
        case .answersForOthers: answerForOthers()
        case .ambush: preconditionFailure("that lasts: Ambush")
        case .nonsense:
            for member: MemberName in [
                "Post", "AddObserver", "SetSuspended", "NoSuchMethod", "ListObserversFrom", "ListPosters",
            ] {
                let call = Message.methodCall(
                    to: Wire.busName, path: Wire.path, interface: Wire.interface, member: member)
                var writer = MessageWriter(call)
                for _ in 0..<random.number(0...4) { writer.append("nonsense") }
                if random.happens(0.3) { writer.append(UInt64(7)) }
                client.call(call) { _ in }
            }
        }
    }

    private func answerForOthers() {
        let names = Set(service.compactMap(\.name))
        for peer in others {
            let asked = peer.unanswered.filter { names.contains($0.caller) }
            for call in asked.sorted(by: { ($0.caller, $0.serial) < ($1.caller, $1.serial) }) {
                client.send(.forgedReply(to: call.caller, serial: call.serial))
            }
        }
    }

    /// To calls that it has made lately, and to those that it makes next: numbers are no secret.
    private func sendReplies(to peer: Peer, _ random: inout Random) {
        guard let name = peer.name else { return }
        let last = peer.lastSerial
        for serial in max(1, last > 10 ? last - 10 : 1)...last + 50 {
            client.send(
                random.happens(0.5)
                    ? .errorReply(
                        BusError(name: BusError.nameHasNoOwnerName, message: "a lie"), to: name, serial: serial)
                    : .forgedReply(to: name, serial: serial))
        }
    }
}
