// swift-tools-version: 6.0
// SPDX-License-Identifier: Apache-2.0
//
// Two windows in Swift (packages libgtk-4-dev, and libsdl2-dev with libsdl2-ttf-dev):
//
//     swift run window-gtk4 & carillon post News text="it rains"
import PackageDescription

let package = Package(
    name: "Windows",
    dependencies: [.package(name: "Carillon", path: "../../..")],
    targets: [
        .systemLibrary(name: "CGTK", pkgConfig: "gtk4", providers: [.apt(["libgtk-4-dev"])]),
        .systemLibrary(name: "CSDL", pkgConfig: "SDL2_ttf", providers: [.apt(["libsdl2-dev", "libsdl2-ttf-dev"])]),
        .executableTarget(name: "window-gtk4", dependencies: ["CGTK", "Carillon"], path: "Sources/WindowGTK"),
        .executableTarget(name: "window-sdl2", dependencies: ["CSDL", "Carillon"], path: "Sources/WindowSDL"),
    ]
)
