// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// An activity source whose desktop reports over D-Bus: the base class of ``KWinSource`` and ``GNOMEShellSource``.
///
/// The desktop is the owner of a well-known name, `peer`. ``ActivityReports`` receives its reports and passes them to
/// ``onEvent``. The source ends when this owner leaves the bus, or another process replaces it.
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

    /// Called when the desktop was found, and may report from now on. Subclasses request the reports here.
    func desktopFound() {}

    /// Asks the desktop for an answer. Subclasses implement it.
    func requestAnswer() {}

    /// Whether `sender` is the desktop, so that its report is accepted.
    func accepts(from sender: UniqueName) -> Bool { sender == owner }

    /// Handles a change of a name's owner.
    func ownerChanged(_ change: OwnerChange) {
        guard change.concerns(peer), let owner, change.newOwner != owner else { return }
        end("\(peer) left the bus")
    }

    /// Reports the failure of the source.
    func end(_ reason: String) {
        owner = nil
        onEvent?(.ended(reason: reason))
    }
}
