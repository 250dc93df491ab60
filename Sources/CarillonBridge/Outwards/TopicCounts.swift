// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The counters of published messages, one for each topic. The numbers let receivers notice a hole (1, 2, 4) and a
/// repetition.
struct TopicCounts: Equatable {
    /// The maximum number of counted topics. Beyond it all counting begins anew, as another run.
    static let maxTopics = 65_536

    private(set) var run: String
    private var counts: [ExactText: UInt64] = [:]

    init(run: String) {
        self.run = run
    }

    /// Returns the place of the next message on a topic.
    ///
    /// - Parameter newRun: returns the name of another run.
    mutating func next(on topic: String, newRun: () -> String) -> MessageProperties.Place {
        let topic = ExactText(topic)
        if counts[topic] == nil, counts.count == Self.maxTopics {
            counts = [:]
            run = newRun()
        }
        counts[topic, default: 0] += 1
        return MessageProperties.Place(run: run, count: counts[topic]!)
    }

    /// All counters, in the order of their topics.
    var all: [(topic: String, count: UInt64)] {
        counts.map { ($0.key.text, $0.value) }.sorted { $0.topic.utf8.lexicographicallyPrecedes($1.topic.utf8) }
    }

    func contains(_ topic: String) -> Bool { counts[ExactText(topic)] != nil }

    /// Continues an earlier count.
    mutating func set(_ count: UInt64, of topic: String) { counts[ExactText(topic)] = count }
}
