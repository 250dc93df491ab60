// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonWire

/// What a liar writes on its channel (E2): nothing of it is a post that anybody could take.
enum ChannelLie: CaseIterable {
    /// A kind that is none, or that the service sends.
    case kind
    /// A length that no frame has.
    case length
    /// A body that is not laid out as a post.
    case body
    /// Bytes without any sense.
    case rubbish
    /// A frame that ends in the middle, and then the channel does.
    case cut
    /// A frame that goes on and on, and is longer than any that is kept.
    case endless
    /// Many posts that are refused, whose outcomes it may never read.
    case refused

    func tell(on channel: PlainChannel, _ random: inout Random) {
        func bytes(_ count: Int) -> [UInt8] { (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) } }
        switch self {
        case .kind: channel.append(PlainChannel.frame(random.pick([0, 2, 3, 4, 5, 6, 77, .max]), random.next(), []))
        case .length:
            channel.append(PlainChannel.frame(1, 1, bytes(30), length: random.pick([.max, 33 << 20, 1 << 31])))
        case .body:
            // The length of the name is none.
            let body = [0xFF, 0xFF, 0xFF, 0xFF] + bytes(random.number(0...60))
            channel.append(PlainChannel.frame(1, UInt64(random.number(0...2)), body))
        case .rubbish: channel.append([0xFF] + bytes(random.number(15...3000)))
        case .cut:
            channel.append(PlainChannel.frame(1, 7, bytes(random.number(0...900)), length: 1000))
        case .endless: channel.append(PlainChannel.frame(1, 9, bytes(random.number(1...40_000)), length: 20 << 20))
        case .refused:
            // No name, no object, nothing in it, no options.
            let empty: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            let body = empty + [0, 0, 0, 0, 0, 0, 0, 0] + [0, 0, 0, 0, 0, 0, 0, 0]
            let wanted = random.happens(0.7)
            for number in 1...UInt64(random.number(1...1500)) {
                channel.append(PlainChannel.frame(1, wanted ? number : 0, body))
            }
        }
    }
}
