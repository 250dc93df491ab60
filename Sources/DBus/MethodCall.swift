// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// A received method call of another connection, with the destination of its reply. ``ObjectExporter`` passes it to the
/// handler of the method.
public struct MethodCall {
    public let message: Message
    /// The caller as verified by the bus.
    public let sender: UniqueName
    /// The destination of the reply. A handler that replies later keeps only this part of the call.
    public let answer: Answer

    /// Returns nil if `message` is not a method call with a sender.
    init?(_ message: Message, bus: any MessageBus) {
        guard message.kind == .methodCall, let sender = message.sender else { return nil }
        self.message = message
        self.sender = sender
        answer = Answer(to: sender, serial: message.expectsNoReply ? nil : message.serial, bus: bus)
    }

    /// A reader at the first argument.
    public var arguments: MessageReader { MessageReader(message) }

    /// Refuses a call with file descriptors, for a method that takes none. Received descriptors count against this
    /// process's limit of open files, at no cost to the sender (E4).
    ///
    /// Handlers read the arguments first, so that an argument of the descriptor type `h` gets the error with its
    /// position.
    ///
    /// - Throws: InvalidArgs.
    public func expectNoDescriptors() throws(BusError) {
        guard message.hasDescriptors else { return }
        throw .invalidArgs("no method of this service accepts file descriptors")
    }

    /// Sends the reply with the arguments that `body` appends, unless the caller requested no reply.
    public func reply(_ body: (inout MessageWriter) -> Void = { _ in }) {
        answer.reply(body)
    }

    /// Sends the error reply, unless the caller requested no reply.
    public func reply(with error: BusError) {
        answer.reply(with: error)
    }
}

extension MethodCall {
    /// The destination of a reply: the caller, and the serial of its call. It keeps neither arguments nor descriptors
    /// of the call.
    public struct Answer {
        private let caller: UniqueName
        /// The serial of the call; nil if the caller requested no reply.
        private let serial: UInt32?
        private let bus: any MessageBus

        fileprivate init(to caller: UniqueName, serial: UInt32?, bus: any MessageBus) {
            self.caller = caller
            self.serial = serial
            self.bus = bus
        }

        /// Whether the caller requested a reply.
        public var isWanted: Bool { serial != nil }

        /// Sends the reply with the arguments that `body` appends, unless the caller requested no reply.
        public func reply(_ body: (inout MessageWriter) -> Void = { _ in }) {
            guard let serial else { return }
            let reply = Message.methodReturn(to: caller, serial: serial)
            var writer = MessageWriter(reply)
            body(&writer)
            bus.send(reply)
        }

        /// Sends an encoded reply, unless the caller requested no reply.
        ///
        /// - Parameters:
        ///   - form: The template of a method return.
        ///   - size: The maximum size of the arguments, in bytes.
        ///   - arguments: Appends values of exactly the types in the template's signature.
        public func reply(in form: MessageTemplate, size: Int, _ arguments: (inout MarshalledBytes) -> Void) {
            guard let serial else { return }
            bus.send(form.message(to: caller, answering: serial, size: size, arguments: arguments))
        }

        /// Sends the error reply, unless the caller requested no reply.
        public func reply(with error: BusError) {
            guard let serial else { return }
            bus.send(.error(error, to: caller, serial: serial))
        }
    }
}
