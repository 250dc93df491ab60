// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// Collects what happens on any number of threads, in its order.
final class Recorder<Element: Sendable>: Sendable {
    private let elements = Locked<[Element]>([])

    func add(_ element: Element) {
        elements.withLock { $0.append(element) }
    }

    var all: [Element] { elements.withLock { $0 } }
    var count: Int { elements.withLock { $0.count } }
}
