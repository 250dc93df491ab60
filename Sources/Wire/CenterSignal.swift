// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A signal of the contract with its arguments, coded both ways; each has a file of its own in `Signals/`.
public protocol CenterSignal: Sendable {
    static var member: MemberName { get }
    static var arguments: [Interface.Argument] { get }

    /// - Throws: InvalidArgs when what comes next is not of the types in ``arguments``.
    init(from reader: inout MessageReader) throws(BusError)
    func append(to writer: inout MessageWriter)
}

extension CenterSignal {
    /// Nil when `message` is another message. Whether it comes from the service is for the caller to know (E6).
    ///
    /// - Throws: InvalidArgs when its arguments are not those of the contract.
    public init?(_ message: Message) throws(BusError) {
        guard message.isSignal(Wire.interface, Self.member) else { return nil }
        var reader = MessageReader(message)
        try self.init(from: &reader)
    }

    /// The signal to one client.
    public func message(to client: UniqueName) -> Message {
        let message = Wire.signal(Self.member, to: client)
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }
}

extension Interface.Signal {
    /// A row of the service's table.
    public init<Signal: CenterSignal>(_: Signal.Type) {
        self.init(Signal.member, Signal.arguments)
    }
}
