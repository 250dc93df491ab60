// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The sending half of a channel: encodes posts, writes them, and keeps them until their outcomes arrive.
///
/// Threads: any. The session uses it, and so do posting threads while it is lent out (``SharedOutbox``); the order is
/// that of the calls.
final class ChannelSender: Sendable {
    /// The result of passing a post.
    enum Passing {
        /// The post was written after all earlier ones.
        case passed
        /// The post was written in part, after all earlier ones: the session must call ``flush()``.
        case partly
        /// The post has to wait.
        case refused
    }

    /// The result of writing the encoded bytes.
    enum Flushing {
        case all
        case rest
        /// The reader is gone.
        case broken
    }

    private struct Flight {
        let post: OutgoingPost
        /// 0 when no outcome was requested: the next outcome with a number shows that the post was taken.
        let number: UInt64
        /// The position of the end of its frame among all bytes that were ever encoded.
        let end: UInt64
    }

    private struct State {
        let writer = ChannelFrameWriter()
        var flights = Deque<Flight>()
        var lastNumber: UInt64 = 0
        var unnumbered = 0
        var isOpen = true
    }

    /// Of the posts whose outcome nobody awaits, every 64th is answered, and so is the last post of a batch.
    static let answeredEvery = 64
    /// The size of the largest post that a posting thread writes itself.
    private static let maxBytesAtOnce = 16 << 10

    private let line: any ChannelWriting
    private let state = Locked(State())

    init(_ line: any ChannelWriting) {
        self.line = line
    }

    /// Whether posts may be sent now: the line has taken all earlier bytes.
    var hasRoom: Bool { state.withLock { $0.isOpen && $0.writer.byteCount == 0 } }

    /// The number of posts without an outcome.
    var unsettled: Int { state.withLock { $0.flights.count } }

    /// Sends a post and requests its outcome, if the line can take the post at once.
    func pass(_ post: OutgoingPost) -> Passing {
        guard post.byteCount <= Self.maxBytesAtOnce else { return .refused }
        return state.withLock { state in
            guard state.isOpen, state.writer.byteCount == 0 else { return .refused }
            Self.append(post, isAnswered: true, to: &state)
            return Self.write(&state, to: line) == .all ? .passed : .partly
        }
    }

    /// Sends posts in one step. ``hasRoom`` must be true.
    func send(_ posts: [OutgoingPost]) -> Flushing {
        state.withLock { state in
            for (place, post) in posts.enumerated() {
                let isAnswered =
                    post.completion != nil || place == posts.count - 1 || state.unnumbered + 1 >= Self.answeredEvery
                Self.append(post, isAnswered: isAnswered, to: &state)
            }
            return Self.write(&state, to: line)
        }
    }

    /// Writes as many of the remaining bytes as there is space for.
    func flush() -> Flushing {
        state.withLock { state in state.isOpen ? Self.write(&state, to: line) : .all }
    }

    private static func append(_ post: OutgoingPost, isAnswered: Bool, to state: inout State) {
        state.unnumbered += 1
        if isAnswered {
            state.lastNumber += 1
            state.unnumbered = 0
        }
        let number = isAnswered ? state.lastNumber : 0
        post.message.withMarshalledBody { body in
            state.writer.append(.post, number: number, atMost: body.count) { $0.append(laidOut: body) }
        }
        state.flights.append(Flight(post: post, number: number, end: state.writer.position))
    }

    private static func write(_ state: inout State, to line: any ChannelWriting) -> Flushing {
        var isBroken = false
        state.writer.write { bytes in
            switch line.write(bytes) {
            case .bytes(let count): return count
            case .broken:
                isBroken = true
                return 0
            }
        }
        return isBroken ? .broken : state.writer.byteCount > 0 ? .rest : .all
    }

    /// Removes the post whose outcome the service has reported.
    ///
    /// - Returns: the post, and the number of posts that are no longer in flight; nil when no post has this number.
    func settle(_ number: UInt64) -> (post: OutgoingPost, count: Int)? {
        state.withLock { state in
            guard number != 0, let place = state.flights.firstIndex(where: { $0.number == number }) else { return nil }
            var others: [Flight] = []
            for _ in 0..<place {
                let flight = state.flights.popFirst()!
                if flight.number != 0 { others.append(flight) }
            }
            let post = state.flights.popFirst()!.post
            for flight in others.reversed() { state.flights.prepend(flight) }
            return (post, place + 1 - others.count)
        }
    }

    /// Removes the posts without an outcome: posts whose outcome remains unknown, and posts that were not sent
    /// completely.
    func takeFlights() -> (unknown: [OutgoingPost], unsent: [OutgoingPost]) {
        state.withLock { state in
            var (unknown, unsent): ([OutgoingPost], [OutgoingPost]) = ([], [])
            // The service ignores an incomplete frame.
            while let flight = state.flights.popFirst() {
                if flight.end <= state.writer.written {
                    unknown.append(flight.post)
                } else {
                    unsent.append(flight.post)
                }
            }
            return (unknown, unsent)
        }
    }

    /// Ends writing.
    func close() { state.withLock { $0.isOpen = false } }
}
