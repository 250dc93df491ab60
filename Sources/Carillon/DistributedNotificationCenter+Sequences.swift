// SPDX-License-Identifier: Apache-2.0
import Foundation
import MainLoop
import ServiceClient
import ThreadDelivery

/// Notifications as asynchronous sequences (C7).
extension DistributedNotificationCenter {
    /// An asynchronous sequence of notifications.
    ///
    /// It observes from this call on, not only from the first iteration, and until it and its iterator go away.
    ///
    /// - Parameters:
    ///   - name: nil for any.
    ///   - object: nil for any.
    ///   - suspensionBehavior: what happens to notifications while the program is suspended.
    ///   - bufferLimit: how many may wait for the reader. Beyond it the oldest are dropped, which is counted, logged
    ///     and reported as `Gap.overflow`.
    public func notifications(
        named name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, bufferLimit: Int = 1024
    ) -> Notifications {
        Notifications(
            stream: stream(
                name: name, object: object, suspensionBehavior: suspensionBehavior, bufferLimit: bufferLimit))
    }

    /// The same with an object in Foundation's dress, as code for macOS writes it (`path as NSString`).
    ///
    /// - Parameter object: an `NSString`; the sequence of anything else is empty, which is logged and counted.
    public func notifications(named name: Foundation.Notification.Name, object: AnyObject) -> Notifications {
        Notifications(
            stream: stream(name: name, object: object, suspensionBehavior: .coalesce, bufferLimit: 1024))
    }

    func stream(
        name: Foundation.Notification.Name?, object: Any?, suspensionBehavior: SuspensionBehavior, bufferLimit: Int
    ) -> AsyncStream<Received> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Received.self, bufferingPolicy: .bufferingNewest(max(1, bufferLimit)))
        let observation = observation(
            name: name, object: object, suspensionBehavior: suspensionBehavior, on: DirectTarget()
        ) { [weak self] received in
            if case .dropped = continuation.yield(received) { self?.noteOverflow(1) }
        }
        continuation.onTermination = { _ in observation.cancel() }
        return stream
    }

    /// Notifications in the order in which the service delivered them. For one reader: iterators share what arrives.
    public struct Notifications: AsyncSequence, Sendable {
        public typealias Element = Foundation.Notification
        public typealias Failure = Never

        fileprivate let stream: AsyncStream<Received>

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate var iterator: AsyncStream<Received>.Iterator

            public mutating func next() async -> Foundation.Notification? {
                await next(isolation: nil)
            }

            /// The next notification; nil when the reader's task was cancelled.
            public mutating func next(
                isolation actor: isolated (any Actor)?
            ) async -> Foundation.Notification? {
                await iterator.next(isolation: actor)?.notification
            }
        }

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(iterator: stream.makeAsyncIterator())
        }

        /// The same notifications, each with where it comes from: in a loop there is no ``Origin/current``.
        public var withOrigins: WithOrigins { WithOrigins(stream: stream) }
    }

    /// Notifications with where they come from, in the order in which the service delivered them. For one reader.
    public struct WithOrigins: AsyncSequence, Sendable {
        public typealias Element = (notification: Foundation.Notification, origin: Origin)
        public typealias Failure = Never

        fileprivate let stream: AsyncStream<Received>

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate var iterator: AsyncStream<Received>.Iterator

            public mutating func next() async -> Element? {
                await next(isolation: nil)
            }

            /// The next notification; nil when the reader's task was cancelled.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
                await iterator.next(isolation: actor).map { ($0.notification, $0.origin) }
            }
        }

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(iterator: stream.makeAsyncIterator())
        }
    }
}
