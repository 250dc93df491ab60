// SPDX-License-Identifier: Apache-2.0
/// Ends the process where something does not hold that must, whatever came in: to go on would be to lose, to repeat or
/// to misdirect notifications.
///
/// On in every build, so it is for what costs next to nothing. Unlike `precondition` it also names the rule in a release
/// build.
@inline(__always)
func invariant(_ holds: Bool, _ rule: StaticString) {
    guard holds else { broken(rule) }
}

@inline(never)
private func broken(_ rule: StaticString) -> Never {
    fatalError("broken invariant: \(rule)")
}

/// Something that must hold between events, and does not. That is a fault of the center itself, whatever came in.
package struct BrokenInvariant: Error, CustomStringConvertible {
    package let description: String
}

/// For what is too dear to be checked always.
func require(_ holds: Bool, _ rule: @autoclosure () -> String) throws(BrokenInvariant) {
    guard holds else { throw BrokenInvariant(description: rule()) }
}
