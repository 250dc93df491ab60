// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation

/// What a value asks of the service, and what comes of it. Completions run on the bus thread, where nothing is decoded:
/// code of the program has no place there.
extension DistributedValue {
    // MARK: What comes

    func arrived(_ received: Received) {
        guard let place = state.withLock({ $0.followed.arrived(serial: received.arrived.serial) }) else { return }
        deliver(byteCount: received.byteCount) { $0.take(received, at: place) }
    }

    private func take(_ received: Received, at place: UInt64) {
        do throws(DistributedNotificationError) {
            let content = try content(of: received.userInfo)
            update { state in
                state.followed.take(content, at: place)
                if case .decodingFailed = state.error { state.error = nil }
            }
        } catch {
            let (name, poster) = (received.arrived.name, received.arrived.poster.rawValue)
            center.noteUndecodable(name, from: poster, as: Value.self, MessageCoder.describe(error))
            note(error)
        }
    }

    /// Something is missing, so that the value may be another by now.
    func mayHaveMissed(_ gap: DistributedNotificationCenter.Gap) {
        if gap == .serviceChanged { state.withLock { $0.followed.serviceChanged() } }
        readForItself()
    }

    // MARK: Reading

    /// What the service keeps.
    struct Kept: Sendable {
        let place: UInt64
        /// Nil for nothing.
        let entries: [String: PropertyList]?
        let poster: String
    }

    struct Answer: Sendable {
        let reading: FollowedValue<Content>.Reading
        let result: Result<Kept, DistributedNotificationError>
    }

    /// Asks what the service keeps. Nobody is told when this object is gone.
    ///
    /// - Parameter rounds: how often, where something arrives meanwhile.
    func read(rounds: Int = 3, _ completion: @escaping @Sendable (Answer) -> Void) {
        let reading = state.withLock { $0.followed.beginReading() }
        get { [weak self] result in
            guard let self else { return }
            do throws(DistributedNotificationError) {
                let value = ownValue(in: try result.get())
                let place = state.withLock {
                    $0.followed.answered(reading, serial: value?.serial ?? 0, isLast: rounds == 1)
                }
                guard let place else { return read(rounds: rounds - 1, completion) }
                let kept = Kept(place: place, entries: value?.userInfo, poster: value?.poster ?? "")
                completion(Answer(reading: reading, result: .success(kept)))
            } catch {
                completion(Answer(reading: reading, result: .failure(error)))
            }
        }
    }

    /// Takes over what was read.
    @discardableResult
    func take(_ answer: Answer) throws(DistributedNotificationError) -> Content? {
        do throws(DistributedNotificationError) {
            let kept = try answer.result.get()
            let content: Content? = if let entries = kept.entries { try content(of: entries) } else { nil }
            update { $0.followed.take(content, at: kept.place, from: answer.reading) }
            return content
        } catch {
            update { $0.followed.failed(answer.reading) }
            throw error
        }
    }

    /// Reads without anybody who waits for it: one question at a time, whatever happens meanwhile.
    private func readForItself() {
        guard state.withLock({ $0.ownReading.begin() }) else { return }
        read { [weak self] answer in
            guard let self else { return }
            let isDue = state.withLock { $0.ownReading.end() }
            deliver { $0.takeForItself(answer) }
            if isDue { readForItself() }
        }
    }

    func takeForItself(_ answer: Answer) {
        do throws(DistributedNotificationError) {
            try take(answer)
        } catch {
            guard case .success(let kept) = answer.result else {
                // There is no service, or it ended: with the next one it is asked again.
                return Log.info("a value can't be read: \(error)")
            }
            center.noteUndecodable(name.rawValue, from: kept.poster, as: Value.self, MessageCoder.describe(error))
            note(error)
        }
    }

    private func get(_ completion: @escaping @Sendable (Result<[KeptValue], DistributedNotificationError>) -> Void) {
        // An empty name would be any.
        if let refusal { return completion(.failure(refusal)) }
        center.submit(
            .call(Get(name: name.rawValue, object: object ?? "")) {
                completion($0.mapError(DistributedNotificationError.init))
            })
    }

    /// The newest: what is posted anywhere is followed.
    private func ownValue(in values: [KeptValue]) -> KeptValue? {
        let key = ExactText(object ?? "")
        return values.last { ExactText($0.object) == key }
    }

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

    func written(
        _ value: Value?, _ isolation: isolated (any Actor)?
    ) async throws(DistributedNotificationError) {
        let outcome = await PendingAnswer<Outcome>.of(isolation: isolation, orCancelled: .failure(.cancelled)) {
            answer in
            do throws(DistributedNotificationError) {
                try write(value) { [weak self] outcome in
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
    /// - Parameter completion: gets the outcome.
    /// - Throws: what can't leave the process; then there is no outcome.
    func write(
        _ value: Value?, _ completion: @escaping @Sendable (Outcome) -> Void
    ) throws(DistributedNotificationError) {
        if let refusal { throw refusal }
        guard let value else { return try remove(completion) }
        let content = Content(value: value, entries: try MessageCoder.entries(of: value))
        let post = try center.laidOut(
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

    /// First reads what there is: what came before that, and is still on its way, is gone with it.
    private func remove(
        _ completion: @escaping @Sendable (Outcome) -> Void
    ) throws(DistributedNotificationError) {
        try begin(nil) { number in
            // This object is kept until the answer: who removes a value and lets go of this wants it removed.
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

    /// - Returns: whether the service was asked to remove it; otherwise there is nothing to remove.
    private func remove(
        _ values: [KeptValue], _ number: UInt64, _ completion: @escaping @Sendable (Outcome) -> Void
    ) throws(DistributedNotificationError) -> Bool {
        guard let own = ownValue(in: values) else { return false }
        guard values.allSatisfy({ ExactText($0.object) == ExactText(object ?? "") }) else {
            throw .unsupportedOption(
                reason: "the value without an object can't be removed alone, and \(name.rawValue) has others")
        }
        return state.withLock { state in
            // What was set since takes its place, and would be removed.
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

    private func ended(_ number: UInt64, _ content: Content?, _ outcome: Outcome) {
        let isMade = if case .success = outcome { true } else { false }
        var isToBeRead = false
        update { isToBeRead = $0.followed.ended(number, content, isMade: isMade) }
        if isToBeRead { readForItself() }
    }
}
