// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Numbers what is published on each topic, so that whoever receives it sees a hole (1, 2, 4) and a repetition.
struct TopicCounts: Equatable {
    /// Topics that are counted at once. Beyond that all counting begins anew, as another run.
    static let maxTopics = 65_536

    private(set) var run: String
    private var counts: [ExactText: UInt64] = [:]

    init(run: String) {
        self.run = run
    }

    /// - Parameter newRun: makes the name of another run.
    mutating func next(on topic: String, newRun: () -> String) -> MessageProperties.Place {
        let topic = ExactText(topic)
        if counts[topic] == nil, counts.count == Self.maxTopics {
            counts = [:]
            run = newRun()
        }
        counts[topic, default: 0] += 1
        return MessageProperties.Place(run: run, count: counts[topic]!)
    }

    /// All of them, in the order of their topics.
    var all: [(topic: String, count: UInt64)] {
        counts.map { ($0.key.text, $0.value) }.sorted { $0.topic.utf8.lexicographicallyPrecedes($1.topic.utf8) }
    }

    func contains(_ topic: String) -> Bool { counts[ExactText(topic)] != nil }

    /// Goes on with what was counted before.
    mutating func set(_ count: UInt64, of topic: String) { counts[ExactText(topic)] = count }
}
