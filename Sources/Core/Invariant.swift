// SPDX-License-Identifier: Apache-2.0
/// Ends the process when a condition does not hold that must hold for any input. To continue would lose, repeat or
/// misdirect notifications.
///
/// It is active in every build, and is therefore for cheap checks. Unlike `precondition` it names the violated rule
/// also in a release build.
@inline(__always)
func invariant(_ holds: Bool, _ rule: StaticString) {
    guard holds else { broken(rule) }
}

/// Separate, so that the inlined part of the check stays small.
@inline(never)
private func broken(_ rule: StaticString) -> Never {
    fatalError("broken invariant: \(rule)")
}

/// The error of a check of all invariants between two events (`checkInvariants`). It shows a fault of the center
/// itself, for any input.
package struct BrokenInvariant: Error, CustomStringConvertible {
    package let description: String
}

/// Checks a condition that is too expensive to check in every build. The `checkInvariants` methods call it in debug
/// builds, tests and the simulation.
///
/// - Throws: ``BrokenInvariant`` when it does not hold.
func require(_ holds: Bool, _ rule: @autoclosure () -> String) throws(BrokenInvariant) {
    guard holds else { throw BrokenInvariant(description: rule()) }
}
