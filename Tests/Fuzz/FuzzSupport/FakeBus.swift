// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CCarillonGLib
import Glibc
@testable import CarillonDBus
@testable import CarillonMainLoop

/// A message bus that is not there: it keeps what is sent, and answers when it is told to.
public final class FakeBus: MessageBus {
    public let context = MainContext()
    /// What was sent since it was last taken, calls included.
    private var sent: [Message] = []
    /// Calls that nobody answered yet.
    public private(set) var calls: [Call] = []
    private var lastSerial: UInt32 = 0

    public struct Call {
        public let message: Message
        fileprivate let completion: (Result<Message, BusError>) -> Void
    }

    public init() {}

    public func send(_ message: Message) {
        number(message)
        sent.append(message)
    }

    public func call(
        _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void
    ) {
        number(message)
        sent.append(message)
        calls.append(Call(message: message, completion: completion))
    }

    /// A message that is sent has a serial, which a reply to it names.
    private func number(_ message: Message) {
        _ = message.numbered {
            lastSerial += 1
            return lastSerial
        }
    }

    public func takeSent() -> [Message] {
        let taken = sent
        sent = []
        return taken
    }

    /// Answers a call as a bus, or a client, that has nothing to object.
    public func answer(at index: Int) {
        let call = calls.remove(at: index)
        let reply = call.message.methodReturn()
        if call.message.member == "GetConnectionCredentials" {
            var writer = MessageWriter(reply)
            writer.array(of: "{sv}") { $0.entry("ProcessID", UInt32(getpid())) }
        }
        if call.message.member == "ListNames" {
            var writer = MessageWriter(reply)
            // Those who call in the worlds of the fuzzers, but for one.
            writer.array(of: "s") { writer in for number in 1...5 { writer.append(":1.\(number)") } }
        }
        call.completion(.success(reply))
    }

    /// Says who is behind each connection of which that was asked.
    public func identifyCallers() {
        while let index = calls.firstIndex(where: { $0.message.member == "GetConnectionCredentials" }) {
            answer(at: index)
        }
    }

    public func answer(at index: Int, with error: BusError) {
        calls.remove(at: index).completion(.failure(error))
    }

    /// Lets all time pass that anything waits for, and runs what is due then, up to a number of turns.
    public func letTimePass() {
        // Sources of a context are numbered; a new one tells the highest number there is.
        let newest = g_idle_source_new()!
        let end = g_source_attach(newest, context.pointer)
        g_source_destroy(newest)
        g_source_unref(newest)
        for id in 1..<max(end, 2) {
            // Only what waits for a time: a source that does not would be ready for ever.
            guard let source = g_main_context_find_source_by_id(context.pointer, id),
                g_source_get_ready_time(source) >= 0
            else { continue }
            g_source_set_ready_time(source, 0)
        }
        runWhatIsReady()
    }

    public func runWhatIsReady() {
        for _ in 0..<64 where !context.iterate(mayBlock: false) { break }
    }
}

extension Message {
    /// The message that these bytes are; nil when libdbus refuses them, as it does when they arrive.
    public static func arriving(_ bytes: [UInt8], from sender: String) -> Message? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        let pointer = bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
        guard let pointer else { return nil }
        // Whatever a client writes there, the bus replaces it with who it is.
        check(dbus_message_set_sender(pointer, sender))
        let message = Message(adopting: pointer)
        // As it comes out of a socket.
        return Message(arrived: message.marshalled)
    }

    public var marshalled: [UInt8] {
        var bytes: UnsafeMutablePointer<CChar>?
        var count: Int32 = 0
        check(dbus_message_marshal(pointer, &bytes, &count))
        defer { dbus_free(bytes) }
        return Array(UnsafeRawBufferPointer(start: bytes, count: Int(count)))
    }

    /// A new method call that arrives as `message` says.
    public static func arriving(_ message: WireMessage, from sender: String) -> Message? {
        arriving(message.bytes, from: sender)
    }
}
