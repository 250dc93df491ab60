// SPDX-License-Identifier: Apache-2.0
/// The token that a center returns for an observer of typed messages. The observer lasts as long as the program holds
/// the token, or until the program passes it to the center's `removeObserver`. Threads: any.
public struct ObservationToken: Hashable, Sendable {
    private let observation: Observation
    /// The identity of the center, which may be gone.
    private let center: ObjectIdentifier

    package init(_ observation: Observation, of center: AnyObject) {
        self.observation = observation
        self.center = ObjectIdentifier(center)
    }

    /// Ends the observer, if it is one of this center.
    package func end(in center: AnyObject) {
        if self.center == ObjectIdentifier(center) { observation.cancel() }
    }

    public static func == (left: ObservationToken, right: ObservationToken) -> Bool {
        left.observation === right.observation
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(observation))
    }
}
