// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@testable import CarillonDBus

/// How messages come out of a socket, however the bytes of them come.
@Suite("Reading from a socket", .limited)
struct SocketReaderTests {
    /// A reader, and the other end of its socket.
    private final class Pipe {
        let context = MainContext()
        let reader: SocketReader
        let mine: Int32
        private let other: Int32
        var messages: [Message] = []
        var hasEnded = false

        init() {
            var ends: [Int32] = [-1, -1]
            _ = socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0, &ends)
            (mine, other) = (ends[0], ends[1])
            reader = SocketReader(descriptor: other, context: context, priority: .default)
            reader.onMessage = { [unowned self] in messages.append($0) }
            reader.onEnd = { [unowned self] in hasEnded = true }
            reader.start()
        }

        deinit {
            reader.stop()
            close(mine)
            close(other)
        }

        func write(_ bytes: some Sequence<UInt8>) {
            var rest = Array(bytes)[...]
            while !rest.isEmpty {
                let count = rest.withUnsafeBytes { send(mine, $0.baseAddress!, $0.count, Int32(MSG_NOSIGNAL)) }
                if count > 0 { rest = rest.dropFirst(count) } else { turn() }
            }
        }

        func turn() {
            while context.iterate(mayBlock: false) {}
        }
    }

    private func message(_ number: UInt32, size: Int = 0) -> [UInt8] {
        let message = Sample.signal { $0.append(String(repeating: "x", count: size)) }
        dbus_message_set_serial(message.pointer, number)
        return message.bytes
    }

    @Test(
        "Messages arrive whole and in order, whatever the sizes of the received pieces",
        arguments: [1, 3, 7, 1000, 100_000])
    func pieces(size: Int) {
        let pipe = Pipe()
        let sizes = [0, 1, 100, 3000, 0, size == 1 ? 10 : 200_000, 5]
        var bytes = (1...UInt32(sizes.count)).flatMap { message($0, size: sizes[Int($0) - 1]) }[...]
        while !bytes.isEmpty {
            pipe.write(bytes.prefix(size))
            bytes = bytes.dropFirst(size)
            pipe.turn()
        }
        #expect(pipe.messages.map(\.serial) == Array(1...UInt32(sizes.count)))
        let received = pipe.messages.map { message in
            var reader = MessageReader(message)
            return (try? reader.readString())?.utf8.count ?? -1
        }
        #expect(received == sizes)
        #expect(!pipe.hasEnded)
    }

    @Test("An iteration of the loop delivers a bounded number of messages; the rest follows without further input")
    func turns() {
        let pipe = Pipe()
        pipe.write((1...100).flatMap { message($0) })
        pipe.context.iterate(mayBlock: false)
        #expect(pipe.messages.count == SocketReader.messagesPerIteration)
        pipe.turn()
        #expect(pipe.messages.count == 100)
    }

    @Test("The end is reported after the last whole message, and a truncated message is discarded")
    func end() {
        let pipe = Pipe()
        pipe.write(message(1) + message(2) + message(3).dropLast())
        shutdown(pipe.mine, Int32(SHUT_WR))
        pipe.turn()
        #expect(pipe.messages.map(\.serial) == [1, 2] && pipe.hasEnded)
    }

    @Test("Bytes that can't begin a message end the reader, after the messages before them")
    func garbage() {
        for beginning in [[UInt8(ascii: "x")] + [UInt8](repeating: 1, count: 15), Self.tooLarge] {
            let pipe = Pipe()
            pipe.write(message(1) + beginning)
            pipe.turn()
            #expect(pipe.messages.map(\.serial) == [1] && pipe.hasEnded)
        }
    }

    @Test("A message with a malformed header is skipped, and the next message is read")
    func badHeader() {
        var bad = message(2)
        bad[16] = 0  // the code of the first field
        let pipe = Pipe()
        pipe.write(message(1) + bad + message(3))
        pipe.turn()
        #expect(pipe.messages.map(\.serial) == [1, 3] && !pipe.hasEnded)
    }

    @Test("A reader that is paused or holds its maximum of bytes reads no more, and the loop sleeps")
    func bounds() {
        let pipe = Pipe()
        pipe.reader.isPaused = true
        pipe.write(message(1))
        pipe.turn()
        #expect(pipe.messages.isEmpty)
        pipe.reader.isPaused = false
        pipe.turn()
        #expect(pipe.messages.count == 1)
        pipe.reader.maxReceivedBytes = 10_000
        pipe.write((2...20).flatMap { message($0, size: 2000) })
        pipe.turn()
        #expect(5...6 ~= pipe.messages.count)
        pipe.messages.removeAll()
        pipe.turn()
        #expect(4...5 ~= pipe.messages.count)
    }

    private func call(_ number: UInt32, size: Int = 0, noReply: Bool = true) -> [UInt8] {
        let message = Message.methodCall(to: "org.example.Other", path: "/a", interface: "org.example.I", member: "M")
        var writer = MessageWriter(message)
        writer.append(String(repeating: "x", count: size))
        message.expectsNoReply = noReply
        dbus_message_set_serial(message.pointer, number)
        check(dbus_message_set_sender(message.pointer, ":1.7"))
        return message.bytes
    }

    @Test("Calls can be taken in place; all other messages are delivered in order")
    func arrivingCalls() {
        let pipe = Pipe()
        var row = EncodedCallQueue()
        pipe.reader.onArrivingCall = { call in
            #expect(call.isFrom(":1.7") && !call.isFrom(":1.70") && !call.isFrom(":1.8"))
            #expect(call.hasPath("/a") && !call.hasPath("/b") && call.hasMember("M") && !call.hasMember("N"))
            #expect(call.mayBeOf("org.example.I") && !call.mayBeOf("org.example.J"))
            #expect(call.hasSignature("s") && !call.hasSignature("u"))
            guard call.expectsNoReply else { return false }
            row.append(call)
            return true
        }
        let sizes = [0, 1, 30, 70_000, 5]
        let calls = (1...5).map { call(UInt32($0), size: sizes[$0 - 1]) }
        pipe.write(calls[0] + calls[1] + message(10) + call(11, noReply: false) + calls[2] + calls[3] + calls[4])
        pipe.turn()
        #expect(pipe.messages.map(\.serial) == [10, 11])
        #expect(row.count == 5 && row.byteCount == calls.map(\.count).reduce(0, +))
        for (index, bytes) in calls.enumerated() {
            let message = row.popFirst()
            #expect(message?.serial == UInt32(index + 1) && message?.sender == ":1.7" && message?.bytes == bytes)
            let received = message.flatMap { message in
                var reader = MessageReader(message)
                return try? reader.readString()
            }
            #expect(received?.utf8.count == sizes[index])
            #expect(row.count == 4 - index)
        }
        let none = row.popFirst()
        #expect(row.isEmpty && none == nil)
    }

    @Test("The queue of encoded calls accepts received calls in native byte order, and no other messages")
    func rows() {
        var row = EncodedCallQueue()
        let signal = Message(arrived: message(1))!
        let made = Message.methodCall(to: "org.example.Other", path: "/a", interface: "org.example.I", member: "M")
        let isSignalTaken = row.append(signal)
        let isMadeTaken = row.append(made)
        #expect(!isSignalTaken && !isMadeTaken && row.isEmpty)
        let isTaken = row.append(Message(arrived: call(2))!)
        #expect(isTaken && row.count == 1)
        var swapped = call(3)
        swapped[0] = UInt8(ascii: "B")
        for place in [4, 8, 12] {
            swapped.replaceSubrange(place..<place + 4, with: swapped[place..<place + 4].reversed())
        }
        let isSwappedTaken = Message(arrived: swapped).map { row.append($0) }
        #expect(isSwappedTaken != true && row.count == 1)
    }

    /// A message of 512 MiB.
    private static let tooLarge: [UInt8] = [UInt8(ascii: "l"), 1, 0, 1, 0, 0, 0, 0x20, 1, 0, 0, 0, 0, 0, 0, 0]
}
