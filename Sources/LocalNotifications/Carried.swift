// SPDX-License-Identifier: Apache-2.0
/// Something that goes from one thread to another although the compiler can't see that this is right.
struct Carried<Value>: @unchecked Sendable {
    // Sendable: for notifications. They are immutable, and whoever posts hands object and userInfo to observers on
    // threads that the observers chose; that these can be used there is part of the agreement between the two, as it
    // is with Foundation's center.
    let value: Value

    init(_ value: Value) {
        self.value = value
    }
}
