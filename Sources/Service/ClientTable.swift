// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// What is known of clients, by their numbers (``Delivery/clientNumber``): for what each delivery looks up, as hashing a
/// name costs more than all that is done with what is found.
///
/// A number becomes another client's when its client has left, so the name is looked at as well.
struct ClientTable<Value> {
    private var rows: [(client: ClientName, value: Value)?] = []

    /// Nil for a client of which nothing is known.
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

    /// Forgets all, and gives up the memory.
    mutating func removeAll() { rows = [] }
}
