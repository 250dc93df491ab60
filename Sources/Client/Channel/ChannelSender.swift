// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The way out of a channel: lays posts out, writes them, and remembers them until their outcomes come.
///
/// Threads: any. The session uses it, and while it is lent out (``SharedOutbox``) so do the threads that post; the order
/// is that of the calls.
final class ChannelSender: Sendable {
    /// What became of a post.
    enum Passing {
        /// It is behind what went before.
        case passed
        /// The same, and not all of it was written: ``flush()`` is to be called.
        case partly
        /// It has to wait.
        case refused
    }

    /// What became of what was to be written.
    enum Flushing {
        case all
        case rest
        /// Nobody reads it.
        case broken
    }

    private struct Flight {
        let post: OutgoingPost
        /// 0 where no outcome was asked for: the next one that has a number tells that it was taken.
        let number: UInt64
        /// Where its frame ends in all that was ever laid out.
        let end: UInt64
    }

    private struct State {
        let writer = ChannelFrameWriter()
        var flights = Deque<Flight>()
        var lastNumber: UInt64 = 0
        var unnumbered = 0
        var isOpen = true
    }

    /// Of posts of which nobody wants to know, every so manieth is answered, and the last one of those that go together.
    static let answeredEvery = 64
    /// Nobody who posts is kept with more.
    private static let maxBytesAtOnce = 16 << 10

    private let line: any ChannelWriting
    private let state = Locked(State())

    init(_ line: any ChannelWriting) {
        self.line = line
    }

    /// Whether posts may be sent now: the line took all before.
    var hasRoom: Bool { state.withLock { $0.isOpen && $0.writer.byteCount == 0 } }

    /// How many posts have no outcome yet.
    var unsettled: Int { state.withLock { $0.flights.count } }

    /// Sends a post with an outcome, if that is possible at once.
    func pass(_ post: OutgoingPost) -> Passing {
        guard post.byteCount <= Self.maxBytesAtOnce else { return .refused }
        return state.withLock { state in
            guard state.isOpen, state.writer.byteCount == 0 else { return .refused }
            Self.append(post, isAnswered: true, to: &state)
            return Self.write(&state, to: line) == .all ? .passed : .partly
        }
    }

    /// Sends posts, as many as there are, in one go. There is room.
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

    /// Writes what there is room for of what is left.
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

    /// The service says what became of a post.
    ///
    /// - Returns: the post, and how many posts are not on their way any more; nil when there is none of this number.
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

    /// The posts without an outcome: those of which nobody knows whether they were made, and those that were not.
    func takeFlights() -> (unknown: [OutgoingPost], unsent: [OutgoingPost]) {
        state.withLock { state in
            var (unknown, unsent): ([OutgoingPost], [OutgoingPost]) = ([], [])
            // A frame that is not all there is nothing to the service.
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

    /// Nothing more is written.
    func close() { state.withLock { $0.isOpen = false } }
}
