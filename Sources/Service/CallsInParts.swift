// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// Calls that are served part by part, as all of one would be more than one event may do (E4, E8): others have their turns
/// in between.
///
/// Until the last part a call counts as waiting; what the caller sends behind it waits as well (`CallQueue`).
final class CallsInParts {
    /// Serves a part of a call, and answers it with the last. Returns whether that was the last.
    typealias Part = (WorkSlice) -> Bool

    private struct Begun {
        let message: Message
        /// The place among all that were begun.
        let number: Int
        let serve: Part
    }

    private unowned let driver: CenterDriver
    /// By the call's message, which lives as long.
    private var begun: [ObjectIdentifier: Begun] = [:]
    private var count = 0
    /// Posts that were taken since somebody asked.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var posts = 0
    /// Whether somebody goes on with what has been begun: otherwise nothing is left over.
    var isContinued = false

    init(driver: CenterDriver) {
        self.driver = driver
    }

    /// Serves the first part of a call.
    func begin(_ call: MethodCall, _ serve: @escaping Part) { begin(call.message, serve) }

    /// Serves the first part of what a message brought.
    func begin(_ message: Message, _ serve: @escaping Part) {
        count += 1
        let work = Begun(message: message, number: count, serve: serve)
        begun[ObjectIdentifier(message)] = work
        if isContinued { goOn(work) } else { finish(work) }
    }

    /// Whether some parts of a call were served, and not all.
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

    /// Serves the calls that were begun to their ends: there will be no later.
    ///
    /// - Returns: these calls.
    func finishAll() -> [Message] {
        let works = begun.values.sorted { $0.number < $1.number }
        for work in works { finish(work) }
        return works.map(\.message)
    }

    /// Posts were taken.
    func notePosts(_ count: Int) { posts += count }

    /// How many posts were taken since the last time, besides the one that each call has that is no call of many.
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
