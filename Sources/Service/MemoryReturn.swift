// SPDX-License-Identifier: Apache-2.0
import CCarillonSystem
import CarillonMainLoop

/// The return of freed heap memory to the system after a load (E4). ``CenterDriver`` reports events to it.
///
/// The C library returns memory by itself only at the top of the heap, so one used block there keeps all free memory
/// below it. `malloc_trim` finds whole free pages anywhere, but takes milliseconds. The rules are therefore:
///
/// - It is due after 1,024 events, or after the bytes that the core keeps for clients fell by 512 KiB.
/// - It runs at the next check, every 500 ms, that finds the service quiet: at most 64 events since the last check.
/// - After 2 s without a quiet check it runs under load. The condition is that those bytes fell by at least 16 MiB, and
///   to at most half of their maximum.
///
/// A quiet moment also releases mapped file pages (``UnusedPages``), after a load and after the first call.
final class MemoryReturn {
    private let context: MainContext
    /// The number of events since memory was last returned.
    private var events = 0
    /// The value of ``events`` at the last check.
    private var eventsSeen = 0
    /// The maximum of ``held`` since memory was last returned, in bytes.
    private var maxHeld = 0
    /// The bytes that the core keeps for clients now.
    private var held = 0
    /// The timer of the next check; nil while nothing is due.
    private var timer: EventSource?
    /// Releases mapped file pages; nil in a simulation.
    private let releasePages: (() -> Void)?
    /// Called before memory is returned, so that tables free their unused capacity.
    var releaseMemory: (() -> Void)?
    /// The idle source that releases file pages after the first call; nil before that call.
    private var startPagesSource: EventSource?

    /// The number of events after which memory is to be returned.
    private static let manyEvents = 1024
    /// The maximum number of events in a ``pause`` that counts as quiet.
    private static let fewEvents = 64
    /// The number of freed bytes after which memory is to be returned.
    private static let manyBytes = 512 << 10
    /// The time between checks, in milliseconds.
    private static let pause: UInt32 = 500
    /// The number of pauses after which memory is returned under load.
    private static let maxPauses = 4
    /// The number of freed bytes that justifies the return under load.
    private static let muchBytes = 16 << 20

    init(context: MainContext, releasePages: (() -> Void)?) {
        self.context = context
        self.releasePages = releasePages
    }

    /// Notes the end of an event of the core.
    ///
    /// - Parameter held: the bytes that the core keeps for clients now.
    func noteEvent(held: Int) {
        events += 1
        self.held = held
        maxHeld = max(maxHeld, held)
        guard timer == nil, events >= Self.manyEvents || maxHeld - held >= Self.manyBytes else { return }
        start()
    }

    /// Notes that a call is served. The first call, for which the bus may have started the service, schedules the
    /// release of file pages that only the start needed.
    func noteServing() {
        guard startPagesSource == nil, let releasePages else { return }
        // An idle source runs when nothing else is ready, so no caller waits for it, and no timer wakes the process.
        startPagesSource = .idle(on: context, priority: .of(.queuedWhenIdle)) {
            releasePages()
            return .remove
        }
    }

    /// Notes that the state of an earlier process was read. Reading uses much memory for a short time.
    func noteReading() {
        if timer == nil { start() }
    }

    /// Starts the timer of the next check.
    ///
    /// - Parameter pauses: the number of pauses since memory was due to be returned, including this one.
    private func start(pauses: Int = 1) {
        eventsSeen = events
        timer = .once(milliseconds: Self.pause, on: context, priority: .of(.queuedWhenIdle)) { [unowned self] in
            let isQuiet = events - eventsSeen <= Self.fewEvents
            // The second condition is that at most half of the maximum is held now.
            let isMuch = maxHeld - held >= max(Self.muchBytes, held)
            guard isQuiet || isMuch && pauses >= Self.maxPauses else {
                return start(pauses: min(pauses + 1, Self.maxPauses))
            }
            timer = nil
            events = 0
            maxHeld = held
            returnMemory(isQuiet: isQuiet)
        }
    }

    private func returnMemory(isQuiet: Bool) {
        releaseMemory?()
        #if canImport(Glibc)
            _ = malloc_trim(0)
        #endif
        // Under load the file pages would be needed again at once.
        if isQuiet { releasePages?() }
    }
}
