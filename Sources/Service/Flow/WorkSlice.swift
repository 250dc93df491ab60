// SPDX-License-Identifier: Apache-2.0
/// A work slice: the posts of one call or channel that are taken before other callers are served (E4).
///
/// It is bounded by a number of posts, and by time, because posts with many observers take long. It has one post at
/// least. All times are passed in; the type has no clock.
struct WorkSlice {
    typealias Instant = SuspendingClock.Instant

    /// The maximum number of posts. They take some hundreds of microseconds when few clients observe.
    private static let most = 32
    /// The maximum number of posts under backpressure.
    private static let maxUnderBackpressure = 8
    private static let time = Duration.microseconds(500)

    private let most: Int
    private let end: Instant?
    private(set) var count = 0

    /// - Parameter isUnderBackpressure: whether an observer that reads is behind.
    init(isUnderBackpressure: Bool, at now: Instant) {
        most = isUnderBackpressure ? Self.maxUnderBackpressure : Self.most
        end = now + Self.time
    }

    /// Makes a slice without a time limit, for posts that have to be taken at once.
    init(most: Int) {
        self.most = most
        end = nil
    }

    /// Whether the slice has capacity for another post.
    func hasRoom(at now: @autoclosure () -> Instant) -> Bool {
        guard count < most else { return false }
        guard count > 0, let end else { return true }
        return now() < end
    }

    mutating func take() { count += 1 }
}
