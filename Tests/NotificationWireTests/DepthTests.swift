// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

/// How deep userInfo may nest, at the service and at the client that writes it (E1).
@Suite("E1: the depth of userInfo", .limited)
struct DepthTests {
    /// userInfo itself is the first level.
    private enum Nesting: String, CaseIterable, CustomTestStringConvertible {
        case dictionaries, arrays, variants, typedArrays, mixed

        var testDescription: String { rawValue }

        /// A value that is `levels` deep, with its type.
        func signature(_ levels: Int) -> Signature {
            guard levels > 0 else { return "s" }
            switch kind(levels) {
            case .dictionaries: return "a{sv}"
            case .arrays: return "av"
            case .variants: return "v"
            case .typedArrays: return Signature(rawValue: String(repeating: "a", count: levels) + "s")!
            case .mixed: preconditionFailure()
            }
        }

        func write(_ levels: Int, _ writer: inout MessageWriter) {
            guard levels > 0 else { return writer.append("bottom") }
            switch kind(levels) {
            case .dictionaries:
                writer.array(of: "{sv}") { writer in
                    writer.entry("a", signature(levels - 1)) { write(levels - 1, &$0) }
                }
            case .arrays:
                writer.array(of: "v") { writer in
                    writer.variant(of: signature(levels - 1)) { write(levels - 1, &$0) }
                }
            case .variants: writer.variant(of: signature(levels - 1)) { write(levels - 1, &$0) }
            case .typedArrays: writer.array(of: signature(levels - 1)) { write(levels - 1, &$0) }
            case .mixed: preconditionFailure()
            }
        }

        private func kind(_ levels: Int) -> Nesting {
            self == .mixed ? [.dictionaries, .arrays, .variants][levels % 3] : self
        }
    }

    @Test(
        "E1: userInfo of the maximum depth is accepted, and one level more is refused", arguments: Nesting.allCases,
        [1, 2, 3, 16, 20])
    private func limit(nesting: Nesting, depth: Int) throws {
        var limits = Limits()
        limits[.userInfoDepth] = UInt64(depth)
        func post(_ levels: Int) -> Message {
            Sample.post(nesting.signature(levels)) { nesting.write(levels, &$0) }
        }
        try Sample.check(post(depth - 1), limits: limits)
        #expect(throws: CenterError.limitExceeded(.userInfoDepth, value: UInt64(depth))) {
            try Sample.check(post(depth), limits: limits)
        }
    }

    @Test("E1: data counts as a value, not as a level of nesting", arguments: [1, 2])
    func data(depth: Int) throws {
        var limits = Limits()
        limits[.userInfoDepth] = UInt64(depth)
        func post(_ levels: Int) -> Message {
            levels == 1
                ? Sample.post("ay") { $0.append(fixedArray: [UInt8(1)]) }
                : Sample.post("aay") { $0.array(of: "ay") { $0.append(fixedArray: [UInt8(1)]) } }
        }
        try Sample.check(post(depth), limits: limits)
    }

    @Test(
        "E1: userInfo of the maximum depth fits into the nesting of D-Bus, in every shape", arguments: Nesting.allCases)
    private func hardMaximum(nesting: Nesting) throws {
        var limits = Limits()
        limits[.userInfoDepth] = .max
        let maximum = Int(limits[.userInfoDepth])
        #expect(maximum == Int(Limits.row(.userInfoDepth).hardMaximum))
        let post = Sample.post(nesting.signature(maximum - 1)) { nesting.write(maximum - 1, &$0) }
        let userInfo = try Sample.userInfo(of: post, limits: limits)
        #expect(userInfo.commonBody.withUnsafeBytes { WireUserInfo.restored(fromCommonBody: $0) } != nil)
        // libdbus validates bytes as they would arrive: this is nil when it nests too deep for a message.
        let signal = Message.signal(
            to: ":1.0", path: Wire.path, interface: Wire.interface, member: "Nested", serial: 1, signature: "ssa{sv}",
            body: userInfo.commonBody)
        #expect(signal != nil)
    }

    @Test("E1: a client refuses userInfo deeper than any service accepts, and writes the maximum depth")
    func writing() throws {
        func nested(_ levels: Int, _ wrap: (PropertyList) -> PropertyList) -> [String: PropertyList] {
            var value = PropertyList.string("bottom")
            for _ in 0..<levels { value = wrap(value) }
            return ["a": value]
        }
        let maximum = Int(Limits.row(.userInfoDepth).hardMaximum)
        for wrap in [{ .array([$0]) }, { .dictionary(["a": $0]) }] as [(PropertyList) -> PropertyList] {
            let good = nested(maximum - 1, wrap)
            #expect(try roundTrip(good) == good)
            #expect(throws: CenterError.limitExceeded(.userInfoDepth, value: UInt64(maximum))) {
                try roundTrip(nested(maximum, wrap))
            }
            // Far beyond the stack that a recursion in libdbus would need.
            #expect(throws: CenterError.self) { try roundTrip(nested(1000, wrap)) }
        }
    }

    private func roundTrip(_ userInfo: [String: PropertyList]) throws -> [String: PropertyList] {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        try UserInfoCoding.append(userInfo, to: &writer)
        var reader = MessageReader(message)
        return try UserInfoCoding.read(from: &reader)
    }
}
