import DBus
import NotificationCore
import NotificationWire

/// What goes to the service.
extension ServiceSession {
    /// Sends what the outbox lets out.
    func sendRequests() {
        while case .ready = state, let (request, confirms) = outbox.next() {
            switch request {
            case .post(let post): send(post, confirms: confirms)
            case .register(let key):
                registrations.want(key)
                sendRegistration(of: key, confirms: confirms)
            case .unregister(let key): if let id = registrations.forget(key) { sendRemoval(of: id) }
            case .suspend(let word):
                suspension = word
                if let word { sendSuspension(word) } else { send(Wire.methodCall("FollowActivity")) }
            case .barrier(let completion): sendBarrier(completion)
            }
        }
    }

    /// Without a service posts fail, as there is nobody to take them; what the program wants to receive is kept for
    /// the service that comes.
    func settleWithoutService(_ error: DistributedNotificationError) {
        for request in outbox.removeAll() {
            switch request {
            case .post(let post):
                if let completion = post.completion {
                    completion(.failure(error))
                } else {
                    receiver.lostPost(because: error)
                }
            case .register(let key): registrations.want(key)
            case .unregister(let key): _ = registrations.forget(key)
            case .suspend(let word): suspension = word
            case .barrier(let completion): completion(false)
            }
        }
    }

    private func send(_ post: OutgoingPost, confirms: Int?) {
        guard let connection else { return }
        guard let confirms else { return connection.send(post.message) }
        post.message.expectsNoReply = false
        let receiver = receiver
        connection.call(post.message) { [weak self] result in
            self?.outbox.confirmed(confirms)
            let outcome = result.mapError(DistributedNotificationError.init).flatMap { reply in
                var reader = MessageReader(reply)
                return Result { () throws(DistributedNotificationError) in
                    do throws(BusError) {
                        return Int(try reader.read(UInt32.self))
                    } catch {
                        throw DistributedNotificationError(error)
                    }
                }
            }
            if let completion = post.completion {
                completion(outcome)
            } else if case .failure(let error) = outcome {
                receiver.lostPost(because: error)
            }
            self?.pump()
        }
    }

    /// - Parameter confirms: what the answer confirms to the outbox, for a request that came out of it.
    func sendRegistration(of key: RegistrationKey, confirms: Int? = nil) {
        registrations.asked(key)
        let message = Wire.methodCall("AddObserver")
        var writer = MessageWriter(message)
        writer.append(key.name?.text ?? "")
        writer.append(key.object?.text ?? "")
        key.options.append(to: &writer)
        let asked = owner
        connection?.call(message) { [weak self] result in
            guard let self else { return }
            defer {
                if let confirms {
                    outbox.confirmed(confirms)
                    pump()
                }
            }
            switch result {
            case .success(let reply):
                var reader = MessageReader(reply)
                guard let id = try? reader.read(UInt64.self) else { return }
                if !registrations.added(key, id: id) { sendRemoval(of: id) }
            case .failure(let error):
                // After a change of the owner the comparison takes care of it.
                guard asked == owner else { return }
                registrations.failed(key)
                if error.isRefusal {
                    receiver.registrationRefused(key, because: DistributedNotificationError(error))
                } else {
                    doubtService()
                }
            }
        }
    }

    func sendRemoval(of id: UInt64) {
        let message = Wire.methodCall("RemoveObserver")
        var writer = MessageWriter(message)
        writer.append(id)
        send(message)
    }

    func sendSuspension(_ isSuspended: Bool) {
        let message = Wire.methodCall("SetSuspended")
        var writer = MessageWriter(message)
        writer.append(isSuspended)
        send(message)
    }

    private func send(_ message: Message) {
        message.expectsNoReply = true
        connection?.send(message)
    }

    /// The service answers in order: when this is answered, it has taken everything before.
    private func sendBarrier(_ completion: @escaping Request.Completion<Bool>) {
        guard let connection else { return completion(false) }
        pendingAnswers += 1
        let ping = Message.methodCall(
            to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping")
        connection.call(ping) { [weak self] result in
            self?.pendingAnswers -= 1
            switch result {
            case .success: completion(true)
            case .failure: completion(false)
            }
        }
    }

    func listedRegistrations(in reply: Message) -> [Registrations.Listed] {
        var listed: [Registrations.Listed] = []
        var reader = MessageReader(reply)
        guard var entries = try? reader.readContainer(.array) else { return [] }
        while var entry = try? entries.readContainer(.structure), let id = try? entry.read(UInt64.self),
            let name = try? entry.readString(), let object = try? entry.readString(),
            let behavior = try? entry.readString()
        {
            listed.append(.init(id: id, name: name, object: object, behavior: behavior))
        }
        return listed
    }
}

extension DistributedNotificationError {
    init(_ error: BusError) {
        switch error.name {
        case "org.carillon.Error.LimitExceeded": self = .limitExceeded(error.message)
        case "org.carillon.Error.InvalidUserInfo": self = .invalidUserInfo(keyPath: "userInfo", reason: error.message)
        case "org.carillon.Error.InvalidOption": self = .unsupportedOption(reason: error.message)
        case BusError.disconnectedName, BusError.noReplyName: self = .disconnected(error.message)
        default:
            self =
                error.meansNoService
                ? .serviceUnavailable(error.message)
                : .refused(name: error.name.rawValue, message: error.message)
        }
    }
}

extension BusError {
    /// Whether the service understood and said no, so that asking again would change nothing.
    fileprivate var isRefusal: Bool { name.rawValue.hasPrefix("org.carillon.Error.") || name == Self.invalidArgsName }
}
