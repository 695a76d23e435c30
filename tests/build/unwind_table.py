#!/usr/bin/env python3
"""Every function of the libraries named is in their table of unwinding, .eh_frame_hdr.

An exception that passes a function which the table lacks ends the program without a word.
"""
import re
import struct
import subprocess
import sys


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def functions(path):
    """Address -> place of the description (FDE) in .eh_frame, of those with code."""
    pattern = re.compile(r"^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ FDE cie=[0-9a-f]+ pc=([0-9a-f]+)\.\.([0-9a-f]+)", re.M)
    found = {}
    for place, begin, end in pattern.findall(readelf("--debug-dump=frames", path)):
        if begin != end:
            found[int(begin, 16)] = int(place, 16)
    return found


def section(path, name):
    """Address, place in the file."""
    line = re.search(rf" {re.escape(name)}\s+\w+\s+([0-9a-f]+) ([0-9a-f]+) ", readelf("-S", path))
    return int(line[1], 16), int(line[2], 16)


def table(path):
    """Address -> place in .eh_frame, as the table has it (Linux Standard Base Core 5.0, 10.6.2)."""
    address, offset = section(path, ".eh_frame_hdr")
    frames, _ = section(path, ".eh_frame")
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read()
    assert data[:4] == bytes([1, 0x1B, 0x03, 0x3B]), f"{path}: a table of another encoding"
    count = struct.unpack_from("<I", data, 8)[0]
    pairs = (struct.unpack_from("<ii", data, 12 + 8 * i) for i in range(count))
    return {address + begin: address + place - frames for begin, place in pairs}


def main():
    lost = 0
    for path in sys.argv[1:]:
        expected, actual = functions(path), table(path)
        assert expected, f"{path}: no functions"
        for begin, place in expected.items():
            if actual.get(begin) != place:
                lost += 1
                print(f"{path}: the function at {begin:#x} is not in the table; link with another linker")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
