// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A method of any class that a center calls for a notification (Cocoa's selector), with the actor isolation that the
/// method requires. Centers add observers by target and method with it.
package struct ObserverMethod<Target: AnyObject>: @unchecked Sendable {
    // Sendable: a method is called only on the thread or actor that the program chose for the observer.
    private let isolationOf: (Target) -> (any Actor)?
    private let call: (Target, () -> Notification) -> Void

    /// A method that takes the notification.
    package init(_ method: @escaping (Target) -> @isolated(any) (Notification) -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, notification in
            // The caller already runs on the method's actor, but the language allows the call only with `await`. The
            // cast removes the isolation from the type, as the standard library's `MainActor.assumeIsolated` does.
            unsafeBitCast(method(target), to: ((Notification) -> Void).self)(notification())
        }
    }

    /// A method that takes the notification as an object of Foundation's class.
    package init(_ method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, notification in
            let value = notification()
            let object = NSNotification(name: value.name, object: value.object, userInfo: value.userInfo)
            unsafeBitCast(method(target), to: ((NSNotification) -> Void).self)(object)
        }
    }

    /// A method that takes nothing.
    package init(_ method: @escaping (Target) -> @isolated(any) () -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, _ in unsafeBitCast(method(target), to: (() -> Void).self)() }
    }

    /// Returns the actor that the method must run on; nil when it may run anywhere.
    package func isolation(of target: Target) -> (any Actor)? {
        isolationOf(target)
    }

    /// Calls the method. The caller must run on the method's actor, if it has one. `notification` is called only if the
    /// method takes a notification.
    package func callAsFunction(_ target: Target, _ notification: () -> Notification) {
        call(target, notification)
    }
}
