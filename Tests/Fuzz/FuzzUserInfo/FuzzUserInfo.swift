// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonFuzzSupport
import CarillonService
import CarillonWire

/// Posts dictionaries of every D-Bus type, and holds what becomes of them against a second opinion: see the README.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    Fuzzer.run(bytes, count) { input in
        let isBigEndian = input.flag()
        let userInfo = input.wireValue(.dictionary(key: "s", value: .variant), depth: 22)
        office.post(userInfo, bigEndian: isBigEndian)
    }
}

// libFuzzer calls from one thread. One object serves all inputs: making one reads the configuration.
nonisolated(unsafe) private let office = PostOffice()

/// The object of the service with one client that observes everything and always answers.
private final class PostOffice {
    private let bus = FakeBus()
    private let object: CenterObject
    private static let client = ":1.1"
    /// So that short inputs reach it. The limit of depth is the standard one.
    private static let maximumBytes = 1024
    private static let maximumDepth = 16

    init() {
        ConfigurationFile.write("[Limits]\nuser-info-bytes=\(Self.maximumBytes)\n")
        object = CenterObject(bus: bus)
        call("AddObserver", [.string(""), .string(""), .noOptions])
        answerAll()
    }

    func post(_ userInfo: WireValue, bigEndian: Bool) {
        let arguments = [.string("name"), .string("object"), userInfo, .noOptions]
        guard let post = call("Post", arguments, bigEndian: bigEndian) else { return }  // beyond what D-Bus allows
        decodeUnchecked(post)
        let sent = bus.takeSent().filter { $0.kind != .methodCall }
        answerAll()
        guard let reply = sent.first(where: { $0.kind != .signal }) else { Fuzzer.fail("no reply") }
        if let error = reply.error {
            Fuzzer.expect(sent.count == 1, "refused, and delivered nevertheless")
            judge(error, of: userInfo)
        } else {
            guard sent.count == 2, let signal = sent.first(where: { $0.kind == .signal }) else {
                Fuzzer.fail("accepted, and not delivered once")
            }
            judge(signal, of: userInfo)
        }
    }

    @discardableResult
    private func call(_ member: String, _ arguments: [WireValue], bigEndian: Bool = false) -> Message? {
        var message = WireMessage()
        message.path = Wire.path.rawValue
        message.interface = Wire.interface.rawValue
        message.member = member
        message.arguments = arguments
        message.isBigEndian = bigEndian
        guard let call = Message.arriving(message, from: Self.client) else { return nil }
        Fuzzer.expect(object.handle(call), "\(member) was not taken")
        bus.runWhatIsReady()
        return call
    }

    private func answerAll() {
        while !bus.calls.isEmpty { bus.answer(at: 0) }
        _ = bus.takeSent()
    }

    // MARK: Second opinion

    private func judge(_ error: BusError, of userInfo: WireValue) {
        switch error.name {
        case "org.carillon.Error.InvalidUserInfo":
            Fuzzer.expect(!userInfo.isPropertyList, "refused a property list: \(error)")
            Fuzzer.expect(error.message.hasPrefix("userInfo"), "names no key path: \(error)")
        case "org.carillon.Error.LimitExceeded":
            let isOver = size(of: userInfo) + 8 > Self.maximumBytes || userInfo.depth > Self.maximumDepth
            Fuzzer.expect(isOver, "within the limits: \(error)")
        default:
            Fuzzer.fail("refused with \(error)")
        }
    }

    private func judge(_ signal: Message, of userInfo: WireValue) {
        Fuzzer.expect(userInfo.isPropertyList, "accepted what is no property list")
        Fuzzer.expect(size(of: userInfo) <= Self.maximumBytes + 8, "accepted \(size(of: userInfo)) bytes")
        Fuzzer.expect(userInfo.depth <= Self.maximumDepth, "accepted a depth of \(userInfo.depth)")

        // The same bytes, in the byte order of this machine, whatever the order was that they came in.
        let arguments = [.string("name"), .string("object"), userInfo]
        var expected = Marshaller(bigEndian: 1.littleEndian != 1)
        for argument in arguments { argument.marshal(to: &expected) }
        Fuzzer.expect(signal.marshalledBody.starts(with: expected.bytes), "userInfo changed on its way")

        do throws(BusError) {
            guard let received = try NotificationSignal(signal) else { Fuzzer.fail("another signal") }
            let again = try recode(received.userInfo)
            Fuzzer.expect(same(.dictionary(received.userInfo), .dictionary(again)), "changed by coding it again")
        } catch {
            Fuzzer.fail("what was accepted can't be decoded: \(error)")
        }
    }

    private func size(of userInfo: WireValue) -> Int {
        var bytes = Marshaller()
        userInfo.marshal(to: &bytes)
        return bytes.bytes.count
    }

    /// A client may be handed anything: decoding ends with a value or with an error.
    private func decodeUnchecked(_ post: Message) {
        var reader = MessageReader(post)
        reader.skip()
        reader.skip()
        _ = try? UserInfoCoding.read(from: &reader)
    }

    private func recode(_ userInfo: [String: PropertyList]) throws(BusError) -> [String: PropertyList] {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        do throws(CenterError) {
            try UserInfoCoding.append(userInfo, to: &writer)
        } catch {
            Fuzzer.fail("what was decoded can't be encoded: \(error)")
        }
        var reader = MessageReader(message)
        return try UserInfoCoding.read(from: &reader)
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
}
