// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Notifications as asynchronous sequences (C7).
extension DistributedNotificationCenter {
    /// An asynchronous sequence of notifications.
    ///
    /// It observes from this call on, not only from the first iteration, and until it and its iterator go away. Each further
    /// iterator observes by itself, from its making on.
    ///
    /// A task on the main actor that reads very much lets others of the main thread come in between, every 2 ms (T3).
    ///
    /// - Parameters:
    ///   - name: nil for any.
    ///   - object: nil for any.
    ///   - suspensionBehavior: what happens to notifications while the program is suspended.
    ///   - retained: whether it first has the values that there are (R2), in order and before anything newer.
    ///   - minimumInterval: at most one notification of each name and object in this time, of those that come meanwhile the
    ///     newest, at its end (R5). Parts of a millisecond are rounded up; zero is for all.
    ///   - bufferLimit: how many may wait for the reader, 1 at least. Beyond it, or 64 MiB of them, the oldest are dropped, which
    ///     is counted, logged and reported as `Gap.overflow`.
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

    /// The same with an object in Foundation's dress, as code for macOS writes it (`path as NSString`).
    ///
    /// - Parameter object: an `NSString`; the sequence of anything else is empty, which is logged and counted.
    public func notifications(named name: Foundation.Notification.Name, object: AnyObject) -> Notifications {
        let object = Carried(object)
        return Notifications(
            readers: Readers { [weak self] in
                self?.reader(
                    name: name, object: object.value, suspensionBehavior: .coalesce,
                    bufferLimit: DeliveryQueue.Limits.standard.count)
            })
    }

    func readers(
        _ name: Foundation.Notification.Name?, _ object: String?, _ suspensionBehavior: SuspensionBehavior,
        retained: Bool = false, minimumInterval: Duration = .zero, bufferLimit: Int
    ) -> Readers<Received> {
        Readers { [weak self] in
            self?.reader(
                name: name, object: object, suspensionBehavior: suspensionBehavior, retained: retained,
                minimumInterval: minimumInterval, bufferLimit: bufferLimit)
        }
    }

    /// - Parameter bufferLimit: as for ``notifications(named:object:suspensionBehavior:retained:minimumInterval:bufferLimit:)``.
    func reader(
        name: Foundation.Notification.Name?, object: Any?, suspensionBehavior: SuspensionBehavior,
        retained: Bool = false, minimumInterval: Duration = .zero, bufferLimit: Int
    ) -> Readers<Received>.Reader {
        let buffer = ReaderBuffer<Received>(count: bufferLimit)
        // With an observer that is refused, or whose center is gone, the finisher goes.
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

    /// An object of whoever asked, which stands for its text.
    private struct Carried: @unchecked Sendable {
        // Sendable: it is only looked at, and what is no text, which does not change, is refused.
        let value: AnyObject

        init(_ value: AnyObject) {
            self.value = value
        }
    }

    /// Notifications in the order in which the service delivered them. Each iterator is a reader of its own.
    public struct Notifications: AsyncSequence, Sendable {
        public typealias Element = Foundation.Notification
        public typealias Failure = Never

        fileprivate let readers: Readers<Received>

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate var iterator: WithOrigins.AsyncIterator

            public mutating func next() async -> Foundation.Notification? {
                await next(isolation: nil)
            }

            /// The next notification; nil when the reader's task was cancelled.
            public mutating func next(
                isolation actor: isolated (any Actor)?
            ) async -> Foundation.Notification? {
                await iterator.nextReceived(isolation: actor)?.notification
            }
        }

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(iterator: withOrigins.makeAsyncIterator())
        }

        /// The same notifications, each with where it comes from: in a loop there is no ``Origin/current``.
        public var withOrigins: WithOrigins { WithOrigins(readers: readers) }
    }

    /// Notifications with where they come from, in the order in which the service delivered them. Each iterator is a reader of
    /// its own.
    public struct WithOrigins: AsyncSequence, Sendable {
        public typealias Element = (notification: Foundation.Notification, origin: Origin)
        public typealias Failure = Never

        fileprivate let readers: Readers<Received>

        public struct AsyncIterator: AsyncIteratorProtocol {
            private let reader: Readers<Received>.Reader
            private var turn = ReaderTurn()

            fileprivate init(_ reader: Readers<Received>.Reader) { self.reader = reader }

            public mutating func next() async -> Element? {
                await next(isolation: nil)
            }

            /// The next notification; nil when the reader's task was cancelled.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
                await nextReceived(isolation: actor).map { ($0.notification, $0.origin) }
            }

            fileprivate mutating func nextReceived(isolation actor: isolated (any Actor)?) async -> Received? {
                await turn.begin(isolation: actor)
                return await reader.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(readers.next()) }
    }
}
