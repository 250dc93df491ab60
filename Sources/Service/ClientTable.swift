// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A table of values per client, indexed by client number (``Delivery/clientNumber``), for lookups at each delivery:
/// hashing a name costs more than the work with the value.
///
/// A number is reused when its client has left, so each row also holds the name.
struct ClientTable<Value> {
    private var rows: [(client: ClientName, value: Value)?] = []

    /// The value of a client; nil where there is none.
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
