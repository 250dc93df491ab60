// SPDX-License-Identifier: Apache-2.0
/// Ends the process when an invariant is broken, regardless of the input: to continue would lose, repeat or misdirect
/// notifications.
///
/// It is active in every build, so it is for cheap checks. Unlike `precondition` it also names the rule in a release
/// build.
@inline(__always)
func invariant(_ holds: Bool, _ rule: StaticString) {
    guard holds else { broken(rule) }
}

@inline(never)
private func broken(_ rule: StaticString) -> Never {
    fatalError("broken invariant: \(rule)")
}

/// A broken invariant between events. It is a fault of the center itself, regardless of the input.
package struct BrokenInvariant: Error, CustomStringConvertible {
    package let description: String
}

/// Checks an invariant that is too expensive to check in every build.
///
/// - Throws: ``BrokenInvariant`` when it does not hold.
func require(_ holds: Bool, _ rule: @autoclosure () -> String) throws(BrokenInvariant) {
    guard holds else { throw BrokenInvariant(description: rule()) }
}
