// SPDX-License-Identifier: Apache-2.0
/// A source without descriptors that runs when a condition holds, which is asked before each wait, and again before it runs:
/// more urgent sources may have had their turns between, and have changed something.
///
/// A loop inside of what it runs does not run it again.
///
/// Threads: used and destroyed only on the thread that runs the context.
package final class ReadySource {
    private let source: AttachedSource

    /// - Parameters:
    ///   - context: whose thread calls both.
    ///   - priority: among the sources of the context.
    ///   - isReady: the condition. It has to be quick, and changes nothing.
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
