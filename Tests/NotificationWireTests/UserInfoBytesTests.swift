// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

/// userInfo between bytes and values without libdbus, held against what libdbus makes of it (N3).
@Suite("N3: encoding and decoding of userInfo without libdbus", .limited)
struct UserInfoBytesTests {
    @Test("N3: the encoded bytes equal those of libdbus, and decode to the original values", arguments: 0..<8)
    func roundTrips(seed: UInt64) throws {
        var random = SplitMix(state: seed)
        for round in 0..<250 {
            let userInfo = dictionary(&random, depth: round % 5)
            let reference = try Self.message(userInfo).marshalledBody
            let bytes = try UserInfoLayout.bytes(of: userInfo)
            #expect(bytes == reference, "\(userInfo)")
            let arrived = try UserInfoBytes(bytes)
            #expect(same(.dictionary(arrived.decoded()), .dictionary(userInfo)), "\(userInfo)")
            #expect(arrived.byteCount == bytes.count && arrived.isEmpty == userInfo.isEmpty)
            #expect(arrived.valueCount == count(.dictionary(userInfo)) - 1, "\(userInfo)")
        }
    }

    @Test("N3: userInfo is encoded and decoded at any offset among other arguments")
    func places() throws {
        var random = SplitMix.ofTest("UserInfoBytesTests.places", standard: 77)
        for length in 0..<32 {
            let text = String(repeating: "x", count: length)
            let userInfo = dictionary(&random, depth: 2)
            let message = Wire.methodCall("Post")
            var writer = MessageWriter(message)
            writer.append(text)
            try UserInfoCoding.append(userInfo, to: &writer)
            writer.append(UInt64(7))
            let start = 4 + length + 1
            let size = try start + UserInfoLayout.byteCount(of: userInfo, at: start) + 16
            let bytes = MarshalledBytes.make(atMost: size) { bytes in
                bytes.append(text)
                do { try UserInfoLayout.append(userInfo, to: &bytes) } catch { Issue.record(error) }
                bytes.append(UInt64(7))
            }
            #expect(bytes == message.marshalledBody)
            try bytes.withUnsafeBytes { bytes in
                var reader = MarshalledReader(bytes)
                let before = reader.readString()
                let arrived = try UserInfoBytes(at: &reader)
                let (behind, isAtEnd) = (reader.readFixed(UInt64.self), reader.isAtEnd)
                #expect(before == text && behind == 7 && isAtEnd)
                #expect(same(.dictionary(arrived.decoded()), .dictionary(userInfo)))
            }
        }
    }

    @Test("E1: the size computed in advance equals the encoded size")
    func sizes() throws {
        var random = SplitMix.ofTest("UserInfoBytesTests.sizes", standard: 3)
        for start in 0..<64 {
            let userInfo = dictionary(&random, depth: 3)
            let before = [UInt8](repeating: 1, count: start)
            let size = try UserInfoLayout.byteCount(of: userInfo, at: start)
            let bytes = MarshalledBytes.make(atMost: start + size) { bytes in
                for byte in before { bytes.append(byte) }
                do { try UserInfoLayout.append(userInfo, to: &bytes) } catch { Issue.record(error) }
            }
            #expect(bytes.count == start + size)
        }
    }

    @Test("Typed containers of other languages are read: as, aai, a{ss}, a{sa(x)}, variants in variants, ab")
    func foreign() throws {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.array(of: "{sv}") { writer in
            writer.entry("as", "as") { writer in writer.array(of: "s") { $0.append("a") } }
            writer.entry("aai", "aai") { writer in
                writer.array(of: "ai") { $0.append(fixedArray: [Int32(1), 2]) }
            }
            writer.entry("a{ss}", "a{ss}") { writer in
                writer.array(of: "{ss}") { writer in
                    writer.dictEntry { writer in
                        writer.append("k")
                        writer.append("v")
                    }
                }
            }
            writer.entry("a{sa(x)}", "a{sa(x)}") { writer in
                writer.array(of: "{sa(x)}") { writer in
                    writer.dictEntry { writer in
                        writer.append("k")
                        writer.array(of: "(x)") { writer in writer.structure { $0.append(Int64(5)) } }
                    }
                }
            }
            writer.entry("vv", "v") { $0.variant(of: "v") { $0.variant(of: "y") { $0.append(UInt8(1)) } } }
            writer.entry("ab", "ab") { writer in
                writer.array(of: "b") { for flag in [true, false, true] { $0.append(flag) } }
            }
            writer.entry("an", "an") { $0.append(fixedArray: [Int16(-1), 2, 3]) }
            writer.entry("empty", "aas") { $0.array(of: "as") { _ in } }
            // The later of two values of a key counts.
            writer.entry("vv", "s") { $0.append("last") }
        }
        var reader = MessageReader(message)
        let arrived = try UserInfoBytes(message.marshalledBody)
        let reference = try UserInfoCoding.read(from: &reader)
        #expect(arrived.decoded() == reference)
        #expect(arrived.decoded()["vv"] == .string("last"))
        #expect(arrived.decoded()["ab"] == .array([.boolean(true), .boolean(false), .boolean(true)]))
    }

