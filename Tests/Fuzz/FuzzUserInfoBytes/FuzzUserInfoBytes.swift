// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonFuzzSupport
import CarillonWire

/// Reads bytes as a userInfo without libdbus, and holds what comes of it against libdbus: see the README.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    Fuzzer.run(bytes, count) { _ in read(Array(UnsafeBufferPointer(start: bytes, count: count))) }
}

private func read(_ bytes: [UInt8]) {
    // In the middle of other bytes, at every place; what is behind it is not its own.
    for start in 0..<8 where !bytes.isEmpty {
        let all = [UInt8](repeating: 0, count: start) + bytes
        all.withUnsafeBytes { all in
            var reader = MarshalledReader(all, at: start)
            guard let userInfo = try? UserInfoBytes(at: &reader) else { return }
            Fuzzer.expect(reader.offset <= all.count, "read more than there is")
            _ = userInfo.decoded()
        }
    }
    guard let userInfo = try? UserInfoBytes(bytes) else { return }
    let values = userInfo.decoded()
    let signal = Message.signal(
        to: ":1.0", path: Wire.path, interface: Wire.interface, member: "Fuzz", serial: 1, signature: "a{sv}",
        body: bytes)
    guard let signal else { Fuzzer.fail("libdbus refuses what was read") }
    do throws(BusError) {
        var reader = MessageReader(signal)
        let reference = try UserInfoCoding.read(from: &reader)
        Fuzzer.expect(same(.dictionary(values), .dictionary(reference)), "libdbus reads other values")
    } catch {
        Fuzzer.fail("libdbus's reader refuses what was read: \(error)")
    }
    writeAgain(values)
}

private func writeAgain(_ values: [String: PropertyList]) {
    do throws(CenterError) {
        let bytes = try UserInfoLayout.bytes(of: values)
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        try UserInfoCoding.append(values, to: &writer)
        Fuzzer.expect(message.marshalledBody == bytes, "libdbus lays it out otherwise")
        let again = try UserInfoBytes(bytes).decoded()
        Fuzzer.expect(same(.dictionary(values), .dictionary(again)), "changed by coding it again")
    } catch .limitExceeded {
        // As variants, for instance, arrays of bytes' arrays take more than they took, and nest deeper.
    } catch {
        Fuzzer.fail("what was read can't be laid out: \(error)")
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
