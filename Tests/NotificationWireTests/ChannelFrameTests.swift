// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonDBus
@testable import CarillonCore

/// Frames of channels (F2): their bytes, and that nothing that is none does harm.
@Suite("F2: frames of channels", .limited)
struct ChannelFrameTests {
    private func bytes(_ writer: ChannelFrameWriter) -> [UInt8] {
        var bytes: [UInt8] = []
        writer.write {
            bytes += Array($0)
            return $0.count
        }
        return bytes
    }

    /// A reader that has read these bytes, at once.
    private func reader(
        of bytes: ArraySlice<UInt8>, maxKept: Int = ChannelFrame.maxBytesOfBody
    ) -> ChannelFrameReader {
        let reader = ChannelFrameReader(from: .service, maxKept: maxKept)
        _ = reader.read { room in
            room.copyBytes(from: bytes)
            return bytes.count
        }
        return reader
    }

    /// The frames that come out when the bytes come in pieces, as texts.
    private func frames(
        _ bytes: [UInt8], pieces: Int, from sender: ChannelFrame.Sender = .service, maxKept: Int = 1 << 20
    ) throws -> [String] {
        let reader = ChannelFrameReader(from: sender, maxKept: maxKept)
        var (rest, found) = (bytes[...], [String]())
        while true {
            while let frame = try reader.next() {
                found.append(
                    "\(frame.kind) \(frame.number) \(frame.cut != nil ? "cut" : "\(Array(frame.body))")")
            }
            guard !rest.isEmpty else { break }
            _ = reader.read { room in
                let piece = rest.prefix(min(pieces, room.count))
                room.copyBytes(from: piece)
                rest = rest.dropFirst(piece.count)
                return piece.count
            }
        }
        #expect(reader.isBetweenFrames && !reader.hasNext)
        return found
    }

