// swift-tools-version: 6.0
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

let package = Package(
    name: "Carillon",
    products: [
        // With what its interface speaks of, and the loop that a plain GLib program runs.
        .library(name: "Carillon", targets: ["Carillon", "CarillonThreadDelivery", "CarillonMainLoop"]),
        .executable(name: "carillond", targets: ["carillond"]),
        .executable(name: "carillon", targets: ["CarillonTool"]),
        .executable(name: "carillon-bridge", targets: ["carillon-bridge"]),
        // With the contexts and modes that its interface speaks of.
        .library(
            name: "LocalNotifications", targets: ["LocalNotifications", "CarillonThreadDelivery", "CarillonMainLoop"]),
    ],
    targets: [
        // C libraries of the distribution.
        .systemLibrary(
            name: "CCarillonDBus", path: "Sources/CDBus", pkgConfig: "dbus-1", providers: [.apt(["libdbus-1-dev"])]),
        // Declarations only: the service finds the libraries while it runs. With pkgConfig they would be linked.
        .systemLibrary(
            name: "CCarillonXCB", path: "Sources/CXCB", providers: [.apt(["libxcb1-dev", "libxcb-res0-dev"])]),
        // The same, for the command.
        .systemLibrary(name: "CCarillonNcurses", path: "Sources/CNcurses", providers: [.apt(["libncurses-dev"])]),
        .systemLibrary(
            name: "CCarillonGLib", path: "Sources/CGLib", pkgConfig: "glib-2.0", providers: [.apt(["libglib2.0-dev"])]),
        .systemLibrary(
            name: "CCarillonCBOR", path: "Sources/CCBOR", pkgConfig: "libcbor", providers: [.apt(["libcbor-dev"])]),
        .systemLibrary(
            name: "CCarillonMosquitto", path: "Sources/CMosquitto", pkgConfig: "libmosquitto",
            providers: [.apt(["libmosquitto-dev"])]),

        // The kernel's own declarations.
        .systemLibrary(name: "CCarillonSystem", path: "Sources/CSystem"),

        // What libdispatch exports for run loops; it comes with the toolchain.
        .systemLibrary(name: "CCarillonMainQueue", path: "Sources/CMainQueue"),

        // What every module may use: the standard library only.
        .target(name: "CarillonCollections", path: "Sources/Collections"),
        .target(name: "CarillonBusNames", path: "Sources/BusNames"),
        .target(name: "CarillonJSON", path: "Sources/JSON"),

        // Their only importers.
        .target(name: "CarillonMainLoop", dependencies: ["CCarillonGLib"], path: "Sources/MainLoop"),
        .target(
            name: "CarillonDBus",
            dependencies: ["CCarillonDBus", "CarillonBusNames", "CarillonCollections", "CarillonMainLoop"],
            path: "Sources/DBus"),
        .target(name: "CarillonMQTT", dependencies: ["CCarillonMosquitto", "CarillonMainLoop"], path: "Sources/MQTT"),
        .target(name: "CarillonCBOR", dependencies: ["CCarillonCBOR"], path: "Sources/CBOR"),

        // The rules, and their coding on the wire.
        .target(name: "CarillonCore", dependencies: ["CarillonCollections", "CarillonBusNames"], path: "Sources/Core"),
        .target(
            name: "CarillonWire",
            dependencies: ["CarillonCollections", "CarillonCore", "CarillonDBus", "CarillonBusNames", "CarillonJSON"],
            path: "Sources/Wire"),

        // Which application is active. It knows the clients' names, and nothing of notifications.
        .target(
            name: "CarillonActivity",
            dependencies: [
                "CarillonCollections", "CarillonCore", "CarillonDBus", "CarillonBusNames", "CarillonJSON",
                "CarillonMainLoop", "CCarillonXCB",
            ], path: "Sources/Activity"),

        // The service. Nothing that it imports imports Foundation.
        .target(
            name: "CarillonService",
            dependencies: [
                "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonActivity", "CarillonDBus",
                "CarillonBusNames",
                "CarillonMainLoop", "CCarillonSystem",
            ], path: "Sources/Service"),
        .executableTarget(name: "carillond", dependencies: ["CarillonService", "CarillonMainLoop"]),

        // The client side: the engine of a client, what runs an observer where it wants to be, and what programs and
        // people see of both.
        .target(
            name: "CarillonClient",
            dependencies: [
                "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonDBus", "CarillonBusNames",
                "CarillonMainLoop",
            ], path: "Sources/Client"),
        .target(
            name: "CarillonThreadDelivery",
            dependencies: ["CarillonCollections", "CarillonMainLoop", "CCarillonMainQueue"],
            path: "Sources/ThreadDelivery"),
        .target(
            name: "LocalNotifications",
            dependencies: ["CarillonThreadDelivery", "CarillonCollections", "CarillonMainLoop"]),
        .target(
            name: "Carillon",
            dependencies: [
                "CarillonThreadDelivery", "CarillonClient", "CarillonCollections", "CarillonCore", "CarillonWire",
                "CarillonDBus",
                "CarillonMainLoop",
            ]),
        .executableTarget(
            name: "CarillonTool",
            dependencies: [
                "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonClient", "CarillonDBus",
                "CarillonBusNames", "CarillonJSON",
                "CarillonMainLoop", "CCarillonNcurses",
            ]
        ),

        // The session and those of other machines.
        .target(
            name: "CarillonBridge",
            dependencies: [
                "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonClient", "CarillonMQTT", "CarillonCBOR",
                "CarillonDBus",
                "CarillonBusNames", "CarillonJSON", "CarillonMainLoop",
            ]),
        .executableTarget(
            name: "carillon-bridge",
            dependencies: ["CarillonBridge", "CarillonWire", "CarillonDBus", "CarillonMainLoop"]),

        // The one of README.md, a poster, values that stay, and an observer for each way of running.
        .executableTarget(name: "carillon-example-saved", dependencies: ["Carillon"], path: "Examples/swift/Saved"),
        .executableTarget(name: "carillon-example-post", dependencies: ["Carillon"], path: "Examples/swift/Post"),
        .executableTarget(name: "carillon-example-values", dependencies: ["Carillon"], path: "Examples/swift/Values"),
        .executableTarget(
            name: "carillon-example-glib-loop", dependencies: ["Carillon", "CarillonMainLoop"],
            path: "Examples/swift/GLibLoop",
            exclude: ["README.md"]),
        .executableTarget(
            name: "carillon-example-run-loop", dependencies: ["Carillon"], path: "Examples/swift/RunLoop",
            exclude: ["README.md"]),
        .executableTarget(
            name: "carillon-example-dispatch-main", dependencies: ["Carillon"], path: "Examples/swift/DispatchMain",
            exclude: ["README.md"]),
        .executableTarget(
            name: "carillon-example-no-loop", dependencies: ["Carillon"], path: "Examples/swift/NoLoop",
            exclude: ["README.md"]),

        // A load for tests and benchmarks.
        .executableTarget(
            name: "carillon-bus-load",
            dependencies: ["CarillonWire", "CarillonCore", "CarillonDBus", "CarillonMainLoop"],
            path: "Benchmarks/BusLoad"
        ),
        .executableTarget(name: "carillon-library-load", dependencies: ["Carillon"], path: "Benchmarks/LibraryLoad"),
        .executableTarget(
            name: "carillon-local-bench", dependencies: ["LocalNotifications", "CarillonMainLoop"],
            path: "Benchmarks/LocalBench"),

        // Tests: one folder per target.
        .target(
            name: "CarillonTestSupport", dependencies: ["CarillonMainLoop", "CarillonTestLimits"],
            path: "Tests/TestSupport"),
        .target(name: "CarillonTestLimits", path: "Tests/TestLimits"),
        .executableTarget(
            name: "carillon-toolkit-window", dependencies: ["Carillon", "CarillonMainLoop"], path: "Tests/ToolkitWindow"
        ),
        .testTarget(name: "TestLimitsTests", dependencies: ["CarillonTestLimits"]),
        .testTarget(name: "CollectionsTests", dependencies: ["CarillonCollections", "CarillonTestLimits"]),
        .testTarget(
            name: "MainLoopTests",
            dependencies: [
                "CarillonMainLoop", "CCarillonGLib", "CarillonTestSupport", "CarillonTestLimits", "carillond",
            ]),
        .testTarget(
            name: "DBusTests",
            dependencies: [
                "CarillonDBus", "CarillonBusNames", "CarillonMainLoop", "CarillonTestSupport", "CarillonTestLimits",
            ]),
        .testTarget(
            name: "MQTTTests",
            dependencies: ["CarillonMQTT", "CarillonMainLoop", "CarillonTestSupport", "CarillonTestLimits"]),
        .testTarget(name: "CBORTests", dependencies: ["CarillonCBOR", "CarillonTestLimits"]),
        .testTarget(name: "JSONTests", dependencies: ["CarillonJSON", "CarillonTestLimits"]),
        .testTarget(name: "NotificationCoreTests", dependencies: ["CarillonCore", "CarillonTestLimits"]),
        .testTarget(
            name: "NotificationWireTests",
            dependencies: [
                "CarillonWire", "CarillonCore", "CarillonDBus", "CarillonMainLoop", "CarillonTestSupport",
                "CarillonTestLimits",
            ]
        ),
        .testTarget(
            name: "DesktopActivityTests",
            dependencies: [
                "CarillonActivity", "CarillonCore", "CarillonDBus", "CarillonMainLoop", "CarillonTestSupport",
                "CarillonTestLimits",
            ]
        ),
        .testTarget(
            name: "NotificationServiceTests",
            dependencies: [
                "CarillonService", "CarillonWire", "CarillonActivity", "CarillonCore", "CarillonDBus",
                "CarillonMainLoop",
                "CarillonTestSupport", "CarillonTestLimits", "carillond", "CarillonTool", "carillon-bus-load",
                "carillon-toolkit-window",
            ]
        ),
        .testTarget(
            name: "ServiceClientTests",
            dependencies: [
                "CarillonClient", "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonDBus",
                "CarillonBusNames", "CCarillonDBus",
                "CarillonMainLoop", "CarillonTestLimits",
            ]
        ),
        .testTarget(
            name: "ThreadDeliveryTests",
            dependencies: ["CarillonThreadDelivery", "CarillonMainLoop", "CarillonTestSupport", "CarillonTestLimits"]),
        .testTarget(
            name: "LocalNotificationsTests",
            dependencies: [
                "LocalNotifications", "CarillonThreadDelivery", "CarillonMainLoop", "CarillonTestSupport",
                "CarillonTestLimits", "carillon-main-thread-probe",
            ]
        ),
        // What needs the main thread of a process of its own.
        .executableTarget(
            name: "carillon-main-thread-probe",
            dependencies: ["LocalNotifications", "CarillonThreadDelivery", "CarillonMainLoop", "CarillonTestSupport"],
            path: "Tests/MainThreadProbe"
        ),
        .testTarget(
            name: "CarillonTests",
            dependencies: [
                "Carillon", "LocalNotifications", "CarillonThreadDelivery", "CarillonCollections", "CarillonCore",
                "CarillonWire", "CarillonDBus", "CarillonMainLoop", "CarillonTestSupport", "CarillonTestLimits",
                "carillond",
                "CarillonTool", "carillon-example-saved", "carillon-example-values", "carillon-example-glib-loop",
                "carillon-example-run-loop",
                "carillon-example-dispatch-main",
                "carillon-example-no-loop",
                "carillon-macos-swift5", "carillon-macos-swift6", "carillon-loop-probe",
            ]
        ),
        // Programs as they stand on macOS, compiled unchanged.
        .executableTarget(
            name: "carillon-macos-swift5", dependencies: ["Carillon"], path: "Tests/MacOSSources/Swift5",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        .executableTarget(
            name: "carillon-macos-swift6", dependencies: ["Carillon"], path: "Tests/MacOSSources/Swift6"),
        // One observer of every kind, on the loop that a test asks for.
        .executableTarget(
            name: "carillon-loop-probe", dependencies: ["Carillon", "CarillonMainLoop"], path: "Tests/LoopProbe"),
        .testTarget(
            name: "CarillonBridgeTests",
            dependencies: [
                "CarillonBridge", "CarillonCBOR", "CarillonCollections", "CarillonMQTT", "CarillonCore", "CarillonWire",
                "CarillonDBus",
                "CarillonMainLoop",
                "CarillonTestSupport", "CarillonTestLimits", "carillond", "CarillonTool", "carillon-bridge",
            ]),
        .testTarget(
            name: "CarillonToolTests",
            dependencies: [
                "CarillonDBus", "CarillonMainLoop", "CarillonWire", "CarillonTestSupport", "CarillonTestLimits",
                "CarillonTool", "carillond",
            ]),
        // The service, its clients, a bus and a disk in one thread and virtual time.
        .target(
            name: "CarillonSimulation",
            dependencies: [
                "CarillonService", "CarillonClient", "CarillonWire", "CarillonCore", "CarillonActivity",
                "CarillonBridge", "CarillonMQTT", "CarillonCollections", "CarillonDBus", "CarillonBusNames",
                "CarillonMainLoop",
            ],
            path: "Tests/Simulation", exclude: ["seeds"]
        ),
        .executableTarget(
            name: "carillon-simulate", dependencies: ["CarillonSimulation", "CarillonCore", "CarillonMainLoop"],
            path: "Tests/Simulate"),
        .testTarget(
            name: "SimulationTests",
            dependencies: [
                "CarillonSimulation", "carillon-simulate", "CarillonTestSupport", "CarillonTestLimits",
                "CarillonService", "CarillonDBus", "CarillonBusNames",
                "CarillonMainLoop",
            ]
        ),
        .testTarget(
            name: "InteropTests",
            dependencies: [
                "CarillonMainLoop", "CarillonTestSupport", "CarillonTestLimits", "CarillonTool", "carillond",
            ]),
        .testTarget(
            name: "ArchitectureTests",
            dependencies: [
                "CarillonCore", "CarillonTestSupport", "CarillonTestLimits", "CarillonTool", "carillond",
                "carillon-bridge",
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
            name: "CarillonFuzzSupport",
            dependencies: ["CCarillonDBus", "CCarillonGLib", "CarillonDBus", "CarillonMainLoop"],
            path: "Tests/Fuzz/FuzzSupport"
        ),
        .executableTarget(
            name: "fuzz-dispatch",
            dependencies: ["CarillonFuzzSupport", "CarillonService", "CarillonWire", "CarillonCore", "CarillonDBus"],
            path: "Tests/Fuzz/FuzzDispatch", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-userinfo",
            dependencies: ["CarillonFuzzSupport", "CarillonService", "CarillonWire", "CarillonCore", "CarillonDBus"],
            path: "Tests/Fuzz/FuzzUserInfo", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-userinfo-bytes",
            dependencies: ["CarillonFuzzSupport", "CarillonWire", "CarillonCore", "CarillonDBus"],
            path: "Tests/Fuzz/FuzzUserInfoBytes", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-channel",
            dependencies: ["CarillonFuzzSupport", "CarillonWire", "CarillonCore", "CarillonDBus"],
            path: "Tests/Fuzz/FuzzChannel", swiftSettings: withoutMain
        ),
        .executableTarget(
            name: "fuzz-bridge",
            dependencies: [
                "CarillonFuzzSupport", "CarillonBridge", "CarillonMQTT", "CarillonClient", "CarillonWire",
                "CarillonCore",
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
