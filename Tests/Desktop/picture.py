# SPDX-License-Identifier: Apache-2.0
"""Takes a picture of an X server's screen, or looks at one with the windows of Examples/windows, three in a row.

    picture.py --take FILE
    picture.py --check FILE COUNT

The second fails unless each of the windows has text in it, and the last alone says in green that it is active.
"""

import sys

import gi

gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, GdkPixbuf  # noqa: E402

ACTIVE = (0x1A, 0x7F, 0x37)
WIDTH, HEIGHT = 400, 240


def count(picture, column, row, wanted):
    """How many pixels in a place are as wanted."""
    pixels, stride, channels = picture.get_pixels(), picture.get_rowstride(), picture.get_n_channels()
    found = 0
    for y in range(row * HEIGHT, min((row + 1) * HEIGHT, picture.get_height())):
        for x in range(column * WIDTH, min((column + 1) * WIDTH, picture.get_width())):
            at = y * stride + x * channels
            found += wanted(pixels[at : at + 3])
    return found


def main():
    action, path = sys.argv[1:3]
    if action == "--take":
        Gdk.init([])
        root = Gdk.get_default_root_window()
        Gdk.pixbuf_get_from_window(root, 0, 0, root.get_width(), root.get_height()).savev(path, "png", [], [])
        return
    picture = GdkPixbuf.Pixbuf.new_from_file(path)
    windows = int(sys.argv[3])
    for number in range(windows):
        place = number % 3, number // 3
        text = count(picture, *place, lambda pixel: max(pixel) < 100)
        green = count(picture, *place, lambda pixel: all(abs(a - b) < 24 for a, b in zip(pixel, ACTIVE)))
        print(f"window {number}: {text} dark pixels, {green} green")
        if text < 200 or (green > 10) != (number == windows - 1):
            sys.exit(1)


main()
