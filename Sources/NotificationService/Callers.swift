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
        /// Nil when the bus does not know it.
        let userID: UInt32?
        /// Whether it runs in the sandbox of an application.
        let confinement: Confinement
        private let table: any ProcessTable
        /// The id of its application, as its desktop file is named; nil where nothing tells. Looked up when it is wanted.
        private(set) lazy var application: String? = processID > 0 ? table.application(of: processID) : nil

        fileprivate init(_ credentials: ConnectionCredentials, table: any ProcessTable) {
            processID = credentials.processID
            userID = credentials.userID
            confinement = processID > 0 ? table.confinement(of: processID) : .unknown
            self.table = table
        }

        /// The application in whose sandbox it runs; nil where it is in none, or nothing tells.
        var sandbox: String? { confinement.sandbox }

        /// Who pays for it.
        func account(of name: UniqueName) -> AccountID {
            if let sandbox { return .sandbox(sandbox) }
            if processID > 0 { return .process(processID) }
            return userID.map(AccountID.user) ?? .connection(name)
        }
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
    private var asked: Set<UniqueName> = []
    /// In the order of their arrival, with the caller of a call.
    private var waiting = Deque<(message: Message, caller: UniqueName?)>()

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus, table: any ProcessTable) {
        self.bus = bus
        self.table = table
    }

    subscript(name: UniqueName) -> Caller? { callers[name] }

    /// Whether a message that arrived may be handled now. Otherwise it is kept, and given to ``handle`` in its turn.
    func admit(_ message: Message) -> Bool {
        // What has descriptors is refused in any case, and they are not kept open for that.
        guard !message.hasDescriptors else { return true }
        let caller = message.kind == .methodCall ? message.sender : nil
        let isKnown = caller.map(isKnown) ?? true
        if isKnown, waiting.isEmpty { return true }
        waiting.append((message, caller))
        return false
    }

    /// Whether something arrived that was not handled yet.
    var isAnythingWaiting: Bool { !waiting.isEmpty }

    /// Finds out who is behind a connection that has not called, as an earlier process knew it.
    func identify(_ name: UniqueName) {
        _ = isKnown(name)
    }

    /// Asks where it is not.
    private func isKnown(_ name: UniqueName) -> Bool {
        if callers[name] != nil { return true }
        guard asked.insert(name).inserted else { return false }
        (control ?? bus).credentials(of: name) { [weak self] result in
            self?.learned((try? result.get()) ?? ConnectionCredentials(), of: name)
        }
        return false
    }

    /// Nothing of the connection is left.
    func forget(_ name: UniqueName) {
        callers[name] = nil
    }

    private func learned(_ credentials: ConnectionCredentials, of name: UniqueName) {
        asked.remove(name)
        let caller = Caller(credentials, table: table)
        callers[name] = caller
        onKnown(name, caller)
        while let (message, caller) = waiting.first, caller.map(isKnown) ?? true {
            waiting.popFirst()
            handle(message)
        }
    }
}
