// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The removal of registrations that a policy change forbids (P3).
///
/// A new policy is in force at once for all calls. The existing registrations are checked client by client, at most
/// ``maxAtOnce`` in one iteration of the loop, so that other work continues. Until its registration is checked, an
/// observer gets the same notifications as before. ``CenterObject`` begins the work at each change, and checks single
/// clients when they are identified.
///
/// Threads: that of the loop.
final class PolicyRevocations {
    private unowned let driver: CenterDriver
    /// Shows which clients are identified.
    private let callers: Callers
    private let gate: PolicyGate
    /// The queue of clients whose registrations are to be checked, each once. A queued client keeps its position when
    /// policy changes again. Thus each client is reached, however often policy changes.
    private var clientQueue = Deque<UniqueName>()
    /// The clients in the queue.
    private var waiting: Set<UniqueName> = []
    /// The client that is being checked, with its registrations that are still to be checked.
    private var current: (client: UniqueName, rest: ArraySlice<Registration>)?
    /// Whether a waiting `ReloadConfiguration` call has continued the work since the event source last ran. The source
    /// then skips one run, so that both together do the work of one.
    private var hasCallContinued = false
    /// The event source that continues the work.
    private var source: ReadySource!
    /// The maximum number of registrations that are checked at once. Each of them may have to be removed.
    private static let maxAtOnce = 1024

    /// - Parameter driver: the driver of the core; the caller keeps it.
    init(of driver: CenterDriver, callers: Callers, gate: PolicyGate) {
        self.driver = driver
        self.callers = callers
        self.gate = gate
        source = ReadySource(
            on: driver.context, priority: .of(.reading), isReady: { [unowned self] in isPending },
            run: { [unowned self] in
                if !hasCallContinued { checkMore() }
                hasCallContinued = false
            })
    }

    /// Releases the memory of entries of checked clients (E8).
    func releaseMemory() { waiting.releaseMemory() }

    /// Whether some clients may still have forbidden registrations.
    var isPending: Bool { current != nil || !clientQueue.isEmpty }

    /// Starts the check of all clients after a policy change. The first part of it is done when this returns.
    func begin() {
        let isUnderWay = isPending
        for client in driver.center.clientStatuses where waiting.insert(client.name).inserted {
            clientQueue.append(client.name)
        }
        // Work that is under way continues only with the event source, so repeated policy changes cannot speed it up.
        if !isUnderWay { checkMore() }
    }

    /// Checks up to ``maxAtOnce`` registrations. A client counts as one more.
    private func checkMore() {
        var left = Self.maxAtOnce
        while left > 0 {
            if let (client, rest) = current {
                let some = rest.prefix(left)
                current = some.count < rest.count ? (client, rest.dropFirst(left)) : nil
                left -= some.count
                revoke(some, of: client)
            } else if let client = clientQueue.popFirst() {
                waiting.remove(client)
                left -= 1
                // Clients that are not identified yet are checked when they are.
                guard callers[client] != nil, !gate.isFree(client) else { continue }
                current = driver.center.registrations(of: client).map { (client, $0[...]) }
            } else {
                return
            }
        }
    }

    /// Continues the work in slices of a `ReloadConfiguration` call, which gets its reply when all clients are checked.
    func serve(_ call: MethodCall, by parts: SlicedCalls) {
        parts.begin(call) { [unowned self] _ in
            checkMore()
            hasCallContinued = true
            guard !isPending else { return false }
            call.reply()
            return true
        }
    }

    /// Checks all registrations of one client, which has just been identified.
    func revoke(of client: UniqueName) {
        guard !gate.isFree(client), let registrations = driver.center.registrations(of: client) else { return }
        revoke(registrations[...], of: client)
    }

    /// Removes those registrations that policy forbids.
    private func revoke(_ registrations: ArraySlice<Registration>, of client: UniqueName) {
        let forbidden = gate.forbidden(registrations, of: client)
        guard !forbidden.isEmpty else { return }
        driver.perform { effects in driver.center.revoke(forbidden, of: client, effects: &effects) }
    }
}
