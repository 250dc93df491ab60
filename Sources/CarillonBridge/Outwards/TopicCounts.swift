// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The sequence numbers of published messages: a counter for each topic. By the numbers receivers notice losses (1, 2,
/// 4) and duplicates. ``Exporter`` uses it.
struct TopicCounts: Equatable {
    /// The maximum number of counted topics. Beyond it all counters begin again with 1, in a new run.
    static let maxTopics = 65_536

    /// The run: a token that changes when numbers begin again with 1.
    private(set) var run: String
    /// The last number of each topic.
    private var counts: [ExactText: UInt64] = [:]

    /// Creates counters that begin with 1.
    init(run: String) {
        self.run = run
    }

    /// Returns the sequence number of the next message on a topic.
    ///
    /// - Parameter newRun: returns the token of another run.
    mutating func next(on topic: String, newRun: () -> String) -> MessageProperties.SequenceNumber {
        let topic = ExactText(topic)
        if counts[topic] == nil, counts.count == Self.maxTopics {
            counts = [:]
            run = newRun()
        }
        counts[topic, default: 0] += 1
        return MessageProperties.SequenceNumber(run: run, count: counts[topic]!)
    }

    /// All counters, in the order of their topics.
    var all: [(topic: String, count: UInt64)] {
        counts.map { ($0.key.text, $0.value) }.sorted { $0.topic.utf8.lexicographicallyPrecedes($1.topic.utf8) }
    }

    /// Whether a message was published on a topic in this run.
    func contains(_ topic: String) -> Bool { counts[ExactText(topic)] != nil }

    /// Restores a counter of an earlier process.
    mutating func set(_ count: UInt64, of topic: String) { counts[ExactText(topic)] = count }
}
