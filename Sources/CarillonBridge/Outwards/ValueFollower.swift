// SPDX-License-Identifier: Apache-2.0
import MainLoop
import NotificationWire
import ServiceClient

/// Asks the service which values of this session it keeps, whenever one has gone: nobody is told which.
final class ValueFollower: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    private static let page: UInt32 = 1_000

    private let center: CenterLink
    private let retry: QuestionRetry
    private let told: (Set<ValueKind>) -> Void
    private var kinds: Set<ValueKind> = []
    /// Of the questions: an answer to an earlier one counts for nothing.
    private var number = 0

    /// - Parameter told: gets all that are kept and are from here.
    init(center: CenterLink, context: MainContext, told: @escaping (Set<ValueKind>) -> Void) {
        self.center = center
        retry = QuestionRetry("which values it keeps", of: center, on: context)
        self.told = told
    }

    func ask() {
        retry.cancel()
        number += 1
        kinds = []
        askFurther(number, after: 0)
    }

    private func askFurther(_ number: Int, after serial: UInt64) {
        center.submit(
            .call(FollowValues(after: serial, most: Self.page)) { [weak self] result in
                guard let self, number == self.number else { return }
                switch result {
                case .success(let values):
                    retry.answered()
                    for value in values where value.isOfThisSession {
                        kinds.insert(ValueKind(value.name, value.object))
                    }
                    guard let last = values.last else { return told(kinds) }
                    askFurther(number, after: last.serial)
                case .failure(let error): retry.failed(because: error) { [weak self] in self?.ask() }
                }
            })
    }
}
