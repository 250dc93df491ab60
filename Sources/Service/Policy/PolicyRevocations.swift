// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The revocation of registrations that a policy change forbids (P3).
///
/// A new policy is in force at once for all calls. Registrations are checked one client after the other, with other
/// work in between where they are many. Until its registrations are checked, an observer gets the same notifications as
/// before.
///
/// Threads: that of the loop.
final class PolicyRevocations {
    private unowned let driver: CenterDriver
    private let callers: Callers
    private let gate: PolicyGate
    /// The clients whose registrations are to be checked, each once. A waiting client keeps its position when policy
    /// changes again, so that every client is reached, however often policy changes.
    private var line = Deque<UniqueName>()
    private var waiting: Set<UniqueName> = []
    /// The client that is being checked, with its registrations that are still to be checked.
    private var current: (client: UniqueName, rest: ArraySlice<Registration>)?
    /// Whether a call that waits for the end has continued the work since the source's last dispatch.
    private var hasCallGoneOn = false
    private var source: ReadySource!
    /// The maximum of registrations that are checked at once, each of which may have to be removed.
    private static let maxAtOnce = 1024

    /// - Parameter driver: the driver of the core; the caller keeps it.
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

    /// Releases the memory of entries of checked clients (E8).
    func releaseMemory() { waiting.releaseMemory() }

    /// Whether some clients may still have forbidden registrations.
    var isPending: Bool { current != nil || !line.isEmpty }

    /// Starts the revocation after a policy change. Small amounts of work are finished when this returns.
    func begin() {
        let isUnderWay = isPending
        for client in driver.center.clientStatuses where waiting.insert(client.name).inserted {
            line.append(client.name)
        }
        // Repeated policy changes get no more work done than the source's dispatches.
        if !isUnderWay { goOn() }
    }

    /// Checks up to ``maxAtOnce`` registrations.
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
                // Nothing is looked up for clients without policy.
                guard callers[client] != nil, !gate.isFree(client) else { continue }
                current = driver.center.registrations(of: client).map { (client, $0[...]) }
            } else {
                return
            }
        }
    }

    /// Continues as part of serving a call, which is answered when the revocation has ended.
    func serve(_ call: MethodCall, by parts: CallsInParts) {
        parts.begin(call) { [unowned self] _ in
            goOn()
            hasCallGoneOn = true
            guard !isPending else { return false }
            call.reply()
            return true
        }
    }

    /// Revokes the registrations of one client, whose process has just become known.
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
