// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Notifications as asynchronous sequences (C7).
extension DistributedNotificationCenter {
    /// Returns an asynchronous sequence of notifications.
    ///
    /// The sequence observes from this call on, not only from the first iteration, until the sequence and its iterator
    /// are released. Each further iterator observes separately, from its creation on.
    ///
    /// A task on the main actor that reads many notifications lets other work of the main thread run in between, every
    /// 2 ms (T3).
    ///
    /// - Parameters:
    ///   - name: the name to observe; nil for any.
    ///   - object: the object to observe; nil for any.
    ///   - suspensionBehavior: the treatment of notifications while the program is suspended.
    ///   - retained: whether the sequence begins with the existing retained values (R2), in order and before any newer
    ///     notification.
    ///   - minimumInterval: the minimum time between two notifications of the same name and object (R5). Of the
    ///     notifications in between, the newest is delivered at the end of the interval. The value is rounded up to
    ///     whole milliseconds; zero delivers all.
    ///   - bufferLimit: the maximum number of notifications that wait for the reader, at least 1. Beyond it, or beyond
    ///     64 MiB, the oldest are dropped. The loss is counted, logged and reported as `Gap.overflow`.
    public func notifications(
        named name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, retained: Bool = false, minimumInterval: Duration = .zero,
        bufferLimit: Int = DeliveryQueue.Limits.standard.count
    ) -> Notifications {
        Notifications(
            readers: readers(
                name, object, suspensionBehavior, retained: retained, minimumInterval: minimumInterval,
                bufferLimit: bufferLimit))
    }

    /// Returns an asynchronous sequence of notifications of a Foundation object, as code for macOS spells it (`path as
    /// NSString`). Otherwise like
    /// ``notifications(named:object:suspensionBehavior:retained:minimumInterval:bufferLimit:)``.
    ///
    /// - Parameter object: an `NSString`. With an object of another class the sequence is empty, which is logged and
    ///   counted.
    public func notifications(named name: Foundation.Notification.Name, object: AnyObject) -> Notifications {
        let object = CrossThreadBox(object)
        return Notifications(
            readers: Readers { [weak self] in
                self?.reader(
                    name: name, object: object.value, suspensionBehavior: .coalesce,
                    bufferLimit: DeliveryQueue.Limits.standard.count)
            })
    }

    /// Returns the source of readers for a sequence: one for each iterator, the first of which observes at once.
    func readers(
        _ name: Foundation.Notification.Name?, _ object: String?, _ suspensionBehavior: SuspensionBehavior,
        retained: Bool = false, minimumInterval: Duration = .zero, bufferLimit: Int
    ) -> Readers<ReceivedNotification> {
        Readers { [weak self] in
            self?.reader(
                name: name, object: object, suspensionBehavior: suspensionBehavior, retained: retained,
                minimumInterval: minimumInterval, bufferLimit: bufferLimit)
        }
    }

    /// Creates a reader: a bounded buffer, and an observer that fills it until the reader ends.
    ///
    /// - Parameter bufferLimit: as for
    ///   ``notifications(named:object:suspensionBehavior:retained:minimumInterval:bufferLimit:)``.
    func reader(
        name: Foundation.Notification.Name?, object: Any?, suspensionBehavior: SuspensionBehavior,
        retained: Bool = false, minimumInterval: Duration = .zero, bufferLimit: Int
    ) -> Readers<ReceivedNotification>.Reader {
        let buffer = ReaderBuffer<ReceivedNotification>(count: bufferLimit)
        // The observer's block owns the finisher, which ends the reader when it is released: if the observer is
        // refused, is removed, or ends with its center.
        let observation = observation(
            name: name, object: object, suspensionBehavior: suspensionBehavior, wantsRetained: retained,
            minimumInterval: minimumInterval, on: DirectTarget()
        ) { [weak self, finisher = ReaderBuffer.Finisher(buffer)] received in
            let lost = finisher.buffer.append(received, byteCount: received.byteCount)
            if lost > 0 { self?.noteOverflow(lost) }
        }
        buffer.onEnd { observation.cancel() }
        return ReaderBuffer.Reader(buffer)
    }

    /// A box that carries the caller's object into a closure that may run on another thread.
    private struct CrossThreadBox: @unchecked Sendable {
        // Sendable: the object is only read. An object that is not a text is refused, and a text does not change.
        let value: AnyObject

        init(_ value: AnyObject) {
            self.value = value
        }
    }

    /// A sequence of notifications in the order in which the service delivered them. Each iterator is a separate
    /// reader.
    public struct Notifications: AsyncSequence, Sendable {
        public typealias Element = Foundation.Notification
        public typealias Failure = Never

        fileprivate let readers: Readers<ReceivedNotification>

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate var iterator: WithOrigins.AsyncIterator

            public mutating func next() async -> Foundation.Notification? {
                await next(isolation: nil)
            }

            /// Returns the next notification; nil after the reader's task was cancelled.
            public mutating func next(
                isolation actor: isolated (any Actor)?
            ) async -> Foundation.Notification? {
                await iterator.nextReceived(isolation: actor)?.notification
            }
        }

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(iterator: withOrigins.makeAsyncIterator())
        }

        /// The same notifications with their origins. ``Origin/current`` is nil in a loop over a sequence.
        public var withOrigins: WithOrigins { WithOrigins(readers: readers) }
    }

    /// A sequence of notifications with their origins, in the order in which the service delivered them. Each iterator
    /// is a separate reader.
    public struct WithOrigins: AsyncSequence, Sendable {
        public typealias Element = (notification: Foundation.Notification, origin: Origin)
        public typealias Failure = Never

        fileprivate let readers: Readers<ReceivedNotification>

        public struct AsyncIterator: AsyncIteratorProtocol {
            private let reader: Readers<ReceivedNotification>.Reader
            private var budget = ReaderBudget()

            fileprivate init(_ reader: Readers<ReceivedNotification>.Reader) { self.reader = reader }

            public mutating func next() async -> Element? {
                await next(isolation: nil)
            }

            /// Returns the next notification; nil after the reader's task was cancelled.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
                await nextReceived(isolation: actor).map { ($0.notification, $0.origin) }
            }

            fileprivate mutating func nextReceived(isolation actor: isolated (any Actor)?) async
                -> ReceivedNotification?
            {
                await budget.begin(isolation: actor)
                return await reader.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(readers.next()) }
    }
}
