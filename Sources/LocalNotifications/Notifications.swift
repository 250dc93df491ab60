// SPDX-License-Identifier: Apache-2.0
import CarillonThreadDelivery
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
    ///   - bufferLimit: how many may wait, 1 at least; never more than 64 MiB of them.
    public func notifications(
        named name: Notification.Name?, object: Any? = nil, bufferLimit: Int = DeliveryQueue.Limits.standard.count
    ) -> Notifications {
        precondition(bufferLimit > 0, "a buffer for nothing would lose everything")
        return Notifications(self, name, object, bufferLimit)
    }

    /// Notifications that are waited for. It observes from its making on until it and its iterators are gone, or the
    /// task that iterates is cancelled.
    ///
    /// Threads: any. Each iterator is a reader of its own: the first one from the making of the sequence on, each further one
    /// from its own.
    public struct Notifications: AsyncSequence, Sendable {
        public typealias Element = Notification
        public typealias Failure = Never

        private let source: Source

        fileprivate init(_ center: NotificationCenter, _ name: Notification.Name?, _ object: Any?, _ limit: Int) {
            source = Source(center, name, object, limit)
        }

        /// How many were dropped from full buffers so far, of all iterators.
        public var lost: UInt64 { source.lost.value.load(ordering: .relaxed) }

        public func makeAsyncIterator() -> Iterator {
            Iterator(source.readers.next())
        }

        public struct Iterator: AsyncIteratorProtocol {
            private let reader: Readers<Carried<Notification>>.Reader
            private var turn = ReaderTurn()

            fileprivate init(_ reader: Readers<Carried<Notification>>.Reader) { self.reader = reader }

            public mutating func next() async -> Notification? {
                await next(isolation: nil)
            }

            public mutating func next(isolation actor: isolated (any Actor)?) async -> Notification? {
                await turn.begin(isolation: actor)
                return await reader.next(isolation: actor)?.value
            }
        }

        fileprivate final class Source: Sendable {
            let readers: Readers<Carried<Notification>>
            let lost: Lost

            init(_ center: NotificationCenter, _ name: Notification.Name?, _ object: Any?, _ limit: Int) {
                let lost = Lost()
                self.lost = lost
                let sender = LaterSender(object)
                readers = Readers { [weak center] in
                    guard let center, case .some(let object) = sender.value else { return nil }
                    let buffer = ReaderBuffer<Carried<Notification>>(count: limit)
                    let observation = center.observe(name, object: object) { notification in
                        let size = PayloadSize.of(notification)
                        let count = buffer.append(Carried(notification), byteCount: size)
                        if count > 0 { lost.value.add(UInt64(count), ordering: .relaxed) }
                    }
                    // It ends with its last iterator, and with its task.
                    buffer.onEnd { observation.cancel() }
                    return ReaderBuffer.Reader(buffer)
                }
            }

            final class Lost: Sendable {
                let value = Atomic<UInt64>(0)
            }
        }
    }
}

/// The sender of which further iterators will hear. An object is not kept: when it is over, nothing matches any more.
private struct LaterSender: @unchecked Sendable {
    // Sendable: a sender is compared on whatever thread posts.
    private weak var object: AnyObject?
    private let isObject: Bool
    private let other: Any?

    init(_ sender: Any?) {
        let held = Sender(sender).object
        object = held
        isObject = held != nil
        other = isObject ? nil : sender
    }

    /// Nil when it is over.
    var value: Any?? {
        guard isObject else { return .some(other) }
        // Once, as it may go at any moment.
        guard let object else { return nil }
        return .some(object)
    }
}
