// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation

/// The requests of a ``DistributedValue`` to the service, and their results: notifications, reads and changes.
///
/// Notifications and answers arrive on the bus thread, where they only get a position. They are decoded later, on the
/// thread of the center's observers or of the caller, because the program's decoding must not run on the bus thread.
extension DistributedValue {
    // MARK: Incoming notifications

    /// Handles a notification on the bus thread.
    func arrived(_ received: ReceivedNotification) {
        guard let position = state.withLock({ $0.followed.arrived(serial: received.arrived.serial) }) else { return }
        deliver(byteCount: received.byteCount) { $0.take(received, at: position) }
    }

    /// Decodes a notification and shows its content.
    private func take(_ received: ReceivedNotification, at position: UInt64) {
        do throws(DistributedNotificationError) {
            let content = try content(of: received.userInfo)
            update { state in
                state.followed.take(content, at: position)
                if case .decodingFailed = state.error { state.error = nil }
            }
        } catch {
            let (name, poster) = (received.arrived.name, received.arrived.poster.rawValue)
            center.noteUndecodable(name, from: poster, as: Value.self, MessageCoder.describe(error))
            note(error)
        }
    }

    /// Reads the value again, because a missed notification may have changed it.
    func mayHaveMissed(_ gap: DistributedNotificationCenter.Gap) {
        if gap == .serviceChanged { state.withLock { $0.followed.serviceChanged() } }
        readInBackground()
    }

    // MARK: Reading

    /// The value that the service keeps, as a read returned it.
    struct ServiceValue: Sendable {
        /// The position of the answer among all arrivals.
        let position: UInt64
        /// The entries of the userInfo; nil if there is no value.
        let entries: [String: PropertyList]?
        let poster: String
    }

    /// The result of a read, which is not decoded yet.
    struct Answer: Sendable {
        let reading: FollowedValue<Content>.Reading
        let result: Result<ServiceValue, DistributedNotificationError>
    }

    /// Reads the value from the service. If this object is released before the answer, `completion` is not called.
    ///
    /// - Parameter rounds: the maximum number of attempts. An attempt is repeated if its answer may be out of date,
    ///   because a notification arrived meanwhile.
    func read(rounds: Int = 3, _ completion: @escaping @Sendable (Answer) -> Void) {
        let reading = state.withLock { $0.followed.beginReading() }
        get { [weak self] result in
            guard let self else { return }
            do throws(DistributedNotificationError) {
                let value = ownValue(in: try result.get())
                let position = state.withLock {
                    $0.followed.answered(reading, serial: value?.serial ?? 0, isLast: rounds == 1)
                }
                guard let position else { return read(rounds: rounds - 1, completion) }
                let kept = ServiceValue(position: position, entries: value?.userInfo, poster: value?.poster ?? "")
                completion(Answer(reading: reading, result: .success(kept)))
            } catch {
                completion(Answer(reading: reading, result: .failure(error)))
            }
        }
    }

    /// Decodes the result of a read, and shows it.
    ///
    /// - Throws: the error of the read, or of content that cannot be decoded.
    @discardableResult
    func take(_ answer: Answer) throws(DistributedNotificationError) -> Content? {
        do throws(DistributedNotificationError) {
            let kept = try answer.result.get()
            let content: Content? = if let entries = kept.entries { try content(of: entries) } else { nil }
            update { $0.followed.take(content, at: kept.position, from: answer.reading) }
            return content
        } catch {
            update { $0.followed.failed(answer.reading) }
            throw error
        }
    }

    /// Starts a background read, for which no caller waits. One such read is in progress at a time.
    private func readInBackground() {
        guard state.withLock({ $0.backgroundRead.begin() }) else { return }
        read { [weak self] answer in
            guard let self else { return }
            let isDue = state.withLock { $0.backgroundRead.end() }
            deliver { $0.showBackgroundResult(answer) }
            if isDue { readInBackground() }
        }
    }

    /// Shows the result of a background read. An error is logged, because no caller receives it.
    func showBackgroundResult(_ answer: Answer) {
        do throws(DistributedNotificationError) {
            try take(answer)
        } catch {
            guard case .success(let kept) = answer.result else {
                // There is no service, or it ended. The value is read again from the next service instance.
                return Log.info("a value can't be read: \(error)")
            }
            center.noteUndecodable(name.rawValue, from: kept.poster, as: Value.self, MessageCoder.describe(error))
            note(error)
        }
    }

    /// Requests the values of the name and the object.
    private func get(
        _ completion: @escaping @Sendable (Result<[RetainedValueInfo], DistributedNotificationError>) -> Void
    ) {
        // An empty name would match any name.
        if let refusal { return completion(.failure(refusal)) }
        center.submit(
            .call(Get(name: name.rawValue, object: object ?? "")) {
                completion($0.mapError(DistributedNotificationError.init))
            })
    }

