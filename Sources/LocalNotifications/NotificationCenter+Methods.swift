// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Methods of objects as observers. They replace Foundation's target and selector, which need the runtime of
/// Objective-C.
extension NotificationCenter {
    /// Adds a method of an object as an observer, called for each matching notification:
    /// `center.addObserver(self, method: Document.saved, name: .saved, object: nil)`.
    ///
    /// The registration holds the target weakly and ends with it. The target is kept alive while the method runs. After
    /// the end of the target, the rest of the registration receives nothing and is removed later. To remove it at once,
    /// a target removes itself in its `deinit`, or keeps an ``Observation`` of a block.
    ///
    /// The method runs on each thread that posts, so it must be safe to call there; otherwise pass a queue or a
    /// context. A method that is isolated to the main actor is called there. Without a queue, a post on the main thread
    /// waits for it, and a post on another thread does not.
    ///
    /// - Parameters:
    ///   - method: an unbound method of the target. A method of a global actor other than the main actor is a
    ///     programming error.
    ///   - name: the name of the notifications; nil matches every name.
    ///   - object: the sender; nil matches any sender, and posts without one.
    ///   - queue: the queue that runs the method; the post waits for it. Nil runs it on the posting thread. For a
    ///     method of the main actor, pass the main queue or nil.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (Notification) -> Void,
        name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil
    ) {
        add(target, ObserverMethod(method), name, object, queue)
    }

    /// Adds a method without parameters as an observer.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) () -> Void,
        name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil
    ) {
        add(target, ObserverMethod(method), name, object, queue)
    }

    /// Adds a method that takes a notification of Foundation's class as an observer. A method whose parameter may be of
    /// any type receives a value of the type `Notification` instead.
    @_disfavoredOverload
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void,
        name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil
    ) {
        add(target, ObserverMethod(method), name, object, queue)
    }

    /// Adds a method that runs on the thread of a main context as an observer. The post does not wait for it (T1).
    ///
    /// - Parameters:
    ///   - context: the context; for a method of the main actor, the default context.
    ///   - modes: the modes of the context in which the method may be called.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (Notification) -> Void,
        name: Notification.Name?, object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, context, modes)
    }

    /// Adds a method without parameters that runs on the thread of a main context as an observer.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) () -> Void,
        name: Notification.Name?, object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, context, modes)
    }

    /// Adds a method that takes a notification of Foundation's class and runs on the thread of a main context. A method
    /// whose parameter may be of any type receives a value of the type `Notification` instead.
    @_disfavoredOverload
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void,
        name: Notification.Name?, object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(target, ObserverMethod(method), name, object, context, modes)
    }

    /// Adds a method that runs on a queue, on the main actor, or on the posting thread.
    private func add<Target: AnyObject>(
        _ target: Target, _ method: ObserverMethod<Target>, _ name: Notification.Name?, _ object: Any?,
        _ queue: OperationQueue?
    ) {
        let isMainActors = method.isMainActors(target)
        precondition(
            !isMainActors || queue == nil || queue === OperationQueue.main,
            "a method of the main actor must observe on the main queue")
        let destination: Registration.Destination = isMainActors && queue == nil ? .mainActor : .queue(queue)
        _ = add(name, object, target, destination, .method(method, isMainActors))
    }

    /// Adds a method that runs on the thread of a main context.
    private func add<Target: AnyObject>(
        _ target: Target, _ method: ObserverMethod<Target>, _ name: Notification.Name?, _ object: Any?,
        _ context: MainContext, _ modes: Set<RunLoopMode>
    ) {
        let isMainActors = method.isMainActors(target)
        precondition(
            !isMainActors || context == .default, "a method of the main actor must observe in the default context")
        _ = add(name, object, target, .context(.to(context), modes: .of(modes)), .method(method, isMainActors))
    }
}

extension ObserverMethod {
    /// Whether the method is isolated to the main actor. A method of another actor is a programming error.
    fileprivate func isMainActors(_ target: Target) -> Bool {
        guard let actor = isolation(of: target) else { return false }
        precondition(
            actor === MainActor.shared,
            "a method of \(type(of: actor)) can't observe, as posts don't wait for it; only that of the main actor can")
        return true
    }
}

extension Registration.Handler {
    /// Returns a handler that calls a method with its target.
    ///
    /// - Parameter isMainActors: whether the method is isolated to the main actor. A call on another thread then ends
    ///   the program.
    fileprivate static func method<Target: AnyObject>(_ method: ObserverMethod<Target>, _ isMainActors: Bool) -> Self {
        .method { target, notification in
            if isMainActors { MainActor.preconditionIsolated("a method of the main actor observes") }
            method(unsafeDowncast(target, to: Target.self)) { notification }
        }
    }
}
