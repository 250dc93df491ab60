// SPDX-License-Identifier: Apache-2.0
import MainLoop

/// A source without descriptors that runs when a condition holds.
final class ReadySource: PolledSourceDelegate {
    private let isReady: () -> Bool
    private let run: () -> Void
    private var source: PolledSource!

    init(
        on context: MainContext, priority: EventSource.Priority, isReady: @escaping () -> Bool,
        run: @escaping () -> Void
    ) {
        self.isReady = isReady
        self.run = run
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    func hasPendingWork() -> Bool { isReady() }

    func dispatch() { run() }
}
