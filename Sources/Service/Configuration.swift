// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore
import CarillonMainLoop

/// The configuration of the service: the files `carillon/carillon.conf` in the XDG configuration directories.
///
/// A file has groups such as `[Limits]` with keys. Each file may set any key. The files are read from the least
/// important to the user's own, and a later file replaces the keys of an earlier one. ``apply(_:of:)`` applies an entry
/// of a valid file. A file with a fault may only restrict what earlier files allow (``restrict(by:)``).
package struct Configuration: Equatable, KeyFileConfiguration {
    /// The limits of queues, memory and sizes (`[Limits]`).
    package var limits = Limits()
    /// Whether the service suspends clients whose application is inactive (A2).
    package var suspendsAutomatically = true
    /// The configured source of reports about the active application, such as a desktop's interface (A3).
    var activitySource = ActivityChoice.automatic
    /// The conditions under which applications count as inactive (A1).
    var inactivity = InactivityRules()
    /// The names that applications may post and observe (P3).
    var policy = Policy()
    /// The names that are exchanged with other sessions of the machine (G1).
    var sessions = SessionRules()
    /// Whether clients may have channels (F2).
    package var allowsChannels = true

    /// The configuration of a machine without files.
    package static let standard = Configuration(standard: ())
    package static let path = "carillon/carillon.conf"

    private init(standard: Void) {}

    /// The source of activity to use: none if automatic suspension is off, because its reports would have no effect.
    var activityChoice: ActivityChoice { suspendsAutomatically ? activitySource : .none }

    package typealias Reading = KeyFileReading<Configuration>

    /// Applies a file with a fault, as far as it restricts (E9). A mistake must not allow more than the file without
    /// the mistake would, nor more than the earlier files do.
    ///
    /// Therefore each permission is read in its most restrictive meaning. A faulty line counts as any key of its group.
    /// A group with an unknown name counts as any group, unless its name looks like a misspelled `[Limits]`,
    /// `[Channels]` or `[Activity]`.
    package mutating func restrict(by file: KeyFile) {
        if file.hasUnknownEntries {
            // The file has parts that can't be read, which may be entries of any group.
            restrictSharing()
            allowsChannels = false
        }
        // The restrictions of [Policy ID], by application ID.
        var lists: [String: Policy.Restriction] = [:]
        var unknown: Set<String> = []
        for entry in file.entries {
            switch entry.group {
            case "Limits":
                // A limit is only lowered. A faulty value or key changes nothing, because limits give no permissions.
                guard let key = Limits.Key(rawValue: entry.key) else { continue }
                let value = try? file.number(entry, Limits.row(key).range)
                limits[key] = min(limits[key], value ?? limits[key])
            case "Channels" where entry.value != "true": allowsChannels = false
            case "Channels", "Activity": continue
            case "Policy": policy.restrict(by: entry)
            case let group where SessionRules.groups.contains(group): sessions.restrict(by: entry, of: file)
            case let group where group.hasPrefix(Self.activityPrefix): continue
            case let group where group.hasPrefix(Policy.groupPrefix):
                let application = String(group.dropFirst(Policy.groupPrefix.count))
                if Policy.isID(application) {
                    lists[application, default: .init()].add(entry)
                } else {
                    restrictSharing()
                }
            case let group: unknown.insert(group)
            }
        }
        for group in unknown {
            // [Limits] and [Activity] give no permissions, so their misspelling needs no restriction.
            switch Spelling.closest(to: group, among: ["Limits", "Channels", "Activity"]) {
            case "Channels": allowsChannels = false
            case nil: restrictSharing()
            default: continue
            }
        }
        for (application, restriction) in lists { policy.restrict(application, by: restriction) }
    }

    /// Allows nothing to applications in a sandbox and exchanges nothing with other sessions, because the faulty part
    /// may have forbidden it.
    private mutating func restrictSharing() {
        policy.closeSandboxes()
        sessions = SessionRules()
    }

    /// Applies an entry of a file.
    ///
    /// - Throws: the fault, if the group, key or value is not allowed.
    package mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        switch entry.group {
        case "Limits": try applyLimit(entry, of: file)
        case "Activity": try applyActivity(entry, of: file)
        case let group where group.hasPrefix(Self.activityPrefix): try applyInactivity(entry, of: file)
        case "Channels": try applyChannels(entry, of: file)
        case let group where SessionRules.groups.contains(group): try sessions.apply(entry, of: file)
        case "Policy": try policy.apply(entry, of: file)
        case let group where group.hasPrefix(Policy.groupPrefix): try policy.applyApplication(entry, of: file)
        default:
            throw file.fault(
                entry,
                "there is no group [\(entry.group)], only [Limits], [Activity], [Activity ID], [Channels], [Sessions], "
                    + "[Policy] and [Policy ID]")
        }
    }

    private mutating func applyLimit(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        guard let key = Limits.Key(rawValue: entry.key) else {
            let known = Limits.Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no limit '\(entry.key)', only: \(known)")
        }
        limits[key] = try file.number(entry, Limits.row(key).range)
    }

    private mutating func applyChannels(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        guard entry.key == "channels" else {
            throw file.fault(entry, "there is no key '\(entry.key)' in [Channels], only: channels")
        }
        allowsChannels = try file.boolean(entry)
    }

    private mutating func applyActivity(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        switch entry.key {
        case "automatic-suspension":
            suspendsAutomatically = try file.boolean(entry)
        case "source":
            guard let choice = ActivityChoice(rawValue: entry.value) else {
                let known = ActivityChoice.allCases.map(\.rawValue).joined(separator: ", ")
                throw file.fault(entry, "'\(entry.value)' is not a source of activity; there are: \(known)")
            }
            activitySource = choice
        case Self.inactiveWhen: inactivity.general = try inactiveWhen(entry, of: file)
        default:
            throw file.fault(
                entry, "there is no key '\(entry.key)' in [Activity], only: automatic-suspension, inactive-when, source"
            )
        }
    }

    /// The prefix of an application's group `[Activity ID]`. The ID is that of the application or the name of its
    /// program.
    private static let activityPrefix = "Activity "
    /// The key for the condition under which an application counts as inactive.
    private static let inactiveWhen = "inactive-when"

    private mutating func applyInactivity(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        let application = String(entry.group.dropFirst(Self.activityPrefix.count))
        guard application.contains(where: { !$0.isWhitespace }) else {
            throw file.fault(entry, "[\(entry.group)] names no application")
        }
        guard entry.key == Self.inactiveWhen else {
            throw file.fault(entry, "there is no key '\(entry.key)' in [\(entry.group)], only: inactive-when")
        }
        inactivity.applications[application] = try inactiveWhen(entry, of: file)
    }

    private func inactiveWhen(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> InactiveWhen {
        guard let value = InactiveWhen(rawValue: entry.value) else {
            let known = InactiveWhen.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "'\(entry.value)' is not a value of \(entry.key); there are: \(known)")
        }
        return value
    }
}
