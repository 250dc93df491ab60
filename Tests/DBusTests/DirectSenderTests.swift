// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonDBus

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// What other threads than a connection's own may write to its socket.
@Suite("Direct writes by other threads to a connection's socket", .limited)
struct DirectSenderTests {
    /// Two ends of a socket, of which the first does not block.
    private final class Pair {
        let ends: (Int32, Int32)

        init() {
            var both: [Int32] = [-1, -1]
            precondition(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &both) == 0)
            ends = (both[0], both[1])
        }

        deinit {
            close(ends.0)
            close(ends.1)
        }

        func take() -> [UInt8] {
            var bytes = [UInt8](repeating: 0, count: 1 << 16)
            let count = recv(ends.1, &bytes, bytes.count, Int32(MSG_DONTWAIT))
            return Array(bytes.prefix(max(0, count)))
        }
    }

    private func message(_ text: String = "x") -> Message {
        let message = Message.methodCall(to: "a.b", path: "/", interface: "a.b", member: "C")
        var writer = MessageWriter(message)
        writer.append(text)
        return message
    }

    @Test("Small messages are written directly with serials of their own, except while the connection is busy")
    func sends() throws {
        let pair = Pair()
        let line = DirectSender(descriptor: pair.ends.0, isBusy: true)
        #expect(!line.send(message()) && pair.take().isEmpty)
        line.write { false }
        let messages = [message("one"), message("two")]
        for message in messages {
            #expect(line.send(message))
            #expect(pair.take() == message.withMarshalledBytes { Array($0) })
        }
        #expect(messages[0].serial != messages[1].serial)
        #expect(messages.allSatisfy { $0.serial > 1 << 31 }, "the connection counts below")
        line.write { true }
        #expect(!line.send(message()) && pair.take().isEmpty)
    }

    @Test("Large messages, and messages that a full socket does not accept, are left to the connection")
    func refuses() {
        let pair = Pair()
        let line = DirectSender(descriptor: pair.ends.0, isBusy: false)
        #expect(!line.send(message(String(repeating: "x", count: 4096))) && pair.take().isEmpty)
        var count = 0
        while count < 100_000, line.send(message(String(repeating: "x", count: 1500))) { count += 1 }
        #expect(count > 0 && count < 100_000)
        var size = 0
        while case let bytes = pair.take(), !bytes.isEmpty { size += bytes.count }
        #expect(size == count * message(String(repeating: "x", count: 1500)).byteCount, "all of it, or nothing")
    }

    @Test("A closed sender writes no message, and a send to a socket without a reader fails")
    func ends() {
        let pair = Pair()
        let line = DirectSender(descriptor: pair.ends.0, isBusy: false)
        line.close()
        #expect(!line.send(message()) && pair.take().isEmpty)
        let other = DirectSender(descriptor: pair.ends.0, isBusy: false)
        shutdown(pair.ends.1, Int32(SHUT_RDWR))
        #expect(!other.send(message()))
    }
}
