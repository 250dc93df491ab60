import BusNames
import CDBus

/// What a bus does to messages: for what plays one in a simulation (E7).
extension Message {
    /// Gives a message that is to be sent the next serial of its connection, or of whoever sends it, unless it has one.
    package func numbered(_ next: () -> UInt32) -> UInt32 {
        if serial == 0 { dbus_message_set_serial(pointer, next()) }
        return serial
    }

    /// A copy as its receiver gets it.
    ///
    /// - Parameters:
    ///   - sender: as the bus knows it; nil for what libdbus itself says.
    ///   - serial: not 0.
    package func carried(from sender: AnyBusName?, serial: UInt32) -> Message {
        let copy = Message(adopting: allocated(dbus_message_copy(pointer)))
        dbus_message_set_serial(copy.pointer, serial)
        check(dbus_message_set_sender(copy.pointer, sender?.rawValue))
        return copy.withMarshalledBytes { Message(arrived: Array($0))! }
    }

    /// An answer to the call that `caller` gave this serial number, whoever was asked (E6).
    package static func forgedReply(to caller: UniqueName, serial: UInt32) -> Message {
        methodReturn(to: caller, serial: serial)
    }

    package static func errorReply(_ error: BusError, to caller: UniqueName, serial: UInt32) -> Message {
        Self.error(error, to: caller, serial: serial)
    }

    /// Whether the bus may start the destination of a call when nobody owns it.
    package var startsService: Bool { dbus_message_get_auto_start(pointer) != 0 }
}
