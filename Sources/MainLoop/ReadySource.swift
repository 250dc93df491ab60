// SPDX-License-Identifier: Apache-2.0
/// A source without descriptors that runs a closure when a condition holds. The service's queues use it.
///
/// The loop checks the condition before it waits. The source checks it again before it runs the closure, because more
/// urgent sources may have changed it in between. A nested loop inside the closure does not run the closure again.
///
/// Threads: used and destroyed only on the thread that runs the context.
package final class ReadySource {
    private let source: AttachedSource

    /// - Parameters:
    ///   - context: the context whose thread calls both closures.
    ///   - priority: the priority among the sources of the context.
    ///   - isReady: the condition. It must be quick, and must not change anything.
    ///   - run: the closure, called at most once in an iteration of the loop.
    package init(
        on context: MainContext, priority: EventSource.Priority, isReady: @escaping () -> Bool,
        run: @escaping () -> Void
    ) {
        source = AttachedSource(Condition(isReady, run), on: context, priority: priority, canRecurse: true)
    }
}

/// The state of a ``ReadySource``, which GLib's source holds.
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
