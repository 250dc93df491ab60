// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation

/// Posting: the macOS interface, posts that throw or wait, and at-exit posts. By `NotificationPosting`, a
/// ``NotificationQueue`` can post to the center.
extension DistributedNotificationCenter: NotificationPosting {
    // MARK: macOS interface

    /// Posts a notification whose object is a `String` or nil.
    ///
    /// The method returns at once. A post that is refused is logged, counted and reported as an ``Event``. The same
    /// holds for the other posting methods that do not throw.
    public func post(_ notification: Foundation.Notification) {
        post(name: notification.name, object: notification.object, userInfo: notification.userInfo)
    }

    /// Posts a notification.
    ///
    /// - Parameters:
    ///   - name: the name; not empty.
    ///   - object: a `String`, or nil.
    ///   - userInfo: property-list values with `String` keys (N3).
    public func post(name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]? = nil) {
        postOrReport(name, object: object, userInfo: userInfo, options: [])
    }

    /// Posts a notification.
    ///
    /// - Parameter deliverImmediately: whether suspended programs receive the notification at once, too.
    public func postNotificationName(
        _ name: Foundation.Notification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil,
        deliverImmediately: Bool
    ) {
        postOrReport(name, object: object, userInfo: userInfo, options: deliverImmediately ? .deliverImmediately : [])
    }

    /// Posts a notification with options.
    public func postNotificationName(
        _ name: Foundation.Notification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil,
        options: Options = []
    ) {
        postOrReport(name, object: object, userInfo: userInfo, options: options)
    }

    /// Posts a notification, and reports a refusal instead of throwing.
    private func postOrReport(
        _ name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?, options: Options
    ) {
        do throws(DistributedNotificationError) {
            try send(name, object: object, userInfo: userInfo, options: try wireOptions(options))
        } catch {
            reportRefusedPost(error)
        }
    }

    // MARK: Posts that throw

    /// Posts a notification, or throws if the post cannot leave the process.
    ///
    /// The method never waits for the service, not even in an asynchronous function.
    /// ``postAndWait(named:object:userInfo:options:style:coalescing:retention:isolation:)`` waits.
    ///
    /// - Parameters:
    ///   - style: the time at which the service posts the notification (Q7): at once, after the work at hand, or when
    ///     it is idle.
    ///   - coalescing: the earlier posts of this program in the service's queue that this post replaces: those with the
    ///     same name, the same object, or both (Q3).
    ///   - retention: the retention of the post as the value of its name and object (R1); nil for no retention.
    /// - Throws: the error of an invalid argument, or ``DistributedNotificationError/tooManyUnsentPosts(limit:)``. A
    ///   later failure, such as a service that cannot be started, is reported as an ``Event``.
    public func post(
        named name: Foundation.Notification.Name, object: String? = nil, userInfo: [AnyHashable: Any]? = nil,
        options: Options = [], style: NotificationQueue.PostingStyle = .now,
        coalescing: NotificationQueue.NotificationCoalescing = [], retention: Retention? = nil
    ) throws(DistributedNotificationError) {
        try send(
            name, object: object, userInfo: userInfo,
            options: try wireOptions(options, style: style, coalescing: coalescing, retention: retention))
    }

    /// Posts a notification, and waits until the service has accepted it.
    ///
    /// - Parameters:
    ///   - style: the time at which the service posts the notification (Q7).
    ///   - coalescing: the earlier posts of this program in the service's queue that this post replaces (Q3).
    ///   - retention: the retention of the post as the value of its name and object (R1); nil for no retention.
    ///   - isolation: the isolation of the caller, which the userInfo does not leave.
    /// - Returns: the number of clients of the service that the post matched; 0 if the post is queued there. A client
    ///   is a program, regardless of its number of observers.
    /// - Throws: the reason why the notification was not posted. After
    ///   ``DistributedNotificationError/disconnected(_:)`` and ``DistributedNotificationError/cancelled`` it may have
    ///   been posted: a task that is cancelled stops waiting. In a task that was cancelled before the call nothing is
    ///   posted.
    @discardableResult
    public func postAndWait(
        named name: Foundation.Notification.Name, object: String? = nil, userInfo: [AnyHashable: Any]? = nil,
        options: Options = [], style: NotificationQueue.PostingStyle = .now,
        coalescing: NotificationQueue.NotificationCoalescing = [], retention: Retention? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Int {
        try await outcome(
            of: try outgoing(
                name, object: object, userInfo: userInfo,
                options: try wireOptions(options, style: style, coalescing: coalescing, retention: retention)),
            isolation)
    }

    // MARK: At-exit posts

    /// Registers an at-exit post (a last will). The service posts it when this program leaves the bus for any reason:
    /// its exit, a crash or a kill (R4).
    ///
    /// The method waits until the service has accepted the post. After that, the post is sent regardless of the
    /// program's fate, and it survives a restart of the service. ``withdrawPosts(named:object:isolation:)`` withdraws
    /// it.
    ///
    /// - Parameters:
    ///   - coalescing: the earlier at-exit posts of this program that this post replaces (Q3).
    ///   - retention: the retention of the notification when it is posted (R1); nil for no retention. An expiry time
    ///     begins with the exit. ``Retention/whileConnected`` is refused, because the value would end at once.
    /// - Throws: the reason why the service did not accept the post.
    public func postAtExit(
        named name: Foundation.Notification.Name, object: String? = nil, userInfo: [AnyHashable: Any]? = nil,
        options: Options = [], coalescing: NotificationQueue.NotificationCoalescing = [],
        retention: Retention? = nil, isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) {
        var wireOptions = try wireOptions(options, coalescing: coalescing, retention: retention)
        guard wireOptions.retention?.whileConnected != true else {
            throw .unsupportedOption(reason: "a value while connected would be removed at once after the exit")
        }
        wireOptions.postingStyle = .atExit
        _ = try await outcome(
            of: try outgoing(name, object: object, userInfo: userInfo, options: wireOptions), isolation)
    }

    /// Withdraws the posts of this program that wait in the service: those of a style other than `now`, and at-exit
    /// posts (Q3).
    ///
    /// - Parameters:
    ///   - name: the name of the posts; nil for any.
    ///   - object: the object of the posts; nil for any.
    /// - Returns: the number of withdrawn posts.
    /// - Throws: the reason why the service did not withdraw them.
    @discardableResult
    public func withdrawPosts(
        named name: Foundation.Notification.Name?, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Int {
        if let name { try check(name: name) }
        let object = try text(ofObject: object)
        return try await answer(to: WithdrawPosts(name: name?.rawValue ?? "", object: object ?? ""), isolation)
    }

    // MARK: Sending

    /// Sends a post and waits for the answer of the service.
    ///
    /// - Returns: the number of clients of the service that the post matched.
    func outcome(
        of post: OutgoingPost, _ isolation: isolated (any Actor)?
    ) async throws(DistributedNotificationError) -> Int {
        typealias Outcome = Result<Int, DistributedNotificationError>
        let outcome = await PendingAnswer<Outcome>.of(isolation: isolation, orCancelled: .failure(.cancelled)) {
            answer in
            do throws(DistributedNotificationError) {
                try submit(
                    post.completed { result in answer.answer(result.mapError(DistributedNotificationError.init)) })
            } catch {
                answer.answer(.failure(error))
            }
        }
        return try outcome.get()
    }

    /// Encodes a notification and sends it without waiting for an answer.
    func send(
        _ name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?, options: PostOptions
    ) throws(DistributedNotificationError) {
        try submit(try outgoing(name, object: object, userInfo: userInfo, options: options))
    }

    /// Appends a post to the outbox and counts it.
    func submit(_ post: OutgoingPost) throws(DistributedNotificationError) {
        do throws(ServiceError) {
            try link.submit(.post(post))
        } catch {
            throw DistributedNotificationError(error)
        }
        state.withLock { $0.statistics.posted += 1 }
    }

    /// Checks and encodes a notification.
    private func outgoing(
        _ name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?, options: PostOptions
    ) throws(DistributedNotificationError) -> OutgoingPost {
        try check(name: name)
        let object = try text(ofObject: object)
        return try encodedPost(
            name, object: object, entries: try UserInfoEncoder.entries(of: userInfo ?? [:]), options: options)
    }

    /// Encodes a post as a message.
    ///
    /// - Parameters:
    ///   - name: a name that passed ``check(name:)``.
    ///   - object: the result of ``text(ofObject:)``.
    ///   - entries: the entries of the userInfo.
    func encodedPost(
        _ name: Foundation.Notification.Name, object: String?, entries: [(key: String, value: PropertyList)],
        options: PostOptions
    ) throws(DistributedNotificationError) -> OutgoingPost {
        do throws(CenterError) {
            return try OutgoingPost(name: name.rawValue, object: object ?? "", entries: entries, options: options)
        } catch {
            throw DistributedNotificationError(error)
        }
    }

    /// Returns the options of a post as the service's interface has them.
    func wireOptions(
        _ options: Options, style: NotificationQueue.PostingStyle = .now,
        coalescing: NotificationQueue.NotificationCoalescing = [], retention: Retention? = nil
    ) throws(DistributedNotificationError) -> PostOptions {
        guard options.isSubset(of: [.deliverImmediately, .postToAllSessions]) else {
            throw .unsupportedOption(reason: "there are no options \(options.rawValue)")
        }
        var result = PostOptions()
        result.deliverImmediately = options.contains(.deliverImmediately)
        result.goesToAllSessions = options.contains(.postToAllSessions)
        result.postingStyle =
            switch style {
            case .now: .now
            case .asap: .asap
            case .whenIdle: .whenIdle
            }
        if coalescing.contains(.onName) { result.coalescing.insert(.name) }
        if coalescing.contains(.onSender) { result.coalescing.insert(.object) }
        try retention?.apply(to: &result)
        return result
    }

    // MARK: Checks

    /// Throws if the name is empty or contains a NUL character.
    func check(name: Foundation.Notification.Name) throws(DistributedNotificationError) {
        guard !name.rawValue.isEmpty, !name.rawValue.holdsNUL else { throw .invalidName(name.rawValue) }
    }

    /// Returns the error of an invalid name or object; nil if both are valid.
    func refusal(of name: Foundation.Notification.Name, object: String?) -> DistributedNotificationError? {
        do throws(DistributedNotificationError) {
            try check(name: name)
            _ = try text(ofObject: object)
            return nil
        } catch {
            return error
        }
    }

    /// Returns the object of a notification as a text; nil if there is none. Other types are refused.
    func text(ofObject object: Any?) throws(DistributedNotificationError) -> String? {
        guard let object else { return nil }
        guard let text = object as? String else {
            throw .invalidObject(
                reason: "between processes the object is a String, not a value of type \(type(of: object))")
        }
        guard !text.holdsNUL else { throw .invalidObject(reason: "it must not contain a NUL character") }
        return text
    }
}
