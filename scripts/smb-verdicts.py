#!/usr/bin/env python3
"""Samba's own tests of its protocol, directly over an emulated link and through a pair of gateways.

What is run stands in docs/reference/smb-verdicts.txt. Each test has both ways the same server, the same link and a
folder of its own; what differs is repeated on both ways until it is clear whether it always does. Needs root; makes two
labs of its own for each of JOBS. Writes out/smb-verdicts.json and prints what differs.
"""

import concurrent.futures
import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FARHAUL = os.environ.get("FARHAUL", os.path.join(ROOT, "target/debug/farhaul"))
LAB = os.environ.get("LAB", "verdicts")
LIST = os.path.join(ROOT, "docs/reference/smb-verdicts.txt")
ONLY = os.environ.get("ONLY", "")
# Tests at a time: they wait more than they compute.
JOBS = int(os.environ.get("JOBS", "4"))
LINK = "rate 50mbit delay 12ms queue 100ms"
# The server waits 35 s for an oplock that nobody gives back, and some tests let it wait more than once.
LIMIT_S = 300
# Of what differs, each way.
REPEATS = 4
# A test that ended so has said nothing: that both did is no agreement.
NO_VERDICTS = {"timeout", "no verdict"}
DIALECTS = {"smb1": ("NT1", "NT1"), "smb2": ("SMB2_02", "SMB2_10"), "smb3": ("SMB3_00", "SMB3_11")}
SERVER = "10.2.0.2"
SHARE = "files"
SECOND_SHARE = "files2"
# Clients of Samba's sign some requests of every session with a key, in each dialect of SMB2: a guest's has none.
USER = "guest%guest"
# Tests under way.
RUNNING = set()

SMBD = """[global]
server role = standalone server
map to guest = Bad User
guest account = nobody
server min protocol = NT1
server signing = disabled
smb ports = 445
disable netbios = yes
load printers = no
printcap name = /dev/null
disable spoolss = yes
log level = 0
usershare max shares = 0
private dir = {base}/state
lock directory = {base}/state
state directory = {base}/state
cache directory = {base}/state
pid directory = {base}/state
ncalrpc dir = {base}/state
log file = {base}/state/log
vfs objects = streams_xattr
kernel oplocks = no
kernel share modes = no
posix locking = no
ea support = yes
smbd:FSCTL_SMBTORTURE = yes
[%s]
path = {base}/offered
read only = no
guest ok = yes
[%s]
path = {base}/offered2
read only = no
guest ok = yes
""" % (SHARE, SECOND_SHARE)

CLIENT = """[global]
client min protocol = NT1
client signing = disabled
client ipc signing = disabled
private dir = {base}/client
lock directory = {base}/client
state directory = {base}/client
cache directory = {base}/client
"""


