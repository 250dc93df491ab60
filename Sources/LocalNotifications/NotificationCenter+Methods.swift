// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Methods of objects as observers, without the runtime of Objective-C.
extension NotificationCenter {
    /// Has a method of an object called for each matching notification: `center.addObserver(self, method: Document.saved,
    /// name: .saved, object: nil)`.
    ///
    /// The target is held weakly: when it is gone, so is the registration. It is kept alive while the method runs. What
    /// is left of the registration hears nothing, and goes soon; a target that wants it gone at once removes itself in
    /// its `deinit`, or keeps an ``Observation`` of a block.
    /// Every thread that posts calls the method, so it has to be one that can be called there; ask for a queue or a
    /// context where it is not. One that is isolated to the main actor is called there: before the post returns where the
    /// main thread posts, and soon where another does.
    ///
    /// - Parameters:
    ///   - method: an unbound method of the target. One of another global actor than the main one is a mistake of the program.
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one.
    ///   - queue: where the method runs, and the post waits for it; nil = on the posting thread. For a method of the main actor
    ///     the main one or none.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (Notification) -> Void,
        name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil
    ) {
        add(target, ObserverMethod(method), name, object, queue)
    }

    /// The same for a method that takes no notification.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) () -> Void,
        name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil
    ) {
        add(target, ObserverMethod(method), name, object, queue)
    }

    /// The same for a method that takes Foundation's class. One that takes anything at all gets a value.
    @_disfavoredOverload
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void,
        name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil
    ) {
        add(target, ObserverMethod(method), name, object, queue)
    }

    /// The same for a method that runs on the thread of a main context; the post does not wait for it (T1).
    ///
    /// - Parameters:
    ///   - context: for a method of the main actor the default one.
    ///   - modes: the method is called only while the context is in one of them.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (Notification) -> Void,
        name: Notification.Name?, object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, context, modes)
    }

    /// The same for a method that takes no notification.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) () -> Void,
        name: Notification.Name?, object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, context, modes)
    }

    /// The same for a method that takes Foundation's class. One that takes anything at all gets a value.
    @_disfavoredOverload
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void,
        name: Notification.Name?, object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, context, modes)
    }

    private func add<Target: AnyObject>(
        _ target: Target, _ method: ObserverMethod<Target>, _ name: Notification.Name?, _ object: Any?,
        _ queue: OperationQueue?
    ) {
        let isMainActors = method.isMainActors(target)
        precondition(
            !isMainActors || queue == nil || queue === OperationQueue.main,
            "a method of the main actor observes on the main queue")
        let place: Registration.Place = isMainActors && queue == nil ? .mainActor : .queue(queue)
        _ = add(name, object, target, place, .method(method, isMainActors))
    }

    private func add<Target: AnyObject>(
        _ target: Target, _ method: ObserverMethod<Target>, _ name: Notification.Name?, _ object: Any?,
        _ context: MainContext, _ modes: Set<RunLoopMode>
    ) {
        let isMainActors = method.isMainActors(target)
        precondition(
            !isMainActors || context == .default, "a method of the main actor observes in the default context")
        _ = add(name, object, target, .context(.to(context), modes: .of(modes)), .method(method, isMainActors))
    }
}

extension ObserverMethod {
    fileprivate func isMainActors(_ target: Target) -> Bool {
        guard let actor = isolation(of: target) else { return false }
        precondition(
            actor === MainActor.shared,
            "a method of \(type(of: actor)) can't observe, as posts don't wait for it; only one of the main actor can")
        return true
    }
}

extension Registration.Handler {
    /// - Parameter isMainActors: whether it has to be on the main thread by then.
    fileprivate static func method<Target: AnyObject>(_ method: ObserverMethod<Target>, _ isMainActors: Bool) -> Self {
        .method { target, notification in
            if isMainActors { MainActor.preconditionIsolated("a method of the main actor observes") }
            method(unsafeDowncast(target, to: Target.self)) { notification }
        }
    }
}
