import Collections

/// Who pays for what a connection makes the service hold (E4): all connections of a process share one account, and all
/// processes of a sandbox.
public enum AccountID: Hashable, Comparable, Sendable {
    /// Nobody knows who is behind it, so that it pays for itself.
    case connection(ClientName)
    case process(UInt32)
    /// Where the process is not known.
    case user(UInt32)
    /// The application in a sandbox, by its id.
    case sandbox(String)
}

/// What one payer uses of each total.
final class Account: Sizable {
    let id: AccountID
    /// Its connections that there are.
    var peers = 0
    var usage = Usage()
    /// Its clients, by what waits for them.
    var clients = LargestFirst<Client>()
    var place = LargestFirstPlace()

    init(_ id: AccountID) {
        self.id = id
    }

    var size: Int { usage[.queuedBytes] }

    func precedes(_ other: Account) -> Bool { id < other.id }
}
