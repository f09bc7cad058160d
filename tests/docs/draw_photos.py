#!/usr/bin/env python3
"""Draws small photos to train on: a folder for each class, as `carole dataset build --dataset_name=folder` reads them.

    draw_photos.py FOLDER COUNT CLASS...     COUNT photos of each class; classes: crosses, disks, rings, stripes

The photos are PNG files of 80x60 pixels. Position, size and colors are random, but the same in each call.
"""

import os
import random
import struct
import sys
import zlib

WIDTH, HEIGHT = 80, 60
INSIDE = {  # class -> whether the point (x, y) belongs to a shape of radius r around (0, 0)
    "crosses": lambda x, y, r: min(abs(x), abs(y)) < r / 4 and max(abs(x), abs(y)) < r,
    "disks": lambda x, y, r: x * x + y * y < r * r,
    "rings": lambda x, y, r: r * r / 3 < x * x + y * y < r * r,
    "stripes": lambda x, y, r: int(y + 100) % 8 < 4 and abs(x) < 1.6 * r,
}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, pixels):
    """pixels: HEIGHT * WIDTH * 3 bytes."""
    rows = b"".join(b"\0" + pixels[i : i + 3 * WIDTH] for i in range(0, len(pixels), 3 * WIDTH))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)  # 8 bits, RGB
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def draw(kind, rng):
    background = [rng.randrange(0, 100) for _ in range(3)]
    color = [rng.randrange(130, 230) for _ in range(3)]
    x, y, r = rng.uniform(25, 55), rng.uniform(22, 38), rng.uniform(12, 20)
    pixels = bytearray()
    for row in range(HEIGHT):
        for column in range(WIDTH):
            pixels += bytes(color if INSIDE[kind](column - x, row - y, r) else background)
    noise = rng.randbytes(len(pixels))
    return bytes(p + n % 25 for p, n in zip(pixels, noise))


def main():
    if len(sys.argv) < 4 or not set(sys.argv[3:]) <= set(INSIDE):
        sys.exit(__doc__)
    for kind in sys.argv[3:]:
        rng = random.Random(kind)
        os.makedirs(os.path.join(sys.argv[1], kind), exist_ok=True)
        for number in range(int(sys.argv[2])):
            write_png(os.path.join(sys.argv[1], kind, f"{number:03}.png"), draw(kind, rng))


if __name__ == "__main__":
    main()
