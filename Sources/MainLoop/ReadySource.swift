// SPDX-License-Identifier: Apache-2.0
/// A source without descriptors that runs when a condition holds. The condition is checked before each wait, and again
/// before the run, because more urgent sources may have run in between and changed it.
///
/// A nested loop inside the run does not run it again.
///
/// Threads: used and destroyed only on the thread that runs the context.
package final class ReadySource {
    private let source: AttachedSource

    /// - Parameters:
    ///   - context: the context whose thread calls both closures.
    ///   - priority: the priority among the sources of the context.
    ///   - isReady: the condition. It must be quick, and must not change anything.
    ///   - run: called once in a turn of the loop.
    package init(
        on context: MainContext, priority: EventSource.Priority, isReady: @escaping () -> Bool,
        run: @escaping () -> Void
    ) {
        source = AttachedSource(Condition(isReady, run), on: context, priority: priority, canRecurse: true)
    }
}

private final class Condition: SourceHandler {
    private let isReady: () -> Bool
    private let run: () -> Void
    private var isRunning = false

    init(_ isReady: @escaping () -> Bool, _ run: @escaping () -> Void) {
        self.isReady = isReady
        self.run = run
    }

    func prepare(_ source: Source) -> SourceReadiness { !isRunning && isReady() ? .ready : .waiting }

    func dispatch(_ source: Source) -> Bool {
        guard !isRunning, isReady() else { return true }
        isRunning = true
        run()
        isRunning = false
        return true
    }
}
