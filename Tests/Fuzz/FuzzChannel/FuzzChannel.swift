// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonFuzzSupport
import CarillonWire

/// Reads arbitrary bytes as the stream of a channel, and arbitrary bodies as each kind: see the README.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    Fuzzer.run(bytes, count) { input in
        let sender: ChannelFrame.Sender = input.flag() ? .client : .service
        let piece = 1 + Int(input.byte())
        let maxKept = 1 << input.number(below: 13)
        let stream = input.bytes(1 << 16)
        let whole = read(stream, from: sender, pieces: 1 << 20, maxKept: maxKept)
        let cut = read(stream, from: sender, pieces: piece, maxKept: maxKept)
        Fuzzer.expect(whole == cut, "it matters in which pieces bytes come: \(whole) and \(cut)")
        for frame in whole.frames { judge(frame.body) }
        judge(stream)
    }
}

private struct Frame: Equatable {
    let kind: UInt32
    let number: UInt64
    let body: [UInt8]
    let isCut: Bool
}

private struct Found: Equatable {
    var frames: [Frame] = []
    var fault: ChannelFrame.Fault?
}

private func read(_ stream: [UInt8], from sender: ChannelFrame.Sender, pieces: Int, maxKept: Int) -> Found {
    let reader = ChannelFrameReader(from: sender, maxKept: maxKept)
    var found = Found()
    var rest = stream[...]
    do throws(ChannelFrame.Fault) {
        while true {
            while let frame = try reader.next() {
                Fuzzer.expect(frame.kind.sender == sender && frame.body.count <= maxKept, "not what was asked for")
                found.frames.append(
                    Frame(
                        kind: frame.kind.rawValue, number: frame.number, body: Array(frame.body),
                        isCut: frame.cut != nil))
            }
            Fuzzer.expect(!reader.hasNext, "there is a frame that is not given")
            guard !rest.isEmpty else { return found }
            _ = reader.read { room in
                let piece = rest.prefix(min(pieces, room.count))
                room.copyBytes(from: piece)
                rest = rest.dropFirst(piece.count)
                return piece.count
            }
        }
    } catch {
        found.fault = error
        return found
    }
}

/// What is decoded is what libdbus finds there, too.
private func judge(_ body: [UInt8]) {
    body.withUnsafeBytes { bytes in
        _ = DroppedSignal(channelBody: bytes)
        _ = SuspensionChangedSignal(channelBody: bytes)
        _ = ChannelOutcome(channelBody: bytes)
        if let signal = ArrivedNotification(channelBody: bytes) {
            Fuzzer.expect(signal.name.utf8.count < bytes.count, "a name from nowhere")
        }
        let read = try? Post<WireUserInfo>.read(channelBody: bytes, limits: Limits()) { _, _ in }
        guard case .success(let post)? = read?.post else { return }
        Fuzzer.expect(
            bytes.starts(with: post.userInfo.commonBody), "the bytes of a post are not those that came")
        let form = MessageTemplate.methodCall(
            to: Wire.busName, path: Wire.path, interface: Wire.interface, member: PostCall.member,
            signature: "ssa{sv}a{sv}")
        // Looked at by libdbus when somebody reads it.
        var arguments = form.call(size: bytes.count) { $0.append(bytes: body) }.map { MessageReader($0) }
        Fuzzer.expect(arguments?.nextType == .string, "libdbus does not take what was taken")
    }
}
