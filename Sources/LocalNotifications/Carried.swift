// SPDX-License-Identifier: Apache-2.0
/// A value that moves from one thread to another although the compiler can't prove that this is safe.
struct Carried<Value>: @unchecked Sendable {
    // Sendable: for notifications, which are immutable. The poster hands object and userInfo to observers on threads
    // that the observers chose. That these values can be used there is part of the agreement between poster and
    // observer, as with Foundation's center.
    let value: Value

    init(_ value: Value) {
        self.value = value
    }
}
