// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The calls that are served in slices, because a whole call would exceed the work that one event of the loop may do
/// (E4, E8). Calls of other callers are served between two slices.
///
/// Examples are `PostMany`, a post that replaces many queued posts, and `ReloadConfiguration`. Until its last slice a
/// call stays in the ``CallQueue``, and later calls of the same caller wait behind it.
final class SlicedCalls {
    /// Serves a slice of a call, and sends the reply with the last slice. Returns whether it was the last slice.
    typealias Part = (WorkSlice) -> Bool

    /// A call of which at least one slice was begun, and not the last.
    private struct Begun {
        let message: Message
        /// The order in which the calls were begun.
        let number: Int
        /// Serves the next slice.
        let serve: Part
    }

    private unowned let driver: CenterDriver
    /// The begun calls by the identity of their message object. The entry retains the message, so the identity is
    /// unique.
    private var begun: [ObjectIdentifier: Begun] = [:]
    /// The number of calls that have been begun so far.
    private var count = 0
    /// The number of posts made since the last ``takePostCount()``.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var posts = 0
    /// Whether the call queue continues begun calls. Without it, each call is served completely at once.
    var isContinued = false

    init(driver: CenterDriver) {
        self.driver = driver
    }

    /// Serves the first slice of a call.
    func begin(_ call: MethodCall, _ serve: @escaping Part) { begin(call.message, serve) }

    /// Serves the first slice of the work for a message, which may also be the signal that a client left the bus.
    func begin(_ message: Message, _ serve: @escaping Part) {
        count += 1
        let work = Begun(message: message, number: count, serve: serve)
        begun[ObjectIdentifier(message)] = work
        if isContinued { goOn(work) } else { finish(work) }
    }

    /// Whether slices of this message's work are still to be served.
    func hasBegun(_ message: Message) -> Bool {
        !begun.isEmpty && begun[ObjectIdentifier(message)] != nil
    }

    /// Serves the next slice of a begun call.
    ///
    /// - Returns: false if the message is no begun call, and nothing was done.
    func goOn(_ message: Message) -> Bool {
        guard !begun.isEmpty, let work = begun[ObjectIdentifier(message)] else { return false }
        goOn(work)
        return true
    }

    /// Serves the remaining slices of all begun calls, in the order of their beginning, because the service stops or
    /// has lost its connection.
    ///
    /// - Returns: the messages of these calls.
    func finishAll() -> [Message] {
        let works = begun.values.sorted { $0.number < $1.number }
        for work in works { finish(work) }
        return works.map(\.message)
    }

    /// Adds to the number of posts made. The call queue charges the caller's account with them.
    func notePosts(_ count: Int) { posts += count }

    /// Returns the number of posts made since the last call of this method, minus one. The call queue has already
    /// counted the served call itself as one.
    func takePostCount() -> Int {
        defer { posts = 0 }
        return max(0, posts - 1)
    }

    private func goOn(_ work: Begun) {
        guard work.serve(WorkSlice(isUnderBackpressure: driver.center.isUnderBackpressure, at: driver.context.now))
        else {
            return
        }
        begun[ObjectIdentifier(work.message)] = nil
    }

    private func finish(_ work: Begun) {
        while !work.serve(WorkSlice(most: .max)) {}
        begun[ObjectIdentifier(work.message)] = nil
    }
}
