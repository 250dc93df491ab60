// SPDX-License-Identifier: Apache-2.0
/// The budget of a work slice: the posts of one `PostMany` call or channel that are served before other callers are
/// (E4). ``SlicedCalls`` and ``ChannelPosts`` make one for each part of their work.
///
/// A slice is bounded by a number of posts. It is also bounded by time, because a post with many observers takes long.
/// It always has at least one post, so that the work progresses. All times are passed in; the type has no clock.
struct WorkSlice {
    typealias Instant = SuspendingClock.Instant

    /// The maximum number of posts without backpressure. They take some hundreds of microseconds when few clients
    /// observe.
    private static let most = 32
    /// The maximum number of posts under backpressure.
    private static let maxUnderBackpressure = 8
    /// The maximum time.
    private static let time = Duration.microseconds(500)

    /// The maximum number of posts in this slice.
    private let most: Int
    /// The end of the time; nil for no limit.
    private let end: Instant?
    /// The number of posts served so far.
    private(set) var count = 0

    /// - Parameter isUnderBackpressure: whether an observer that reads has a full queue. Posts are then served slowly.
    init(isUnderBackpressure: Bool, at now: Instant) {
        most = isUnderBackpressure ? Self.maxUnderBackpressure : Self.most
        end = now + Self.time
    }

    /// Makes a slice without a time limit, for posts that have to be served at once.
    ///
    /// - Parameter most: the maximum number of posts.
    init(most: Int) {
        self.most = most
        end = nil
    }

    /// Whether another post may be served in the slice.
    func hasRoom(at now: @autoclosure () -> Instant) -> Bool {
        guard count < most else { return false }
        guard count > 0, let end else { return true }
        return now() < end
    }

    /// Counts a post of the slice.
    mutating func take() { count += 1 }
}
