// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Methods of objects as observers, the Swift counterpart of target and selector.
extension DistributedNotificationCenter {
    /// Adds a method of an object as an observer.
    ///
    /// ```swift
    /// center.addObserver(self, method: Document.savedElsewhere, name: .saved, object: path)
    /// ```
    ///
    /// - Parameters:
    ///   - target: the object. It is held weakly, and kept alive while its method runs. Its observers are removed after
    ///     it ends (C5).
    ///   - method: an unbound method of the target. It runs where observers run by default. A method that is isolated
    ///     to the main actor always runs there. A method of another global actor is refused.
    ///   - name: the name to observe; nil for any.
    ///   - object: the object to observe; nil for any.
    ///   - suspensionBehavior: the treatment of notifications while the program is suspended.
    ///   - context: the main context on whose thread the method runs (M4); nil for the center's ``defaultDelivery``. A
    ///     method of the main actor is refused with a context other than the default one.
    ///   - modes: the modes in which the method is called, if there is a context. A method of the main actor with modes
    ///     other than `common` ends the program if another thread runs the default context.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (Foundation.Notification) -> Void,
        name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, context: MainContext? = nil,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, suspensionBehavior, context, modes)
    }

    /// Adds a method without parameters as an observer, for which the notification is not decoded. Otherwise like the
    /// variant for a method that takes a `Notification`.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) () -> Void,
        name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, context: MainContext? = nil,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, suspensionBehavior, context, modes)
    }

    /// Adds a method that takes an `NSNotification` as an observer. A method whose parameter accepts both types
    /// receives a `Notification`. Otherwise like the variant for a method that takes a `Notification`.
    @_disfavoredOverload
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void,
        name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, context: MainContext? = nil,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, suspensionBehavior, context, modes)
    }

    /// Adds a method on the thread that its isolation and the arguments require. A method that no thread can run is
    /// refused.
    private func add<Target: AnyObject>(
        _ target: Target, _ method: ObserverMethod<Target>, _ name: Foundation.Notification.Name?, _ object: String?,
        _ behavior: SuspensionBehavior, _ context: MainContext?, _ modes: Set<CarillonMainLoop.RunLoopMode>
    ) {
        let deliveryTarget: any DeliveryTarget
        /// Whether each call checks that it runs on the main actor.
        var isChecked = false
        // Not an overload for `@MainActor`: the compiler accepts either method for either overload, and silently drops
        // the isolation.
        switch method.isolation(of: target) {
        case nil: deliveryTarget = context.map { self.target(for: $0, modes: modes) } ?? self.target(for: nil)
        case let actor? where actor === MainActor.shared:
            guard context == nil || context == .default else {
                return noteRefusedObserver(
                    name: name, object: object,
                    .unsupportedOption(reason: "a method of the main actor can't observe in another context"))
            }
            // With the common modes, the main-thread target runs the method. With other modes, the default context runs
            // it; any thread may run that context, so each call is checked.
            isChecked = context != nil && modes != [.common]
            deliveryTarget = isChecked ? self.target(for: .default, modes: modes) : MainThreadTarget.shared
        case let actor?:
            return noteRefusedObserver(
                name: name, object: object,
                .unsupportedOption(reason: "a method of \(type(of: actor)) can't observe; only the main actor's can"))
        }
        let reference = WeakTarget(target)
        add(methodOf: target, name: name, object: object, behavior, to: deliveryTarget) { [isChecked] received in
            if isChecked { MainActor.preconditionIsolated("a method of the main actor observes in a context") }
            // The strong reference keeps the target alive for as long as its method runs.
            guard let target = reference.target else { return false }
            method(target) { received.notification }
            return true
        }
    }
}

/// A weak reference to an object, readable on any thread.
private final class WeakTarget<Target: AnyObject>: @unchecked Sendable {
    // Sendable: the runtime guards the reference, and the object is used only on the thread that the program chose for
    // its observer.
    private(set) weak var target: Target?

    init(_ target: Target) {
        self.target = target
    }
}
