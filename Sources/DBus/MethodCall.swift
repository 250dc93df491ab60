// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// A method call that is being answered.
public struct MethodCall {
    public let message: Message
    /// The caller, as the bus verified it.
    public let sender: UniqueName
    /// Where its answer goes: what to keep of a call that is answered later.
    public let answer: Answer

    /// Nil when `message` is no method call of another connection.
    init?(_ message: Message, bus: any MessageBus) {
        guard message.kind == .methodCall, let sender = message.sender else { return nil }
        self.message = message
        self.sender = sender
        answer = Answer(to: sender, serial: message.expectsNoReply ? nil : message.serial, bus: bus)
    }

    /// A reader over the arguments, at the first.
    public var arguments: MessageReader { MessageReader(message) }

    /// Refuses file descriptors that came along and that no argument means: they count against the limit of the process
    /// that holds them, which the sender does not pay (E4).
    ///
    /// Arguments are looked at first, so that one of the type `h` gets the error that says where it stands.
    ///
    /// - Throws: InvalidArgs.
    public func expectNoDescriptors() throws(BusError) {
        guard message.hasDescriptors else { return }
        throw .invalidArgs("no method of this service takes file descriptors")
    }

    /// Sends the reply, with what `body` appends as its arguments. Sends nothing when the caller wanted no reply.
    public func reply(_ body: (inout MessageWriter) -> Void = { _ in }) {
        answer.reply(body)
    }

    public func reply(with error: BusError) {
        answer.reply(with: error)
    }
}

extension MethodCall {
    /// Where the answer to a call goes. It holds nothing of what the call brought: no arguments, no descriptors.
    public struct Answer {
        private let caller: UniqueName
        /// Of the call; nil when nobody waits for an answer.
        private let serial: UInt32?
        private let bus: any MessageBus

        fileprivate init(to caller: UniqueName, serial: UInt32?, bus: any MessageBus) {
            self.caller = caller
            self.serial = serial
            self.bus = bus
        }

        /// Whether the caller wants one.
        public var isWanted: Bool { serial != nil }

        /// Sends the reply, with what `body` appends as its arguments, unless none is wanted.
        public func reply(_ body: (inout MessageWriter) -> Void = { _ in }) {
            guard let serial else { return }
            let reply = Message.methodReturn(to: caller, serial: serial)
            var writer = MessageWriter(reply)
            body(&writer)
            bus.send(reply)
        }

        /// Sends a reply that is laid out already, unless none is wanted.
        ///
        /// - Parameters:
        ///   - form: of a method return.
        ///   - size: of its arguments, in bytes, about.
        ///   - arguments: appends values of exactly the types in the form's signature.
        public func reply(in form: MessageForm, size: Int, _ arguments: (inout MarshalledBytes) -> Void) {
            guard let serial else { return }
            bus.send(form.message(to: caller, answering: serial, size: size, arguments: arguments))
        }

        public func reply(with error: BusError) {
            guard let serial else { return }
            bus.send(.error(error, to: caller, serial: serial))
        }
    }
}
