// SPDX-License-Identifier: Apache-2.0
import CCarillonSystem
import CarillonMainLoop

/// The return of unused memory to the system after a load (E4).
///
/// The C library returns memory by itself only at the top of the heap: one block in use there holds back all free
/// memory below it. The search for whole free pages takes milliseconds. It is therefore done in a quiet moment, and only
/// after 1,024 events or after 512 KiB of the bytes kept for clients were released. Exception: if no moment is quiet for
/// 2 s, and at least 16 MiB and half of the largest amount were released, it is done as soon as the loop is idle.
///
/// In a quiet moment after the first call, and after each load, it also releases mapped file pages (``UnusedPages``).
final class MemoryReturn {
    private let context: MainContext
    private var events = 0
    private var eventsSeen = 0
    private var maxHeld = 0
    private var held = 0
    private var timer: EventSource?
    private let releasePages: (() -> Void)?
    /// Called before memory is returned, so that tables release unused memory.
    var releaseMemory: (() -> Void)?
    /// The idle source that releases pages after start; set by the first call.
    private var firstRest: EventSource?

    private static let manyEvents = 1024
    /// The maximum of events within a ``pause`` that counts as quiet.
    private static let fewEvents = 64
    private static let manyBytes = 512 << 10
    /// The time between checks, in milliseconds.
    private static let pause: UInt32 = 500
    /// The number of pauses after which memory is returned under load, if ``muchBytes`` and half of the kept bytes were
    /// released.
    private static let maxPauses = 4
    private static let muchBytes = 16 << 20

    init(context: MainContext, releasePages: (() -> Void)?) {
        self.context = context
        self.releasePages = releasePages
    }

    /// Notes the end of an event of the core.
    func noteEvent(held: Int) {
        events += 1
        self.held = held
        maxHeld = max(maxHeld, held)
        guard timer == nil, events >= Self.manyEvents || maxHeld - held >= Self.manyBytes else { return }
        start()
    }

    /// Notes that a call was served. At the first call, for which the service was started, the memory of the start is
    /// no longer needed.
    func noteServing() {
        guard firstRest == nil, let releasePages else { return }
        // Done as soon as there is nothing else to do, so that no caller waits for it, and without a wake-up of its
        // own.
        firstRest = .idle(on: context, priority: .of(.queuedWhenIdle)) {
            releasePages()
            return .remove
        }
    }

    /// Notes that the state of an earlier process was read, which took memory.
    func noteReading() {
        if timer == nil { start() }
    }

    private func start(pauses: Int = 1) {
        eventsSeen = events
        timer = .once(milliseconds: Self.pause, on: context, priority: .of(.queuedWhenIdle)) { [unowned self] in
            let isQuiet = events - eventsSeen <= Self.fewEvents
            let isMuch = maxHeld - held >= max(Self.muchBytes, held)
            guard isQuiet || isMuch && pauses >= Self.maxPauses else {
                return start(pauses: min(pauses + 1, Self.maxPauses))
            }
            timer = nil
            events = 0
            maxHeld = held
            giveBack(isQuiet: isQuiet)
        }
    }

    private func giveBack(isQuiet: Bool) {
        releaseMemory?()
        #if canImport(Glibc)
            _ = malloc_trim(0)
        #endif
        // Under load the pages would be needed again at once.
        if isQuiet { releasePages?() }
    }
}
