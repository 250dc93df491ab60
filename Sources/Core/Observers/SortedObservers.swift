// SPDX-License-Identifier: Apache-2.0
/// Binary search and removal in lists that are in the ascending order of their elements' observer IDs.
/// ``IntervalQueue``, ``ObserverList`` and ``ObserverSet`` use them.
extension Array {
    /// Returns the first index whose observer is not less than `wanted`. O(log ``count``).
    ///
    /// - Parameter id: returns the observer of an element.
    func place(of wanted: ObserverID, by id: (Element) -> ObserverID) -> Int {
        var (start, end) = (0, count)
        if let last, id(last) < wanted { start = end }
        while start < end {
            let middle = (start + end) / 2
            if id(self[middle]) < wanted { start = middle + 1 } else { end = middle }
        }
        return start
    }

    /// Removes the elements at these indexes, which are in ascending order. O(``count``).
    mutating func remove(at places: [Int]) {
        guard var kept = places.first else { return }
        var next = 0
        for place in kept..<count {
            if next < places.count, places[next] == place {
                next += 1
            } else {
                self[kept] = self[place]
                kept += 1
            }
        }
        removeLast(places.count)
    }
}

extension [ObserverID] {
    /// Returns the indexes of `list` whose observers are in `self`: an intersection. Both lists are in ascending order.
    ///
    /// The cheapest of three ways is used. It searches for each element of one list in the other, in either direction,
    /// or walks along both.
    ///
    /// - Parameter id: returns the observer of an element of `list`.
    /// - Returns: `places`, the indexes in ascending order. `steps`, the number of steps for ``StepMeter``: groups of
    ///   eight comparisons, or visited cache lines.
    func places<Entry>(in list: [Entry], _ id: (Entry) -> ObserverID) -> (places: [Int], steps: Int) {
        guard let first, let last, let highest = list.last, id(list[0]) <= last, first <= id(highest) else {
            return ([], 0)
        }
        // Only the ranges in which the lists overlap are compared.
        var own = self[place(of: id(list[0]))..<Swift.min(count, place(of: id(highest)) + 1)]
        let other = list.place(of: first, by: id)..<Swift.min(list.count, list.place(of: last, by: id) + 1)
        var places: [Int] = []
        let (walking, ownSearching, otherSearching) = (
            own.count + other.count, own.count * Self.stepsOfSearch, other.count * Self.stepsOfSearch
        )
        if ownSearching <= Swift.min(walking, otherSearching) {
            for wanted in own {
                let place = list.place(of: wanted, by: id)
                if place < list.count, id(list[place]) == wanted { places.append(place) }
            }
        } else if otherSearching <= walking {
            for place in other where position(of: id(list[place])) != nil { places.append(place) }
        } else {
            for place in other {
                while let next = own.first, next < id(list[place]) { own.removeFirst() }
                guard let next = own.first else { break }
                if next == id(list[place]) { places.append(place) }
            }
        }
        return (places, 1 + Swift.min(walking, ownSearching, otherSearching) / 8)
    }

    /// The approximate number of comparisons of a binary search in the longest lists.
    private static let stepsOfSearch = 16

    /// Returns the first index whose observer is not less than `id`. O(log ``count``).
    func place(of id: ObserverID) -> Int { place(of: id) { $0 } }

    /// Returns the index of an observer; nil when the list does not have it. O(log ``count``).
    func position(of id: ObserverID) -> Int? {
        let place = place(of: id)
        return place < count && self[place] == id ? place : nil
    }
}
