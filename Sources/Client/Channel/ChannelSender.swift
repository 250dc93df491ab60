// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The sending half of a channel: encodes posts as frames, writes them, and keeps each post until its outcome arrives.
///
/// Not every post requests an outcome. The service takes posts in order, so the next requested outcome also confirms
/// the posts before it.
///
/// Threads: any. The session uses it, and so do posting threads while the session lends it out (``SharedOutbox``). The
/// order of posts is that of the calls.
final class ChannelSender: Sendable {
    /// The result of a posting thread's attempt to send a post.
    enum Passing {
        /// The post was written after all earlier ones.
        case passed
        /// The post was written in part, after all earlier ones. The session must call ``flush()`` for the remaining
        /// bytes.
        case partly
        /// The post was not sent. It has to wait in the outbox.
        case refused
    }

    /// The result of writing the encoded bytes.
    enum Flushing {
        /// All bytes were written.
        case all
        /// Bytes remain, because the stream has no more space.
        case rest
        /// The reader is gone.
        case broken
    }

    /// A post in flight.
    private struct Flight {
        let post: OutgoingPost
        /// The number under which the outcome arrives; 0 when no outcome was requested. The next requested outcome then
        /// confirms the post.
        let number: UInt64
        /// The position of the end of its frame in the stream, in bytes since the opening of the channel.
        let end: UInt64
    }

    private struct State {
        /// The encoder, with the bytes that are not written.
        let writer = ChannelFrameWriter()
        var flights = Deque<Flight>()
        var lastNumber: UInt64 = 0
        /// The number of posts since the last requested outcome.
        var unnumbered = 0
        var isOpen = true
    }

    /// Of the posts without a completion, every 64th requests an outcome, and so does the last post of a batch.
    static let answeredEvery = 64
    /// The size of the largest post that a posting thread writes itself, in bytes.
    private static let maxBytesAtOnce = 16 << 10

    private let stream: any ChannelWriting
    private let state = Locked(State())

    init(_ stream: any ChannelWriting) {
        self.stream = stream
    }

    /// Whether a post may be written now: the stream has taken all earlier bytes.
    var hasRoom: Bool { state.withLock { $0.isOpen && $0.writer.byteCount == 0 } }

    /// The number of posts in flight.
    var postsInFlight: Int { state.withLock { $0.flights.count } }

    /// Sends a post from a posting thread and requests its outcome, if the stream has taken all earlier bytes. A large
    /// post is refused.
    func pass(_ post: OutgoingPost) -> Passing {
        guard post.byteCount <= Self.maxBytesAtOnce else { return .refused }
        return state.withLock { state in
            guard state.isOpen, state.writer.byteCount == 0 else { return .refused }
            Self.append(post, isAnswered: true, to: &state)
            return Self.write(&state, to: stream) == .all ? .passed : .partly
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
            return Self.write(&state, to: stream)
        }
    }

    /// Writes as many of the remaining bytes as there is space for.
    func flush() -> Flushing {
        state.withLock { state in state.isOpen ? Self.write(&state, to: stream) : .all }
    }

    /// Encodes a post and records it as in flight.
    private static func append(_ post: OutgoingPost, isAnswered: Bool, to state: inout State) {
        state.unnumbered += 1
        if isAnswered {
            state.lastNumber += 1
            state.unnumbered = 0
        }
        let number = isAnswered ? state.lastNumber : 0
        post.message.withMarshalledBody { body in
            state.writer.append(.post, number: number, atMost: body.count) { $0.append(marshalled: body) }
        }
        state.flights.append(Flight(post: post, number: number, end: state.writer.position))
    }

    /// Writes as many encoded bytes as the stream takes.
    private static func write(_ state: inout State, to stream: any ChannelWriting) -> Flushing {
        var isBroken = false
        state.writer.write { bytes in
            switch stream.write(bytes) {
            case .bytes(let count): return count
            case .broken:
                isBroken = true
                return 0
            }
        }
        return isBroken ? .broken : state.writer.byteCount > 0 ? .rest : .all
    }

    /// Removes the post whose outcome the service has reported, and the posts before it that requested no outcome.
    ///
    /// - Returns: the post, and the number of removed posts; nil when no post has this number.
    func settle(_ number: UInt64) -> (post: OutgoingPost, count: Int)? {
        state.withLock { state in
            guard number != 0, let place = state.flights.firstIndex(where: { $0.number == number }) else { return nil }
            // Earlier posts with their own numbers stay in flight until their outcomes arrive.
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

    /// Removes all posts in flight at the end of the channel.
    ///
    /// - Returns: the completely written posts, whose outcome remains unknown, and the posts that may be sent again.
    func takeFlights() -> (unknown: [OutgoingPost], unsent: [OutgoingPost]) {
        state.withLock { state in
            var (unknown, unsent): ([OutgoingPost], [OutgoingPost]) = ([], [])
            // The service ignores an incomplete frame, so its post was not made.
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

    /// Refuses all further writes.
    func close() { state.withLock { $0.isOpen = false } }
}
