// SPDX-License-Identifier: Apache-2.0
//
// A window of SDL 2 that shows what it receives, and what it was told while it was inactive. Its loop is its own; what
// came meanwhile is taken once in each frame, as `RunLoop.main` runs then.
import CSDL
import Carillon
import Foundation

/// What the window shows. It is drawn in each frame.
@MainActor struct Inbox {
    private(set) var lines: [String] = []
    private(set) var state = ""
    private var isSuspended = false
    private var resumed = Date.distantPast

    mutating func setSuspended(_ isSuspended: Bool) {
        self.isSuspended = isSuspended
        // What was kept comes behind this, and was posted before it.
        if !isSuspended { resumed = Date() }
        showState(isSuspended ? "inactive" : "active")
    }

    mutating func showState(_ text: String) {
        guard text != state else { return }
        state = text
        say(text)
    }

    mutating func show(_ name: String, _ text: String, posted: Date) {
        lines = lines.suffix(7) + ["\(name): \(text)\(isSuspended || posted < resumed ? " (while inactive)" : "")"]
        say(lines.last!)
    }
}

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}

@MainActor struct Screen {
    let renderer: OpaquePointer
    let font: OpaquePointer

    init?(title: String) {
        guard SDL_Init(SDL_INIT_VIDEO) == 0, TTF_Init() == 0,
            let font = TTF_OpenFont("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", 13),
            let window = SDL_CreateWindow(title, 0, 0, 320, 200, SDL_WINDOW_RESIZABLE.rawValue),
            let renderer = SDL_CreateRenderer(window, -1, 0)
        else { return nil }
        (self.renderer, self.font) = (renderer, font)
    }

    func draw(_ text: String, row: Int, _ color: SDL_Color) {
        guard let surface = TTF_RenderUTF8_Blended(font, text, color) else { return }
        let texture = SDL_CreateTextureFromSurface(renderer, surface)
        var place = SDL_Rect(x: 8, y: 8 + 20 * Int32(row), w: surface.pointee.w, h: surface.pointee.h)
        SDL_RenderCopy(renderer, texture, nil, &place)
        SDL_DestroyTexture(texture)
        SDL_FreeSurface(surface)
    }

    func draw(_ inbox: Inbox) {
        SDL_SetRenderDrawColor(renderer, 246, 246, 246, 255)
        SDL_RenderClear(renderer)
        let (gray, green) = (SDL_Color(r: 110, g: 119, b: 129, a: 255), SDL_Color(r: 26, g: 127, b: 55, a: 255))
        draw(inbox.state, row: 0, inbox.state == "active" ? green : gray)
        for (row, line) in inbox.lines.enumerated() { draw(line, row: row + 1, SDL_Color(r: 31, g: 35, b: 40, a: 255)) }
        SDL_RenderPresent(renderer)
    }
}

guard let screen = Screen(title: CommandLine.arguments.dropFirst().first ?? "SDL 2, Swift") else {
    fatalError("no window: \(String(cString: SDL_GetError()))")
}
var inbox = Inbox()
let center = DistributedNotificationCenter.default()
center.details = [.time]
for (name, behavior) in [("News", .hold), ("Level", .coalesce), ("Alarm", .deliverImmediately)]
    as [(String, DistributedNotificationCenter.SuspensionBehavior)]
{
    center.addObserver(forName: .init(name), object: nil, suspensionBehavior: behavior, queue: nil) { notification in
        let text = notification.userInfo?["text"] as? String ?? ""
        let posted = Origin.current?.date ?? .distantFuture
        MainActor.assumeIsolated { inbox.show(name, text, posted: posted) }
    }
}
let events = center.observeEvents { event in
    MainActor.assumeIsolated {
        switch event {
        case .connectionStateChanged(.connected): inbox.setSuspended(false)
        case .connectionStateChanged: inbox.showState("no notification center")
        case .suspensionChanged(let isSuspended, _): inbox.setSuspended(isSuspended)
        default: break
        }
    }
}
var event = SDL_Event()
while event.type != SDL_QUIT.rawValue {
    RunLoop.main.run(until: .now)
    screen.draw(inbox)
    SDL_WaitEventTimeout(&event, 16)
}
