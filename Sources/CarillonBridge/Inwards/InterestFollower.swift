// SPDX-License-Identifier: Apache-2.0
import MainLoop
import NotificationWire
import ServiceClient

/// Asks the service for what the session's observers want, whenever that has changed (G4).
final class InterestFollower: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// Names that one answer may have.
    private static let page: UInt32 = 1_000
    /// Programs register one name after the other: what comes in a row is asked for once.
    private static let calm: UInt32 = 50

    private let center: CenterLink
    private let context: MainContext
    private let retry: QuestionRetry
    private let changed: (_ names: [String], _ isAnyWanted: Bool) -> Void
    private var names: [String] = []
    private var isAny = false
    /// Of the questions: an answer to an earlier one counts for nothing.
    private var number = 0
    private var timer: EventSource?

    /// - Parameter changed: gets all that is wanted.
    init(
        center: CenterLink, context: MainContext,
        changed: @escaping (_ names: [String], _ isAnyWanted: Bool) -> Void
    ) {
        self.center = center
        self.context = context
        retry = QuestionRetry("what is wanted", of: center, on: context)
        self.changed = changed
    }

    /// It may be different from what was told last.
    func ask() {
        retry.cancel()
        timer = .once(milliseconds: Self.calm, on: context) { [unowned self] in
            timer = nil
            number += 1
            names = []
            isAny = false
            askFurther(number, after: "")
        }
    }

    private func askFurther(_ number: Int, after name: String) {
        center.submit(
            .call(FollowInterest(after: name, most: Self.page)) { [weak self] result in
                guard let self, number == self.number else { return }
                switch result {
                case .success(let wanted):
                    retry.answered()
                    names += wanted.names
                    isAny = isAny || wanted.any
                    guard let last = wanted.names.last else { return changed(names, isAny) }
                    askFurther(number, after: last)
                case .failure(let error): retry.failed(because: error) { [weak self] in self?.ask() }
                }
            })
    }
}
