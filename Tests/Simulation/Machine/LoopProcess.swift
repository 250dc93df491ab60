// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A process with a main loop, which can be stopped, be slow, and die.
///
/// The loop is a real main context, so that sources are dispatched as GLib does it; it is iterated when something may be
/// ready there, and each iteration takes some virtual time.
final class LoopProcess: @unchecked Sendable {
    // Sendable: a simulation has one thread.
    let world: World
    let id: UInt32
    let name: String
    private(set) var context: MainContext!
    /// Stopped by a signal: it does nothing until it is continued. Its clock goes on.
    var isStopped = false {
        didSet { if !isStopped, isWakePending { wake() } }
    }
    /// Whether its clock goes on while it does something. Otherwise all of an iteration is one moment of it.
    var isClockRunning = false
    /// What its clock has shown, if that goes on.
    private var shown: Int64 = 0
    private var isIterating = false
    /// Whether it has read what nobody wrote so.
    var hasReadDamage = false
    /// How much slower than usual it is.
    var slowness: Int64 = 1
    /// Dead: nothing that it does from now on has any effect.
    private(set) var isDead = false
    /// Called when it has died, and nothing of it is running.
    var onDeath: (() -> Void)?
    /// Called after each iteration that did something.
    var onIteration: (() -> Void)?
    /// What can be seen from outside, until the process dies: sent messages, changes of files. Nil for any number.
    private var operationsLeft: Int?
    private var isWakePending = false
    private var nextRun: Int64?
    private var busyUntil: Int64 = 0
    private var cost: Int64 = 0
    private var isRunning = false

    /// An iteration, in microseconds.
    private static let iterationCost: Int64 = 10

    init(_ world: World, id: UInt32, name: String) {
        self.world = world
        self.id = id
        self.name = name
        context = MainContext(clock: Clock(self))
    }

    // MARK: Its clock

    /// What its context has of it, which it has itself: the two must not keep each other.
    private final class Clock: LoopClock, @unchecked Sendable {
        // Sendable: a simulation has one thread.
        private weak var process: LoopProcess?
        private var last: Int64 = 0

        init(_ process: LoopProcess) {
            self.process = process
        }

        var microseconds: Int64 {
            last = process?.microseconds ?? last
            return last
        }

        func expect(at microseconds: Int64) { process?.expect(at: microseconds) }
    }

    var microseconds: Int64 {
        guard isClockRunning else { return world.now }
        shown = max(shown, isIterating ? world.now + cost * slowness : max(world.now, busyUntil))
        return shown
    }

    func expect(at microseconds: Int64) {
        world.at(microseconds) { [weak self] in self?.wake() }
    }

    // MARK: Running

    /// Something may be ready.
    func wake() {
        guard !isDead else { return }
        guard !isStopped else { return isWakePending = true }
        let time = max(world.now, busyUntil)
        if let nextRun, nextRun <= time { return }
        nextRun = time
        world.at(time) { [weak self] in
            guard let self, nextRun == time else { return }
            nextRun = nil
            run()
        }
    }

    /// What is done right now takes so long.
    func spend(_ microseconds: Int64) {
        cost += microseconds
    }

    private func run() {
        guard !isDead else { return }
        guard !isStopped else { return isWakePending = true }
        isWakePending = false
        cost = Self.iterationCost
        isRunning = true
        isIterating = true
        let didSomething = context.iterate(mayBlock: false)
        isIterating = false
        isRunning = false
        guard !isDead else { return buried() }
        guard didSomething else { return }
        onIteration?()
        busyUntil = world.now + cost * slowness
        wake()
    }

    /// Runs what is no source of its loop, as a signal handler or its first lines are.
    func perform(_ body: () -> Void) {
        guard !isDead else { return }
        let wasRunning = isRunning
        isRunning = true
        body()
        isRunning = wasRunning
        if !isDead { wake() } else if !wasRunning { buried() }
    }

    // MARK: Dying

    /// Dies now, or, in the middle of something, when that is over; nothing has an effect from this moment.
    func kill() {
        guard !isDead else { return }
        isDead = true
        world.note("\(name) \(id) dies")
        if !isRunning { buried() }
    }

    /// Dies in the middle of the so-manieth thing from now that can be seen from outside.
    func kill(afterOperations count: Int) {
        operationsLeft = count
    }

    /// No death is due any more.
    func live() {
        operationsLeft = nil
    }

    /// Something that can be seen from outside is about to happen.
    ///
    /// - Returns: false when the process does not live to see it.
    func operate() -> Bool {
        guard !isDead else { return false }
        guard let left = operationsLeft else { return true }
        operationsLeft = left - 1
        guard left > 0 else {
            kill()
            return false
        }
        return true
    }

    private func buried() {
        let action = onDeath
        onDeath = nil
        onIteration = nil
        action?()
    }
}
