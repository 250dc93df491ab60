// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A D-Bus signal from the service to one client: a value holds its arguments, and the type encodes and decodes them.
/// Each signal has a file of its own in `Signals/`.
public protocol CenterSignal: Sendable {
    /// The name of the signal on the bus.
    static var member: MemberName { get }
    /// The names and types of the arguments.
    static var arguments: [Interface.Argument] { get }

    /// Decodes the arguments.
    ///
    /// - Throws: InvalidArgs if the next values are not of the types in ``arguments``.
    init(from reader: inout MessageReader) throws(BusError)
    /// Appends the arguments.
    func append(to writer: inout MessageWriter)
}

extension CenterSignal {
    /// Decodes the signal; nil if `message` is another message. The caller has to verify that the service sent the
    /// message (E6).
    ///
    /// - Throws: InvalidArgs if the arguments violate the contract.
    public init?(_ message: Message) throws(BusError) {
        guard message.isSignal(Wire.interface, Self.member) else { return nil }
        var reader = MessageReader(message)
        try self.init(from: &reader)
    }

    /// Returns the signal, addressed to one client.
    public func message(to client: UniqueName) -> Message {
        let message = Wire.signal(Self.member, to: client)
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }
}

extension Interface.Signal {
    /// Creates a row of the service's signal table.
    public init<Signal: CenterSignal>(_: Signal.Type) {
        self.init(Signal.member, Signal.arguments)
    }
}
