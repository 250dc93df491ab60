// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation

/// Posting. A notification queue may stand in front of the center.
extension DistributedNotificationCenter: NotificationPosting {
    // MARK: In the style of macOS

    /// Posts a notification whose object is a `String` or nil.
    ///
    /// Returns at once. What can't be posted is logged, counted and reported as an ``Event``; so for the other methods
    /// that don't throw.
    public func post(_ notification: Foundation.Notification) {
        post(name: notification.name, object: notification.object, userInfo: notification.userInfo)
    }

    /// Posts a notification.
    ///
    /// - Parameters:
    ///   - name: not empty.
    ///   - object: a `String`, or nil.
    ///   - userInfo: property-list values with `String` keys (N3).
    public func post(name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]? = nil) {
        postNoting(name, object: object, userInfo: userInfo, options: [])
    }

    /// Posts a notification.
    ///
    /// - Parameter deliverImmediately: whether suspended programs get it at once, too.
    public func postNotificationName(
        _ name: Foundation.Notification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil,
        deliverImmediately: Bool
    ) {
        postNoting(name, object: object, userInfo: userInfo, options: deliverImmediately ? .deliverImmediately : [])
    }

    /// Posts a notification with options.
    public func postNotificationName(
        _ name: Foundation.Notification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil,
        options: Options = []
    ) {
        postNoting(name, object: object, userInfo: userInfo, options: options)
    }

    private func postNoting(
        _ name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?, options: Options
    ) {
        do throws(DistributedNotificationError) {
            try send(name, object: object, userInfo: userInfo, options: try wireOptions(options))
        } catch {
            noteRefusedPost(error)
        }
    }

    // MARK: With an outcome

    /// Posts a notification, or says at once why it can't leave the process. It never waits for the service, also not in an
    /// asynchronous function; ``postAndWait(named:object:userInfo:options:style:coalescing:retention:isolation:)`` does.
    ///
    /// - Parameters:
    ///   - style: when the service posts it (Q7): at once, as soon as it has done what is at hand, or when it has
    ///     nothing else to do.
    ///   - coalescing: which earlier posts of this program, that still wait in the service, this one replaces: those
    ///     with the same name, the same object, or both (Q3).
    ///   - retention: whether the service keeps it as the value of its name and object (R1); nil for not.
    /// - Throws: what is wrong with the arguments, or ``DistributedNotificationError/tooManyUnsentPosts(limit:)``. What
    ///   happens later, such as a service that can't be started, is reported as an ``Event``.
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
    ///   - style: when the service posts it (Q7).
    ///   - coalescing: which earlier posts of this program, that still wait in the service, this one replaces (Q3).
    ///   - retention: whether the service keeps it as the value of its name and object (R1); nil for not.
    ///   - isolation: that of the caller, where userInfo stays.
    /// - Returns: how many clients of the service it matched; 0 when it waits there. A client is a program, however many
    ///   observers it has.
    /// - Throws: why it was not posted. After ``DistributedNotificationError/disconnected(_:)`` it may have been, and after
    ///   ``DistributedNotificationError/cancelled``: a task that is cancelled waits no longer, and in one that is cancelled
    ///   before nothing is posted.
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

    // MARK: At the exit

    /// Leaves a notification with the service, which posts it when this program has left the bus, however it ends: by its
    /// exit, a crash or a kill (R4).
    ///
    /// Waits until the service has it: from then on nothing that happens to this program keeps it from being posted. A
    /// service that ends leaves it to the next one. ``withdrawPosts(named:object:isolation:)`` takes it back.
    ///
    /// - Parameters:
    ///   - coalescing: which earlier ones of this program that wait for its exit this one replaces (Q3).
    ///   - retention: whether the service keeps it from then on (R1); nil for not. One that
    ///     expires begins to with the exit, and ``Retention/whileConnected`` makes no sense.
    /// - Throws: why the service did not take it.
    public func postAtExit(
        named name: Foundation.Notification.Name, object: String? = nil, userInfo: [AnyHashable: Any]? = nil,
        options: Options = [], coalescing: NotificationQueue.NotificationCoalescing = [],
        retention: Retention? = nil, isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) {
        var wireOptions = try wireOptions(options, coalescing: coalescing, retention: retention)
        guard wireOptions.retention?.whileConnected != true else {
            throw .unsupportedOption(reason: "what is posted at the exit would be gone at once")
        }
        wireOptions.postingStyle = .atExit
        _ = try await outcome(
            of: try outgoing(name, object: object, userInfo: userInfo, options: wireOptions), isolation)
    }

    /// Takes back what this program posted with another style than `now`, or at its exit, and what still waits in the
    /// service (Q3).
    ///
    /// - Parameters:
    ///   - name: nil for any.
    ///   - object: nil for whatever object.
    /// - Returns: how many there were.
    /// - Throws: why the service does not do it.
    @discardableResult
    public func withdrawPosts(
        named name: Foundation.Notification.Name?, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Int {
        if let name { try check(name: name) }
        let object = try text(ofObject: object)
        return try await answer(to: WithdrawPosts(name: name?.rawValue ?? "", object: object ?? ""), isolation)
    }

    // MARK: The one way out

    /// - Returns: how many clients of the service it matched.
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

    func send(
        _ name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?, options: PostOptions
    ) throws(DistributedNotificationError) {
        try submit(try outgoing(name, object: object, userInfo: userInfo, options: options))
    }

    func submit(_ post: OutgoingPost) throws(DistributedNotificationError) {
        do throws(ServiceError) {
            try link.submit(.post(post))
        } catch {
            throw DistributedNotificationError(error)
        }
        state.withLock { $0.statistics.posted += 1 }
    }

    private func outgoing(
        _ name: Foundation.Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?, options: PostOptions
    ) throws(DistributedNotificationError) -> OutgoingPost {
        try check(name: name)
        let object = try text(ofObject: object)
        return try laidOut(
            name, object: object, entries: try UserInfoEncoder.entries(of: userInfo ?? [:]), options: options)
    }

    /// - Parameters:
    ///   - name: one that ``check(name:)`` lets pass.
    ///   - object: of ``text(ofObject:)``.
    ///   - entries: of the userInfo.
    func laidOut(
        _ name: Foundation.Notification.Name, object: String?, entries: [(key: String, value: PropertyList)],
        options: PostOptions
    ) throws(DistributedNotificationError) -> OutgoingPost {
        do throws(CenterError) {
            return try OutgoingPost(name: name.rawValue, object: object ?? "", entries: entries, options: options)
        } catch {
            throw DistributedNotificationError(error)
        }
    }

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

    func check(name: Foundation.Notification.Name) throws(DistributedNotificationError) {
        guard !name.rawValue.isEmpty, !name.rawValue.holdsNUL else { throw .invalidName(name.rawValue) }
    }

    /// Why no notification has such a name or object; nil where one may.
    func refusal(of name: Foundation.Notification.Name, object: String?) -> DistributedNotificationError? {
        do throws(DistributedNotificationError) {
            try check(name: name)
            _ = try text(ofObject: object)
            return nil
        } catch {
            return error
        }
    }

    func text(ofObject object: Any?) throws(DistributedNotificationError) -> String? {
        guard let object else { return nil }
        guard let text = object as? String else {
            throw .invalidObject(
                reason: "between processes the object is a String, not a value of type \(type(of: object))")
        }
        guard !text.holdsNUL else { throw .invalidObject(reason: "it must not hold a NUL character") }
        return text
    }
}
