// SPDX-License-Identifier: Apache-2.0
import Foundation

/// An observing method of an object of any class: the isolation that it needs, and its call.
package struct ObserverMethod<Target: AnyObject>: @unchecked Sendable {
    // Sendable: a target's method is called only where the program wants its observer to run.
    private let isolationOf: (Target) -> (any Actor)?
    private let call: (Target, () -> Notification) -> Void

    /// A method that takes the notification.
    package init(_ method: @escaping (Target) -> @isolated(any) (Notification) -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, notification in
            // The caller is on the method's isolation. The language offers only `await` for this call; the function is
            // the same, as in the standard library's `MainActor.assumeIsolated`.
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

    /// Calls the method; the caller must be on its isolation, if it has one.
    package func callAsFunction(_ target: Target, _ notification: () -> Notification) {
        call(target, notification)
    }
}
