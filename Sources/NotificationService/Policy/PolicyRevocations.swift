// SPDX-License-Identifier: Apache-2.0
import BusNames
import Collections
import MainLoop
import NotificationCore

/// Takes from clients what they registered before policy forbade it (P3).
///
/// New policy is in force at once for whoever asks for something. What clients have is gone through one client after the
/// other, and where that is much, others are served in between: until it is a client's turn it gets what it got before.
///
/// Threads: that of the loop.
final class PolicyRevocations {
    private unowned let driver: CenterDriver
    private let callers: Callers
    private let gate: PolicyGate
    /// Those whose registrations are to be looked at, each once. One that waits keeps its place when policy changes again, so
    /// that all have their turn, however often it does.
    private var line = Deque<UniqueName>()
    private var waiting: Set<UniqueName> = []
    private var source: ReadySource!
    /// Registrations that are looked at in one turn, unless a single client has more.
    private static let maxAtOnce = 4096

    /// - Parameter driver: the caller keeps it.
    init(of driver: CenterDriver, callers: Callers, gate: PolicyGate) {
        self.driver = driver
        self.callers = callers
        self.gate = gate
        source = ReadySource(
            on: driver.context, priority: .of(.reading), isReady: { [unowned self] in isPending },
            run: { [unowned self] in goOn() })
    }

    /// Whether somebody may still have what policy does not allow.
    var isPending: Bool { !line.isEmpty }

    /// Policy has changed. Where that concerns little, all of it is done when this returns.
    func begin() {
        let isUnderWay = isPending
        for client in driver.center.clientStatuses where waiting.insert(client.name).inserted {
            line.append(client.name)
        }
        // Whoever has it changed again and again gets no more than its turns.
        if !isUnderWay { goOn() }
    }

    /// Does some of it.
    func goOn() {
        var left = Self.maxAtOnce
        while left > 0, let client = line.popFirst() {
            waiting.remove(client)
            left -= 1
            if callers[client] != nil { left -= revoke(of: client) }
        }
    }

    /// Does it for one client.
    ///
    /// - Returns: how many registrations that has, if they had to be looked at.
    @discardableResult
    func revoke(of client: UniqueName) -> Int {
        guard !gate.isFree(client), let registrations = driver.center.registrations(of: client) else { return 0 }
        let forbidden = gate.forbidden(registrations, of: client)
        if !forbidden.isEmpty {
            driver.perform { effects in driver.center.revoke(forbidden, of: client, effects: &effects) }
        }
        return registrations.count
    }
}
