// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The observer of the screen lock and the screen savers on the bus. While the screen is locked, the user sees no
/// window, so ``ActivityMonitor`` then treats no window as active.
///
/// Screen savers report their state with the signal ActiveChanged. The name of its interface depends on the desktop and
/// is also the well-known name of the screen saver. Only the owner of that name is trusted.
final class ScreenLock {
    /// The names of screen savers on the bus, which are also their interfaces.
    static let names: [WellKnownName] = [
        "org.freedesktop.ScreenSaver", "org.gnome.ScreenSaver", "org.xfce.ScreenSaver", "org.mate.ScreenSaver",
        "org.cinnamon.ScreenSaver",
    ]

    /// Whether any screen saver is active.
    private(set) var isLocked = false
    /// Called after a change of ``isLocked``.
    var onChange: ((Bool) -> Void)?

    private unowned let bus: any MessageBus
    private var isStarted = false
    /// The screen savers that are on the bus.
    private var owners: [WellKnownName: UniqueName] = [:]
    /// The screen savers that report to be active.
    private var active: Set<WellKnownName> = []

    /// - Parameter bus: The bus, which outlives this object.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Starts watching; later calls have no effect.
    func start() {
        guard !isStarted else { return }
        isStarted = true
        for name in Self.names {
            bus.addMatch(OwnerChange.matchRule(for: name))
            bus.addMatch("type='signal',sender='\(name)',interface='\(name)',member='ActiveChanged'")
            bus.nameOwner(of: name) { [weak self] result in
                if case .success(let owner) = result { self?.appeared(name, owner) }
            }
        }
    }

    /// Records a screen saver on the bus, and asks for its state.
    private func appeared(_ name: WellKnownName, _ owner: UniqueName) {
        owners[name] = owner
        guard let path = ObjectPath(rawValue: "/" + name.rawValue.split(separator: ".").joined(separator: "/")),
            let interface = InterfaceName(rawValue: name.rawValue)
        else { return }
        bus.call(.methodCall(to: owner, path: path, interface: interface, member: "GetActive", startsService: false)) {
            [weak self] result in
            guard let self, owners[name] == owner, case .success(let reply) = result else { return }
            var reader = MessageReader(reply)
            if let isActive = try? reader.read(Bool.self) { set(name, isActive) }
        }
    }

    /// Handles a change of a name's owner: a screen saver that left is not active any more.
    func ownerChanged(_ change: OwnerChange) {
        for name in Self.names where change.concerns(name) && change.newOwner != owners[name] {
            owners[name] = nil
            set(name, false)
            if let owner = change.newOwner { appeared(name, owner) }
        }
    }

    /// Handles a signal of a screen saver. Returns whether it was one.
    func handle(_ message: Message) -> Bool {
        guard message.kind == .signal, message.hasMember("ActiveChanged"), let sender = message.sender,
            let name = Self.names.first(where: { message.interface?.rawValue == $0.rawValue })
        else { return false }
        var reader = MessageReader(message)
        if owners[name] == sender, let isActive = try? reader.read(Bool.self) { set(name, isActive) }
        return true
    }

    private func set(_ name: WellKnownName, _ isActive: Bool) {
        if isActive { active.insert(name) } else { active.remove(name) }
        guard isLocked == active.isEmpty else { return }
        isLocked = !active.isEmpty
        onChange?(isLocked)
    }
}
