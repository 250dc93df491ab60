// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonDBus

/// The service believes the bus only, where it asked the bus (E6).
@Suite("E6: forged replies to the service", .serialized, .limited)
struct ForgedReplyTests {
    @Test("E6: registrations succeed despite forged replies in the bus's name", arguments: BusKind.available)
    func registrations(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let stranger = try Client(on: bus)
        let owner = try #require(
            try stranger.send(
                { () -> Message in
                    let message = Message.busCall("GetNameOwner")
                    var writer = MessageWriter(message)
                    writer.append(ServiceProcess.busName)
                    return message
                }()
            ).firstString)
        let crowd = try (0..<20).map { _ in try Client(on: bus) }
        var serial: UInt32 = 0
        for client in crowd {
            // Around the numbers that the service's next questions have, and then the registration itself.
            for ahead in 0..<60 {
                stranger.connection.send(forged(BusError.nameHasNoOwnerName, serial: serial + UInt32(ahead), to: owner))
            }
            client.connection.send(AddObserver(name: "Ding", object: "").message(wantsAnswer: false))
            for ahead in 0..<60 {
                stranger.connection.send(forged(BusError.nameHasNoOwnerName, serial: serial + UInt32(ahead), to: owner))
            }
            serial += 4
        }
        let backlogProbe = try Client(on: bus)
        try eventually("all are registered: \(service.transcript)") {
            try backlogProbe.listClients().count == crowd.count
        }
        #expect(try backlogProbe.post("Ding") == crowd.count)
        #expect(try backlogProbe.listClients().values.allSatisfy { $0 != 0 }, "the bus told the processes")
    }

    private func forged(_ error: InterfaceName, serial: UInt32, to destination: String) -> Message {
        let message = Message(adopting: dbus_message_new(DBUS_MESSAGE_TYPE_ERROR)!)
        dbus_message_set_reply_serial(message.pointer, max(1, serial))
        dbus_message_set_error_name(message.pointer, error.rawValue)
        dbus_message_set_destination(message.pointer, destination)
        return message
    }
}

extension Message {
    fileprivate var firstString: String? {
        var reader = MessageReader(self)
        return try? reader.readString()
    }
}