    /// The example of docs/channel.md.
    @Test("The bytes of a frame equal the example in docs/channel.md")
    func documented() throws {
        let writer = ChannelFrameWriter()
        writer.append(ChannelOutcome(receivers: 2), number: 7)
        let expected: [UInt8] = [
            0x11, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,  // 17 bytes of the kind 2, number 7
            2, 0, 0, 0,  // receivers
            0, 0, 0, 0, 0, 0, 0, 0,  // no error: a length, a NUL, and what aligns the next to 4
            0, 0, 0, 0, 0,  // no message
        ]
        if 1.littleEndian == 1 { #expect(bytes(writer) == expected) }
    }

    @Test(
        "A reader returns all written frames, for any division of the stream",
        arguments: [1, 3, 15, 16, 17, 100, 100_000])
    func pieces(size: Int) throws {
        let writer = ChannelFrameWriter()
        writer.append(DroppedSignal(count: 3, observers: [ObserverID(rawValue: 9)], reason: "queue-full"))
        writer.append(SuspensionChangedSignal(isSuspended: true, cause: "explicit"))
        for length in [0, 1, 17, 70_000, 5] {
            writer.append(.notification, number: UInt64(length), atMost: length) { body in
                body.append(bytes: [UInt8](repeating: 5, count: length))
            }
        }
        let all = bytes(writer)
        let found = try frames(all, pieces: size)
        #expect(found.count == 7 && found[0].hasPrefix("dropped 0 ") && found[3].hasPrefix("notification 1 [5]"))
        #expect(try frames(all, pieces: size, maxKept: 100)[5] == "notification 70000 cut")
        #expect(try frames(all, pieces: size, maxKept: 100).count == 7)
        #expect(writer.byteCount == 0 && writer.written == UInt64(all.count))
    }

    @Test("A read reports whether it filled the buffer, because more bytes may follow")
    func fullRoom() {
        for rest in 0...1 {
            let outcome = ChannelFrameReader(from: .service).read { room in
                room.initializeMemory(as: UInt8.self, repeating: 0)
                return room.count - rest
            }
            #expect(outcome.count > 0 && outcome.isFull == (rest == 0))
        }
        let nothing = ChannelFrameReader(from: .service).read { _ in 0 }
        #expect(nothing.count == 0 && !nothing.isFull)
    }

    @Test("Control signals and outcomes survive encoding; a long error message is shortened")
    func values() throws {
        let dropped = DroppedSignal(count: .max, observers: [1, .max].map(ObserverID.init), reason: "é")
        let change = SuspensionChangedSignal(isSuspended: false, cause: "")
        let error = BusError(CenterErrorName.notAllowed, message: "no\0no" + String(repeating: "x", count: 2000))
        let writer = ChannelFrameWriter()
        writer.append(dropped)
        writer.append(change)
        writer.append(ChannelOutcome(error), number: 1)
        let reader = reader(of: bytes(writer)[...])
        #expect(DroppedSignal(channelBody: try #require(try reader.next()).body) == dropped)
        #expect(SuspensionChangedSignal(channelBody: try #require(try reader.next()).body) == change)
        let last = try #require(try reader.next())
        let outcome = try #require(ChannelOutcome(channelBody: last.body))
        #expect(outcome.error?.centerError == .notAllowed && outcome.message.hasPrefix("no?nox"))
        #expect(outcome.message.utf8.count < 1100 && outcome.receivers == 0)
    }

    @Test("E1: the error message of a refused post is cut at 1 KiB")
    func longMessage() {
        func sent(_ length: Int) -> String {
            ChannelOutcome(BusError(.invalidName, message: String(repeating: "m", count: length))).message
        }
        for length in [0, 1023, 1024] { #expect(sent(length) == String(repeating: "m", count: length)) }
        #expect(sent(1025) == String(repeating: "m", count: 1024) + "…")
    }

    @Test(
        "A stream counts as cut at every position except between two frames, also within a skipped body",
        arguments: [0, 100])
    func cuts(maxKept: Int) throws {
        let writer = ChannelFrameWriter()
        writer.append(.notification, number: 1, atMost: 20) { $0.append(bytes: [UInt8](repeating: 5, count: 20)) }
        let frame = bytes(writer)
        for length in 0...frame.count {
            let reader = reader(of: frame[..<length], maxKept: maxKept)
            while try reader.next() != nil {}
            #expect(reader.isBetweenFrames == (length == 0 || length == frame.count), "\(length)")
        }
    }

    @Test(
        "A reader reports a next frame exactly when it returns one, wherever the stream is cut",
        arguments: [0, 3, 1 << 20])
    func next(maxKept: Int) throws {
        let writer = ChannelFrameWriter()
        for length in [0, 3, 4, 0] {
            writer.append(.notification, number: UInt64(length), atMost: length) { body in
                body.append(bytes: [UInt8](repeating: 5, count: length))
            }
        }
        let stream = bytes(writer)
        for length in 0...stream.count {
            let reader = reader(of: stream[..<length], maxKept: maxKept)
            var frame: ChannelFrame?
            repeat {
                let hasNext = reader.hasNext
                frame = try reader.next()
                #expect(hasNext == (frame != nil), "\(length)")
                if let frame { #expect((frame.cut == .length) == (frame.number > maxKept), "\(length)") }
            } while frame != nil
        }
    }

    @Test("The largest accepted body is read in two pieces: the first has its length, the second the rest")
    func largestBody() throws {
        let (writer, most) = (ChannelFrameWriter(), 200_000)
        writer.append(.notification, number: 1, atMost: most) { body in
            body.append(bytes: [UInt8](repeating: 5, count: most))
        }
        let reader = ChannelFrameReader(from: .service, maxKept: most)
        var (rest, sizes) = (bytes(writer)[...], [Int]())
        for _ in 0..<2 {
            _ = reader.read { room in
                let piece = rest.prefix(room.count)
                room.copyBytes(from: piece)
                rest = rest.dropFirst(piece.count)
                return piece.count
            }
            if let frame = try reader.next(), frame.cut == nil { sizes.append(frame.body.count) }
        }
        #expect(rest.isEmpty && sizes == [most])
    }

    /// Has a reader read so many of the next bytes, as far as it has room.
    private func feed(_ reader: ChannelFrameReader, _ count: Int, of rest: inout ArraySlice<UInt8>) {
        _ = reader.read { room in
            let piece = rest.prefix(min(count, room.count))
            room.copyBytes(from: piece)
            rest = rest.dropFirst(piece.count)
            return piece.count
        }
    }

    @Test("A partial frame holds little more memory than its bytes until much has arrived; without space it is skipped")
    func parts() throws {
        let writer = ChannelFrameWriter()
        for (number, length) in [(1, 1000), (2, 200_000), (3, 300_000), (4, 5)] {
            writer.append(.notification, number: UInt64(number), atMost: length) { body in
                body.append(bytes: [UInt8](repeating: 5, count: length))
            }
        }
        let reader = ChannelFrameReader(from: .service)
        var rest = bytes(writer)[...]
        func read(_ count: Int) { feed(reader, count, of: &rest) }
        read(15)
        #expect(try reader.next() == nil && !reader.passOver())
        read(485)
        #expect(try reader.next() == nil && reader.wantedBytes == 0)
        reader.releaseMemory()
        #expect(reader.heldBytes == 500)
        read(516)
        #expect(try reader.next()?.number == 1)
        #expect(try reader.next() == nil && reader.heldBytes == 0 && !reader.passOver())
        read(100)
        #expect(try reader.next() == nil && reader.wantedBytes == 200_016)
        reader.releaseMemory()
        #expect(reader.heldBytes == 100)
        read(100_000)
        reader.releaseMemory()
        #expect(reader.heldBytes == 200_016 && !reader.hasNext)
        while reader.byteCount < 200_016 { read(.max) }
        #expect(try reader.next()?.body.count == 200_000)
        read(1000)
        #expect(try reader.next() == nil && reader.wantedBytes == 300_016 && reader.passOver())
        #expect(!reader.passOver() && reader.heldBytes == 0 && !reader.isBetweenFrames, "it was given up")
        while !rest.isEmpty {
            #expect(try !reader.hasNext && reader.next() == nil && reader.wantedBytes == 0)
            read(.max)
        }
        #expect(reader.hasNext && !reader.passOver())
        let third = try #require(try reader.next())
        #expect(third.number == 3 && third.cut == .room && third.body.isEmpty)
        #expect(reader.hasNext && !reader.passOver(), "one that has come whole is there to be taken")
        let fourth = try #require(try reader.next())
        #expect(fourth.cut == nil && fourth.body.count == 5 && reader.isBetweenFrames)
    }

    @Test(
        "A body without space keeps its beginning, wherever the stream is cut",
        arguments: [0, 7, 5000])
    func heads(maxHead: Int) throws {
        let writer = ChannelFrameWriter()
        for (number, length) in [(1, 2000), (2, 300), (3, 5)] {
            writer.append(.notification, number: UInt64(number), atMost: length) { body in
                body.append(bytes: (0..<length).map { UInt8($0 % 251) })
            }
        }
        let stream = bytes(writer)
        for first in [16, 17, 22, 23, 24, 1000, 2015] {
            for size in [1, 3, 700, 3000] {
                let reader = ChannelFrameReader(from: .service)
                reader.maxHead = maxHead
                var rest = stream[...]
                func read(_ count: Int) { feed(reader, count, of: &rest) }
                read(first)
                #expect(try reader.next() == nil && reader.passOver())
                var (heads, isSecondCut) = ([[UInt8]](), false)
                while true {
                    while let frame = try reader.next() { heads.append(Array(frame.body)) }
                    // The second one is passed over as well, where it comes in parts.
                    if heads.count == 1, reader.passOver() { isSecondCut = true }
                    guard !rest.isEmpty else { break }
                    read(size)
                }
                #expect(heads.count == 3 && reader.isBetweenFrames)
                #expect(heads[0] == (0..<min(2000, maxHead)).map { UInt8($0 % 251) })
                #expect(heads[1] == (0..<(isSecondCut ? min(300, maxHead) : 300)).map { UInt8($0 % 251) }, "\(size)")
                #expect(heads[2] == [0, 1, 2, 3, 4])
            }
        }
    }

    @Test("If the bound is lowered during a longer body, its rest is skipped and the next frame is read")
    func loweredBound() throws {
        let (writer, length) = (ChannelFrameWriter(), 300_000)
        for length in [length, 3] {
            writer.append(.notification, number: UInt64(length), atMost: length) { body in
                body.append(bytes: [UInt8](repeating: 5, count: length))
            }
        }
        let reader = ChannelFrameReader(from: .service, maxKept: length)
        var rest = bytes(writer)[...]
        func read(_ count: Int = .max) {
            _ = reader.read { room in
                #expect(!room.isEmpty)
                let piece = rest.prefix(min(count, room.count))
                room.copyBytes(from: piece)
                rest = rest.dropFirst(piece.count)
                return piece.count
            }
        }
        read(100)
        #expect(try reader.next() == nil)
        read(200_000)
        #expect(reader.byteCount == 200_100)
        reader.maxKept = 100
        read()
        let long = try #require(try reader.next())
        #expect(long.cut == .length && long.number == UInt64(length))
        while !rest.isEmpty {
            #expect(try reader.next() == nil)
            read()
        }
        let short = try #require(try reader.next())
        #expect(short.cut == nil && Array(short.body) == [5, 5, 5])
        #expect(reader.isBetweenFrames && !reader.hasNext)
    }

    @Test("A writer without frames writes nothing")
    func nothing() {
        let writer = ChannelFrameWriter()
        writer.write { _ in
            Issue.record("there is nothing to write")
            return 0
        }
        #expect(writer.written == 0)
    }

    /// After the first frame there is no room for the second. What is left of it moves to the beginning where much was
    /// written, and goes to other memory where little was.
    @Test(
        "Frames appended behind partly written ones leave unchanged and in order",
        arguments: [0, 1, 100, 1600, 2500, 3015, 3016])
    func partlyWritten(part: Int) {
        let (writer, whole) = (ChannelFrameWriter(), ChannelFrameWriter())
        var written: [UInt8] = []
        for (number, length) in [3000, 2000, 1000].enumerated() {
            for writer in [writer, whole] {
                writer.append(.notification, number: UInt64(number), atMost: length) { body in
                    body.append(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0 * 7 + number) })
                }
            }
            writer.write { frames in
                let piece = frames.prefix(part)
                written += piece
                return piece.count
            }
        }
        written += bytes(writer)
        #expect(written == bytes(whole))
        #expect(writer.written == UInt64(written.count))
    }

    @Test("An invalid frame header is a fault, and the reader remains faulty")
    func faults() throws {
        func fault(_ header: [UInt32], from sender: ChannelFrame.Sender = .client) -> ChannelFrame.Fault? {
            let reader = ChannelFrameReader(from: sender)
            let bytes = header.flatMap { word in withUnsafeBytes(of: word) { Array($0) } }
            _ = reader.read { room in
                room.copyBytes(from: bytes)
                return bytes.count
            }
            do throws(ChannelFrame.Fault) {
                _ = try reader.next()
                return nil
            } catch {
                #expect(reader.hasNext && (try? reader.next()) == nil)
                return error
            }
        }
        #expect(fault([0, 0, 0, 0]) == .kind(0) && fault([0, 6, 0, 0]) == .kind(6))
        #expect(fault([0, 2, 0, 0]) == .kind(2) && fault([0, 1, 0, 0], from: .service) == .kind(1))
        #expect(fault([UInt32(ChannelFrame.maxBytesOfBody) + 1, 1, 0, 0]) == .length(32 << 20 | 1))
        #expect(fault([UInt32(ChannelFrame.maxBytesOfBody), 1, 0, 0]) == nil)
        #expect(fault([0, 1, 0, 0]) == nil && fault([5, 1, 0]) == nil)
    }

    @Test("A notification body on a channel is decoded like the bus's signal, and damaged bodies do no harm")
    func notification() throws {
        let userInfo: [String: PropertyList] = [
            "text": .string("é"), "yes": .boolean(true), "data": .data([1, 2, 3]), "none": .data([]),
            "numbers": .array([.int64(-1), .int64(7)]), "mixed": .array([.uint8(1), .double(0.5), .string("")]),
            "date": .date(microsecondsSince1970: -5), "empty": .array([]), "small": .int16(-3), "q": .uint16(9),
            "tree": .dictionary(["a": .dictionary(["b": .array([.dictionary(["c": .uint64(.max)])])])]),
            "i": .int32(.min), "u": .uint32(.max),
        ]
        let signal = NotificationSignal(
            name: "Name", object: "", userInfo: userInfo, observers: [3, 4].map(ObserverID.init), poster: ":1.7",
            serial: 5, sequence: 6)
        let body = Self.body(of: signal)
        let back = try #require(body.withUnsafeBytes { ArrivedNotification(channelBody: $0) })
        #expect((back.name, back.object, back.poster) == (signal.name, signal.object, signal.poster))
        #expect((back.serial, back.sequence) == (5, 6) && back.observers == signal.observers)
        #expect(back.userInfo.decoded() == userInfo)
        // Nothing that is cut off or changed is taken for more than it is, and nothing reads beyond the end.
        for length in body.indices {
            #expect(body[..<length].withUnsafeBytes { ArrivedNotification(channelBody: $0) == nil })
        }
        var generator = SystemlessGenerator(state: 4711)
        for _ in 0..<20_000 {
            var changed = body
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                changed[Int.random(in: changed.indices, using: &generator)] = .random(in: 0...255, using: &generator)
            }
            _ = changed.withUnsafeBytes { ArrivedNotification(channelBody: $0) }
            _ = changed.withUnsafeBytes { DroppedSignal(channelBody: $0) }
            _ = changed.withUnsafeBytes { ChannelOutcome(channelBody: $0) }
            let read = changed.withUnsafeBytes { bytes in
                try? Post<WireUserInfo>.read(channelBody: bytes, limits: Limits()) { _, _ in }
            }
            if let read, case .success(let post) = read.post { #expect(post.userInfo.byteCount <= body.count) }
        }
    }

    @Test("P1: a notification on a channel has the same requested details as on the bus")
    func details() throws {
        let content = try Sample.userInfo(of: PostCall(name: "Ding", userInfo: ["n": .int64(1)]).message())
        let identity = Identity(
            userID: 1000, processID: 7, process: "bell", application: "org.example.Bell", unit: "bell.service",
            origin: try OutsideOrigin(host: "desk", user: "anna"))
        let notification = Notification(
            name: "Ding", object: "", userInfo: content, poster: ":1.9", identity: identity, time: -5,
            retention: Retention(),
            serial: 3)
        for details: Details in [[], .host, Details(Detail.allCases)] {
            let delivery = Delivery(
                client: ":1.1", clientNumber: 0, notification: notification, details: details, expiryTime: 7,
                isRetained: true, isDelayed: false, observers: .one(ObserverID(rawValue: 1)), sequence: 2)
            let signal = NotificationsSignal.message(for: [delivery], to: ":1.1", messageSerial: 7) { _ in content }
            let onBus = try #require(try NotificationsSignal(Message(signal)))
            #expect(onBus.notifications[0].details.count == details.all.count)
            // An array of it alone has only its length before it, and what aligns it.
            let body = Array(Message(signal).marshalledBody.dropFirst(8))
            let writer = ChannelFrameWriter()
            writer.append(delivery, userInfo: content)
            #expect(try frames(bytes(writer), pieces: 100) == ["notification 2 \(body)"])
        }
    }

    @Test("A post on a channel is read like the arguments of a call, with the same errors")
    func posts() throws {
        var options = PostOptions()
        options.deliverImmediately = true
        options.coalescing = [.name]
        let call = try PostCall(name: "N", object: "O", userInfo: ["a": .int32(1)], options: options)
        let body = call.message().marshalledBody
        func read(_ body: [UInt8]) throws -> Result<Post<WireUserInfo>, BusError> {
            try body.withUnsafeBytes { bytes in
                try Post<WireUserInfo>.read(channelBody: bytes, limits: Limits()) { _, _ in }.post
            }
        }
        let post = try read(body).get()
        #expect(post.name == "N" && post.object == "O" && post.options == options)
        #expect(throws: ChannelFrame.Fault.body(.post)) { try read(body + [0]) }
        #expect(throws: ChannelFrame.Fault.body(.post)) { try read(Array(body.dropLast())) }
        #expect(throws: ChannelFrame.Fault.body(.post)) { try read([]) }
        let unknown = Wire.methodCall(PostCall.member)
        var writer = MessageWriter(unknown)
        writer.append("N")
        writer.append("")
        writer.array(of: "{sv}") { _ in }
        writer.array(of: "{sv}") { $0.entry("slip", true) }
        do {
            _ = try read(unknown.marshalledBody).get()
            Issue.record("accepted")
        } catch let error as BusError {
            #expect(error.centerError == .invalidOption)
        }
    }

    @Test("A post's frame contains the given number and the unchanged body of the call")
    func postFrame() throws {
        let body = try PostCall(name: "N", object: "O", userInfo: ["a": .int32(1)]).message().marshalledBody
        let writer = ChannelFrameWriter()
        writer.appendPost(number: 7, body: body)
        #expect(try frames(bytes(writer), pieces: 100, from: .client) == ["post 7 \(body)"])
    }

    private static func body(of signal: NotificationSignal) -> [UInt8] {
        let message = Wire.methodCall("Any")
        var writer = MessageWriter(message)
        signal.append(to: &writer)
        writer.array(of: "{sv}") { _ in }
        return message.marshalledBody
    }
}

/// The same numbers every time.
private struct SystemlessGenerator: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
