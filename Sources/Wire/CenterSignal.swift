// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A signal of the contract with its arguments, encoded and decoded here. Each has a file of its own in `Signals/`.
public protocol CenterSignal: Sendable {
    static var member: MemberName { get }
    static var arguments: [Interface.Argument] { get }

    /// - Throws: InvalidArgs if the next values are not of the types in ``arguments``.
    init(from reader: inout MessageReader) throws(BusError)
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
