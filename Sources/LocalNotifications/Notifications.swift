// SPDX-License-Identifier: Apache-2.0
import CarillonThreadDelivery
import Foundation
import Synchronization

extension NotificationCenter {
    /// Returns the notifications of a name, from now on, as an asynchronous sequence (C7).
    ///
    /// The sequence buffers notifications that the reader has not taken yet. When the buffer is full, **the
    /// oldest notification is discarded**, so that a slow reader receives the newest ones. ``Notifications/lost`` has
    /// the number of discarded ones.
    ///
    /// - Parameters:
    ///   - name: the name of the notifications; nil matches every name.
    ///   - object: the sender; nil matches any sender, and posts without one.
    ///   - bufferLimit: the maximum number of waiting notifications, at least 1. Their total size is at most 64 MiB,
    ///     but the newest notification is always kept.
    public func notifications(
        named name: Notification.Name?, object: Any? = nil, bufferLimit: Int = DeliveryQueue.Limits.standard.count
    ) -> Notifications {
        precondition(bufferLimit > 0, "the limit of a buffer must be positive")
        return Notifications(self, name, object, bufferLimit)
    }

    /// An asynchronous sequence of notifications. It observes from its creation until the sequence and its iterators
    /// are gone, or until the iterating task is cancelled.
    ///
    /// Threads: any. Each iterator is a reader of its own. The first one reads from the creation of the sequence on,
    /// each further one from its own creation on.
    public struct Notifications: AsyncSequence, Sendable {
        public typealias Element = Notification
        public typealias Failure = Never

        private let source: Source

        fileprivate init(_ center: NotificationCenter, _ name: Notification.Name?, _ object: Any?, _ limit: Int) {
            source = Source(center, name, object, limit)
        }

        /// The number of notifications that were discarded from full buffers so far, for all iterators.
        public var lost: UInt64 { source.lost.value.load(ordering: .relaxed) }

        public func makeAsyncIterator() -> Iterator {
            Iterator(source.readers.next())
        }

        public struct Iterator: AsyncIteratorProtocol {
            private let reader: Readers<CrossThreadBox<Notification>>.Reader
            private var budget = ReaderBudget()

            fileprivate init(_ reader: Readers<CrossThreadBox<Notification>>.Reader) { self.reader = reader }

            public mutating func next() async -> Notification? {
                await next(isolation: nil)
            }

            public mutating func next(isolation actor: isolated (any Actor)?) async -> Notification? {
                await budget.begin(isolation: actor)
                return await reader.next(isolation: actor)?.value
            }
        }

        /// The readers of a sequence, and the count of their losses. It ends with the sequence and its iterators.
        fileprivate final class Source: Sendable {
            let readers: Readers<CrossThreadBox<Notification>>
            let lost: Lost

            init(_ center: NotificationCenter, _ name: Notification.Name?, _ object: Any?, _ limit: Int) {
                let lost = Lost()
                self.lost = lost
                // Further readers are created later, when the sender may be gone.
                let sender = WeakSender(object)
                readers = Readers { [weak center] in
                    guard let center, case .some(let object) = sender.value else { return nil }
                    let buffer = ReaderBuffer<CrossThreadBox<Notification>>(count: limit)
                    let observation = center.observe(name, object: object) { notification in
                        let size = PayloadSize.of(notification)
                        let count = buffer.append(CrossThreadBox(notification), byteCount: size)
                        if count > 0 { lost.value.add(UInt64(count), ordering: .relaxed) }
                    }
                    // The observation ends with its last iterator, and with its task.
                    buffer.onEnd { observation.cancel() }
                    return ReaderBuffer.Reader(buffer)
                }
            }

            /// The number of discarded notifications, in an object of its own because the observer's block counts.
            final class Lost: Sendable {
                let value = Atomic<UInt64>(0)
            }
        }
    }
}

/// A weak reference to the sender of a sequence, for iterators that are created later. An object is not kept alive.
/// After its end the value is nil, so that further iterators receive nothing.
private struct WeakSender: @unchecked Sendable {
    // Sendable: the runtime guards the weak reference, and a sender that is a value is only compared.
    private weak var object: AnyObject?
    private let isObject: Bool
    private let other: Any?

    init(_ sender: Any?) {
        let held = Sender(sender).object
        object = held
        isObject = held != nil
        other = isObject ? nil : sender
    }

    /// The sender, which may be nil for any sender; nil in the outer optional when it is an object that is gone.
    var value: Any?? {
        guard isObject else { return .some(other) }
        // The reference is read once, because the object may end at any moment.
        guard let object else { return nil }
        return .some(object)
    }
}
