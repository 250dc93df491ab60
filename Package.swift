// swift-tools-version: 6.0
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

let package = Package(
    name: "Carillon",
    products: [
        // With what its interface speaks of, and the loop that a plain GLib program runs.
        .library(name: "Carillon", targets: ["Carillon", "ThreadDelivery", "MainLoop"]),
        .executable(name: "carillond", targets: ["carillond"]),
        .executable(name: "carillon", targets: ["CarillonTool"]),
        .executable(name: "carillon-bridge", targets: ["carillon-bridge"]),
        // With the contexts and modes that its interface speaks of.
        .library(name: "LocalNotifications", targets: ["LocalNotifications", "ThreadDelivery", "MainLoop"]),
    ],
    targets: [
        // C libraries of the distribution.
        .systemLibrary(name: "CDBus", pkgConfig: "dbus-1", providers: [.apt(["libdbus-1-dev"])]),
        // Declarations only: the service finds the libraries while it runs. With pkgConfig they would be linked.
        .systemLibrary(name: "CXCB", providers: [.apt(["libxcb1-dev", "libxcb-res0-dev"])]),
        // The same, for the command.
        .systemLibrary(name: "CNcurses", providers: [.apt(["libncurses-dev"])]),
        .systemLibrary(name: "CGLib", pkgConfig: "glib-2.0", providers: [.apt(["libglib2.0-dev"])]),
        .systemLibrary(name: "CCBOR", pkgConfig: "libcbor", providers: [.apt(["libcbor-dev"])]),
        .systemLibrary(name: "CMosquitto", pkgConfig: "libmosquitto", providers: [.apt(["libmosquitto-dev"])]),

        // The kernel's own declarations.
        .systemLibrary(name: "CSystem"),

        // What libdispatch exports for run loops; it comes with the toolchain.
        .systemLibrary(name: "CMainQueue"),

        // What every module may use: the standard library only.
        .target(name: "Collections"),
        .target(name: "BusNames"),
        .target(name: "JSON"),

        // Their only importers.
        .target(name: "MainLoop", dependencies: ["CGLib"]),
        .target(name: "DBus", dependencies: ["CDBus", "BusNames", "Collections", "MainLoop"]),
        .target(name: "MQTT", dependencies: ["CMosquitto", "MainLoop"]),
        .target(name: "CBOR", dependencies: ["CCBOR"]),

        // The rules, and their coding on the wire.
        .target(name: "NotificationCore", dependencies: ["Collections", "BusNames"]),
        .target(
            name: "NotificationWire", dependencies: ["Collections", "NotificationCore", "DBus", "BusNames", "JSON"]),

        // Which application is active. It knows the clients' names, and nothing of notifications.
        .target(
            name: "DesktopActivity",
            dependencies: ["Collections", "NotificationCore", "DBus", "BusNames", "JSON", "MainLoop", "CXCB"]),

        // The service. Nothing that it imports imports Foundation.
        .target(
            name: "NotificationService",
            dependencies: [
                "Collections", "NotificationCore", "NotificationWire", "DesktopActivity", "DBus", "BusNames",
                "MainLoop", "CSystem",
            ]
        ),
        .executableTarget(name: "carillond", dependencies: ["NotificationService", "MainLoop"]),

        // The client side: the engine of a client, what runs an observer where it wants to be, and what programs and
        // people see of both.
        .target(
            name: "ServiceClient",
            dependencies: ["Collections", "NotificationCore", "NotificationWire", "DBus", "BusNames", "MainLoop"]),
        .target(name: "ThreadDelivery", dependencies: ["Collections", "MainLoop", "CMainQueue"]),
        .target(name: "LocalNotifications", dependencies: ["ThreadDelivery", "Collections", "MainLoop"]),
        .target(
            name: "Carillon",
            dependencies: [
                "ThreadDelivery", "ServiceClient", "Collections", "NotificationCore", "NotificationWire", "DBus",
                "MainLoop",
            ]),
        .executableTarget(
            name: "CarillonTool",
            dependencies: [
                "Collections", "NotificationCore", "NotificationWire", "ServiceClient", "DBus", "BusNames", "JSON",
                "MainLoop", "CNcurses",
            ]
        ),

        // The session and those of other machines.
        .target(
            name: "CarillonBridge",
            dependencies: [
                "Collections", "NotificationCore", "NotificationWire", "ServiceClient", "MQTT", "CBOR", "DBus",
                "BusNames", "JSON", "MainLoop",
            ]),
        .executableTarget(
            name: "carillon-bridge", dependencies: ["CarillonBridge", "NotificationWire", "DBus", "MainLoop"]),

        // The one of README.md, a poster, values that stay, and an observer for each way of running.
        .executableTarget(name: "example-saved", dependencies: ["Carillon"], path: "Examples/swift/Saved"),
        .executableTarget(name: "example-post", dependencies: ["Carillon"], path: "Examples/swift/Post"),
        .executableTarget(name: "example-values", dependencies: ["Carillon"], path: "Examples/swift/Values"),
        .executableTarget(
            name: "example-glib-loop", dependencies: ["Carillon", "MainLoop"], path: "Examples/swift/GLibLoop",
            exclude: ["README.md"]),
        .executableTarget(
            name: "example-run-loop", dependencies: ["Carillon"], path: "Examples/swift/RunLoop",
            exclude: ["README.md"]),
        .executableTarget(
            name: "example-dispatch-main", dependencies: ["Carillon"], path: "Examples/swift/DispatchMain",
            exclude: ["README.md"]),
        .executableTarget(
            name: "example-no-loop", dependencies: ["Carillon"], path: "Examples/swift/NoLoop",
            exclude: ["README.md"]),

        // A load for tests and benchmarks.
        .executableTarget(
            name: "bus-load",
            dependencies: ["NotificationWire", "NotificationCore", "DBus", "MainLoop"],
            path: "Benchmarks/BusLoad"
        ),
        .executableTarget(name: "library-load", dependencies: ["Carillon"], path: "Benchmarks/LibraryLoad"),
        .executableTarget(
            name: "local-bench", dependencies: ["LocalNotifications", "MainLoop"], path: "Benchmarks/LocalBench"),

        // Tests: one folder per target.
        .target(name: "TestSupport", dependencies: ["MainLoop", "TestLimits"], path: "Tests/TestSupport"),
        .target(name: "TestLimits", path: "Tests/TestLimits"),
        .executableTarget(
            name: "toolkit-window", dependencies: ["Carillon", "MainLoop"], path: "Tests/ToolkitWindow"),
        .testTarget(name: "TestLimitsTests", dependencies: ["TestLimits"]),
        .testTarget(name: "CollectionsTests", dependencies: ["Collections", "TestLimits"]),
        .testTarget(
            name: "MainLoopTests", dependencies: ["MainLoop", "CGLib", "TestSupport", "TestLimits", "carillond"]),
        .testTarget(name: "DBusTests", dependencies: ["DBus", "BusNames", "MainLoop", "TestSupport", "TestLimits"]),
        .testTarget(name: "MQTTTests", dependencies: ["MQTT", "MainLoop", "TestSupport", "TestLimits"]),
        .testTarget(name: "CBORTests", dependencies: ["CBOR", "TestLimits"]),
        .testTarget(name: "JSONTests", dependencies: ["JSON", "TestLimits"]),
        .testTarget(name: "NotificationCoreTests", dependencies: ["NotificationCore", "TestLimits"]),
        .testTarget(
            name: "NotificationWireTests",
            dependencies: ["NotificationWire", "NotificationCore", "DBus", "MainLoop", "TestSupport", "TestLimits"]
        ),
        .testTarget(
            name: "DesktopActivityTests",
            dependencies: ["DesktopActivity", "NotificationCore", "DBus", "MainLoop", "TestSupport", "TestLimits"]
        ),
        .testTarget(
            name: "NotificationServiceTests",
            dependencies: [
                "NotificationService", "NotificationWire", "DesktopActivity", "NotificationCore", "DBus", "MainLoop",
                "TestSupport", "TestLimits", "carillond", "CarillonTool", "bus-load", "toolkit-window",
            ]
        ),
        .testTarget(
            name: "ServiceClientTests",
            dependencies: [
                "ServiceClient", "Collections", "NotificationCore", "NotificationWire", "DBus", "BusNames", "CDBus",
                "MainLoop", "TestLimits",
            ]
        ),
        .testTarget(
            name: "ThreadDeliveryTests", dependencies: ["ThreadDelivery", "MainLoop", "TestSupport", "TestLimits"]),
        .testTarget(
            name: "LocalNotificationsTests",
            dependencies: [
                "LocalNotifications", "ThreadDelivery", "MainLoop", "TestSupport", "TestLimits", "main-thread-probe",
            ]
        ),
        // What needs the main thread of a process of its own.
        .executableTarget(
            name: "main-thread-probe",
            dependencies: ["LocalNotifications", "ThreadDelivery", "MainLoop", "TestSupport"],
            path: "Tests/MainThreadProbe"
        ),
        .testTarget(
            name: "CarillonTests",
            dependencies: [
                "Carillon", "LocalNotifications", "ThreadDelivery", "Collections", "NotificationCore",
                "NotificationWire", "DBus", "MainLoop", "TestSupport", "TestLimits", "carillond",
                "CarillonTool", "example-saved", "example-values", "example-glib-loop", "example-run-loop",
                "example-dispatch-main",
                "example-no-loop",
                "macos-swift5", "macos-swift6", "loop-probe",
            ]
        ),
        // Programs as they stand on macOS, compiled unchanged.
        .executableTarget(
            name: "macos-swift5", dependencies: ["Carillon"], path: "Tests/MacOSSources/Swift5",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        .executableTarget(
            name: "macos-swift6", dependencies: ["Carillon"], path: "Tests/MacOSSources/Swift6"),
        // One observer of every kind, on the loop that a test asks for.
        .executableTarget(name: "loop-probe", dependencies: ["Carillon", "MainLoop"], path: "Tests/LoopProbe"),
        .testTarget(
            name: "CarillonBridgeTests",
            dependencies: [
                "CarillonBridge", "CBOR", "Collections", "MQTT", "NotificationCore", "NotificationWire", "DBus",
                "MainLoop",
                "TestSupport", "TestLimits", "carillond", "CarillonTool", "carillon-bridge",
            ]),
        .testTarget(
            name: "CarillonToolTests",
            dependencies: [
                "DBus", "MainLoop", "NotificationWire", "TestSupport", "TestLimits", "CarillonTool", "carillond",
            ]),
        // The service, its clients, a bus and a disk in one thread and virtual time.
        .target(
            name: "Simulation",
            dependencies: [
                "NotificationService", "ServiceClient", "NotificationWire", "NotificationCore", "DesktopActivity",
                "CarillonBridge", "MQTT", "Collections", "DBus", "BusNames", "MainLoop",
            ],
            path: "Tests/Simulation", exclude: ["seeds"]
        ),
        .executableTarget(
            name: "simulate", dependencies: ["Simulation", "NotificationCore", "MainLoop"], path: "Tests/Simulate"),
        .testTarget(
            name: "SimulationTests",
            dependencies: [
                "Simulation", "simulate", "TestSupport", "TestLimits", "NotificationService", "DBus", "BusNames",
                "MainLoop",
            ]
        ),
        .testTarget(
            name: "InteropTests", dependencies: ["MainLoop", "TestSupport", "TestLimits", "CarillonTool", "carillond"]),
        .testTarget(
            name: "ArchitectureTests",
            dependencies: [
                "NotificationCore", "TestSupport", "TestLimits", "CarillonTool", "carillond", "carillon-bridge",
            ]),
    ],
    swiftLanguageModes: [.v6]
)

// The fuzzing programs need flags of their own for everything that they contain, so a build has to ask for them:
// tools/fuzz does.
if Context.environment["CARILLON_FUZZ"] != nil {
    // libFuzzer has the main; a single file would count as one.
    let withoutMain: [SwiftSetting] = [.unsafeFlags(["-parse-as-library"])]
    package.targets += [
        .target(
            name: "FuzzSupport", dependencies: ["CDBus", "CGLib", "DBus", "MainLoop"],
            path: "Tests/Fuzz/FuzzSupport"
        ),
        .executableTarget(
            name: "fuzz-dispatch",
            dependencies: ["FuzzSupport", "NotificationService", "NotificationWire", "NotificationCore", "DBus"],
            path: "Tests/Fuzz/FuzzDispatch", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-userinfo",
            dependencies: ["FuzzSupport", "NotificationService", "NotificationWire", "NotificationCore", "DBus"],
            path: "Tests/Fuzz/FuzzUserInfo", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-userinfo-bytes",
            dependencies: ["FuzzSupport", "NotificationWire", "NotificationCore", "DBus"],
            path: "Tests/Fuzz/FuzzUserInfoBytes", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-channel",
            dependencies: ["FuzzSupport", "NotificationWire", "NotificationCore", "DBus"],
            path: "Tests/Fuzz/FuzzChannel", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-bridge",
            dependencies: [
                "FuzzSupport", "CarillonBridge", "MQTT", "ServiceClient", "NotificationWire", "NotificationCore",
            ],
            path: "Tests/Fuzz/FuzzBridge", swiftSettings: withoutMain
        ),
    ]
}

// Tests of the optimised build, which are not optimised themselves: that would take longer than it saves. A second run of the
// compiler, which makes a module sooner for others that import it, is left out: none does. tools/test asks for it.
if Context.environment["CARILLON_OPTIMISED_TESTS"] != nil {
    for target in package.targets where target.type == .test {
        target.swiftSettings =
            (target.swiftSettings ?? []) + [.unsafeFlags(["-Onone", "-no-emit-module-separately-wmo"])]
    }
}

// What a few test targets need, and nothing else, so that an edit is tested after few steps: tools/test-only asks for it.
if let only = Context.environment["CARILLON_ONLY"] {
    // Of the programs only these, for tests that start no other, or take the others from another build (tools/mutants,
    // tools/test-threads).
    let programs = Context.environment["CARILLON_PROGRAMS"].map { $0.split(separator: ",").map(String.init) }
    func isNamed(_ dependency: Target.Dependency, in names: [String]) -> Bool {
        guard case .byNameItem(let name, _) = dependency else { return false }
        return names.contains(name)
    }
    func isProgram(_ dependency: Target.Dependency) -> Bool {
        isNamed(dependency, in: package.targets.filter { $0.type == .executable }.map(\.name))
    }
    var needed: Set<String> = []
    var pending = only.split(separator: ",").map(String.init)
    while let name = pending.popLast() {
        guard let target = package.targets.first(where: { $0.name == name }) else { fatalError("no target \(name)") }
        guard needed.insert(name).inserted else { continue }
        if let programs { target.dependencies.removeAll { isProgram($0) && !isNamed($0, in: programs) } }
        pending += target.dependencies.compactMap { if case .byNameItem(let name, _) = $0 { name } else { nil } }
    }
    package.targets.removeAll { !needed.contains($0.name) }
    // Programs keep the names by which tests look for them.
    package.products.removeAll { product in
        guard let program = product as? Product.Executable else { return true }
        return !program.targets.allSatisfy(needed.contains)
    }
}
