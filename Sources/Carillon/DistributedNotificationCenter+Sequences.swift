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
    ///   - bufferLimit: how many may wait for the reader. Beyond it the oldest are dropped, which is counted, logged
    ///     and reported as `Gap.overflow`.
    public func notifications(
        named name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, retained: Bool = false, minimumInterval: Duration = .zero,
        bufferLimit: Int = 1024
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
                self?.stream(name: name, object: object.value, suspensionBehavior: .coalesce, bufferLimit: 1024)
            })
    }

    func readers(
        _ name: Foundation.Notification.Name?, _ object: String?, _ suspensionBehavior: SuspensionBehavior,
        retained: Bool = false, minimumInterval: Duration = .zero, bufferLimit: Int
    ) -> Readers<Received> {
        Readers { [weak self] in
            self?.stream(
                name: name, object: object, suspensionBehavior: suspensionBehavior, retained: retained,
                minimumInterval: minimumInterval, bufferLimit: bufferLimit)
        }
    }

    func stream(
        name: Foundation.Notification.Name?, object: Any?, suspensionBehavior: SuspensionBehavior,
        retained: Bool = false, minimumInterval: Duration = .zero, bufferLimit: Int
    ) -> AsyncStream<Received> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Received.self, bufferingPolicy: .bufferingNewest(max(1, bufferLimit)))
        let observation = observation(
            name: name, object: object, suspensionBehavior: suspensionBehavior, wantsRetained: retained,
            minimumInterval: minimumInterval, on: DirectTarget()
        ) { [weak self, end = StreamEnd(continuation)] received in
            if case .dropped = end.continuation.yield(received) { self?.noteOverflow(1) }
        }
        continuation.onTermination = { _ in observation.cancel() }
        return stream
    }

    /// Ends a stream with its observer: when that is refused, or its center is gone, nothing comes any more.
    private final class StreamEnd: Sendable {
        let continuation: AsyncStream<Received>.Continuation

        init(_ continuation: AsyncStream<Received>.Continuation) {
            self.continuation = continuation
        }

        deinit { continuation.finish() }
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
            fileprivate var iterator: AsyncStream<Received>.Iterator
            private var turn = ReaderTurn()

            fileprivate init(_ stream: AsyncStream<Received>) {
                iterator = stream.makeAsyncIterator()
            }

            public mutating func next() async -> Element? {
                await next(isolation: nil)
            }

            /// The next notification; nil when the reader's task was cancelled.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
                await nextReceived(isolation: actor).map { ($0.notification, $0.origin) }
            }

            fileprivate mutating func nextReceived(isolation actor: isolated (any Actor)?) async -> Received? {
                await turn.begin(isolation: actor)
                return await iterator.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(readers.next()) }
    }
}
