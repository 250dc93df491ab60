// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The source for a desktop that reports over the bus, the base class of ``KWinSource`` and ``GNOMEShellSource``.
///
/// The desktop is the owner of a well-known name. The source is lost when this owner leaves the bus, or another process
/// replaces it.
class ReportedSource: ActivitySource {
    var onEvent: ((ActivityEvent) -> Void)?
    var watchesVisibility = false

    let bus: any MessageBus
    private let peer: WellKnownName
    /// The desktop's unique name, once it is known.
    private(set) var owner: UniqueName?
    private let matchRule: String

    init(peer: WellKnownName, bus: any MessageBus) {
        self.peer = peer
        self.bus = bus
        matchRule = OwnerChange.matchRule(for: peer)
    }

    deinit {
        bus.removeMatch(matchRule)
    }

    func start() {
        bus.addMatch(matchRule)
        bus.nameOwner(of: peer) { [weak self] result in
            guard let self else { return }
            guard case .success(let owner) = result else { return end("\(peer) is not on the bus") }
            self.owner = owner
            bus.processID(of: owner) { [weak self] result in
                if case .success(let processID) = result, processID > 0 { self?.onEvent?(.compositor(processID)) }
                self?.desktopFound()
            }
        }
    }

    /// Called when the desktop was found, and may report from now on.
    func desktopFound() {}

    func askForSign() {}

    func accepts(from sender: UniqueName) -> Bool { sender == owner }

    /// Handles a change of a name's owner.
    func ownerChanged(_ change: OwnerChange) {
        guard change.concerns(peer), let owner, change.newOwner != owner else { return }
        end("\(peer) left the bus")
    }

    func end(_ reason: String) {
        owner = nil
        onEvent?(.ended(reason: reason))
    }
}
