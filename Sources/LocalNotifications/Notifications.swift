// SPDX-License-Identifier: Apache-2.0
import Foundation
import Synchronization

extension NotificationCenter {
    /// The notifications of a name, from now on, as an asynchronous sequence (C7).
    ///
    /// It buffers what was posted and not yet taken. When the buffer is full, **the oldest goes**: whoever is late sees
    /// the newest. How many went so is in ``Notifications/lost``.
    ///
    /// - Parameters:
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one.
    ///   - bufferLimit: how many may wait; at least 1.
    public func notifications(
        named name: Notification.Name?, object: Any? = nil, bufferLimit: Int = 1_024
    ) -> Notifications {
        precondition(bufferLimit > 0, "a buffer for nothing would lose everything")
        return Notifications(self, name, object, bufferLimit)
    }

    /// Notifications that are waited for. It observes from its making on until it and its iterators are gone, or the
    /// task that iterates is cancelled.
    ///
    /// Threads: any. It is for one reader; several share what comes, each element goes to one of them.
    public struct Notifications: AsyncSequence, Sendable {
        public typealias Element = Notification
        public typealias Failure = Never

        private let source: Source

        fileprivate init(_ center: NotificationCenter, _ name: Notification.Name?, _ object: Any?, _ limit: Int) {
            source = Source(center, name, object, limit)
        }

        /// How many were dropped from the full buffer so far.
        public var lost: UInt64 { source.lost.value.load(ordering: .relaxed) }

        public func makeAsyncIterator() -> Iterator {
            Iterator(source)
        }

        public struct Iterator: AsyncIteratorProtocol {
            private let source: Source
            private var base: AsyncStream<Carried<Notification>>.Iterator

            fileprivate init(_ source: Source) {
                self.source = source
                base = source.stream.makeAsyncIterator()
            }

            public mutating func next() async -> Notification? {
                await base.next()?.value
            }

            public mutating func next(isolation actor: isolated (any Actor)?) async -> Notification? {
                await base.next(isolation: actor)?.value
            }
        }

        fileprivate final class Source: Sendable {
            let stream: AsyncStream<Carried<Notification>>
            let lost = Lost()
            private let observation: Observation

            init(_ center: NotificationCenter, _ name: Notification.Name?, _ object: Any?, _ limit: Int) {
                let (stream, continuation) = AsyncStream.makeStream(
                    of: Carried<Notification>.self, bufferingPolicy: .bufferingNewest(limit))
                self.stream = stream
                observation = center.observe(name, object: object) { [lost] notification in
                    if case .dropped = continuation.yield(Carried(notification)) {
                        lost.value.add(1, ordering: .relaxed)
                    }
                }
                // When the task is cancelled, nobody can take anything any more.
                continuation.onTermination = { [weak observation] _ in observation?.cancel() }
            }

            final class Lost: Sendable {
                let value = Atomic<UInt64>(0)
            }
        }
    }
}
