// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Takes from clients what they registered before policy forbade it (P3).
///
/// New policy is in force at once for all calls. Registrations are gone through one client after the other, and where they are
/// many, others are served in between: until its turn an observer gets the same as before.
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
    /// Whose turn it is, with those of its registrations that were not looked at.
    private var current: (client: UniqueName, rest: ArraySlice<Registration>)?
    /// Whether a call that waits for the end has used its turn to go on since the source's last.
    private var hasCallGoneOn = false
    private var source: ReadySource!
    /// Registrations that are looked at in one turn, each of which may have to be removed.
    private static let maxAtOnce = 1024

    /// - Parameter driver: the caller keeps it.
    init(of driver: CenterDriver, callers: Callers, gate: PolicyGate) {
        self.driver = driver
        self.callers = callers
        self.gate = gate
        source = ReadySource(
            on: driver.context, priority: .of(.reading), isReady: { [unowned self] in isPending },
            run: { [unowned self] in
                if !hasCallGoneOn { goOn() }
                hasCallGoneOn = false
            })
    }

    /// Gives up what is kept of clients that were looked at (E8).
    func releaseRoom() { waiting.releaseRoom() }

    /// Whether somebody may still have what policy does not allow.
    var isPending: Bool { current != nil || !line.isEmpty }

    /// Policy has changed. Where that concerns little, all of it is done when this returns.
    func begin() {
        let isUnderWay = isPending
        for client in driver.center.clientStatuses where waiting.insert(client.name).inserted {
            line.append(client.name)
        }
        // Changes without end get no more than these turns.
        if !isUnderWay { goOn() }
    }

    /// Does some of it.
    private func goOn() {
        var left = Self.maxAtOnce
        while left > 0 {
            if let (client, rest) = current {
                let some = rest.prefix(left)
                current = some.count < rest.count ? (client, rest.dropFirst(left)) : nil
                left -= some.count
                revoke(some, of: client)
            } else if let client = line.popFirst() {
                waiting.remove(client)
                left -= 1
                // Nothing is looked up for those whom no policy concerns.
                guard callers[client] != nil, !gate.isFree(client) else { continue }
                current = driver.center.registrations(of: client).map { (client, $0[...]) }
            } else {
                return
            }
        }
    }

    /// Goes on in the turns of a call that is answered when all is done.
    func serve(_ call: MethodCall, by parts: CallsInParts) {
        parts.begin(call) { [unowned self] _ in
            goOn()
            hasCallGoneOn = true
            guard !isPending else { return false }
            call.reply()
            return true
        }
    }

    /// Does it for one client, whose process has just become known.
    func revoke(of client: UniqueName) {
        guard !gate.isFree(client), let registrations = driver.center.registrations(of: client) else { return }
        revoke(registrations[...], of: client)
    }

    private func revoke(_ registrations: ArraySlice<Registration>, of client: UniqueName) {
        let forbidden = gate.forbidden(registrations, of: client)
        guard !forbidden.isEmpty else { return }
        driver.perform { effects in driver.center.revoke(forbidden, of: client, effects: &effects) }
    }
}
