// SPDX-License-Identifier: Apache-2.0
import BusNames
import Collections
import DBus
import DesktopActivity
import MainLoop
import NotificationCore

/// Who is behind the connections that call, as the bus verified it.
///
/// Nobody is served before that is known: it decides who pays for what a call makes the service hold (E4). The bus is
/// asked over the control connection, where its answer does not wait behind all that callers send. What arrives
/// meanwhile waits, whoever sent it, so that the bus's order stays what it was (D4, S5). What waits is bounded by what
/// the connection may have received.
final class Callers {
    final class Caller {
        /// 0 when the bus does not know it, as it left before it was asked.
        let processID: UInt32
        fileprivate let name: UniqueName
        /// Whether it runs in the sandbox of an application.
        let confinement: Confinement
        /// Whether the bus could not be asked.
        fileprivate let isProvisional: Bool
        /// Who pays for it.
        let account: AccountID
        /// The same for those who ask (P1), read at once: it may be a command that has ended a moment later.
        let identity: Identity

        /// - Parameter asked: when its first call had come, as `table` tells the present.
        fileprivate init(
            _ credentials: ConnectionCredentials, of name: UniqueName, isProvisional: Bool, table: any ProcessTable,
            asked: UInt64
        ) {
            self.isProvisional = isProvisional
            self.name = name
            processID = credentials.processID
            confinement = processID > 0 ? table.confinement(of: processID) : .unknown
            let description = processID > 0 ? table.description(of: processID, startedBy: asked) : nil
            identity = Identity(
                userID: credentials.userID, processID: processID > 0 ? processID : nil,
                process: Self.checked(description?.name),
                application: Self.checked(confinement.sandbox ?? description?.application),
                sandbox: Self.checked(confinement.sandbox), unit: Self.checked(description?.unit))
            account =
                if let sandbox = confinement.sandbox {
                    .sandbox(sandbox)
                } else if processID > 0 {
                    .process(processID)
                } else {
                    credentials.userID.map(AccountID.user) ?? .connection(name)
                }
        }

        /// What is no name is none: nothing, or what no signal could carry, or what somebody made up to be long.
        private static func checked(_ text: String?) -> String? {
            text.flatMap { $0.isEmpty || $0.utf8.count > 255 || $0.utf8.contains(0) ? nil : $0 }
        }

        /// Nil when the bus does not know it.
        var userID: UInt32? { identity.userID }
        /// The id of its application, as its desktop file is named; nil where nothing tells.
        var application: String? { identity.application }

        /// The application in whose sandbox it runs; nil where it is in none, or nothing tells.
        var sandbox: String? { confinement.sandbox }
    }

    private unowned let bus: any MessageBus
    /// Where the bus is asked; by default on the connection that is served.
    weak var control: (any MessageBus)?
    /// Where the bus answers soonest.
    var way: any MessageBus { control ?? bus }
    private let table: any ProcessTable
    /// Called when it is known who is behind a connection, before its first call is served.
    var onKnown: ((UniqueName, Caller) -> Void)!
    /// Gets what had to wait.
    var handle: ((Message) -> Void)!
    private var callers: [UniqueName: Caller] = [:]
    /// That of them that was looked up last: messages come in rows.
    private var last: Caller?
    /// Since when.
    private var asked: [UniqueName: UInt64] = [:]
    private var departed = Departed()
    /// In the order of their arrival, with the caller of a call.
    private var waiting = Deque<(message: Message, caller: UniqueName?)>()

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus, table: any ProcessTable) {
        self.bus = bus
        self.table = table
    }

    subscript(name: UniqueName) -> Caller? {
        if let last, last.name == name { return last }
        guard let caller = callers[name] else { return nil }
        last = caller
        return caller
    }

    /// Whether a message that arrived may be handled now. Otherwise it is kept, and given to ``handle`` in its turn.
    func admit(_ message: Message) -> Bool {
        // What has descriptors is refused in any case, and they are not kept open for that.
        guard !message.hasDescriptors else { return true }
        let caller = message.kind == .methodCall ? message.sender : nil
        let isKnown = caller.map(isKnown) ?? true
        if isKnown, !isAnythingWaiting { return true }
        isAnythingWaiting = true
        waiting.append((message, caller))
        return false
    }

    /// Whether something arrived that was not handled yet.
    private(set) var isAnythingWaiting = false

    /// Finds out who is behind a connection that has not called, as an earlier process knew it.
    func identify(_ name: UniqueName) {
        _ = isKnown(name)
    }

    /// Asks where it is not.
    private func isKnown(_ name: UniqueName) -> Bool {
        if let caller = self[name] {
            if caller.isProvisional { ask(about: name) }
            return true
        }
        ask(about: name)
        return false
    }

    private func ask(about name: UniqueName) {
        guard asked[name] == nil else { return }
        asked[name] = table.now
        way.credentials(of: name) { [weak self] result in
            switch result {
            case .success(let credentials): self?.learned(credentials, of: name)
            // The bus had no room for the question or the answer. Served as one of whom nothing is known, it is asked
            // about again with its next call.
            case .failure(let error):
                self?.learned(
                    ConnectionCredentials(), of: name, isProvisional: error.name != BusError.nameHasNoOwnerName)
            }
        }
    }

    /// What is known of who is behind a connection; of one that has left, for a minute.
    func identity(of name: UniqueName) -> Identity? {
        self[name]?.identity ?? departed.identity(of: name, at: bus.context.now)
    }

    /// Nothing of the connection is left.
    func forget(_ name: UniqueName) {
        if let caller = callers.removeValue(forKey: name) {
            departed.append(name, caller.identity, at: bus.context.now)
        }
        last = nil
    }

    private func learned(
        _ credentials: ConnectionCredentials, of name: UniqueName, isProvisional: Bool = false
    ) {
        let since = asked.removeValue(forKey: name) ?? table.now
        let caller = Caller(credentials, of: name, isProvisional: isProvisional, table: table, asked: since)
        callers[name] = caller
        last = nil
        onKnown(name, caller)
        while let (message, caller) = waiting.first, caller.map(isKnown) ?? true {
            waiting.popFirst()
            isAnythingWaiting = !waiting.isEmpty
            handle(message)
        }
    }
}

/// Who was behind connections that are gone, so many of them, and for so long (P1). What is too old goes with the next one.
private struct Departed {
    typealias Instant = SuspendingClock.Instant

    private static let most = 1024
    private static let time = Duration.seconds(60)

    private var identities: [UniqueName: Identity] = [:]
    /// The oldest first.
    private var order = Deque<(name: UniqueName, since: Instant)>()

    mutating func append(_ name: UniqueName, _ identity: Identity, at now: Instant) {
        guard identities.updateValue(identity, forKey: name) == nil else { return }
        order.append((name, now))
        while let oldest = order.first, order.count > Self.most || oldest.since + Self.time < now {
            _ = order.popFirst()
            identities[oldest.name] = nil
        }
    }

    mutating func identity(of name: UniqueName, at now: Instant) -> Identity? {
        while let oldest = order.first, oldest.since + Self.time < now {
            _ = order.popFirst()
            identities[oldest.name] = nil
        }
        return identities[name]
    }
}
