// SPDX-License-Identifier: Apache-2.0
/// The path to a value that is being encoded or decoded, from the root of the message. It is a linked list, so that the
/// steps of a value's parents are shared. The array of keys, which `Codable` requires, is built on demand.
indirect enum CodingPath {
    case root
    case step(any CodingKey, after: CodingPath)

    /// The keys from the root to the value.
    var keys: [any CodingKey] {
        var keys: [any CodingKey] = []
        var rest = self
        while case .step(let key, let before) = rest {
            keys.append(key)
            rest = before
        }
        return keys.reversed()
    }

    /// The text of the path, such as `.size[2]`.
    var text: String {
        keys.map { $0 is IndexKey ? "[\($0.intValue ?? 0)]" : ".\($0.stringValue)" }.joined()
    }

    /// Returns the path to a value in a dictionary.
    func appending(_ key: any CodingKey) -> CodingPath { .step(key, after: self) }
    /// Returns the path to an element of an array.
    func appending(place: Int) -> CodingPath { .step(IndexKey(place: place), after: self) }
}

/// The index of an element in an array, as a coding key.
private struct IndexKey: CodingKey {
    let place: Int

    var intValue: Int? { place }
    var stringValue: String { "Index \(place)" }

    init(place: Int) {
        self.place = place
    }

    init?(intValue: Int) {
        place = intValue
    }

    init?(stringValue: String) { nil }
}

/// The key under which a type encodes its superclass.
struct SuperKey: CodingKey {
    var intValue: Int? { nil }
    var stringValue: String { "super" }

    init() {}
    init?(intValue: Int) { nil }
    init?(stringValue: String) { nil }
}