    @Test("E2: damaged userInfo is refused, or read with the values that libdbus reads")
    func damaged() throws {
        var random = SplitMix.ofTest("UserInfoBytesTests.damaged", standard: 11)
        var (accepted, refused) = (0, 0)
        for _ in 0..<200 {
            let whole = try UserInfoLayout.bytes(of: dictionary(&random, depth: 3))
            for _ in 0..<100 {
                var bytes = whole
                for _ in 0..<Int.random(in: 1...2, using: &random) {
                    bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(in: 0...255, using: &random)
                }
                guard let arrived = try? UserInfoBytes(bytes) else {
                    refused += 1
                    continue
                }
                accepted += 1
                let signal = Message.signal(
                    to: ":1.0", path: Wire.path, interface: Wire.interface, member: "Damaged", serial: 1,
                    signature: "a{sv}", body: bytes)
                var reader = MessageReader(try #require(signal, "\(bytes)"))
                let values = try UserInfoCoding.read(from: &reader)
                #expect(same(.dictionary(arrived.decoded()), .dictionary(values)), "\(bytes)")
            }
            for count in 0..<min(whole.count, 64) {
                #expect(throws: CenterError.self) { try UserInfoBytes(Array(whole[..<count])) }
            }
            #expect(throws: CenterError.self) { try UserInfoBytes(whole + [0]) }
        }
        #expect(accepted > 1000 && refused > 1000)
    }

    @Test("E1: userInfo beyond the standard limits is read, because a service with larger limits may send it")
    func largerLimits() throws {
        let depths = 1..<Limits.row(.userInfoDepth).hardMaximum
        let deep: [String: PropertyList] = depths.reduce(into: [:]) { inner, _ in inner = ["k": .dictionary(inner)] }
        let large: [String: PropertyList] = [
            "k": .data([UInt8](repeating: 7, count: Int(Limits.row(.userInfoBytes).standard)))
        ]
        for userInfo in [deep, large] {
            let post = try PostCall.marshalled(name: "Ding", userInfo: userInfo)
            #expect(throws: CenterError.self) { try Sample.check(post) }
            let arrived = try UserInfoBytes(UserInfoLayout.bytes(of: userInfo))
            #expect(arrived.decoded() == userInfo)
            // What a service kept is restored by one that has other limits.
            let kept = try Sample.userInfo(of: post, limits: Self.largestLimits).commonBody
            let restored = kept.withUnsafeBytes { WireUserInfo.restored(fromCommonBody: $0) }
            #expect(restored?.name == "Ding" && restored?.userInfo.commonBody == kept)
        }
    }

    private static var largestLimits: Limits {
        var limits = Limits()
        for key in [Limits.Key.userInfoBytes, .userInfoDepth] { limits[key] = .max }
        return limits
    }

    @Test("N3, E1: the encoder refuses the same values as the checked writer, with the same error")
    func refused() {
        func nested(_ levels: Int) -> PropertyList {
            (0..<levels).reduce(.string("bottom")) { value, _ in .array([value]) }
        }
        let most = Int(Limits.row(.userInfoBytes).hardMaximum)
        for userInfo in [
            ["a": .string("x\0y")], ["k\0": .boolean(true)], ["a": .array([.string(""), .string("\0")])],
            ["a": .dictionary(["b": .string("\0"), "c": .int16(1)])], ["a": nested(20)], ["a": nested(1000)],
            ["a": .data([UInt8](repeating: 0, count: most))],
            ["a": .array([PropertyList](repeating: .data([UInt8](repeating: 0, count: most / 8)), count: 8))],
        ] as [[String: PropertyList]] {
            #expect(fault { try UserInfoLayout.bytes(of: userInfo) } != nil)
            #expect(fault { try UserInfoLayout.bytes(of: userInfo) } == fault { try UserInfoCoding.check(userInfo) })
        }
        #expect(fault { try UserInfoLayout.bytes(of: ["a": nested(19)]) } == nil)
        // With the length, the entry and its key.
        #expect(fault { try UserInfoLayout.bytes(of: ["a": .data([UInt8](repeating: 0, count: most - 24))]) } == nil)
    }

    // MARK: -

    private func fault<Value>(_ body: () throws -> Value) -> CenterError? {
        do {
            _ = try body()
            return nil
        } catch {
            return error as? CenterError
        }
    }

    private static func message(_ userInfo: [String: PropertyList]) throws -> Message {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        try UserInfoCoding.append(userInfo, to: &writer)
        return message
    }

    private func count(_ value: PropertyList) -> Int {
        switch value {
        case .array(let elements): elements.reduce(1) { $0 + count($1) }
        case .dictionary(let entries): entries.values.reduce(1) { $0 + count($1) }
        default: 1
        }
    }

    /// Equality, with NaN equal to itself.
    private func same(_ left: PropertyList, _ right: PropertyList) -> Bool {
        switch (left, right) {
        case (.double(let left), .double(let right)): left.bitPattern == right.bitPattern
        case (.array(let left), .array(let right)): left.count == right.count && zip(left, right).allSatisfy(same)
        case (.dictionary(let left), .dictionary(let right)):
            left.count == right.count && left.allSatisfy { key, value in right[key].map { same(value, $0) } ?? false }
        default: left == right
        }
    }

    // MARK: Values

    private func dictionary(_ random: inout SplitMix, depth: Int) -> [String: PropertyList] {
        var entries: [String: PropertyList] = [:]
        for _ in 0..<Int.random(in: 0...4, using: &random) { entries[text(&random)] = value(&random, depth: depth) }
        return entries
    }

    private func text(_ random: inout SplitMix) -> String {
        let parts = ["", "a", "key", "größe", "🔔", "com.example.Saved", "\u{7F}", "\u{1}", "long enough for the heap"]
        return (0..<Int.random(in: 0...3, using: &random)).map { _ in parts.randomElement(using: &random)! }.joined()
    }

    private func value(_ random: inout SplitMix, depth: Int) -> PropertyList {
        switch Int.random(in: 0..<(depth > 0 ? 16 : 12), using: &random) {
        case 12, 13: return .dictionary(dictionary(&random, depth: depth - 1))
        case 14:
            // Of one kind.
            let kind = Int.random(in: 0..<12, using: &random)
            return .array((0..<Int.random(in: 0...5, using: &random)).map { _ in simple(kind, &random) })
        case 15:
            return .array((0..<Int.random(in: 0...4, using: &random)).map { _ in value(&random, depth: depth - 1) })
        case let kind: return simple(kind, &random)
        }
    }

    private func simple(_ kind: Int, _ random: inout SplitMix) -> PropertyList {
        let bits = random.next()
        switch kind {
        case 0: return .string(text(&random))
        case 1: return .boolean(bits & 1 == 1)
        case 2: return .uint8(UInt8(truncatingIfNeeded: bits))
        case 3: return .int16(Int16(truncatingIfNeeded: bits))
        case 4: return .uint16(UInt16(truncatingIfNeeded: bits))
        case 5: return .int32(Int32(truncatingIfNeeded: bits))
        case 6: return .uint32(UInt32(truncatingIfNeeded: bits))
        case 7: return .int64(Int64(truncatingIfNeeded: bits))
        case 8: return .uint64(bits)
        case 9: return .double(Double(bitPattern: bits))
        case 10: return .data((0..<bits % 9).map { UInt8($0) })
        default: return .date(microsecondsSince1970: Int64(truncatingIfNeeded: bits))
        }
    }
}
