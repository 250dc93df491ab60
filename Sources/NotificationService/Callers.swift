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
        /// Nil when the bus does not know it.
        let userID: UInt32?
        /// Whether it runs in the sandbox of an application.
        let confinement: Confinement
        private let table: any ProcessTable
        /// Whether the bus could not be asked.
        fileprivate let isProvisional: Bool
        /// Who pays for it.
        let account: AccountID
        /// The id of its application, as its desktop file is named; nil where nothing tells. Looked up when it is wanted.
        private(set) lazy var application: String? = processID > 0 ? table.application(of: processID) : nil

        fileprivate init(
            _ credentials: ConnectionCredentials, of name: UniqueName, isProvisional: Bool, table: any ProcessTable
        ) {
            self.isProvisional = isProvisional
            self.name = name
            processID = credentials.processID
            userID = credentials.userID
            confinement = processID > 0 ? table.confinement(of: processID) : .unknown
            account =
                if let sandbox = confinement.sandbox {
                    .sandbox(sandbox)
                } else if processID > 0 {
                    .process(processID)
                } else {
                    userID.map(AccountID.user) ?? .connection(name)
                }
            self.table = table
        }

        /// The application in whose sandbox it runs; nil where it is in none, or nothing tells.
        var sandbox: String? { confinement.sandbox }
    }

    private unowned let bus: any MessageBus
    /// Where the bus is asked; by default on the connection that is served.
    weak var control: (any MessageBus)?
    private let table: any ProcessTable
    /// Called when it is known who is behind a connection, before its first call is served.
    var onKnown: ((UniqueName, Caller) -> Void)!
    /// Gets what had to wait.
    var handle: ((Message) -> Void)!
    private var callers: [UniqueName: Caller] = [:]
    /// That of them that was looked up last: messages come in rows.
    private var last: Caller?
    private var asked: Set<UniqueName> = []
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
        guard asked.insert(name).inserted else { return }
        (control ?? bus).credentials(of: name) { [weak self] result in
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

    /// Nothing of the connection is left.
    func forget(_ name: UniqueName) {
        callers[name] = nil
        last = nil
    }

    private func learned(
        _ credentials: ConnectionCredentials, of name: UniqueName, isProvisional: Bool = false
    ) {
        asked.remove(name)
        let caller = Caller(credentials, of: name, isProvisional: isProvisional, table: table)
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