class Way:
    """A lab with a file server, with or without gateways."""

    def __init__(self, number, name, has_gateways):
        self.name = name
        self.lab = f"{LAB}{number}-{name}"
        self.has_gateways = has_gateways
        self.base = os.path.join("/run/farhaul-verdicts", self.lab)
        self.smbd = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        shutil.rmtree(self.base, ignore_errors=True)
        for folder in ("state", "client", "offered", "offered2"):
            os.makedirs(os.path.join(self.base, folder))
            if folder.startswith("offered"):
                shutil.chown(os.path.join(self.base, folder), "nobody")
        for file, text in (("smb.conf", SMBD), ("client.conf", CLIENT)):
            with open(os.path.join(self.base, file), "w", encoding="utf-8") as config:
                config.write(text.format(base=self.base))
        words = [FARHAUL, "lab", "up", "--name", self.lab, "--link", LINK]
        subprocess.run(words + ["--gateways"] * self.has_gateways, check=True, stdout=subprocess.DEVNULL)
        log = open(os.path.join(self.base, "smbd.log"), "w", encoding="utf-8")
        words = ["smbd", "--foreground", "--no-process-group", "--debug-stdout", "--configfile", self.config("smb.conf")]
        self.smbd = subprocess.Popen(self.inside("server", words), stdout=log, stderr=log, start_new_session=True)
        for _ in range(200):
            if self.torture("smb2", "smb2.connect", 20)[0] == "success":
                return
            time.sleep(0.2)
        raise SystemExit(f"smbd does not answer in lab {self.lab}: see {self.base}/smbd.log")

    def __exit__(self, *_):
        if self.smbd:
            os.killpg(self.smbd.pid, signal.SIGTERM)
            self.smbd.wait()
        subprocess.run([FARHAUL, "lab", "down", "--name", self.lab], check=False, stdout=subprocess.DEVNULL)

    def config(self, name):
        return os.path.join(self.base, name)

    def inside(self, role, words):
        return [FARHAUL, "lab", "exec", "--name", self.lab, role, "--"] + words

    def torture(self, dialect, test, limit_s=LIMIT_S):
        """A test's verdict, and what it said."""
        for folder in ("offered", "offered2"):
            empty(os.path.join(self.base, folder))
        least, most = DIALECTS[dialect]
        words = ["smbtorture", f"//{SERVER}/{SHARE}", "-U", USER, "-s", self.config("client.conf"), "-m", most,
                 f"--option=clientminprotocol={least}", "--target=samba3", "--fullname", "--seed=1",
                 f"--option=torture:share2={SECOND_SHARE}", test]
        running = subprocess.Popen(self.inside("client", words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        RUNNING.add(running)
        try:
            said = running.communicate(timeout=limit_s)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said = running.communicate()[0].decode("utf-8", "replace")
            return "timeout", said
        finally:
            RUNNING.discard(running)
        return verdict_of(said), said

    def socket(self, side):
        return f"/run/farhaul/lab/{self.lab}/gateway-{side}.sock"

    def optimiser(self, side):
        said = subprocess.run([FARHAUL, "status", "--json", "--socket", self.socket(side)], check=True,
                              stdout=subprocess.PIPE).stdout
        return json.loads(said)["peers"][0]["optimiser"]

    def metrics(self):
        return subprocess.run(["curl", "-s", "--unix-socket", self.socket("a"), "http://gateway/metrics"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout


def verdict_of(said):
    """The worst of a test's verdicts, with the place where it was lost: two failures may be two."""
    verdicts = re.findall(r"^(success|skip|failure|error): ", said, re.MULTILINE)
    if not verdicts:
        return "no verdict"
    worst = max(verdicts, key=["success", "skip", "failure", "error"].index)
    places = re.findall(r"[a-z0-9_]+\.c:\d+", said) if worst in ("failure", "error") else []
    return " at ".join([worst] + places[-1:])


def tests_to_run():
    """(dialect, test, limit in s), as the list says."""
    known = subprocess.run(["smbtorture", "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    with open(LIST, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    left_out = {line[1:] for line in lines if line.startswith("-")}
    tests = {}
    for dialect, suite, *limit in (line.split() for line in lines if not line.startswith("-")):
        # SUITE.TEST.TEST is what is run as SUITE.TEST.
        names = [line.rpartition(".")[0] for line in known]
        found = [name for name in names if name == suite or name.startswith(suite + ".")]
        if not found:
            raise SystemExit(f"{LIST}: this smbtorture has no {suite}")
        limit_s = int(limit[0]) if limit else LIMIT_S
        tests.update({(dialect, name): limit_s for name in found if name not in left_out})
    tests = [(dialect, name, limit_s) for (dialect, name), limit_s in tests.items() if ONLY in f"{dialect} {name}"]
    # Those that take longest come first, and the others beside them.
    return sorted(tests, key=lambda test: -test[2])


def empty(folder):
    """Removes what is in a folder. The server may still be at that itself, for a client that has gone."""
    while names := os.listdir(folder):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def both(ways, *test):
    """A test on both ways side by side."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [running.result() for running in [pool.submit(way.torture, *test) for way in ways]]


def compare(ways, dialect, test, limit_s=LIMIT_S):
    """The row of a test."""
    seen = [both(ways, dialect, test, limit_s)]
    if seen[0][0][0] != seen[0][1][0]:
        seen += [both(ways, dialect, test, limit_s) for _ in range(REPEATS)]
    direct, pair = ([verdict for verdict, _ in results] for results in zip(*seen))
    row = blank(f"{dialect}/{test}", "pair", "verdict as directly", "bool")
    row["detail"] = {"direct": direct, "pair": pair}
    row.update(judged(direct, pair, limit_s))
    # What was not compared is to be understood as well.
    if row["ok"] is not True or len(pair) > 1:
        row["detail"].update(direct_said=tail(seen[-1][0][1]), pair_said=tail(seen[-1][1][1]))
    return row


def judged(direct, pair, limit_s):
    """Whether a pair's verdicts are those of the direct way.

    >>> judged(["success"], ["success"], 9)["ok"], judged(["success"] * 2, ["failure"] * 2, 9)["ok"]
    (True, False)
    >>> judged(["no verdict", "success"], ["success"] * 2, 9)["ok"]
    True
    >>> judged(["success"] * 2, ["no verdict"] * 2, 9)["ok"], judged(["failure"] * 2, ["timeout"] * 2, 9)["ok"]
    (False, False)

    What nobody has judged is not the same:

    >>> row = judged(["no verdict"], ["no verdict"], 9)
    >>> row["ok"], row["value"], row["error"]
    (None, None, 'not compared: no verdict')
    >>> judged(["timeout"], ["timeout"], 9)["error"]
    'not compared: 9 s are not enough'
    >>> judged(["success", "no verdict"], ["no verdict"] * 2, 9)["ok"] is None
    True
    """
    # What happens directly, too, if only at times, is no difference.
    is_same = set(pair) <= set(direct)
    if is_same and not set(pair) - NO_VERDICTS:
        why = f"{limit_s} s are not enough" if set(pair) == {"timeout"} else "no verdict"
        return {"n": len(pair), "error": f"not compared: {why}"} | dict.fromkeys(("value", "ok"))
    return {"value": float(is_same), "target": 1.0, "op": ">=", "ok": is_same, "n": len(pair)}


def tail(said):
    lines = [line for line in said.splitlines() if not line.startswith("time: ")]
    return "\n".join(lines[-12:])


def blank(scenario, config, metric, unit):
    row = dict.fromkeys("value limit target op ok n min median max error".split())
    return {"scenario": scenario, "config": config, "metric": metric, "unit": unit, **row, "detail": {}}


def counted(way):
    """What shows that the optimisers of a pair were at work."""
    flows = {}
    for line in way.metrics().splitlines():
        if line.startswith(("farhaul_flows_recognised_total", "farhaul_flows_not_optimised_total")):
            flows[line.rsplit(" ", 1)[0]] = int(line.rsplit(" ", 1)[1])
    return {"flows": flows, "optimiser": {side: way.optimiser(side) for side in "ab"}}


def work(number, tests, rows, count):
    """Does tests as long as there are any, in a pair of labs; what its gateways have done."""
    began = time.monotonic()
    with Way(number, "direct", False) as direct, Way(number, "pair", True) as pair:
        while True:
            try:
                dialect, test, limit_s = tests.get_nowait()
            except queue.Empty:
                return counted(pair)
            row = compare((direct, pair), dialect, test, limit_s)
            rows.append(row)
            detail = row["detail"]
            if len(detail["pair"]) > 1:
                word = {True: "same", False: "DIFFERS", None: "NOT COMPARED"}[row["ok"]]
                print(f"{word}  {row['scenario']}: {detail}", flush=True)
            minutes = (time.monotonic() - began) / 60
            print(f"{len(rows)} of {count} in {minutes:.0f} min: {test} {detail['pair'][0]}", file=sys.stderr, flush=True)


def all_rows(listed):
    """The rows of all tests, several at a time, and what the gateways of each pair have done."""
    rows, tests = [], queue.Queue()
    for test in listed:
        tests.put(test)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        workers = [pool.submit(work, number, tests, rows, len(listed)) for number in range(min(JOBS, len(listed)))]
        try:
            return rows, [worker.result() for worker in workers]
        finally:
            # Who is stopped does no more tests, and ends those under way.
            while not tests.empty():
                tests.get_nowait()
            for running in tuple(RUNNING):
                os.killpg(running.pid, signal.SIGKILL)


def main():
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    # All labs go away however this ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("stopped"))
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rows, activity = all_rows(tests_to_run())
    rows.sort(key=lambda row: row["scenario"])
    for what in ("reads_made", "writes_answered"):
        side = "b" if what == "reads_made" else "a"
        row = blank("smb", "pair", what, "count")
        total = sum(pair["optimiser"][side][what] for pair in activity)
        row.update(value=float(total), n=len(activity), detail={"pairs": activity})
        # Of all tests together there must be some, or nothing was compared.
        row.update({} if ONLY else {"target": 1.0, "op": ">=", "ok": total > 0})
        rows.append(row)
    write(date, rows)
    verdicts = [row["detail"]["pair"][0].split(" at ")[0] for row in rows if row["unit"] == "bool"]
    print({verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))})
    for row in rows:
        if row["error"]:
            print(f"{row['scenario']}: {row['error']}")
    print(summary(rows))
    sys.exit(1 if any(row["ok"] is False for row in rows) else 0)


def summary(rows):
    """How many rows hold, which do not, and which were not compared.

    >>> print(summary([{"scenario": name, "ok": ok} for name, ok in (("a", True), ("b", None), ("c", False))]))
    1 of 3 rows hold; not: c; nothing to hold, or not compared: b
    """
    def named(ok):
        return ", ".join(row["scenario"] for row in rows if row["ok"] is ok) or "none"

    held = sum(row["ok"] is True for row in rows)
    return f"{held} of {len(rows)} rows hold; not: {named(False)}; nothing to hold, or not compared: {named(None)}"


def write(date, rows):
    def said(*words):
        return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout.strip() or None

    dirty = "-dirty" if said("git", "status", "--porcelain", "--untracked-files=no") else ""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((line.split(": ")[1].strip() for line in file if line.startswith("model name")), None)
    system = f"Samba {(said('smbd', '--version') or '').removeprefix('Version ')}"
    machine = {"system": system, "kernel": os.uname().release, "processor": processor, "cores": os.cpu_count(),
               "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    plan = f"docs/reference/smb-verdicts.txt over {LINK}; limit {LIMIT_S} s, what differs {REPEATS} times more"
    document = {"name": "smb-verdicts", "commit": (said("git", "rev-parse", "HEAD") or "") + dirty, "date": date,
                "machine": machine, "plan": plan, "seed": 1, "rows": rows}
    os.makedirs(os.path.join(ROOT, "out"), exist_ok=True)
    with open(os.path.join(ROOT, "out/smb-verdicts.json"), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
