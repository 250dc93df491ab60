// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The calls that are served in parts, because a whole call would exceed the work of one event (E4, E8). Other calls
/// are served in between.
///
/// Until its last part a call counts as waiting; later calls of the caller wait as well (`CallQueue`).
final class CallsInParts {
    /// Serves a part of a call, and replies with the last part. Returns whether that was the last.
    typealias Part = (WorkSlice) -> Bool

    private struct Begun {
        let message: Message
        /// The order in which the calls were begun.
        let number: Int
        let serve: Part
    }

    private unowned let driver: CenterDriver
    /// By the identity of the message, which the entry retains.
    private var begun: [ObjectIdentifier: Begun] = [:]
    private var count = 0
    /// The number of posts taken since ``takePostCount()``.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var posts = 0
    /// Whether the calls that were begun are continued later. Otherwise they are served completely at once.
    var isContinued = false

    init(driver: CenterDriver) {
        self.driver = driver
    }

    /// Serves the first part of a call.
    func begin(_ call: MethodCall, _ serve: @escaping Part) { begin(call.message, serve) }

    /// Serves the first part of the work for a message.
    func begin(_ message: Message, _ serve: @escaping Part) {
        count += 1
        let work = Begun(message: message, number: count, serve: serve)
        begun[ObjectIdentifier(message)] = work
        if isContinued { goOn(work) } else { finish(work) }
    }

    /// Whether a call was served in part.
    func hasBegun(_ message: Message) -> Bool {
        !begun.isEmpty && begun[ObjectIdentifier(message)] != nil
    }

    /// Serves the next part of a call that was begun.
    ///
    /// - Returns: false for another call.
    func goOn(_ message: Message) -> Bool {
        guard !begun.isEmpty, let work = begun[ObjectIdentifier(message)] else { return false }
        goOn(work)
        return true
    }

    /// Serves the remaining parts of all calls that were begun, because the service stops.
    ///
    /// - Returns: these calls.
    func finishAll() -> [Message] {
        let works = begun.values.sorted { $0.number < $1.number }
        for work in works { finish(work) }
        return works.map(\.message)
    }

    /// Adds to the number of posts taken.
    func notePosts(_ count: Int) { posts += count }

    /// Returns the number of posts taken since the last call of this method, minus one, which the served call counts as
    /// anyway.
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
