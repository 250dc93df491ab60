import BusNames

/// A method call that is being answered. It can be kept and answered later.
public struct MethodCall {
    public let message: Message
    /// The caller, as the bus verified it.
    public let sender: UniqueName
    private let bus: any MessageBus

    /// Nil when `message` is no method call of another connection.
    init?(_ message: Message, bus: any MessageBus) {
        guard message.kind == .methodCall, let sender = message.sender else { return nil }
        self.message = message
        self.sender = sender
        self.bus = bus
    }

    /// A reader over the arguments, at the first.
    public var arguments: MessageReader { MessageReader(message) }

    /// Sends the reply, with what `body` appends as its arguments. Sends nothing when the caller wanted no reply.
    public func reply(_ body: (inout MessageWriter) -> Void = { _ in }) {
        guard !message.expectsNoReply else { return }
        let reply = message.methodReturn()
        var writer = MessageWriter(reply)
        body(&writer)
        bus.send(reply)
    }

    public func reply(with error: BusError) {
        guard !message.expectsNoReply else { return }
        bus.send(message.errorReply(error))
    }
}