    /// Returns the newest value of the object, regardless of its origin.
    private func ownValue(in values: [RetainedValueInfo]) -> RetainedValueInfo? {
        let key = ExactText(object ?? "")
        return values.last { ExactText($0.object) == key }
    }

    /// Decodes a userInfo. Known content with the same entries is reused.
    private func content(of entries: [String: PropertyList]) throws(DistributedNotificationError) -> Content {
        let (shown, known) = state.withLock { ($0.followed.shown, $0.followed.known) }
        if let shown, shown.entries == entries { return shown }
        if let known, known.entries == entries { return known }
        do {
            return Content(value: try MessageCoder.message(Value.self, from: entries), entries: entries)
        } catch {
            throw .decodingFailed(type: "\(Value.self)", reason: MessageCoder.describe(error))
        }
    }

    // MARK: Writing

    typealias Outcome = Result<Void, DistributedNotificationError>

    /// Sets or removes the value, and waits for the service's answer. If it is a refusal, the change is reverted.
    func setAndWait(
        _ value: Value?, _ isolation: isolated (any Actor)?
    ) async throws(DistributedNotificationError) {
        let outcome = await PendingAnswer<Outcome>.of(isolation: isolation, orCancelled: .failure(.cancelled)) {
            answer in
            do throws(DistributedNotificationError) {
                try write(value) { [weak self] outcome in
                    // After the cancellation of the task no caller receives the outcome, so a refusal is reverted here.
                    guard !answer.answer(outcome), case .failure = outcome else { return }
                    self?.update { $0.followed.undoRefused() }
                }
            } catch {
                answer.answer(.failure(error))
            }
        }
        if case .failure = outcome { update { $0.followed.undoRefused() } }
        try outcome.get()
    }

    /// Posts a value, or removes it.
    ///
    /// - Parameter completion: the closure that receives the outcome.
    /// - Throws: the error of a value that cannot leave the process. Then `completion` is not called.
    func write(
        _ value: Value?, _ completion: @escaping @Sendable (Outcome) -> Void
    ) throws(DistributedNotificationError) {
        if let refusal { throw refusal }
        guard let value else { return try remove(completion) }
        let content = Content(value: value, entries: try MessageCoder.entries(of: value))
        let post = try center.encodedPost(
            name, object: object, entries: Array(content.entries),
            options: try center.wireOptions([], retention: retention))
        try begin(content) { number throws(DistributedNotificationError) in
            try center.submit(
                post.completed { [weak self] result in
                    let outcome = result.map { _ in }.mapError(DistributedNotificationError.init)
                    self?.ended(number, content, outcome)
                    completion(outcome)
                })
        }
    }

    /// Removes the value. Its serial is read first, because notifications up to this serial that arrive later have to
    /// be ignored.
    private func remove(
        _ completion: @escaping @Sendable (Outcome) -> Void
    ) throws(DistributedNotificationError) {
        try begin(nil) { number in
            // This object is retained until the answer: a program may remove the value and release this object at once.
            get { result in
                do throws(DistributedNotificationError) {
                    if try self.remove(try result.get(), number, completion) { return }
                    self.ended(number, nil, .success(()))
                    completion(.success(()))
                } catch {
                    self.ended(number, nil, .failure(error))
                    completion(.failure(error))
                }
            }
        }
    }

    /// Requests the removal of the value that was read.
    ///
    /// - Returns: whether the removal was requested; false if there is no value, or if the program has changed it
    ///   since.
    private func remove(
        _ values: [RetainedValueInfo], _ number: UInt64, _ completion: @escaping @Sendable (Outcome) -> Void
    ) throws(DistributedNotificationError) -> Bool {
        guard let own = ownValue(in: values) else { return false }
        // Without an object, the request would remove the values of all objects of the name.
        guard values.allSatisfy({ ExactText($0.object) == ExactText(object ?? "") }) else {
            throw .unsupportedOption(
                reason: "the value without an object can't be removed alone, and \(name.rawValue) has others")
        }
        return state.withLock { state in
            // A value that this program has set since replaces the old one, and the request would remove it.
            guard state.followed.isLast(number) else { return false }
            state.followed.willRemove(serial: own.serial ?? 0)
            center.submit(
                .call(RemoveRetained(name: name.rawValue, object: object ?? "")) { [weak self] result in
                    let outcome = result.map { _ in }.mapError(DistributedNotificationError.init)
                    self?.ended(number, nil, outcome)
                    completion(outcome)
                })
            return true
        }
    }

    /// Records the outcome of a change. After the last unanswered change, the value is read to show its effect.
    private func ended(_ number: UInt64, _ content: Content?, _ outcome: Outcome) {
        let isAccepted = if case .success = outcome { true } else { false }
        var isToBeRead = false
        update { isToBeRead = $0.followed.ended(number, content, isAccepted: isAccepted) }
        if isToBeRead { readInBackground() }
    }
}
