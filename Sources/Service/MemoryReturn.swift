// SPDX-License-Identifier: Apache-2.0
import CCarillonSystem
import CarillonMainLoop

/// Gives the memory that a load needed back to the system when the load has ended (E4).
///
/// The C library keeps what was freed for later allocations, all of it when something that is still used lies above.
/// Looking for whole pages takes milliseconds, so that is done in a quiet moment, and only after something that may have
/// left many: a long row of events, or much that was kept and is not any more. Where there is no quiet moment within two
/// seconds, and so much of the latter that it pays, any moment will do in which the loop has nothing else to do.
///
/// Behind the first call, and then behind each load, it also lets go of what is mapped of files (``UnusedPages``).
final class MemoryReturn {
    private let context: MainContext
    private var events = 0
    private var eventsSeen = 0
    private var maxHeld = 0
    private var held = 0
    private var timer: EventSource?
    private let letGoOfPages: (() -> Void)?
    /// Called before memory is given back: has tables give up what they keep of what is gone.
    var releaseRoom: (() -> Void)?
    /// Set by the first call.
    private var firstRest: EventSource?

    private static let manyEvents = 1024
    /// Events in a ``pause`` that are no load.
    private static let fewEvents = 64
    private static let manyBytes = 512 << 10
    /// In milliseconds.
    private static let pause: UInt32 = 500
    /// After so many pauses a load is no reason to wait where ``muchBytes``, and half of what was kept, are kept no more.
    private static let maxPauses = 4
    private static let muchBytes = 16 << 20

    init(context: MainContext, letGoOfPages: (() -> Void)?) {
        self.context = context
        self.letGoOfPages = letGoOfPages
    }

    /// An event of the core has ended, after which so many bytes are kept for clients.
    func noteEvent(held: Int) {
        events += 1
        self.held = held
        maxHeld = max(maxHeld, held)
        guard timer == nil, events >= Self.manyEvents || maxHeld - held >= Self.manyBytes else { return }
        start()
    }

    /// A call was served: the first is the one that the service was started for, and what starting took is not needed any
    /// more.
    func noteServing() {
        guard firstRest == nil, let letGoOfPages else { return }
        // As soon as there is nothing else to do, so that nobody waits for it, and without a wake-up of its own.
        firstRest = .idle(on: context, priority: .of(.queuedWhenIdle)) {
            letGoOfPages()
            return .remove
        }
    }

    /// Much was read and not kept: the state of an earlier process.
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
        releaseRoom?()
        #if canImport(Glibc)
            _ = malloc_trim(0)
        #endif
        // Under load they would be needed again at once.
        if isQuiet { letGoOfPages?() }
    }
}
