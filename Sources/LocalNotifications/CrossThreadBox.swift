// SPDX-License-Identifier: Apache-2.0
/// A box that carries a value from the posting thread to the thread of an observer, although the compiler can't prove
/// that this is safe. Used for notifications.
struct CrossThreadBox<Value>: @unchecked Sendable {
    // Sendable: a notification is immutable, but its object and userInfo may hold values of any type. Poster and
    // observer must agree on values that the observer's thread may use, as with Foundation's center.
    let value: Value

    init(_ value: Value) {
        self.value = value
    }
}
