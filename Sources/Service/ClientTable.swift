// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// An array of values per client, indexed by the small number that the core assigns to each client
/// (``Delivery/clientNumber``).
///
/// It replaces a dictionary where each delivery needs a lookup, because hashing the client's name would cost more than
/// the work with the value. The core reuses the number of a client that has left, so each row also has the name. A row
/// of an earlier client counts as empty.
struct ClientTable<Value> {
    private var rows: [(client: ClientName, value: Value)?] = []

    /// The value of a client with this number; nil where there is none.
    subscript(client: ClientName, number: Int) -> Value? {
        get {
            guard number < rows.count, let row = rows[number], row.client == client else { return nil }
            return row.value
        }
        set {
            while rows.count <= number { rows.append(nil) }
            rows[number] = newValue.map { (client, $0) }
        }
    }

    /// Removes all values, and releases the memory.
    mutating func removeAll() { rows = [] }
}
