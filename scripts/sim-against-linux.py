#!/usr/bin/env python3
"""Real Linux TCP through `farhaul link`, beside what the simulator says of it.

Reno, SACK off, initial window one segment, window bounded by the receive buffer and read back. Each cell is
a transfer from connecting to the last byte. Needs root; makes a lab of its own.
Writes out/sim-linux.json and prints a table.
"""

import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FARHAUL = os.environ.get("FARHAUL", os.path.join(ROOT, "target/debug/farhaul"))
EXAMPLE = os.environ.get("TRANSFERS", os.path.join(ROOT, "target/debug/examples/transfers"))
LAB = os.environ.get("LAB", "simlinux")
PORT = 5999
# link words, receive buffer or 0, bytes, real transfers, seeds for as many simulated ones, tolerance
CELLS = [
    ("rate 34.368mbit delay 60ms queue 256000b", 32767, 10_000, 3, 1, 0.05),
    ("rate 34.368mbit delay 60ms queue 256000b", 32767, 100_000, 3, 1, 0.05),
    ("rate 34.368mbit delay 60ms queue 256000b", 32767, 3_000_000, 2, 1, 0.05),
    ("rate 34.368mbit delay 190ms queue 256000b", 32767, 100_000, 2, 1, 0.05),
    ("rate 34.368mbit delay 190ms queue 256000b", 32767, 1_500_000, 1, 1, 0.05),
    ("rate 34.368mbit delay 320ms queue 256000b", 32767, 30_000, 2, 1, 0.05),
    ("rate 34.368mbit delay 320ms queue 256000b", 32767, 1_000_000, 1, 1, 0.05),
    ("rate 34.368mbit delay 20ms queue 256000b forward loss 0% backward loss 0.5%", 0, 4_000_000, 64, 8, 0.15),
    ("rate 34.368mbit delay 20ms queue 256000b forward loss 0% backward loss 1%", 0, 2_000_000, 64, 8, 0.15),
    ("rate 34.368mbit delay 60ms queue 256000b forward loss 0% backward loss 1%", 0, 1_000_000, 64, 8, 0.15),
]

SERVER = """
import socket, sys, threading
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", %d)); s.listen(64)
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    c.sendall(bytes(int(sys.argv[1]))); c.close()
while True:
    threading.Thread(target=serve, args=s.accept()[:1], daemon=True).start()
""" % PORT

CLIENT = """
import socket, sys, time
address, window, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = socket.socket()
if window:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
began = time.monotonic(); s.connect((address, %d)); got = 0
while got < wanted:
    data = s.recv(1 << 20)
    if not data: sys.exit("cut short")
    got += len(data)
print(time.monotonic() - began)
""" % PORT


def run(*words, **more):
    return subprocess.run(words, check=True, text=True, capture_output=True, **more).stdout


def inside(role, *words):
    return run(FARHAUL, "lab", "exec", "--name", LAB, role, "--", *words)


def namespaces():
    status = json.loads(run(FARHAUL, "lab", "status", "--name", LAB, "--json"))
    return {entry["role"]: entry["namespace"] for entry in status["namespaces"]}


def prepare():
    """Old rules in both hosts; the server begins with one segment."""
    for role in ("client", "server"):
        for name, value in (("tcp_sack", 0), ("tcp_no_metrics_save", 1), ("tcp_congestion_control", "reno"),
                            ("tcp_early_retrans", 0), ("tcp_recovery", 0), ("tcp_frto", 0), ("tcp_ecn", 0)):
            inside(role, "sysctl", "-qw", "net.ipv4.%s=%s" % (name, value))
    for route in inside("server", "ip", "route", "show").splitlines():
        inside("server", "ip", "route", "change", *route.split(), "initcwnd", "1")


def offered(running):
    """The largest window the server was offered, as it says itself: what a
    receive buffer becomes in windows is the kernel's secret."""
    seen = 0
    while not all(one.done() for one in running):
        for word in inside("server", "ss", "-tin").split():
            if word.startswith("snd_wnd:"):
                seen = max(seen, int(word[len("snd_wnd:"):]))
        time.sleep(0.1)
    return seen


def measure(cell):
    link, window, size, real, seeds, tolerance = cell
    # Transfers at the same time share the link, and its queue: on both sides as many.
    abreast = 4 if real > 4 else 1
    run(FARHAUL, "lab", "up", "--name", LAB, "--link", link, "--congestion-control", "reno")
    server = None
    try:
        prepare()
        space = namespaces()["server"]
        server = subprocess.Popen(["ip", "netns", "exec", space, sys.executable, "-c", SERVER, str(size)])
        inside("client", "ping", "-c", "1", "-W", "3", "10.2.0.2")
        words = ("client", sys.executable, "-c", CLIENT, "10.2.0.2", str(window), str(size))
        with concurrent.futures.ThreadPoolExecutor(abreast) as several:
            running = [several.submit(inside, *words) for _ in range(real)]
            seen = offered(running) if window else 1 << 30
            times = [float(one.result()) for one in running]
    finally:
        if server:
            server.kill()
            server.wait()
        run(FARHAUL, "lab", "down", "--name", LAB)
    words = ("linux", link, str(seen), str(size), str(seeds), str(abreast), str(real))
    simulated = [float(line) for line in run(EXAMPLE, *words).split()]
    ours, theirs = statistics.mean(simulated), statistics.mean(times)
    return {
        "link": link, "window_bytes": seen if window else 0, "bytes": size, "linux_s": theirs, "linux_n": real,
        "linux_all_s": times, "abreast": abreast, "simulated_s": ours, "simulated_n": len(simulated),
        "error": ours / theirs - 1, "tolerance": tolerance, "ok": abs(ours / theirs - 1) <= tolerance,
    }


def main():
    rows = []
    for cell in CELLS:
        row = measure(cell)
        rows.append(row)
        print("%-75s window %6d %8d B  linux %7.3f s  simulated %7.3f s  %+5.1f %% (%.0f %%)  %s" % (
            row["link"], row["window_bytes"], row["bytes"], row["linux_s"], row["simulated_s"],
            100 * row["error"], 100 * row["tolerance"], "ok" if row["ok"] else "OUTSIDE"), flush=True)
    os.makedirs(os.path.join(ROOT, "out"), exist_ok=True)
    with open(os.path.join(ROOT, "out/sim-linux.json"), "w", encoding="ascii") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
