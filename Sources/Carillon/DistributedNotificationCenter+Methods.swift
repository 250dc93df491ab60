// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Methods of objects as observers: Swift's stand-in for target and selector.
extension DistributedNotificationCenter {
    /// Adds a method of an object as observer.
    ///
    /// ```swift
    /// center.addObserver(self, method: Document.savedElsewhere, name: .saved, object: path)
    /// ```
    ///
    /// - Parameters:
    ///   - target: held weakly, and kept alive while its method runs. Its observers go away with it (C5).
    ///   - method: an unbound method of the target. It is called where observers run by default; a method that is
    ///     isolated to the main actor is called there, wherever others run. One of another global actor is refused.
    ///   - name: nil for any.
    ///   - object: nil for any.
    ///   - suspensionBehavior: what happens to notifications while the program is suspended.
    ///   - context: the main context on whose thread it is called (M4); nil for the center's ``defaultDelivery``. A method of
    ///     the main actor is refused where that is not the default one.
    ///   - modes: with a context, those in which it is called. A method of the main actor with others than the common ones ends
    ///     the program where another thread runs the default context.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (Foundation.Notification) -> Void,
        name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, context: MainContext? = nil,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, suspensionBehavior, context, modes)
    }

    /// The same for a method that takes no notification. Nothing of it is decoded then.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) () -> Void,
        name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, context: MainContext? = nil,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, suspensionBehavior, context, modes)
    }

    /// The same for a method that takes Foundation's class. One that takes anything at all gets a value.
    @_disfavoredOverload
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void,
        name: Foundation.Notification.Name?, object: String? = nil,
        suspensionBehavior: SuspensionBehavior = .coalesce, context: MainContext? = nil,
        modes: Set<CarillonMainLoop.RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, suspensionBehavior, context, modes)
    }

    private func add<Target: AnyObject>(
        _ target: Target, _ method: ObserverMethod<Target>, _ name: Foundation.Notification.Name?, _ object: String?,
        _ behavior: SuspensionBehavior, _ context: MainContext?, _ modes: Set<CarillonMainLoop.RunLoopMode>
    ) {
        let place: any DeliveryTarget
        var isChecked = false
        // Not an overload for `@MainActor`: the compiler takes either for either, and drops the isolation silently.
        switch method.isolation(of: target) {
        case nil: place = context.map { self.target(for: $0, modes: modes) } ?? self.target(for: nil)
        case let actor? where actor === MainActor.shared:
            guard context == nil || context == .default else {
                return noteRefusedObserver(
                    name: name, object: object,
                    .unsupportedOption(reason: "a method of the main actor can't observe in another context"))
            }
            // Any thread may run the default context, but in the common modes there is a place for the main thread alone.
            isChecked = context != nil && modes != [.common]
            place = isChecked ? self.target(for: .default, modes: modes) : MainThreadTarget.shared
        case let actor?:
            return noteRefusedObserver(
                name: name, object: object,
                .unsupportedOption(reason: "a method of \(type(of: actor)) can't observe; only the main actor's can"))
        }
        let reference = WeakTarget(target)
        add(methodOf: target, name: name, object: object, behavior, to: place) { [isChecked] received in
            if isChecked { MainActor.preconditionIsolated("a method of the main actor observes in a context") }
            // The strong reference keeps the target alive for as long as its method runs.
            guard let target = reference.target else { return false }
            method(target) { received.notification }
            return true
        }
    }
}

/// An object that is held weakly, which may be read on any thread.
private final class WeakTarget<Target: AnyObject>: @unchecked Sendable {
    // Sendable: the runtime guards the reference, and the object is used only where the program asked for its observer to run.
    private(set) weak var target: Target?

    init(_ target: Target) {
        self.target = target
    }
}
