// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Registration and removal of observers.
extension DistributedNotificationCenter {
    // MARK: Blocks

    /// Adds a block that observes notifications, with the suspension behavior ``SuspensionBehavior/coalesce``.
    ///
    /// - Parameters:
    ///   - name: the name to observe; nil for any. An empty name is refused, because no notification has it.
    ///   - object: the object to observe, a `String`; nil for any. Other types are refused (N3).
    ///   - queue: the queue of the block; nil for the center's ``defaultDelivery``. It is retained.
    ///   - block: the block, retained until the observer is removed.
    /// - Returns: a token for ``removeObserver(_:)-(Any)``. The center retains it as well: a program that observes
    ///   until its end may discard it. If the observer is refused, the refusal is logged, and the token belongs to no
    ///   observer.
    @discardableResult
    public func addObserver(
        forName name: Foundation.Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Foundation.Notification) -> Void
    ) -> any NSObjectProtocol {
        addObserver(forName: name, object: object, suspensionBehavior: .coalesce, queue: queue, using: block)
    }

    /// Adds a block that observes notifications.
    ///
    /// - Parameter suspensionBehavior: the treatment of notifications while the program is suspended.
    ///
    /// Otherwise like ``addObserver(forName:object:queue:using:)``.
    @discardableResult
    public func addObserver(
        forName name: Foundation.Notification.Name?, object: Any?, suspensionBehavior: SuspensionBehavior,
        queue: OperationQueue?, using block: @escaping @Sendable (Foundation.Notification) -> Void
    ) -> any NSObjectProtocol {
        let token = ObserverToken()
        add(token, name: name, object: object, suspensionBehavior, to: target(for: queue)) { received in
            block(received.notification)
        }
        return token
    }

    /// Adds a block that observes notifications until the returned handle is released or cancelled (C7).
    ///
    /// - Parameters:
    ///   - name: the name to observe; nil for any.
    ///   - object: the object to observe; nil for any.
    ///   - suspensionBehavior: the treatment of notifications while the program is suspended.
    ///   - runLoopMode: the urgency of the notifications while the service is busy (M6). Event tracking precedes modal
    ///     panel, which precedes default. Other modes are refused.
    ///   - retained: whether the observer first receives the existing retained values (R2), in order and before any
    ///     newer notification. With `retained` among the ``details``, ``Origin/isRetained`` distinguishes them from new
    ///     notifications.
    ///   - minimumInterval: the minimum time between two notifications of the same name and object (R5). Of the
    ///     notifications in between, the newest is delivered at the end of the interval. The value is rounded up to
    ///     whole milliseconds; zero delivers all.
    ///   - queue: the queue of the block; nil for the center's ``defaultDelivery``.
    public func observe(
        _ name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, runLoopMode: CarillonMainLoop.RunLoopMode = .default,
        retained: Bool = false, minimumInterval: Duration = .zero, queue: OperationQueue? = nil,
        using block: @escaping @Sendable (Foundation.Notification) -> Void
    ) -> Observation {
        observation(
            name: name, object: object, suspensionBehavior: suspensionBehavior, runLoopMode: runLoopMode,
            wantsRetained: retained, minimumInterval: minimumInterval, on: target(for: queue)
        ) { block($0.notification) }
    }

    /// Adds a block that observes notifications on the thread that runs a main context (M4). Otherwise like
    /// ``observe(_:object:suspensionBehavior:runLoopMode:retained:minimumInterval:queue:using:)``.
    ///
    /// While that thread does not run its loop, notifications wait, up to `DeliveryQueue.Limits.standard`. The observer
    /// does not keep the context alive, and ends with it.
    ///
    /// - Parameter modes: the modes of the context in which the block runs.
    public func observe(
        _ name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, runLoopMode: CarillonMainLoop.RunLoopMode = .default,
        retained: Bool = false, minimumInterval: Duration = .zero, context: MainContext,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common],
        using block: @escaping @Sendable (Foundation.Notification) -> Void
    ) -> Observation {
        observation(
            name: name, object: object, suspensionBehavior: suspensionBehavior, runLoopMode: runLoopMode,
            wantsRetained: retained, minimumInterval: minimumInterval, on: target(for: context, modes: modes)
        ) { block($0.notification) }
    }

    /// Adds a block that observes notifications on the main actor, regardless of ``defaultDelivery``. The program has
    /// to run a loop of its main thread. Otherwise like
    /// ``observe(_:object:suspensionBehavior:runLoopMode:retained:minimumInterval:queue:using:)``.
    public func observeOnMainActor(
        _ name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, runLoopMode: CarillonMainLoop.RunLoopMode = .default,
        retained: Bool = false, minimumInterval: Duration = .zero,
        using block: @escaping @MainActor (Foundation.Notification) -> Void
    ) -> Observation {
        observation(
            name: name, object: object, suspensionBehavior: suspensionBehavior, runLoopMode: runLoopMode,
            wantsRetained: retained, minimumInterval: minimumInterval, on: MainThreadTarget.shared
        ) { received in
            MainActor.assumeIsolated { block(received.notification) }
        }
    }

    /// Adds a block as an observer with all options, and returns the observation that removes it.
    func observation(
        name: Foundation.Notification.Name?, object: Any?, suspensionBehavior: SuspensionBehavior,
        runLoopMode: CarillonMainLoop.RunLoopMode = .default, wantsRetained: Bool = false,
        minimumInterval: Duration = .zero, on target: any DeliveryTarget,
        using block: @escaping @Sendable (ReceivedNotification) -> Void
    ) -> Observation {
        let token = ObserverToken()
        add(
            token, name: name, object: object, suspensionBehavior, runLoopMode, wantsRetained, minimumInterval,
            to: target,
            block)
        return Observation { [weak self] in self?.removeObserver(token) }
    }

    // MARK: Removing

    /// Removes all observers of a token, or of an object whose methods observe (C6). Without any, the call has no
    /// effect.
    ///
    /// Notifications that already wait on the observer's thread are not delivered.
    public func removeObserver(_ observer: Any) {
        remove(observer) { _ in true }
    }

    /// Removes those observers of a token, or of an object whose methods observe, that were added with this name and
    /// object.
    ///
    /// - Parameters:
    ///   - name: the name with which they were added; nil for any.
    ///   - object: the object with which they were added, a `String`; nil for any.
    public func removeObserver(_ observer: Any, name: Foundation.Notification.Name?, object: Any?) {
        let name = name.map { ExactText($0.rawValue) }
        do throws(DistributedNotificationError) {
            let object = try text(ofObject: object).map { ExactText($0) }
            remove(observer) { key in
                (name == nil || key.name == name) && (object == nil || key.object == object)
            }
        } catch {
            Log.warning("no observer is removed: \(error)")
        }
    }

    /// Removes the observers of an owner that fulfil a condition.
    private func remove(_ observer: Any, where condition: (RegistrationKey) -> Bool) {
        // The call `removeObserver(token as Any)` with an optional token is common. On macOS it means the wrapped
        // token.
        if let optional = observer as? any OptionalValue {
            if let wrapped = optional.wrappedValue { remove(wrapped, where: condition) }
            return
        }
        // Only an object can be the owner of observers. A cast of a value to `AnyObject` would create a new object.
        guard type(of: observer) is AnyObject.Type else { return }
        let owner = observer as AnyObject
        change { $0.remove(of: owner, where: condition) }
    }

    // MARK: Registration

    /// Adds a block for a token, or reports the refusal of an invalid argument.
    private func add(
        _ token: ObserverToken, name: Foundation.Notification.Name?, object: Any?, _ behavior: SuspensionBehavior,
        _ mode: CarillonMainLoop.RunLoopMode = .default, _ wantsRetained: Bool = false,
        _ minimumInterval: Duration = .zero, to target: any DeliveryTarget,
        _ block: @escaping @Sendable (ReceivedNotification) -> Void
    ) {
        do throws(DistributedNotificationError) {
            let key = try key(name: name, object: object, behavior, mode, wantsRetained, minimumInterval)
            change { $0.add(owner: token, isToken: true, key: key, target: target, action: .block(block)) }
        } catch {
            noteRefusedObserver(name: name, object: object as? String, error)
        }
    }

    /// Adds a method of an object, or reports the refusal of an invalid argument.
    ///
    /// - Parameter call: calls the method; false if the object is gone.
    func add(
        methodOf owner: some AnyObject, name: Foundation.Notification.Name?, object: String?,
        _ behavior: SuspensionBehavior, to target: any DeliveryTarget,
        _ call: @escaping @Sendable (ReceivedNotification) -> Bool
    ) {
        do throws(DistributedNotificationError) {
            let key = try key(name: name, object: object, behavior)
            change { $0.add(owner: owner, isToken: false, key: key, target: target, action: .method(call)) }
        } catch {
            noteRefusedObserver(name: name, object: object, error)
        }
    }

    /// Returns the key of the registration that an observer with these arguments needs at the service.
    private func key(
        name: Foundation.Notification.Name?, object: Any?, _ behavior: SuspensionBehavior,
        _ mode: CarillonMainLoop.RunLoopMode = .default, _ wantsRetained: Bool = false,
        _ minimumInterval: Duration = .zero
    ) throws(DistributedNotificationError) -> RegistrationKey {
        if let name { try check(name: name) }
        let object = try text(ofObject: object)
        guard let mode = CarillonCore.RunLoopMode(rawValue: mode.rawValue) else {
            throw .unsupportedOption(reason: "the service has no run-loop mode '\(mode)'")
        }
        return RegistrationKey(
            name: name.map { ExactText($0.rawValue) }, object: object.flatMap { $0.isEmpty ? nil : ExactText($0) },
            options: ObserverOptions(
                suspensionBehavior: .init(behavior), automaticSuspension: allowsAutomaticSuspension,
                runLoopMode: mode, wantsRetained: wantsRetained,
                minimumInterval: try milliseconds(of: minimumInterval)),
            // An observer of retained values has a registration of its own, because the service sends the values behind
            // it.
            number: wantsRetained ? nextRetainedNumber() : 0)
    }

    /// Returns an interval in milliseconds, rounded up.
    private func milliseconds(of interval: Duration) throws(DistributedNotificationError) -> UInt32 {
        let count = (interval / .milliseconds(1)).rounded(.up)
        guard count >= 0, let milliseconds = UInt32(exactly: count) else {
            throw .unsupportedOption(reason: "the minimum interval \(interval) is out of range")
        }
        return milliseconds
    }

    private func nextRetainedNumber() -> UInt64 {
        state.withLock { state in
            state.lastRetainedNumber += 1
            return state.lastRetainedNumber
        }
    }

    /// Changes the table of observers, and submits the resulting changes of registrations. Both happen under one lock,
    /// so that the service receives the changes of several threads in the order of the table.
    private func change(_ change: (inout ObserverTable) -> ObserverTable.Change) {
        let released = state.withLock { state in
            let change = change(&state.observers)
            for key in change.unregistered { submit(.unregister(key)) }
            if let key = change.registered { submit(.register(key)) }
            return Released(objects: state.observers.takeReleased())
        }
        // Released with no lock held: a block may retain an object whose `deinit` removes another observer.
        withExtendedLifetime(released) {}
    }

    /// Removes observers whose object is gone.
    func removeDeadObservers() {
        change { $0.removeDead() }
    }

    /// Returns the delivery target for the thread of a main context. The observers of a context are removed when it
    /// ends.
    func target(for context: MainContext, modes: Set<CarillonMainLoop.RunLoopMode>) -> any DeliveryTarget {
        let target = ContextTarget(context, modes: modes)
        let delivery = target.delivery
        let isNew = state.withLock { state in
            let isNew = !state.contexts.contains { $0 === delivery }
            if isNew { state.contexts.append(delivery) }
            return isNew
        }
        if isNew {
            delivery.follow(self) { [weak self, weak delivery] in
                guard let self, let delivery else { return }
                change { $0.remove { ($0 as? ContextTarget)?.delivery === delivery } }
                state.withLock { $0.contexts.removeAll { $0 === delivery } }
            }
        }
        return target
    }

    /// Counts, logs and reports an observer that was refused here or by the service.
    func noteRefusedObserver(
        name: Foundation.Notification.Name?, object: String?, _ error: DistributedNotificationError
    ) {
        count { $0.refusedObservers += 1 }
        Log.warning("an observer was refused: \(error)", ["CARILLON_NAME": name?.rawValue ?? ""])
        report(.observerRefused(name: name, object: object, error))
    }
}

/// An optional of any wrapped type, in a value of unknown type.
private protocol OptionalValue {
    var wrappedValue: Any? { get }
}

extension Optional: OptionalValue {
    fileprivate var wrappedValue: Any? { self }
}

/// Removed objects on their way out of the lock: they are released with no lock of the center held.
private struct Released: @unchecked Sendable {
    // Sendable: no other code uses the objects any more.
    let objects: [AnyObject]
}

/// The token that `addObserver(forName:…)` returns. It is an object of Foundation, as on macOS.
private final class ObserverToken: NSObject, @unchecked Sendable {
    // Sendable: it has no state; NSObject does not declare it.
}
