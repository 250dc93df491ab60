import Foundation

/// The tables.
struct Report {
    let lines: [Measurements]
    let service: ServiceFigures

    var text: String {
        """
        \(table)

        Carillon against the raw broadcast on the same bus (1.00 = the same; for time and memory less is better):

        \(ratios)

        | carillond alone | |
        |---|---|
        | first call, which makes the bus start it | \(number(median(service.firstCall), 1)) ms |
        | next call | \(number(median(service.nextCall), 2)) ms |
        | resident at rest, with one observer | \(number(service.resident, 1)) MiB, of which its own \(number(service.ownMemory, 1)) MiB |
        | wake-ups at rest | \(service.wakeUps) in \(number(ServiceFigures.seconds, 0)) s |
        """
    }

    private static let columns = [
        "delivered/s, 1 / 10 / 50 observers", "p50 / p99 at 500/s, µs",
        "delivered/s, one name among 1 / 1,000 / 10,000", "CPU s of bus and service per 10,000 delivered, 1 / 10",
        "CPU s of all", "memory of bus and service, idle → loaded, MiB", "lost",
    ]

    private var table: String {
        let head = "| | \(Self.columns.joined(separator: " | ")) |"
        let rule = "|---" + String(repeating: "|---", count: Self.columns.count) + "|"
        return ([head, rule] + lines.map(row)).joined(separator: "\n")
    }

    private func row(_ line: Measurements) -> String {
        let cells = [
            "\(line.transport.rawValue), \(line.kind)",
            each(Measurements.observers) { rate(line.throughput[$0]) },
            number(median(line.latency50), 0) + " / " + number(median(line.latency99), 0),
            each(Measurements.registrations) { rate(line.selective[$0]) },
            each([1, 10]) { number(median(line.serverTime[$0] ?? []), 3) },
            each([1, 10]) { number(median(line.totalTime[$0] ?? []), 3) },
            number(line.idleMemory, 1) + " → " + number(line.loadedMemory, 1),
            "\(line.lost)",
        ]
        return "| " + cells.joined(separator: " | ") + " |"
    }

    private var ratios: String {
        let head = "| | \(Self.columns.dropLast().joined(separator: " | ")) |"
        let rule = "|---" + String(repeating: "|---", count: Self.columns.count - 1) + "|"
        let rows = lines.filter { $0.transport == .center }.compactMap { ours -> String? in
            guard let peer = lines.first(where: { $0.transport == .broadcast && $0.kind == ours.kind }) else {
                return nil
            }
            let cells = [
                "\(ours.kind)",
                each(Measurements.observers) { ratio(ours.throughput[$0], peer.throughput[$0]) },
                ratio(ours.latency50, peer.latency50) + " / " + ratio(ours.latency99, peer.latency99),
                each(Measurements.registrations) { ratio(ours.selective[$0], peer.selective[$0]) },
                each([1, 10]) { ratio(ours.serverTime[$0], peer.serverTime[$0]) },
                each([1, 10]) { ratio(ours.totalTime[$0], peer.totalTime[$0]) },
                ratio([ours.idleMemory], [peer.idleMemory]) + " → " + ratio([ours.loadedMemory], [peer.loadedMemory]),
            ]
            return "| " + cells.joined(separator: " | ") + " |"
        }
        return ([head, rule] + rows).joined(separator: "\n")
    }

    private func each(_ keys: [Int], _ cell: (Int) -> String) -> String {
        keys.map(cell).joined(separator: " / ")
    }

    private func rate(_ values: [Double]?) -> String {
        number(median(values ?? []) / 1000, 1) + "k"
    }

    private func ratio(_ ours: [Double]?, _ peer: [Double]?) -> String {
        number(median(ours ?? []) / median(peer ?? []), 2)
    }

    private func number(_ value: Double, _ digits: Int) -> String {
        String(format: "%.\(digits)f", value)
    }
}
