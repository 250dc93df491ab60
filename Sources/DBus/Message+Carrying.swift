import BusNames
import CDBus

/// What a bus does to messages: for what plays one in a simulation (E7).
extension Message {
    /// Gives a message that is to be sent the next serial of its connection, or of whoever sends it, unless it has one.
    package func numbered(_ next: () -> UInt32) -> UInt32 {
        if serial == 0 { dbus_message_set_serial(pointer, next()) }
        return serial
    }
}
