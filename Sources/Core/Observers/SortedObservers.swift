// SPDX-License-Identifier: Apache-2.0
/// Lists in the ascending order of their observers' numbers.
extension Array {
    /// The first place whose observer has no smaller number. O(log ``count``).
    ///
    /// - Parameter id: the observer of an element.
    func place(of wanted: ObserverID, by id: (Element) -> ObserverID) -> Int {
        var (start, end) = (0, count)
        if let last, id(last) < wanted { start = end }
        while start < end {
            let middle = (start + end) / 2
            if id(self[middle]) < wanted { start = middle + 1 } else { end = middle }
        }
        return start
    }

    /// Removes the elements at these places, which are in ascending order.
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
    /// Returns the places of `list` with an observer of `self`. Both lists are in ascending order. The cheapest of
    /// three ways is used: a search for each element of one list in the other, in either direction, or a walk along
    /// both.
    ///
    /// - Parameter id: the observer of a place.
    /// - Returns: the places in ascending order, and the number of steps: groups of eight comparisons, or visited cache
    ///   lines.
    func places<Entry>(in list: [Entry], _ id: (Entry) -> ObserverID) -> (places: [Int], steps: Int) {
        guard let first, let last, let highest = list.last, id(list[0]) <= last, first <= id(highest) else {
            return ([], 0)
        }
        // The ranges in which the lists overlap.
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

    /// The approximate number of comparisons of a search in the longest lists.
    private static let stepsOfSearch = 16

    /// The first place whose observer has no smaller number, in a list in ascending order. O(log ``count``).
    func place(of id: ObserverID) -> Int { place(of: id) { $0 } }

    /// The place of an observer in a list in ascending order; nil when it is not in the list. O(log ``count``).
    func position(of id: ObserverID) -> Int? {
        let place = place(of: id)
        return place < count && self[place] == id ? place : nil
    }
}
